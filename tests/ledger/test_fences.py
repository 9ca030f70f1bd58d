"""Tests of several processes on one ledger: a result under a lost claim is audited and changes nothing; heartbeats keep claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.ledger import Ledger, StaleFenceError
from ledger.records import Delivered, Drop, Fail, FollowUps, Hold, Retry, Uncertain
from ledger.recovery import Recovered, begin_epoch, renew_leases, take_back, take_back_lapsed
from tests.ledger.parts import AUDIT, START_MS, TROUBLE, Desk, applied, intent, restart, sure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Tx
    from ledger.records import Effect, Settlement

LEASE = 120_000
SETTLEMENTS: list[Settlement] = [
    Delivered("late", {}),
    Retry(TROUBLE, 0, hold_until=START_MS * 2),
    Uncertain(TROUBLE, 0),
    Fail(TROUBLE),
    Drop(TROUBLE),
    Hold(TROUBLE),
]


async def second_bot(desk: Desk) -> Desk:
    """Start another process on the same file that does not assume that this one is dead."""
    epoch = await begin_epoch(desk.ledger.database, desk.clock.now_ms(), role="bot", build="1.1", alone=False, replica="other")
    return Desk(Ledger(desk.ledger.database, desk.clock, AUDIT, epoch=epoch), desk.clock, desk.shell)


async def after_death(desk: Desk) -> Desk:
    successor = await restart(desk)
    await take_back(successor.ledger)
    return successor


async def after_lapse(desk: Desk) -> Desk:
    other = await second_bot(desk)
    desk.clock.advance(LEASE + 1)
    await take_back_lapsed(other.ledger)
    return other


LOSSES: list[Callable[[Desk], Awaitable[Desk]]] = [after_death, after_lapse]


def follow(_: Tx, __: Effect) -> FollowUps:
    return FollowUps((intent("slack.card", "convergent"),))


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("settlement", SETTLEMENTS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("claimed_again", [False, True])
async def test_an_effect_settled_under_a_lost_claim_is_audited_and_changes_nothing(
    lose: Callable[[Desk], Awaitable[Desk]], settlement: Settlement, claimed_again: object, desk: Desk
) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    late = await desk.claim()
    new_owner = await lose(desk)
    if claimed_again:
        await new_owner.claim()
    before, count = desk.snapshot(), len(desk.events())
    assert await desk.ledger.settle(late, settlement, follow) is None
    assert desk.snapshot() == before
    assert desk.events()[count:] == ["effect.late_result"]
    with pytest.raises(StaleFenceError):
        await desk.ledger.record_step(late, "ticket", {})
    with pytest.raises(StaleFenceError):
        await desk.ledger.forget_steps(late)
    assert desk.snapshot() == before


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("claimed_again", [False, True])
async def test_a_command_ended_under_a_lost_claim_is_audited_and_changes_nothing(
    lose: Callable[[Desk], Awaitable[Desk]], claimed_again: object, desk: Desk
) -> None:
    late = await desk.claim_operation()
    new_owner = await lose(desk)
    if claimed_again:
        await new_owner.ledger.claim_operation()
    before, count = desk.snapshot(), len(desk.events())
    with pytest.raises(StaleFenceError):
        await desk.ledger.execute(late, applied(intent()))
    await desk.ledger.retry_operation(late, TROUBLE, 0)
    await desk.ledger.fail_operation(late, TROUBLE, {"code": "failed"}, (intent(),))
    await desk.ledger.shelve_operation(late, "schema 9", 1_000)
    assert desk.snapshot() == before
    assert desk.events()[count:] == ["operation.late_result"] * 4


async def test_a_claim_lapses_after_its_lease_and_not_a_millisecond_before(desk: Desk) -> None:
    await desk.owe(intent(), request_id="r1")
    await desk.claim()
    await desk.claim_operation("r2")
    other = await second_bot(desk)
    desk.clock.advance(LEASE)
    assert await take_back_lapsed(other.ledger) == Recovered(0, 0, 0)
    desk.clock.advance(1)
    assert await take_back_lapsed(other.ledger) == Recovered(1, 1, 0)
    assert (desk.effect(1).state, desk.operation(2).state) == ("uncertain", "reserved")


async def test_a_renewed_claim_is_not_taken_and_a_process_never_takes_its_own(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"), request_id="r1")
    effect = await desk.claim()
    operation = await desk.claim_operation("r2")
    other = await second_bot(desk)
    desk.clock.advance(LEASE - 1)
    assert await renew_leases(desk.ledger)
    desk.clock.advance(LEASE)
    assert await take_back_lapsed(other.ledger) == Recovered(0, 0, 0)
    desk.clock.advance(1)
    assert await take_back_lapsed(desk.ledger) == Recovered(0, 0, 0)
    assert sure(await desk.ledger.settle(effect, Delivered("a01", {}))).state == "delivered"
    await desk.ledger.execute(operation, applied())
    assert desk.operation(operation.id).state == "completed"


async def test_lease_renewal_keeps_only_the_claims_of_its_own_process(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed", "Q-1"), intent("crm.create", "keyed", "Q-2"))
    await desk.ledger.claim_effects({"crm.create": 1})
    other = await second_bot(desk)
    await other.ledger.claim_effects({"crm.create": 1})
    desk.clock.advance(LEASE)
    await renew_leases(other.ledger)
    desk.clock.advance(1)
    assert await take_back_lapsed(other.ledger) == Recovered(0, 1, 0)
    assert (desk.effect(1).state, desk.effect(2).state) == ("pending", "in_flight")


async def test_process_with_a_closed_epoch_learns_it_at_its_next_lease_renewal(desk: Desk) -> None:
    assert await renew_leases(desk.ledger)
    await restart(desk)
    assert not await renew_leases(desk.ledger)


async def test_a_second_bot_on_the_same_ledger_leaves_the_first_one_alive(desk: Desk) -> None:
    await second_bot(desk)
    assert [row["ended_at"] for row in desk.rows("SELECT ended_at FROM epochs")] == [None, None]


async def test_two_bots_never_hold_the_same_row(desk: Desk) -> None:
    await desk.owe(*(intent("crm.create", "keyed", f"Q-{number}") for number in range(6)))
    other = await second_bot(desk)
    first = await desk.ledger.claim_effects({"crm.create": 3})
    second = await other.ledger.claim_effects({"crm.create": 9})
    assert sorted(effect.id for effect in (*first, *second)) == [1, 2, 3, 4, 5, 6]


# --------------------------------------------------------------------------------------- shelved, pinned, purged, in lanes


async def test_a_shelved_command_waits_at_the_head_of_its_lane_and_burns_nothing(desk: Desk) -> None:
    operation = await desk.claim_operation("r1")
    await desk.reserve("r2")
    await desk.ledger.shelve_operation(operation, "its payload has schema 9", 60_000)
    stored = desk.operation(1)
    assert (stored.state, stored.category, stored.claims, stored.attempts) == ("reserved", "needs_newer_build", 0, 0)
    assert stored.next_attempt_at == START_MS + 60_000
    assert desk.rows("SELECT * FROM attempts") == []
    assert desk.last_event("operation.shelved")["after"] == {"why": "its payload has schema 9"}
    desk.clock.advance(59_999)
    assert await desk.ledger.claim_operations(9) == []
    desk.clock.advance(1)
    assert [one.id for one in await desk.ledger.claim_operations(9)] == [1]


async def test_shelving_again_and_again_never_makes_poison(desk: Desk) -> None:
    await desk.reserve()
    for _ in range(5):
        await desk.ledger.shelve_operation(sure(await desk.ledger.claim_operation()), "schema 9", 0)
    desk = await after_death(desk)
    assert sure(await desk.ledger.claim_operation()).claims == 1


async def test_head_version_at_the_first_delivery_is_pinned_to_the_command(desk: Desk) -> None:
    heads = {"Q-1": 4}
    ledger = Ledger(desk.ledger.database, desk.clock, AUDIT, epoch=desk.ledger.epoch, pin=lambda _, quote: heads[quote])
    pinned = Desk(ledger, desk.clock, desk.shell)
    first = await pinned.reserve("r1", aggregate_id="Q-1", aggregate_version=None)
    heads["Q-1"] = 5
    again = await pinned.reserve("r1", aggregate_id="Q-1", aggregate_version=None)
    assert (first.operation.pinned_version, again.operation.pinned_version, desk.operation().pinned_version) == (4, 4, 4)
    created = await pinned.reserve("r2", aggregate_id="new", aggregate_version=0)
    assert created.operation.pinned_version is None


async def test_a_command_done_and_purged_long_ago_is_answered_by_its_tombstone(desk: Desk) -> None:
    done = await desk.claim_operation()
    await desk.ledger.execute(done, applied())
    desk.shell.execute(
        "INSERT INTO tombstones SELECT operation_key, payload_hash, state, outcome, finished_at, finished_at + 1 FROM operations"
    )
    desk.shell.execute("DELETE FROM operations")
    with_delivery = await desk.reserve()
    desk.shell.execute("DELETE FROM deliveries")
    without = await desk.reserve()
    for reservation in (with_delivery, without):
        assert (reservation.sighting, reservation.finished_at) == ("tombstone", START_MS)
        operation = reservation.operation
        assert (operation.operation_key, operation.state, operation.outcome) == (done.operation_key, "completed", "applied")
    assert desk.value("SELECT count(*) FROM operations") == 0
    assert await desk.ledger.claim_operation() is None
    assert desk.last_event("delivery.duplicate")["after"] == {"tombstone": True}


async def test_each_creation_has_its_own_lane_and_commands_on_a_quote_share_its_lane(desk: Desk) -> None:
    for request_id in ("r1", "r2"):
        await desk.reserve(request_id, aggregate_id="new", aggregate_version=0)
    for request_id in ("r3", "r4"):
        await desk.reserve(request_id, aggregate_id="Q-9")
    lanes = [row["lane"] for row in desk.rows("SELECT lane FROM operations ORDER BY id")]
    assert lanes == [desk.operation(1).operation_key, desk.operation(2).operation_key, "Q-9", "Q-9"]
    assert [one.id for one in await desk.ledger.claim_operations(9)] == [1, 2, 3]


async def test_a_group_takes_no_more_than_asked_and_the_longest_due_first(desk: Desk) -> None:
    for number in range(5):
        await desk.reserve(f"r{number}", aggregate_id=f"Q-{number}")
        desk.clock.advance(1)
    assert [one.id for one in await desk.ledger.claim_operations(2)] == [1, 2]
    assert [one.id for one in await desk.ledger.claim_operations(9)] == [3, 4, 5]
