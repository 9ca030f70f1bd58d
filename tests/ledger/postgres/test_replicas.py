"""Tests of several replicas on one ledger on PostgreSQL: their locks, and two that take the same claims at one time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from ledger.claims import POISON_CLAIMS
from ledger.leases import Leases
from ledger.ledger import Ledger, no_follow_ups
from ledger.postgres import replicas
from ledger.postgres.clock import DatabaseClock
from ledger.postgres.replicas import FreeLocks, LockSearch
from ledger.records import Delivered, FollowUps
from ledger.recovery import Recovered, give_back, no_answer, take_back_dead, take_back_lapsed
from tests.ledger.parts import START_MS, ManualClock, applied, intent, one_of_several, request, sure
from tests.rig import eventually

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect
    from tests.ledger.postgres.places import PostgresPlace

LEASE = 120_000


@pytest.fixture
def engine_name() -> str:
    return "postgres"


async def owe(ledger: Ledger, *classes: str) -> list[Effect]:
    """Execute a command with these effects, and claim them."""
    await ledger.reserve(request())
    await ledger.execute(sure(await ledger.claim_operation()), applied(*(intent(each, "keyed") for each in classes)))
    return await ledger.claim_effects(dict.fromkeys(classes, 1))


def upkeep(ledger: Ledger) -> Leases:
    """Return the upkeep of a replica's claims."""

    async def begin() -> int:
        raise AssertionError

    return Leases(ledger, begin, answer=no_answer, follow=no_follow_ups)


async def test_suspect_is_tried_alone_by_the_leader_though_who_took_it_back_has_ended(
    place: PostgresPlace, clock: ManualClock
) -> None:
    async with one_of_several(place, clock, "reaper") as reaper, one_of_several(place, clock, "leader") as leader:
        await leader.reserve(request("suspect", aggregate_id="Q-1"))
        for name in ("first", "second"):
            async with one_of_several(place, clock, name) as killed:
                (claimed,) = await killed.claim_operations(9)
                await take_back_dead(reaper, [sure(killed.epoch)])
        await give_back(reaper)
        await leader.reserve(request("r2", aggregate_id="Q-2"))
        (running,) = await leader.claim_operations(9)
        assert (running.aggregate_id, leader.suspects.any()) == ("Q-2", False), "who does not know it does not wait for it"
        await upkeep(leader).reap()
        for number in (3, 4):
            await leader.reserve(request(f"r{number}", aggregate_id=f"Q-{number}"))
        assert await leader.claim_operations(9) == [], "it waits for what is under way in this process"
        async with one_of_several(place, clock, "other") as other:
            (beside,) = await other.claim_operations(1)
            assert beside.aggregate_id == "Q-3", "and no other process does"
            await leader.execute(running, applied())
            await upkeep(leader).reap()
            (alone,) = await leader.claim_operations(9)
            assert (alone.id, alone.claims) == (claimed.id, POISON_CLAIMS)
            assert await leader.claim_operations(9) == []
            await leader.execute(alone, applied())
            assert [each.aggregate_id for each in await leader.claim_operations(9)] == ["Q-4"]


# --------------------------------------------------------------------------------------------------- proof of a death


def test_lock_that_stays_free_proves_a_death_and_one_taken_again_does_not() -> None:
    clock = ManualClock()
    locks = FreeLocks(clock)
    assert locks.dead([1, 2], [], 5, settled=True) == []
    clock.advance(1_900)
    assert locks.dead([1, 2], [], 5, settled=True) == []
    assert locks.dead([1], [], 5, settled=True) == []  # the other has its lock again
    clock.advance(100)
    assert locks.dead([1, 2], [], 5, settled=True) == [1]


def test_free_lock_proves_nothing_soon_after_a_failover() -> None:
    clock = ManualClock()
    locks = FreeLocks(clock)
    locks.dead([1], [], 5, settled=True)
    clock.advance(10_000)
    assert locks.dead([1], [], 6, settled=False) == [], "another timeline: all sessions have ended"
    clock.advance(14_900)
    assert locks.dead([1], [], 6, settled=False) == []
    clock.advance(100)
    assert locks.dead([1], [], 6, settled=False) == [1]


def test_lock_held_since_a_failover_proves_death_once_it_is_free_again() -> None:
    clock = ManualClock()
    locks = FreeLocks(clock)
    assert locks.dead([2], [1], 6, settled=False) == []
    clock.advance(100)
    assert locks.dead([1, 2], [], 6, settled=False) == []
    clock.advance(2_000)
    assert locks.dead([1, 2], [], 6, settled=False) == [1], "the other may not have taken its lock again yet"
    locks.forget()
    locks.dead([1], [], 6, settled=False)
    clock.advance(2_000)
    assert locks.dead([1], [], 6, settled=False) == [], "another session, perhaps with a server that has started again"


def test_free_lock_proves_nothing_to_one_that_has_not_looked_meanwhile() -> None:
    clock = ManualClock()
    locks = FreeLocks(clock)
    locks.dead([1], [], 5, settled=True)
    clock.advance(10_000)
    locks.forget()
    assert locks.dead([1], [], 5, settled=True) == []


# -------------------------------------------------------------------------------------------------------------- locks


def search(place: PostgresPlace, name: str | None, clock: ManualClock | None = None) -> LockSearch:
    """Return the attempts of a process on this database."""
    return LockSearch(place.address, name, LEASE, clock or ManualClock())


def test_replicas_of_different_names_run_side_by_side_and_those_of_one_name_do_not(place: PostgresPlace) -> None:
    with closing(sure(search(place, "one").hold())), closing(sure(search(place, "other").hold())):
        assert search(place, "one").hold() is None
        assert search(place, None).hold() is None, "a process that works while no bot runs"


