"""Preview of a replay: the plan shown before it, and for --dry-run the answers of the external services."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError
from ledger.operator.dead_letters import Expectation, ReplayPreview
from quotebot.cli import tables
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetter
    from ledger.records import Effect

LOOK_SECONDS: Final = 30.0


@contextlib.asynccontextmanager
async def asking(ledger: Ledger) -> AsyncIterator[Callable[[Effect], Awaitable[ReplayPreview]] | None]:
    """Yield a function that looks up an effect in Slack and Salesforce; None if no token is configured."""
    from quotebot.app.clients import open_performer  # noqa: PLC0415 -- HTTP clients, needed only for undecided dead letters

    async with open_performer(load_settings(), ledger) as performer:
        yield None if performer is None else lambda effect: _looked(performer, effect)


def described(chosen: Sequence[tuple[str, DeadLetter | None]], foreseen: Sequence[ReplayPreview]) -> list[dict[str, Any]]:
    """Return the plan in its JSON form."""
    return [
        {
            "id": reference,
            "class": None if letter is None else letter.effect_class,
            "quote": None if letter is None else letter.aggregate_id,
            "category": None if letter is None else letter.category,
            "expected": foresight.expectation.value,
            "detail": foresight.detail,
        }
        for (reference, letter), foresight in zip(chosen, foreseen, strict=True)
    ]


def print_plan(plan: Sequence[dict[str, Any]], *, on_stderr: bool) -> None:
    """Print the plan as a table, on stdout or on stderr beside the data."""
    rows = [
        (
            row["id"],
            row["class"] or "-",
            row["quote"] or "-",
            row["category"] or "-",
            row["expected"] + ("" if row["detail"] is None else f" ({row['detail']})"),
        )
        for row in plan
    ]
    with contextlib.redirect_stdout(sys.stderr if on_stderr else sys.stdout):
        print(f"Would replay {len(plan)}:")
        tables.print_table(("ID", "Class", "Quote", "Category", "What will happen"), rows)


async def _looked(performer: Any, effect: Effect) -> ReplayPreview:

    if not performer.may_have_happened(effect):
        return ReplayPreview(Expectation.WOULD_BE_REDONE)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            found = await performer.find(effect)
    except TimeoutError:
        return ReplayPreview(Expectation.CANNOT_KNOW, f"no answer within {LOOK_SECONDS:g} s")
    except AdapterError as error:
        return ReplayPreview(Expectation.CANNOT_KNOW, str(error))
    if found is None:
        return ReplayPreview(Expectation.WOULD_BE_REDONE)
    return ReplayPreview(Expectation.ALREADY_THERE, found.external_ref)
