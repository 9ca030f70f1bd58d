"""Tests of how often a transaction waits for the server: exact counts, because each wait costs a round trip."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from ledger.ledger import Ledger
from ledger.postgres.engine import PostgresDatabase
from ledger.records import Delivered
from ledger.recovery import begin_epoch
from tests.ledger.parts import AUDIT, applied, intent, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ledger.records import Operation
    from tests.ledger.parts import ManualClock
    from tests.ledger.places import Place

SIZES = (1, 8)  # of a batch
CLASSES = {"slack.post": 8, "crm.create": 8, "file.upload": 8}


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@pytest.fixture
async def ledger(place: Place, clock: ManualClock) -> AsyncIterator[Ledger]:
    database = await place.open(clock)
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
    yield Ledger(database, clock, AUDIT, epoch=epoch)
    await database.close()


class Trips:
    """Number of round trips since it was made."""

    def __init__(self, ledger: Ledger) -> None:
        assert isinstance(ledger.database, PostgresDatabase)
        self._count: Callable[[], tuple[int, int]] = lambda: (database.round_trips, database.commits)
        database = ledger.database
        self._before = self._count()

    def taken(self) -> tuple[int, int]:
        """Return the round trips and the commits."""
        return tuple(now - before for now, before in zip(self._count(), self._before, strict=True))  # type: ignore[return-value] # a pair


async def reserve(ledger: Ledger, count: int) -> None:
    asked = (request(f"r{number}", aggregate_id=f"Q-{number}") for number in range(count))
    await asyncio.gather(*(ledger.reserve(each) for each in asked))


async def execute(ledger: Ledger, operation: Operation) -> None:
    quote = operation.aggregate_id
    await ledger.execute(operation, applied(*(intent(name, target=quote, aggregate_id=quote) for name in CLASSES)))


@pytest.mark.parametrize("size", SIZES)
async def test_a_batch_of_reserves_waits_five_times_whatever_its_size(ledger: Ledger, size: int) -> None:
    trips = Trips(ledger)
    await reserve(ledger, size)
    assert trips.taken() == (5, 1)


@pytest.mark.parametrize("size", SIZES)
async def test_a_claim_waits_five_times_whatever_it_takes(ledger: Ledger, size: int) -> None:
    await reserve(ledger, size)
    trips = Trips(ledger)
    assert len(await ledger.claim_operations(size)) == size
    assert trips.taken() == (5, 1)


@pytest.mark.parametrize("size", SIZES)
async def test_each_execution_of_a_batch_waits_once_and_all_of_them_three_times(ledger: Ledger, size: int) -> None:
    await reserve(ledger, size)
    operations = await ledger.claim_operations(size)
    trips = Trips(ledger)
    await asyncio.gather(*(execute(ledger, operation) for operation in operations))
    assert trips.taken() == (size + 3, 1)


async def test_claim_and_settlement_of_an_effect_wait_seven_times_each(ledger: Ledger) -> None:
    await reserve(ledger, 1)
    (operation,) = await ledger.claim_operations(1)
    await execute(ledger, operation)
    trips = Trips(ledger)
    effect, *_ = await ledger.claim_effects({"slack.post": 8})
    claimed = trips.taken()
    await ledger.settle(effect, Delivered("ref", {}))
    assert (claimed, trips.taken()) == ((7, 1), (14, 2))


async def test_of_reserves_in_turns_one_that_fails_leaves_the_others(ledger: Ledger, place: Place) -> None:
    asked = [
        request(f"r{number}", aggregate_id=f"Q-{number}", payload={"text": "x" * size})
        for number, size in enumerate((1, 99_999, 1))
    ]
    first, second, third = await asyncio.gather(*(ledger.reserve(each) for each in asked), return_exceptions=True)
    assert isinstance(second, psycopg.errors.CheckViolation)
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert {row["aggregate_id"] for row in place.shell().execute("SELECT aggregate_id FROM operations")} == {"Q-0", "Q-2"}
