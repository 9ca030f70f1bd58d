"""Tests of the bot's jobs for a whole ledger while two replicas do them at once: what they lead to is recorded once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger.ledger import Ledger
from quotebot.app.installation import open_audit, open_ledger, storage_of
from quotebot.execution.executor import PENDING_MS
from quotebot.jobs.announcements import announce
from quotebot.jobs.maintenance import audit_holders, show_pending_commands
from quotebot.jobs.scheduler import Scheduler, crm_inbound_sync
from quotebot.settings import Settings
from tests.quotebot.parts import ManualClock, create_command, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

ROUNDS = 5


@pytest.fixture
async def pair(create_database: Callable[[Sequence[str]], str], tmp_path: Path) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Yield the ledgers of two processes on one database."""
    settings, clock = Settings(_env_file=None, data_dir=tmp_path / "bot", ledger_url=create_database(())), ManualClock()
    async with open_ledger(settings, clock) as one:
        audit = open_audit(settings)
        database = await storage_of(settings).open(audit, clock, bot=False, may_migrate=False, at_once=True)
        yield one, Ledger(database, clock, audit)
        await database.close()


async def found(ledger: Ledger, statement: str, **parameters: object) -> int:
    """Return the number of rows of a named statement."""
    return len(await ledger.database.read(lambda tx: tx.all(statement, **parameters)))


async def test_a_command_that_waits_is_shown_once(pair: tuple[Ledger, Ledger]) -> None:
    one, _ = pair
    for number in range(ROUNDS):
        await one.reserve(request_for(create_command(), str(number)))
    assert isinstance(one.clock, ManualClock)
    one.clock.advance(PENDING_MS + 1)
    await asyncio.gather(*(show_pending_commands(each) for each in pair))
    assert await found(one, "unsettled_effects") == ROUNDS


async def test_a_change_of_the_holders_is_audited_once(pair: tuple[Ledger, Ledger]) -> None:
    for number in range(ROUNDS):
        await asyncio.gather(*(audit_holders(each, {"manager": (f"U{number}",)}) for each in pair))
    assert await found(pair[0], "audit_chain", aggregate_id="roles", limit=100) == ROUNDS


async def test_a_refused_login_is_announced_once(pair: tuple[Ledger, Ledger]) -> None:
    one, _ = pair
    await one.database.write("hold", lambda tx: one.gates.hold(tx, one.clock.now_ms(), "crm", "auth", "refused", "quotebot"))
    assert await asyncio.gather(*(announce(each, "C0OPS") for each in pair)) == [1, 1]
    assert await found(one, "operations_by_key", begin="0", upto="g", limit=10) == 1


async def test_only_a_leader_fires_scheduled_slots(pair: tuple[Ledger, Ledger]) -> None:
    async def leads() -> bool:
        return False

    assert await Scheduler(pair[0], (crm_inbound_sync(15),), leads=leads).step() == 0
    assert await found(pair[0], "operations_by_key", begin="0", upto="g", limit=10) == 0


async def test_a_scheduled_slot_is_fired_once(pair: tuple[Ledger, Ledger]) -> None:
    one, _ = pair
    jobs = (crm_inbound_sync(15),)
    await asyncio.gather(*(Scheduler(each, jobs).step() for each in pair))
    assert await found(one, "operations_by_key", begin="0", upto="g", limit=10) == 1
