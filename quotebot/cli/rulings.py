"""Output of an operator action on one row, shared by every command that performs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.operator.actions import Verdict
from quotebot.cli import dead_letter_tables, exits
from quotebot.views import waits

if TYPE_CHECKING:
    from ledger.operator.actions import Ruling


def reason_of(text: str) -> str:
    """Return a reason without surrounding blanks. Raises ValueError for an empty one."""
    if not text.strip():
        raise ValueError("--reason needs words: they are what the audit will say")
    return text.strip()


def report(ruling: Ruling, *, json_output: bool) -> int:
    """Print the result and return the exit status."""
    reference, verdict, effect_class, detail = ruling.reference, ruling.verdict, ruling.effect_class, waits.detail(ruling)
    if json_output:
        result = {"reference": reference, "verdict": verdict, "effect_class": effect_class, "detail": detail}
        dead_letter_tables.print_json({"schema_version": 1, "result": result})
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
