"""Tables for people: one line per row in a pipe; on a terminal too narrow for whole words, one block per row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PIPE_WIDTH: Final = 2_000  # wider than any row: readers of a pipe need whole words
GAP: Final = 2  # between two columns
LAST_COLUMN_MIN: Final = 24  # a narrower column would break words into syllables


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
