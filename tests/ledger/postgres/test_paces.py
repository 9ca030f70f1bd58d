"""Tests of paces that several processes share: together they never exceed what Slack takes, and they use all of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import NotRecorded
from ledger.postgres.paces import KEEP_MS, DatabasePaces
from quotebot.dispatch.services import BUSY_SECONDS, Pace, Pacer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from ledger.database import Database, Tx
    from tests.ledger.parts import ManualClock
    from tests.ledger.places import Place

AT_ONCE = 3
EACH = 20


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@pytest.fixture
async def pacers(place: Place, clock: ManualClock) -> AsyncIterator[tuple[Pacer, Pacer]]:
    """Yield the pacers of two processes, each with its own connections."""
    async with AsyncExitStack() as stack:

        async def started() -> Pacer:
            database = await place.open(clock)
            stack.push_async_callback(database.close)
            return Pacer(clock, Pace(AT_ONCE), DatabasePaces(database, clock))

        yield await started(), await started()


async def test_two_processes_together_keep_the_pace_of_a_channel_and_use_it(
    pacers: tuple[Pacer, Pacer], clock: ManualClock
) -> None:
    began, went, asked = clock.seconds, [], 0
    due = {(each, number): clock.seconds for number in range(EACH) for each in range(2)}
    while due and clock.seconds - began < 10 * EACH:
        for (each, number), at in sorted(due.items(), key=lambda one: one[1]):
            if at > clock.seconds:
                continue
            wait = await pacers[each].wait_seconds("C1", f"{each}/{number}", f"U{number % 3}")
            asked += 1
            if wait:
                due[each, number] = clock.seconds + wait
            else:
                del due[each, number]
                went.append((clock.seconds - began, each))
        clock.advance(100)
    times = [at for at, _ in went]
    assert len(times) == 2 * EACH
    for place in range(len(times) - AT_ONCE):
        assert times[place + AT_ONCE] - times[place] >= 1 - 0.06, "a burst, then one a second"
    assert times[-1] <= 2 * EACH - AT_ONCE + 1, "no second is left out"
    assert {each for _, each in went[:10]} == {0, 1}
    assert asked < 5 * len(times), "a message that waits does not ask all the time"


async def test_a_method_is_counted_over_all_processes(pacers: tuple[Pacer, Pacer]) -> None:
    one, other = pacers
    assert [await one.wait_seconds("chat.update", number) for number in range(30)] == [0] * 30
    assert [await other.wait_seconds("chat.update", number) for number in range(20)] == [0] * 20
    assert [round(await other.wait_seconds("chat.update", number), 1) for number in (20, 21)] == [1.2, 2.4]
    assert await other.wait_seconds("C1", 99) == 0


async def test_clock_that_was_put_back_stops_no_channel(database: Database, clock: ManualClock) -> None:
    paces = DatabasePaces(database, clock)
    assert await paces.take("C1", 1, 1.0) == 0
    assert await paces.take("C1", 1, 1.0) == 1.0
    clock.advance(-86_400_000)
    assert await paces.take("C1", 1, 1.0) == 0
    assert await paces.take("C1", 1, 1.0) == 1.0


async def test_rows_of_channels_that_are_quiet_are_purged(database: Database, clock: ManualClock, place: Place) -> None:
    await DatabasePaces(database, clock).take("C1", 1, 1.0)
    clock.advance(KEEP_MS + 1_001)
    await DatabasePaces(database, clock).take("C2", 1, 1.0)
    assert [row["name"] for row in place.shell().execute("SELECT name FROM paces")] == ["C2"]


async def test_calls_of_one_moment_lock_their_rows_in_the_order_of_names(database: Database, clock: ManualClock) -> None:
    locked: list[list[str]] = []
    honest = database.write

    class Watched:
        """A transaction; the names of the rows that it writes together are noted."""

        def __init__(self, tx: Tx) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> object:
            return getattr(self._tx, name)

        def each(self, statement: str, rows: Sequence[Mapping[str, str]]) -> object:
            locked.append([row["name"] for row in rows])
            return self._tx.each(statement, rows)

    async def write(name: str, work: Callable[[Any], object], **options: Any) -> object:
        return await honest(name, lambda tx: work(Watched(tx)), **options)

    database.write = write  # type: ignore[method-assign, assignment]
    paces = DatabasePaces(database, clock)
    waits = await asyncio.gather(*(paces.take(name, 1, 1.0) for name in ("C2", "C1", "C3", "C1")))
    assert (waits, locked) == ([0, 0, 0, 1.0], [["C1", "C1", "C2", "C3"]])


async def test_calls_that_cannot_be_counted_are_all_told(place: Place, clock: ManualClock) -> None:
    database = await place.open(clock)
    await database.close()
    paces = DatabasePaces(database, clock)
    found = await asyncio.gather(*(paces.take(name, 1, 1.0) for name in ("C1", "C2")), return_exceptions=True)
    assert [type(each) for each in found] == [NotRecorded] * 2
    assert found[0] is not found[1]


async def test_call_that_cannot_be_counted_waits(clock: ManualClock) -> None:
    class Unwritable:
        async def take(self, *_: object) -> float:
            raise NotRecorded("no server")

    pacer = Pacer(clock, shared=Unwritable())
    later = await pacer.put_off("C1", 1)
    assert later is not None
    assert (later.delay_ms, later.trouble.asked) == (BUSY_SECONDS * 1000, False)
