"""Tables for people: folded to a terminal's width, one line per row in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PIPE_WIDTH: Final = 2_000  # wider than any row: whoever reads a pipe looks for whole words


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text. Only the last column may be folded: an id torn in two cannot be copied."""
    from rich.console import Console  # noqa: PLC0415 -- see root.py
    from rich.markup import escape  # noqa: PLC0415 -- see root.py
    from rich.table import Table  # noqa: PLC0415 -- see root.py

    table = Table(box=None, pad_edge=False)
    for header in headers[:-1]:
        table.add_column(header, no_wrap=True)
    table.add_column(headers[-1], overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))  # a vendor's words: brackets in them are no markup of ours
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(table)
