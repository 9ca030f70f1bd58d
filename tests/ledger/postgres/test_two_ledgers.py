"""Tests of two processes that work on one ledger on PostgreSQL at the same time: each row is done once, and in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ledger.audit.verification import verify
from ledger.records import DedupeResult, Delivered, Retry, Trouble
from tests.ledger.parts import KEYRING, applied, intent, one_of_several, request

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.records import Effect
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
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
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


DOWN = Trouble("transient", "503", http_status=503, unavailable=True)
REST_MS = 30_000


async def claim_together(*ledgers: Ledger, limit: int = 9) -> list[list[Effect]]:
    """Claim effects in several processes at the same time."""
    return await asyncio.gather(*(ledger.claim_effects({"crm.create": limit}) for ledger in ledgers))


async def owe(ledger: Ledger, count: int) -> None:
    """Enqueue calls to the CRM, each in a lane of its own."""
    await ledger.reserve(request("calls"))
    (operation,) = await ledger.claim_operations(1)
    await ledger.execute(operation, applied(*(intent("crm.create", "keyed", f"Q-{number}") for number in range(count))))


def gate(place: Place) -> tuple[object, ...]:
    (row,) = place.shell().execute("SELECT state, cause FROM gates WHERE name = 'crm.create'")
    return tuple(row)


async def test_failures_in_two_processes_open_one_breaker_and_one_trial_follows(place: Place, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        await owe(one, 9)
        for number in range(5):
            ledger = (one, other)[number % 2]
            (effect,) = await ledger.claim_effects({"crm.create": 1})
            await ledger.settle(effect, Retry(DOWN, delay_ms=1))
        assert gate(place) == ("held", "breaker"), "neither process alone has seen so many failures"
        clock.advance(REST_MS)
        claimed = [
            (ledger, effect)
            for ledger, found in zip((one, other), await claim_together(one, other), strict=True)
            for effect in found
        ]
        assert len(claimed) == 1, "the gate is half open for both"
        assert await claim_together(one, other) == [[], []]
        ((ledger, trial),) = claimed
        await ledger.settle(trial, Delivered("ref", {}))
        assert sum(map(len, await claim_together(one, other))) == 8


async def test_a_claim_that_waits_for_the_end_of_a_trial_knows_that_it_failed(place: Place, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one:
        await owe(one, 2)
        shell = place.shell()
        shell.execute("INSERT INTO gates (name, state, cause) VALUES ('crm.create', 'half_open', 'breaker')")
        shell.execute("BEGIN")
        shell.execute("UPDATE gates SET state = 'held', until_at = ?, held_at = ?", (clock.now_ms() + REST_MS, clock.now_ms()))
        claiming = asyncio.create_task(one.claim_effects({"crm.create": 9}))
        async with asyncio.timeout(30):
            while not shell.execute("SELECT 1 FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 -- the server sets no event
                await asyncio.sleep(0.01)
        shell.execute("COMMIT")
        assert await claiming == []


async def test_an_operators_pause_outlasts_the_answers_that_other_processes_settle(place: Place, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        await owe(one, 12)
        under_way = [
            *zip(
                (one, other) * 6,
                await one.claim_effects({"crm.create": 6}) + await other.claim_effects({"crm.create": 6}),
                strict=True,
            )
        ]
        ends = (Delivered("ref", {}), Retry(DOWN, delay_ms=1))
        settled = [ledger.settle(effect, ends[number % 2]) for number, (ledger, effect) in enumerate(under_way)]
        paused, *_ = await asyncio.gather(other.pause("crm.create", "ops", "maintenance"), *settled)
        assert paused
        assert gate(place) == ("held", "operator")
        assert await claim_together(one, other) == [[], []]
        await one.resume("crm.create", "ops")
        clock.advance(1)
        assert sum(map(len, await claim_together(one, other))) == 1
