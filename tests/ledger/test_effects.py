"""Tests of pending effects: which are due, in which order, and what holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger import keys
from ledger.ledger import StaleFenceError
from ledger.records import AuditEvent, Delivered, Drop, Fail, FollowUps, Hold, Retry, Uncertain
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, Settlement
    from tests.ledger.parts import Desk

DONE = Delivered("ref", {})
OTHER = "Q-2026-0002"


def render() -> EffectIntent:
    return intent("pdf.render", "pure")


async def test_a_lane_has_one_effect_in_flight_and_keeps_its_order(desk: Desk) -> None:
    first, second, third = await desk.owe(intent(), intent(), intent())
    for expected in (first, second, third):
        effect = await desk.claim()
        assert effect.id == expected.id
        assert await desk.claimed_ids() == []
        await desk.ledger.settle(effect, DONE)
    assert await desk.claimed_ids() == []


async def test_lanes_do_not_wait_for_each_other(desk: Desk) -> None:
    owed = await desk.owe(intent(), intent(target=OTHER), render(), intent("crm.create", "keyed"))
    assert await desk.claimed_ids() == [effect.id for effect in owed]


async def test_each_class_has_slots_of_its_own_and_a_class_without_any_is_left_alone(desk: Desk) -> None:
    posts = await desk.owe(*(intent(target=f"Q-{number}") for number in range(5)), request_id="r1")
    crm, pdf, _ = await desk.owe(intent("crm.create", "keyed"), render(), intent("llm.dream", "pure"), request_id="r2")
    claimed = await desk.ledger.claim_effects({"crm.create": 9, "slack.post": 3, "pdf.render": 0})
    assert [effect.id for effect in claimed] == [crm.id, *(effect.id for effect in posts[:3])]
    claimed = await desk.ledger.claim_effects({"slack.post": 9, "pdf.render": 1})
    assert [effect.id for effect in claimed] == [*(effect.id for effect in posts[3:]), pdf.id]
    assert await desk.ledger.claim_effects({}) == []


async def test_scheduled_effect_holds_no_lane_before_its_time(desk: Desk) -> None:
    later, now = await desk.owe(intent(not_before=START_MS + 60_000), intent())
    assert later.next_attempt_at == START_MS + 60_000
    effect = await desk.claim()
    assert effect.id == now.id
    desk.clock.advance(60_000)
    assert await desk.claimed_ids() == [], "its lane is busy with the younger one"
    await desk.ledger.settle(effect, DONE)
    assert await desk.claimed_ids() == [later.id]


async def test_scheduled_effect_holds_its_lane_once_its_time_has_come(desk: Desk) -> None:
    await desk.owe(intent(not_before=START_MS + 60_000), intent())
    younger = await desk.claim()
    await desk.ledger.settle(younger, Retry(TROUBLE, 60_000))
    desk.clock.advance(60_000)
    assert (await desk.claim()).id == 1


async def test_claim_has_a_fence_and_a_lease_and_its_attempt_is_written_at_the_end(desk: Desk) -> None:
    await desk.owe(intent())
    effect = await desk.claim()
    assert (effect.state, effect.fence, effect.claims, effect.attempts, effect.reconciling) == ("in_flight", 1, 1, 0, False)
    row = desk.rows("SELECT * FROM effects")[0]
    assert (row["epoch"], row["lease_until"]) == (desk.ledger.epoch, START_MS + 120_000)
    assert desk.rows("SELECT * FROM attempts") == []
    desk.clock.advance(30)
    await desk.ledger.settle(effect, DONE)
    (attempt,) = desk.rows("SELECT * FROM attempts")
    assert (attempt["kind"], attempt["fence"], attempt["epoch"], attempt["cycle"]) == ("send", 1, desk.ledger.epoch, 1)
    assert (attempt["started_at"], attempt["ended_at"], attempt["outcome"]) == (START_MS, START_MS + 30, "delivered")


@pytest.mark.parametrize("holding", [Retry(TROUBLE, 60_000), Uncertain(TROUBLE, 60_000)])
async def test_an_effect_that_waits_for_its_retry_or_its_look_up_holds_its_lane(holding: Settlement, desk: Desk) -> None:
    first, second = await desk.owe(intent(), intent())
    await desk.ledger.settle(await desk.claim(), holding)
    desk.clock.advance(59_999)
    assert await desk.claimed_ids() == []
    desk.clock.advance(1)
    effect = await desk.claim()
    assert effect.id == first.id
    await desk.ledger.settle(effect, DONE)
    assert await desk.claimed_ids() == [second.id]


@pytest.mark.parametrize("end", [Fail(TROUBLE), Drop(TROUBLE)])
async def test_failed_or_superseded_effect_frees_its_lane(end: Settlement, desk: Desk) -> None:
    _, second = await desk.owe(intent(), intent())
    await desk.ledger.settle(await desk.claim(), end)
    assert await desk.claimed_ids() == [second.id]


async def test_an_effect_that_needs_another_s_result_waits_until_that_is_delivered(desk: Desk) -> None:
    operation = await desk.reserve()
    root_key = keys.effect_key(operation.operation.operation_key, "slack.post", 0)
    root, card = await desk.owe(intent(), intent("slack.card", "convergent", after=root_key))
    assert await desk.claimed_ids() == [root.id]
    await desk.ledger.settle(desk.effect(root.id), Retry(TROUBLE, 10))
    assert await desk.claimed_ids() == []
    desk.clock.advance(10)
    await desk.ledger.settle(await desk.claim(), DONE)
    assert await desk.claimed_ids() == [card.id]


async def test_a_failed_parent_holds_its_dependants_visibly(desk: Desk) -> None:
    operation = await desk.reserve()
    root_key = keys.effect_key(operation.operation.operation_key, "slack.post", 0)
    root, card = await desk.owe(intent(), intent("slack.card", "convergent", after=root_key))
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    desk.clock.advance(3_600_000)
    assert await desk.claimed_ids() == []
    assert (desk.effect(root.id).state, desk.effect(card.id).state) == ("failed", "pending")


async def test_newer_card_supersedes_the_older_ones(desk: Desk) -> None:
    card = intent("slack.card", "convergent", supersede_key=f"card:{QUOTE}")
    elsewhere = intent("slack.card", "convergent", OTHER, supersede_key=f"card:{OTHER}")
    old, other = await desk.owe(card, elsewhere, request_id="r1")
    (new,) = await desk.owe(card, request_id="r2")
    assert [desk.effect(owed.id).state for owed in (old, other, new)] == ["superseded", "pending", "pending"]
    event = desk.last_event("effect.superseded")
    assert (event["effect_id"], event["after"]) == (old.id, {"by": new.effect_key})
    assert await desk.claimed_ids() == [other.id, new.id]


async def test_a_card_under_way_is_not_superseded(desk: Desk) -> None:
    card = intent("slack.card", "convergent", supersede_key=f"card:{QUOTE}")
    (old,) = await desk.owe(card, request_id="r1")
    under_way = await desk.claim()
    (new,) = await desk.owe(card, request_id="r2")
    assert (desk.effect(old.id).state, desk.effect(new.id).state) == ("in_flight", "pending")
    await desk.ledger.settle(under_way, DONE)
    assert await desk.claimed_ids() == [new.id]


async def test_refused_login_holds_its_family_until_resumed_and_then_sends_one_trial(desk: Desk) -> None:
    crm, post, later = await desk.owe(intent("crm.create", "keyed"), intent(), intent("crm.create", "keyed", OTHER))
    (claimed, _) = await desk.ledger.claim_effects({"crm.create": 1, "slack.post": 1})
    await desk.ledger.settle(claimed, Hold(TROUBLE))
    desk.clock.advance(86_400_000)
    assert await desk.claimed_ids() == []
    assert {desk.effect(owed.id).state for owed in (crm, later)} == {"pending"}
    assert desk.effect(post.id).state == "in_flight"
    assert not await desk.ledger.resume("slack", "ops"), "the login belongs to the family"
    assert await desk.ledger.resume("crm", "ops")
    assert desk.last_event("class.half_open")["actor"] == "ops"
    trial = await desk.claim()
    assert trial.id == crm.id
    await desk.ledger.settle(trial, DONE)
    assert desk.last_event("class.resumed")["after"] == {"class": "crm", "cause": "auth", "why": "a trial got an answer"}
    assert await desk.claimed_ids() == [later.id]


async def test_resuming_a_class_that_is_not_paused_says_so_and_is_not_audited(desk: Desk) -> None:
    assert not await desk.ledger.resume("crm.create", "ops")
    assert desk.events() == []


async def test_a_class_asked_to_wait_by_the_other_side_waits_to_the_millisecond(desk: Desk) -> None:
    _, elsewhere, post = await desk.owe(intent("crm.create", "keyed"), intent("crm.create", "keyed", OTHER), intent())
    (claimed,) = await desk.ledger.claim_effects({"crm.create": 1})
    await desk.ledger.settle(claimed, Retry(TROUBLE, delay_ms=100, hold_until=START_MS + 2_000))
    assert await desk.claimed_ids() == [post.id]
    assert await desk.ledger.next_effect_due_at(("crm.create",)) == START_MS + 100
    desk.clock.advance(1_999)
    assert await desk.claimed_ids() == []
    assert await desk.ledger.next_effect_due_at(("crm.create",)) == START_MS + 2_000
    desk.clock.advance(1)
    assert await desk.claimed_ids() == [elsewhere.id, claimed.id]
    assert [row["state"] for row in desk.rows("SELECT * FROM gates")] == ["flowing"]


async def test_throttled_check_makes_its_class_wait_too(desk: Desk) -> None:
    await desk.owe(intent(), intent(target=OTHER))
    looking, other = await desk.claim_each()
    await desk.ledger.settle(other, Retry(TROUBLE, 0))
    await desk.ledger.settle(looking, Uncertain(TROUBLE, 0, hold_until=START_MS + 500))
    assert await desk.claimed_ids() == []
    desk.clock.advance(500)
    assert sorted(await desk.claimed_ids()) == [looking.id, other.id]


async def test_a_wait_never_shortens_a_longer_one_and_never_ends_a_pause(desk: Desk) -> None:
    await desk.owe(*(intent("crm.create", "keyed", f"Q-{number}") for number in range(4)))
    first, second, third, fourth = await desk.claim_each()
    for effect, hold_until in ((first, START_MS + 9_000), (second, START_MS + 1_000)):
        await desk.ledger.settle(effect, Retry(TROUBLE, 0, hold_until=hold_until))
    assert desk.value("SELECT until_at FROM gates") == START_MS + 9_000
    await desk.ledger.pause("crm.create", "ops", "maintenance")
    await desk.ledger.settle(third, Retry(TROUBLE, 0, hold_until=START_MS + 99_000))
    assert [tuple(row) for row in desk.rows("SELECT until_at, cause FROM gates")] == [(None, "operator")]
    await desk.ledger.settle(fourth, Hold(TROUBLE))
    assert [row["until_at"] for row in desk.rows("SELECT * FROM gates ORDER BY name")] == [None, None]


async def test_the_next_wake_up_is_the_earliest_that_time_alone_brings(desk: Desk) -> None:
    post = ("slack.post",)
    assert await desk.ledger.next_effect_due_at(post) is None
    await desk.owe(intent(), intent(), intent(target=OTHER))
    assert await desk.ledger.next_effect_due_at(post) is None, "what is due already needs no alarm"
    first, other = await desk.claim_each()
    await desk.ledger.settle(first, Retry(TROUBLE, 5_000))
    await desk.ledger.settle(other, Retry(TROUBLE, 4_000))
    assert await desk.ledger.next_effect_due_at(post) == START_MS + 4_000
    assert await desk.ledger.next_effect_due_at(("crm.create",)) is None, "another worker's rows are no alarm"
    desk.clock.advance(4_000)
    assert await desk.ledger.next_effect_due_at(post) == START_MS + 5_000
    assert await desk.ledger.next_operation_due_at() is None


async def test_retrying_command_wakes_the_executor_when_due_and_a_blocked_one_does_not(desk: Desk) -> None:
    operation = await desk.claim_operation("r1")
    await desk.reserve("r2")
    assert await desk.ledger.next_operation_due_at() is None
    await desk.ledger.retry_operation(operation, TROUBLE, 3_000)
    assert await desk.ledger.next_operation_due_at() == START_MS + 3_000
    assert await desk.ledger.next_effect_due_at(("slack.post",)) is None


async def test_a_recorded_step_is_durable_at_once_and_steps_add_up(desk: Desk) -> None:
    await desk.owe(intent("slack.file"))
    effect = await desk.claim()
    effect = await desk.ledger.record_step(effect, "ticket", {"file_id": "F1"})
    effect = await desk.ledger.record_step(effect, "uploaded", {"bytes": 900})
    steps = {"ticket": {"file_id": "F1"}, "uploaded": {"bytes": 900}}
    assert effect.steps == json.loads(desk.value("SELECT steps FROM effects")) == steps
    await desk.ledger.settle(effect, Retry(TROUBLE, 0))
    assert (await desk.claim()).steps == steps


async def test_the_steps_of_an_effect_can_be_started_over_by_the_one_who_holds_it(desk: Desk) -> None:
    await desk.owe(intent("slack.file"))
    effect = await desk.ledger.record_step(await desk.claim(), "ticket", {"file_id": "F1"})
    assert (await desk.ledger.forget_steps(effect)).steps == {}
    await desk.ledger.settle(effect, Retry(TROUBLE, 0))
    with pytest.raises(StaleFenceError):
        await desk.ledger.forget_steps(effect)
    assert (await desk.claim()).steps == {}


async def test_a_step_of_a_lost_claim_is_not_recorded(desk: Desk) -> None:
    await desk.owe(intent("slack.file"))
    late = await desk.claim()
    await desk.ledger.settle(late, Retry(TROUBLE, 0))
    await desk.claim()
    with pytest.raises(StaleFenceError):
        await desk.ledger.record_step(late, "ticket", {"file_id": "F2"})
    assert desk.value("SELECT steps FROM effects") == "{}"


async def test_follow_ups_have_keys_of_their_own_grown_from_their_parent_in_order(desk: Desk) -> None:
    moved = AuditEvent("quote.moved", OTHER, after={"pdf": "there"})

    def two_cards(_: Tx, settled: Effect) -> FollowUps:
        assert settled.state == "delivered"
        return FollowUps((intent("slack.card", "convergent"), intent("slack.card", "convergent")), (moved,))

    def one_more(_: Tx, __: Effect) -> FollowUps:
        return FollowUps((intent("slack.card", "convergent"),))

    (owed,) = await desk.owe(render())
    parent = sure(await desk.ledger.settle(await desk.claim(), DONE, two_cards))
    await desk.ledger.database.write(
        "more", lambda tx: desk.ledger.enqueue_children(tx, START_MS, parent, one_more(tx, parent).effects)
    )
    children = desk.rows("SELECT * FROM effects WHERE parent_id = ? ORDER BY id", owed.id)
    assert [row["effect_key"] for row in children] == [
        keys.effect_key(owed.effect_key, "slack.card", ordinal) for ordinal in range(3)
    ]
    assert {(row["operation_id"], row["correlation_id"]) for row in children} == {(owed.operation_id, owed.correlation_id)}
    assert desk.last_event("quote.moved")["aggregate_id"] == OTHER


async def test_invalid_follow_up_leaves_the_parent_unsettled(desk: Desk) -> None:
    def impossible(_: Tx, __: Effect) -> FollowUps:
        return FollowUps((intent(after="0" * 64),))

    await desk.owe(render())
    effect = await desk.claim()
    before, events = desk.snapshot(), desk.events()
    with pytest.raises(LookupError, match="never owed"):
        await desk.ledger.settle(effect, DONE, impossible)
    assert (desk.snapshot(), desk.events()) == (before, events)
    assert sure(await desk.ledger.settle(effect, DONE)).state == "delivered"
