"""Goals for acknowledgements, and the verdicts of a run. A volley with an untrue acknowledgement has no figures."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from bench.acks.slack import PATIENCE_SECONDS
from bench.lifecycle.measure import percentile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.acks.slack import Shot

OURS: Final = "quotebot"
DEFAULT, WAITING = "bolt", "bolt-pbr"
OF_DEFAULT: Final = 0.25
OF_WAITING: Final = 4.0
P99_MS: Final = 5.0
P99_BESIDE_PDFS_MS: Final = 10.0
SLOW_FLUSH_MS: Final = 5.0
FLUSHES: Final = 2.5
BURST: Final = 2.5
NO_VERDICT: Final = "too noisy, no verdict"

Row = dict[str, Any]


def figures(shots: Sequence[Shot], refused: str, cpu_seconds: float, problems: list[str], stolen_seconds: float = 0.0) -> Row:
    """Return the figures of one volley. Times are milliseconds; `stolen_seconds` (kept by the host of a virtual machine) is not."""
    acked = [shot.seconds for shot in shots if shot.seconds is not None]
    row: Row = {
        "sent": len(shots),
        "unacked": len(shots) - len(acked),
        "late": sum(seconds > PATIENCE_SECONDS for seconds in acked),
        "refused": sum(shot.text == refused for shot in shots),
        "problems": problems,
        "stolen_s": stolen_seconds,
    }
    if problems or not acked:
        return row
    times = {name: percentile(acked, percent) * 1000 for name, percent in (("p50_ms", 50), ("p99_ms", 99), ("max_ms", 100))}
    return {**row, **times, "cpu_ms": cpu_seconds * 1000 / len(shots)}


def together(rows: Sequence[Row]) -> Row:
    """Merge the rounds of one cell into one row: medians of times, sums of counts."""
    row: Row = {name: sum(each[name] for each in rows) for name in ("sent", "unacked", "late", "refused", "stolen_s")}
    row["problems"] = sorted({problem for each in rows for problem in each["problems"]})
    for name in ("p50_ms", "p99_ms", "max_ms", "cpu_ms"):
        found = [each[name] for each in rows if name in each]
        if found and not row["problems"]:
            row[name] = statistics.median(found)
    return row


def judge(table: dict[str, dict[str, Row]], flush_ms: float, *, busy: bool) -> list[Row]:
    """Return each goal with its result. On a `busy` machine a missed figure gives no verdict; an untrue answer always does.

    Ratios are unreliable there too: the bot waits for a disk and for two threads, the applications beside it for neither.
    """
    figures = (*_of_rates(table), *_of_trials(table, flush_ms))
    spared = [{**goal, "verdict": NO_VERDICT} if busy and goal["verdict"] == "missed" else goal for goal in figures]
    return [*spared, *_of_truth(table)]


def _of_rates(table: dict[str, dict[str, Row]]) -> Iterator[Row]:
    for stage, apps in table.items():
        if not stage.endswith("/s") or OURS not in apps:
            continue
        ours = apps[OURS].get("p50_ms")
        for other, bound in ((DEFAULT, OF_DEFAULT), (WAITING, OF_WAITING)):
            if other in apps:
                theirs = apps[other].get("p50_ms")
                ratio = ours / theirs if ours is not None and theirs else None
                yield _goal(f"{stage}: p50 <= {bound:g}x {other}'s", ratio, bound, "x")
        yield _goal(f"{stage}: p99 <= {P99_MS:g} ms", apps[OURS].get("p99_ms"), P99_MS, " ms")


def _of_trials(table: dict[str, dict[str, Row]], flush_ms: float) -> Iterator[Row]:
    if "burst" in table and WAITING in table["burst"]:
        ours, theirs = (table["burst"][name].get("max_ms") for name in (OURS, WAITING))
        ratio = ours / theirs if ours is not None and theirs else None
        yield _goal(f"burst: the last ack <= {BURST:g}x {WAITING}'s, which remembers nothing", ratio, BURST, "x")
    if "pdfs" in table:
        found = table["pdfs"][OURS].get("p99_ms")
        goal = f"beside PDFs rendered back to back: p99 <= {P99_BESIDE_PDFS_MS:g} ms"
        yield _goal(goal, found, P99_BESIDE_PDFS_MS, " ms")
    if "slow flush" in table:
        row, flush = table["slow flush"][OURS], SLOW_FLUSH_MS + flush_ms
        found = None if "p50_ms" not in row else row["p50_ms"] / flush
        yield _goal(f"each flush {flush:.1f} ms: p50 <= {FLUSHES:g} of them", found, FLUSHES, " flushes")
        yield _goal("each flush slow: none unacknowledged", row["unacked"], 0, "")


def _of_truth(table: dict[str, dict[str, Row]]) -> Iterator[Row]:
    rows = [apps[OURS] for apps in table.values() if OURS in apps]
    yield _goal("acknowledged and not recorded, or refused and recorded", sum(len(row["problems"]) for row in rows), 0, "")
    yield _goal(f"acknowledged after more than {PATIENCE_SECONDS:g} s", sum(row["late"] for row in rows), 0, "")


def _goal(goal: str, found: float | None, most: float, unit: str) -> Row:
    verdict = "not measured" if found is None else "ok" if found <= most else "missed"
    return {"goal": goal, "found": found, "unit": unit, "verdict": verdict}
