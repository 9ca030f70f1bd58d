"""Output of the commands: JSON, words for people, and tables.

A table has one line per row in a pipe; on a terminal too narrow for whole words, one block per row.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ledger.operator.actions import Verdict
from quotebot.cli import exits
from quotebot.views import waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.operator.actions import Ruling

PIPE_WIDTH: Final = 2_000  # wider than any row: readers of a pipe need whole words
GAP: Final = 2  # between two columns
LAST_COLUMN_MIN: Final = 24  # a narrower column would break words into syllables
UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text. Only the last column may be folded: an id split over lines cannot be copied."""
    lines = list(rows)
    on_terminal = sys.stdout.isatty()
    console = Console(width=None if on_terminal else PIPE_WIDTH, highlight=False, color_system=None)
    if on_terminal and _needed(headers, lines) > console.width:
        print_blocks(headers, lines)
        return
    table = Table(box=None, pad_edge=False)
    for header in headers[:-1]:
        table.add_column(header, no_wrap=True)
    table.add_column(headers[-1], overflow="fold")
    for line in lines:
        table.add_row(*(escape(cell) for cell in line))  # text of other systems: brackets in it are not markup
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def print_blocks(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print each row as a block of lines, with a header and its cell on each; the terminal folds long lines."""
    width = max(map(len, headers)) + GAP
    print("\n\n".join("\n".join(f"{header:{width}}{cell}" for header, cell in zip(headers, row, strict=True)) for row in rows))


def _needed(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the terminal width that keeps every word whole, except in the last column, which may be folded."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return sum(widths[:-1]) + GAP * (len(widths) - 1) + min(widths[-1], LAST_COLUMN_MIN)


def for_people(name: str, value: Any) -> str:
    """Return the display text of one field."""
    if value is None:
        return "-"
    if name.endswith("_at"):
        return time_words(value)
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def time_words(at: int) -> str:
    """Return a time (Unix ms) in its display form."""
    return f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def age_words(milliseconds: int) -> str:
    """Return "12 s", "5 min", "3 h" or "9 d"."""
    for unit, size in (("d", UNITS_MS["d"]), ("h", UNITS_MS["h"]), ("min", UNITS_MS["m"])):
        if milliseconds >= size:
            return f"{milliseconds // size} {unit}"
    return f"{max(0, milliseconds) // 1000} s"


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document with the version of its schema."""
    print(json.dumps({"schema_version": 1, **value}, indent=2, sort_keys=True, default=str))


def report(ruling: Ruling, *, json_output: bool) -> int:
    """Print the result and return the exit status."""
    reference, verdict, effect_class, detail = ruling.reference, ruling.verdict, ruling.effect_class, waits.detail(ruling)
    if json_output:
        print_json({"result": {"reference": reference, "verdict": verdict, "effect_class": effect_class, "detail": detail}})
    elif verdict is Verdict.DONE:
        print(f"{reference:8} {effect_class:14} {detail}")
    else:
        exits.complain(detail)
    return {
        Verdict.DONE: exits.OK,
        Verdict.REFUSED: exits.REFUSED,
        Verdict.LOST: exits.CONFLICT,
        Verdict.NOT_FOUND: exits.NOTHING_MATCHED,
    }[verdict]
