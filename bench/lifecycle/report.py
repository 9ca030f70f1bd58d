"""Text report: the machine, one line per variant, one line per goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFINITIONS: Final = """\
One command: reserve; claim; quote + audit + 3 effects + complete. Effects stay pending. Each variant has a process of its own.
limit      plain sqlite3, no loop, no reads: the rows the product writes for a command, same schema and pragmas, 3 commits each
batch 64   the same for 64 commands per 3 commits         bare  the same idea in a minimal schema (for information)
naive      one aiosqlite connection, a lock, an await per statement; the rows of the limit
quotebot   c clients reserve and wait until completed, one executor claims what is due and executes it at once
dbos, huey the same deed as a workflow or task, its result stored; as quotebot's, its three effects are owed, not performed
procrastinate  the same on a PostgreSQL of its own on this machine, durable, through a Unix socket
ratio      throughput over the limit's of the same round, median [min - max];  cpu, written (WAL, checkpoints): per command
"""


def machine(header: dict[str, Any]) -> Iterator[str]:
    """Yield the description of the machine."""
    after = f" before and {header['load_after']} after" if "load_after" in header else ""
    yield (
        f"{header['cpus']} CPUs, load {header['load'][0]}{after}, {header['file_system']}, Python {header['python']}, "
        f"SQLite {header['sqlite']}, fdatasync p50 {header['fdatasync_p50_ms']:.2f} p99 {header['fdatasync_p99_ms']:.2f} ms"
    )
    yield "pragmas read back: " + ", ".join(f"{name}={value}" for name, value in header["pragmas"].items())


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the report line by line."""
    yield from machine(report["header"])
    yield f"{report['rounds']} rounds x {report['seconds']:g} s; payload {report['payload_bytes']:,} B per command"
    yield DEFINITIONS
    yield (
        f"{'in the file':>11} {'variant':20} {'ratio':>22} {'per s':>8} {'p50 ms':>8} {'p99 ms':>8} {'lag p99':>8} "
        f"{'cpu us':>7} {'commits':>8} {'written B':>10} {'file B':>7}"
    )
    for row in report["rows"]:
        yield f"{row['size']:>11,} {row['variant']:20} " + ("; ".join(row["problems"]) if row["problems"] else _figures(row))
    yield ""
    error = report["noise"]
    yield "noise between identical runs: " + ("not measured" if error is None else f"{error:.0%}")
    for goal in report["goals"]:
        found = "" if goal["found"] is None else f"  found {_spread(goal['found'])}"
        yield f"[{goal['verdict']}] {goal['goal']}{found}"


def _figures(row: dict[str, Any]) -> str:
    return " ".join(
        (
            f"{_spread(row['ratio']):>22} {row['ops_per_s']:8,.0f} {row['p50_ms']:8.2f} {row['p99_ms']:8.2f}",
            f"{_number(row['lag_p99_ms'], 2):>8} {_number(row['cpu_us_per_op'], 0):>7} {_number(row['commits_per_op'], 3):>8}",
            f"{_number(row['written_per_op'], 0):>10} {_number(row['file_per_op'], 0):>7}",
        )
    )


def _spread(found: dict[str, float] | None) -> str:
    return "-" if found is None else f"{found['median']:.2f} [{found['min']:.2f} - {found['max']:.2f}]"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
