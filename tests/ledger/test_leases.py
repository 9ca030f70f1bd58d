"""Tests of a replica's leases: who may take the claims of others, and what a replica does that was taken for dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ledger.leases import Leases
from ledger.ledger import Ledger, StaleFenceError, no_follow_ups
from ledger.records import Delivered
from ledger.recovery import begin_epoch, no_answer
from tests.ledger.parts import AUDIT, TROUBLE, Desk, Signs, applied, intent

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 120_000


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@dataclass
class Replica:
    """One of several replicas, with what a test knows of it."""

    desk: Desk
    signs: Signs
    leases: Leases

    @property
    def ledger(self) -> Ledger:
        return self.desk.ledger

    async def live(self, milliseconds: int, step: int = 10_000) -> None:
        """Renew its leases as long as that, and take what has lapsed."""
        for _ in range(milliseconds // step):
            self.desk.clock.advance(step)
            await self.leases.renew()
            await self.leases.take_lapsed()


@pytest.fixture
def start(desk: Desk) -> Callable[[str], Replica]:
    """Return a function that makes a replica; its first epoch is begun by the first renewal."""

    def make(name: str) -> Replica:
        database, clock, signs = desk.ledger.database, desk.clock, Signs(name)
        ledger = Ledger(database, clock, AUDIT, epoch=0, ownership=signs)

        async def begin() -> int:
            return await begin_epoch(database, clock.now_ms(), role="bot", build="1", alone=False, replica=name)

        return Replica(Desk(ledger, clock, desk.shell), signs, Leases(ledger, begin, answer=no_answer, follow=no_follow_ups))

    return make


@pytest.fixture
async def one(start: Callable[[str], Replica]) -> Replica:
    replica = start("one")
    await replica.leases.renew()
    return replica


@pytest.fixture
async def other(start: Callable[[str], Replica]) -> Replica:
    replica = start("other")
    await replica.leases.renew()
    return replica


async def test_claims_of_a_dead_replica_are_taken_back_and_its_late_results_refused(one: Replica, other: Replica) -> None:
    await one.desk.owe(intent("crm.create", "keyed"))
    effect = await one.desk.claim()
    operation = await one.desk.claim_operation("r2")
    other.signs.dead = [one.ledger.epoch or 0]
    await other.leases.reap()
    await other.leases.reap()
    assert (one.desk.effect(effect.id).state, one.desk.operation(operation.id).state) == ("pending", "reserved")
    assert one.desk.value("SELECT end_reason FROM epochs WHERE replica = 'one'") == "died"
    assert await one.ledger.settle(effect, Delivered("late", {})) is None
    with pytest.raises(StaleFenceError):
        await one.ledger.execute(operation, applied())
    assert one.desk.events()[-2:] == ["effect.late_result", "operation.late_result"]
    assert [row["outcome"] for row in one.desk.rows("SELECT outcome FROM attempts ORDER BY id")] == ["died", "died"]


async def test_claims_of_a_stopped_replica_are_taken_by_one_steady_for_a_whole_lease(one: Replica, other: Replica) -> None:
    operation = await one.desk.claim_operation()
    await other.live(LEASE)
    assert one.desk.operation(operation.id).state == "in_progress"
    await other.live(10_000)
    assert one.desk.operation(operation.id).state == "reserved"
    with pytest.raises(StaleFenceError):
        await one.ledger.execute(operation, applied())


async def test_nobody_takes_the_claims_of_others_after_an_outage_of_all(one: Replica, other: Replica) -> None:
    await other.live(LEASE)
    operation = await one.desk.claim_operation()
    one.desk.clock.advance(2 * LEASE)  # the database is away
    await other.leases.take_lapsed()
    await other.leases.renew()
    await other.leases.take_lapsed()
    await one.leases.renew()
    await other.live(LEASE - 10_000)
    assert one.desk.operation(operation.id).state == "in_progress"
    await one.ledger.execute(operation, applied())


async def test_replica_that_has_just_started_takes_no_lapsed_claims(one: Replica, start: Callable[[str], Replica]) -> None:
    operation = await one.desk.claim_operation()
    one.desk.clock.advance(LEASE + 1)
    other = start("other")
    await other.leases.renew()
    await other.leases.take_lapsed()
    assert one.desk.operation(operation.id).state == "in_progress"
    await other.live(LEASE)
    assert one.desk.operation(operation.id).state == "reserved"


async def test_replica_without_its_lock_claims_nothing_and_begins_no_call(one: Replica) -> None:
    await one.desk.owe(intent())
    await one.desk.reserve("r2")
    one.signs.held = False
    assert (await one.ledger.claim_operations(9), await one.ledger.claim_effects({"slack.post": 9})) == ([], [])
    assert not one.ledger.may_call(one.desk.clock.monotonic(), 1)
    one.signs.held = True
    assert one.ledger.may_call(one.desk.clock.monotonic(), 1)
    assert len(await one.ledger.claim_operations(9)) == 1


async def test_replica_that_was_taken_for_dead_goes_on_under_a_new_epoch(one: Replica, other: Replica) -> None:
    await one.desk.owe(intent("crm.create", "keyed"))
    effect, before = await one.desk.claim(), one.ledger.epoch
    other.signs.dead = [before or 0]
    await other.leases.reap()
    one.signs.term += 1  # it holds its lock again
    assert await one.ledger.claim_effects({"crm.create": 1}) == [], "before it knows whether its epoch is open"
    await one.leases.reap()
    assert one.ledger.epoch != before
    assert await one.ledger.settle(effect, Delivered("late", {})) is None
    (again,) = await one.ledger.claim_effects({"crm.create": 1})
    assert (again.epoch, again.fence) == (one.ledger.epoch, effect.fence + 1)
    assert await one.ledger.settle(again, Delivered("a01", {})) is not None


async def test_wait_written_by_a_clock_that_is_a_moment_ahead_is_kept(one: Replica, other: Replica) -> None:
    operation = await one.desk.claim_operation()
    await one.ledger.retry_operation(operation, TROUBLE, 60_000)
    due = one.desk.value("SELECT next_attempt_at FROM operations")
    one.desk.clock.wall_ms -= 1
    other.signs.dead = [one.ledger.epoch or 0]
    await other.leases.reap()
    assert one.desk.value("SELECT next_attempt_at FROM operations") == due


async def test_replica_whose_lock_was_lost_for_a_moment_keeps_its_epoch(one: Replica) -> None:
    before = one.ledger.epoch
    operation = await one.desk.claim_operation()
    one.signs.term += 1
    await one.leases.reap()
    assert one.ledger.epoch == before
    await one.ledger.execute(operation, applied())


async def test_command_under_way_at_three_deaths_of_different_replicas_is_poison(
    one: Replica, other: Replica, start: Callable[[str], Replica]
) -> None:
    third = start("third")
    await third.leases.renew()
    await one.desk.reserve()
    for dying, reaping in ((one, other), (other, third), (third, one)):
        assert await dying.ledger.claim_operation() is not None
        reaping.signs.dead = [dying.ledger.epoch or 0]
        await reaping.leases.reap()
        reaping.signs.dead = []
        await dying.leases.renew()  # its next process
    assert (one.desk.operation().state, one.desk.operation().category) == ("failed_terminal", "poison")


async def test_call_begins_only_if_it_ends_within_the_lease(one: Replica) -> None:
    clock, seconds = one.desk.clock, LEASE / 1000
    claimed = clock.monotonic()
    assert one.ledger.may_call(claimed, seconds - 1)
    clock.advance(LEASE // 2)  # stopped between its claim and the call
    assert not one.ledger.may_call(claimed, seconds / 2)
    assert one.ledger.may_call(claimed, seconds / 2 - 1)


async def test_renewal_lengthens_the_time_for_calls(one: Replica) -> None:
    claimed = one.desk.clock.monotonic()
    one.desk.clock.advance(LEASE // 2)
    await one.leases.renew()
    assert one.ledger.may_call(claimed, LEASE / 1000 - 1)
