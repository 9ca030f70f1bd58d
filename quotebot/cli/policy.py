"""`quotebot policy`: the retry matrix in force, and the waits of one class by attempt."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console

from adapters.policies import duration, policies, unknown_class
from quotebot.cli import exits, tables
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from adapters.policies import Policy, RetryOverride
    from quotebot.settings import Settings

Row = dict[str, Any]

ACK: Final = "slack ack"  # no effect and never retried: shown for information only
HEADERS: Final = (
    "Class",
    "Semantics",
    "Retries",
    "Backoff",
    "Jitter",
    "Time-out",
    "Max age",
    "At once",
    "Lane",
    "Dead letter when",
)
GAP: Final = 2  # between two columns of a table
# column -> the items of an override that change it
SET_BY: Final = {
    "retries": ("retries",),
    "backoff": ("base_seconds", "cap_seconds", "factor", "steps_seconds"),
    "jitter": ("jitter",),
    "timeout_seconds": ("timeout_seconds",),
    "max_age_seconds": ("max_age_seconds",),
    "concurrency": ("concurrency",),
}


def policy(
    effect_class: str | None = None,
    /,
    *,
    schedule: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Print the retry rules in force (* marks changed ones).

    Parameters
    ----------
    effect_class
        Only this class, e.g. crm.create.
    schedule
        Print the waits of that class, try by try.
    json_output
        Print JSON.
    """
    if schedule and effect_class is None:
        return exits.complain("Say whose waits to print, e.g. quotebot policy --schedule crm.create", exits.USAGE)
    settings = load_settings()
    lines = policies(settings.retry)
    rows = {ACK: _ack_row(settings), **{name: _row(line, settings.retry.get(name)) for name, line in lines.items()}}
    if effect_class is not None and effect_class not in rows:
        return exits.complain(
            f"{effect_class}: {unknown_class(effect_class)}, and {ACK!r}. A class without a line has that of default.",
            exits.NOTHING_MATCHED,
        )
    if schedule and effect_class is not None:
        _print_schedule(effect_class, _tries(lines.get(effect_class)), json_output=json_output)
    else:
        _print_rows([row for name, row in rows.items() if effect_class in {None, name}], json_output=json_output)
    return exits.OK


def _row(line: Policy, override: RetryOverride | None) -> Row:
    given = frozenset(override.given() if override else ())
    return {
        "class": line.effect_class,
        "semantics": line.semantics,
        "retries": line.retries,
        "backoff": line.backoff.words,
        "jitter": line.jitter,
        "timeout_seconds": line.timeout_seconds,
        "max_age_seconds": line.max_age_seconds,
        "concurrency": line.concurrency,
        "lane": line.lane,
        "dead_letter_when": line.dead_letter_when,
        "source": _sources({column for column, items in SET_BY.items() if not given.isdisjoint(items)}),
    }


def _ack_row(settings: Settings) -> Row:
    return {
        "class": ACK,
        "semantics": None,
        "retries": 0,
        "backoff": "none",
        "jitter": None,
        "timeout_seconds": settings.ack_budget_seconds,
        "max_age_seconds": None,
        "concurrency": None,
        "lane": None,
        "dead_letter_when": "never",
        "source": _sources({"timeout_seconds"} if "ack_budget_seconds" in settings.model_fields_set else set()),
    }


def _sources(configured: set[str]) -> dict[str, str]:
    return {column: "configuration" if column in configured else "built in" for column in SET_BY}


def _print_rows(rows: list[Row], *, json_output: bool) -> None:
    if json_output:
        print(json.dumps({"schema_version": 1, "policies": rows}, indent=2))
        return
    cells = [_cells(row) for row in rows]
    if len(rows) > 1 and _fits(cells):
        tables.print_table(HEADERS, cells)
    else:
        print("\n\n".join("\n".join(f"{header:18} {cell}" for header, cell in zip(HEADERS, row, strict=True)) for row in cells))
    if any("configuration" in row["source"].values() for row in rows):
        exits.complain("* from the configuration (QUOTEBOT_RETRY, QUOTEBOT_ACK_BUDGET_SECONDS)")


def _cells(row: Row) -> list[str]:
    cells = []
    for column, value in row.items():
        if column == "source":
            continue
        words = "-" if value is None else duration(value) if column.endswith("_seconds") else str(value)
        cells.append(f"{words}*" if row["source"].get(column) == "configuration" else words)
    return cells


def _fits(cells: list[list[str]]) -> bool:
    """Return true if the terminal, as rich measures it, is wide enough for whole words; a pipe always is."""
    widths = [max(map(len, column)) for column in zip(HEADERS, *cells, strict=True)]
    needed = sum(widths[:-1]) + GAP * (len(widths) - 1) + len(HEADERS[-1])
    return not sys.stdout.isatty() or Console().width >= needed


def _tries(line: Policy | None) -> list[Row]:
    """Return every attempt with the bounds of the wait before it and of all waits so far, without the duration of the calls."""
    tries = []
    low_sum = high_sum = 0.0
    for number, (low, high) in enumerate(((0.0, 0.0), *(line.waits() if line else ())), start=1):
        low_sum, high_sum = round(low_sum + low, 6), round(high_sum + high, 6)
        waits = {"wait_low_seconds": round(low, 6), "wait_high_seconds": round(high, 6)}
        tries.append({"try": number, **waits, "waited_low_seconds": low_sum, "waited_high_seconds": high_sum})
    return tries


def _print_schedule(effect_class: str, tries: list[Row], *, json_output: bool) -> None:
    if json_output:
        print(json.dumps({"schema_version": 1, "class": effect_class, "schedule": tries}, indent=2))
        return
    end = "nothing more" if effect_class == ACK else "dead letter"
    tables.print_table(
        ("Try", "Wait before it", "Waited in all", "If it fails"),
        [
            (
                str(row["try"]),
                _range(row["wait_low_seconds"], row["wait_high_seconds"]),
                _range(row["waited_low_seconds"], row["waited_high_seconds"]),
                f"try {row['try'] + 1}" if row["try"] < len(tries) else end,
            )
            for row in tries
        ],
    )


def _range(low: float, high: float) -> str:
    return duration(low) if low == high else f"{duration(low)}..{duration(high)}"