def test_no_replica_starts_while_a_process_works_alone(place: PostgresPlace) -> None:
    with closing(sure(search(place, None).hold())):
        assert search(place, "one").hold() is None


async def test_death_of_a_replica_is_proven_and_another_leads(
    place: PostgresPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(replicas, "SETTLED_SECONDS", 0.0)
    one = sure(search(place, "one", clock).hold())
    await eventually(one.leads, "one to lead")
    with closing(sure(search(place, "other", clock).hold())) as other:
        async with one_of_several(place, clock, "one") as dying, one_of_several(place, clock, "other") as living:
            await eventually(lambda: other._count == 2, "the other to see both")
            clock.advance(60_000)
            await eventually(other.is_held, "a look")
            assert (await other.dead_epochs(), await other.leads()) == ([], False)
            ended = await take_back_dead(living, [dying.epoch or 0])
            assert (ended, epochs(place)) == (Recovered(0, 0, 0), [None, None]), "its lock is held, so it is not dead"
            one.close()
            await eventually(other.leads, "the other to lead")
            assert await other.dead_epochs() == []
            clock.advance(1_900)
            await asyncio.sleep(0.05)
            assert (await other.dead_epochs(), await other.count()) == ([], 2), "it may have lost its lock and take it again"
            await eventually(lambda: look_later(other, clock, dying.epoch), "the proof")
            await eventually(lambda: other._count == 1, "the other to see itself alone")
            await take_back_dead(living, await other.dead_epochs())
            assert epochs(place) == ["died", None]


async def look_later(lock: replicas.ReplicaLock, clock: ManualClock, epoch: int | None) -> bool:
    """Let half a second pass, and tell whether that epoch is proven dead."""
    clock.advance(500)
    return await lock.dead_epochs() == [epoch]


def epochs(place: PostgresPlace) -> list[str | None]:
    return [row["end_reason"] for row in place.shell().execute("SELECT end_reason FROM epochs ORDER BY epoch")]


async def test_lost_lock_is_taken_again_in_a_new_term(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "POLL_SECONDS", 0.01)
    with closing(sure(search(place, "one").hold())) as lock:
        place.shell().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '% replica one %'"
        )
        await eventually(lambda: lock.term == 1, "another session")
        assert search(place, "one").hold() is None


async def test_lock_without_an_answer_of_the_server_counts_as_lost(place: PostgresPlace, clock: ManualClock) -> None:
    with closing(sure(search(place, "one", clock).hold())) as lock:
        assert lock.is_held()
        lock._closing.set()  # no more looks
        lock._thread.join()
        clock.advance(2_000)
        assert not lock.is_held()


# ------------------------------------------------------------------------------------------- two processes at one time


async def test_two_replicas_that_reap_at_one_time_take_each_claim_back_once(place: PostgresPlace, clock: ManualClock) -> None:
    async with (
        one_of_several(place, clock, "one") as one,
        one_of_several(place, clock, "two") as two,
        one_of_several(place, clock, "dead") as dead,
    ):
        await owe(dead, "crm.create", "crm.update", "slack.card")
        taken = await asyncio.gather(*(take_back_dead(ledger, [dead.epoch or 0]) for ledger in (one, two)))
    assert sum(each.effects for each in taken) == 3
    attempts = place.shell().execute("SELECT outcome FROM attempts WHERE effect_id IS NOT NULL")
    assert [row["outcome"] for row in attempts] == ["died"] * 3
    released = place.shell().execute("SELECT 1 FROM audit_events WHERE event_type = 'effect.released'")
    assert len(released) == 3


async def test_result_that_is_just_being_recorded_is_kept_and_its_claim_not_taken_back(
    place: PostgresPlace, clock: ManualClock
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def decide(_: Tx, __: Effect) -> FollowUps:
        begun.set()
        go_on.wait(0.8)  # the server ends a transaction that is idle for a second
        return FollowUps()

    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "late") as late:
        (effect,) = await owe(late, "crm.create")
        settling = asyncio.create_task(late.settle(effect, Delivered("a01", {}), decide))
        await asyncio.to_thread(begun.wait)
        reaping = asyncio.create_task(take_back_dead(one, [late.epoch or 0]))
        await asyncio.wait([reaping], timeout=0.2)
        assert not reaping.done()
        go_on.set()
        assert (await reaping, sure(await settling).state) == (Recovered(0, 0, 0), "delivered")


async def test_lease_lapses_by_the_time_of_the_server_and_not_of_a_machine(place: PostgresPlace, clock: ManualClock) -> None:
    ahead = ManualClock()
    ahead.advance(10 * LEASE)
    times = [DatabaseClock(each, lambda: 0.0) for each in (clock, ahead)]
    for each in times:
        each.compare(lambda: START_MS)
    async with one_of_several(place, times[0], "one") as one, one_of_several(place, times[1], "other") as other:
        await owe(one, "crm.create")
        assert await take_back_lapsed(other) == Recovered(0, 0, 0)


async def test_lease_that_is_just_being_renewed_is_not_taken_for_lapsed(place: PostgresPlace, clock: ManualClock) -> None:
    async with one_of_several(place, clock, "one") as one, one_of_several(place, clock, "other") as other:
        (effect,) = await owe(other, "crm.create")
        clock.advance(LEASE + 1)
        with psycopg.connect(place.address) as renewing:
            renewing.execute("UPDATE effects SET lease_until = lease_until + 120000 WHERE id = %s", (effect.id,))
            assert await take_back_lapsed(one) == Recovered(0, 0, 0)
        assert await take_back_lapsed(one) == Recovered(0, 0, 0)
        clock.advance(LEASE)
        assert await take_back_lapsed(one) == Recovered(0, 1, 0)
