"""Another process locks the ledger's file."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.scenarios.stage import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faults.scenarios.stage import Stage

BUDGET_SECONDS: Final = 1.0
SOON_SECONDS: Final = 0.4
LOCK_WORDS: Final = ("lock", "busy", "sqlite", "database")


@contextmanager
def taken(ledger: Path) -> Iterator[None]:
    """Hold SQLite's exclusive lock on the ledger, as a backup tool or a person could."""
    with closing(sqlite3.connect(ledger, isolation_level=None)) as somebody:
        somebody.execute("BEGIN EXCLUSIVE")
        yield
        somebody.execute("ROLLBACK")


async def locked(stage: Stage) -> str:
    """FI-019: the ledger is locked, briefly and for longer than the acknowledgement's budget."""
    deal = await stage.start(QUOTEBOT_ACK_BUDGET_SECONDS=str(BUDGET_SECONDS))
    with taken(stage.ledger_path):
        asked = asyncio.create_task(deal.slash())
        await asyncio.sleep(SOON_SECONDS)
    waited = await asked
    stage.fact("a lock that ends within the budget is waited for", "On it" in str(waited["ack"]), waited)
    await deal.settled()
    before = [await stage.count(table) for table in ("deliveries", "operations", "effects", "audit_events", "quotes")]
    with taken(stage.ledger_path):
        refused = await deal.slash("new for Brook: 10 pro")
    text = str(refused["ack"] and refused["ack"]["text"])
    stage.equal("a lock that lasts is a clean refusal", text, "Nothing was recorded and nothing was done. Try again.")
    await deal.settled()
    after = [await stage.count(table) for table in ("deliveries", "operations", "effects", "audit_events", "quotes")]
    stage.equal("the refused command left nothing at all", after, before)
    shown = " ".join(message["text"] for message in await deal.messages()).casefold()
    stage.fact("no lock error is shown to anybody", not any(word in shown for word in LOCK_WORDS), shown)
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    await deal.complete(deal.click("approval.approve", user="U0MANAGER"))
    await checker.golden_deal(deal)
    return "a short lock waited for, a long one refused cleanly, no partial write"


SCENARIOS: Final = (
    Scenario(
        "FI-019",
        "P1",
        ("timeout",),
        "somebody else locks the ledger",
        "Another program holds SQLite's exclusive lock, first for a moment, then for longer than an ack may take.",
        "The moment is waited for, the long lock is a clean refusal: no partial write, and nobody reads of a lock.",
        locked,
    ),
)
