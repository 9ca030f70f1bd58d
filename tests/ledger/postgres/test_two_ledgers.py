"""Tests of two processes that work on one ledger on PostgreSQL at the same time: each row is done once, and in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ledger.audit.verification import verify
from ledger.ledger import Ledger
from ledger.records import DedupeResult, Delivered
from ledger.recovery import begin_epoch
from tests.ledger.parts import AUDIT, KEYRING, applied, intent, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.ledger.parts import ManualClock
    from tests.ledger.places import Place

COMMANDS = 60
QUOTES = 12
ROUNDS = 500
CLASSES = {"slack.post": 4, "crm.create": 4}
UNFINISHED = "SELECT 1 FROM operations WHERE finished_at IS NULL UNION ALL SELECT 1 FROM effects WHERE finished_at IS NULL"


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@asynccontextmanager
async def process(place: Place, clock: ManualClock, name: str) -> AsyncIterator[Ledger]:
    """Yield the ledger of one of several bots."""
    database = await place.open(clock)
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0", alone=False, replica=name)
    try:
        yield Ledger(database, clock, AUDIT, epoch=epoch)
    finally:
        await database.close()


async def work(ledger: Ledger, place: Place, executed: list[tuple[int, str]], delivered: list[int]) -> None:
    """Claim and finish what is due until nothing is left."""
    for _ in range(ROUNDS):
        for operation in await ledger.claim_operations(4):
            quote = operation.aggregate_id
            await ledger.execute(operation, applied(*(intent(name, target=quote, aggregate_id=quote) for name in CLASSES)))
            executed.append((operation.id, quote))
        for effect in await ledger.claim_effects(CLASSES):
            await ledger.settle(effect, Delivered("ref", {}))
            delivered.append(effect.id)
        if not place.shell().execute(UNFINISHED):
            return
    raise AssertionError("the backlog was not finished")


async def test_two_processes_finish_one_backlog_and_do_each_row_once(place: Place, clock: ManualClock) -> None:
    executed: list[tuple[int, str]] = []
    delivered: list[int] = []
    async with process(place, clock, "one") as one, process(place, clock, "other") as other:
        asked = [request(f"r{number}", aggregate_id=f"Q-{number % QUOTES}") for number in range(COMMANDS)]
        reserved = await asyncio.gather(*(ledger.reserve(each) for each in asked for ledger in (one, other)))
        sightings = Counter(reservation.sighting for reservation in reserved)
        assert sightings == {DedupeResult.NEW: COMMANDS, DedupeResult.DUPLICATE: COMMANDS}
        await asyncio.gather(*(work(ledger, place, executed, delivered) for ledger in (one, other)))
        assert (await verify(one.database, KEYRING)).sound
    shell = place.shell()
    operations = shell.execute("SELECT id, state, fence FROM operations ORDER BY id")
    effects = shell.execute("SELECT id, state, fence FROM effects ORDER BY id")
    assert [tuple(row) for row in operations] == [(each, "completed", 1) for each, _ in sorted(executed)]
    assert [tuple(row) for row in effects] == [(each, "delivered", 1) for each in sorted(delivered)]
    assert (len(executed), len(delivered)) == (COMMANDS, COMMANDS * len(CLASSES))
    assert {row["epoch"] for row in shell.execute("SELECT epoch FROM attempts")} == {one.epoch, other.epoch}, "both took part"
    for quote in {quote for _, quote in executed}:
        of_quote = [each for each, about in executed if about == quote]
        assert of_quote == sorted(of_quote), "in the order in which they came"
