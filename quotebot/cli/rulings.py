"""Output of an operator action on one row, shared by every command that performs one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ledger.operator.actions import Verdict
from quotebot.cli import dead_letter_tables, exits

if TYPE_CHECKING:
    from ledger.operator.actions import Ruling


def reason_of(text: str) -> str:
    """Return a reason without surrounding blanks. Raises ValueError for an empty one."""
    if not text.strip():
        raise ValueError("--reason needs words: they are what the audit will say")
    return text.strip()


def report(ruling: Ruling, *, json_output: bool) -> int:
    """Print the result and return the exit status."""
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "result": asdict(ruling)})
    elif ruling.verdict is Verdict.DONE:
        print(f"{ruling.reference:8} {ruling.effect_class:14} {ruling.detail}")
    else:
        exits.complain(ruling.detail)
    return {
        Verdict.DONE: exits.OK,
        Verdict.REFUSED: exits.REFUSED,
        Verdict.LOST: exits.CONFLICT,
        Verdict.NOT_FOUND: exits.NOTHING_MATCHED,
    }[ruling.verdict]
