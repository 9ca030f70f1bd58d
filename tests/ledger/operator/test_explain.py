"""Tests of effects that depend on another effect: they wake on its delivery, are dropped with it, and sleep no longer than it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger import intake, keys
from ledger.ledger import no_follow_ups
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Drop, Effect, Fail, FollowUps, Retry, Trouble, Uncertain
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import EffectIntent, Settlement
    from tests.ledger.parts import Desk

DONE = Delivered("ref", {})
SENT = Trouble("transient", "time-out after the request left", maybe_sent=True)
CARD = intent("slack.card", "convergent", supersede_key=f"card:{QUOTE}")


async def owe_tree(desk: Desk, *, not_before: int | None = None) -> tuple[Effect, Effect, Effect, Effect]:
    """Enqueue a root post, two effects that wait for it, and one that waits for the first of those."""
    root_key, child_key = await keys_of(desk)
    owed = await desk.owe(
        intent(),
        intent("slack.file", after=root_key, not_before=not_before),
        intent("crm.create", "keyed", after=root_key),
        intent("slack.card", "convergent", after=child_key),
    )
    return owed[0], owed[1], owed[2], owed[3]


async def keys_of(desk: Desk) -> tuple[str, str]:
    operation = (await desk.reserve()).operation
    return keys.effect_key(operation.operation_key, "slack.post", 0), keys.effect_key(operation.operation_key, "slack.file", 1)


def states(desk: Desk) -> list[str]:
    return [row["state"] for row in desk.rows("SELECT state FROM effects ORDER BY id")]


def due_times(desk: Desk) -> list[int | None]:
    return [row["next_attempt_at"] for row in desk.rows("SELECT next_attempt_at FROM effects ORDER BY id")]


def waits_for(parent: Effect) -> EffectIntent:
    return intent("pdf.render", "pure", after=parent.effect_key)


async def discard(desk: Desk, effect: Effect) -> None:
    """Discard an effect in the ledger, as an operator does."""

    def work(tx: Tx) -> None:
        row = sure(tx.one("discard_effect", id=effect.id, cycle=effect.cycle, now=desk.clock.now_ms()))
        desk.ledger.audit.of_effect(tx, desk.clock.now_ms(), "effect.discarded", Effect.of(row), actor="ops")
        intake.drop_waiting(tx, desk.ledger.audit, desk.clock.now_ms(), effect.id, "discarded by ops")

    await desk.ledger.database.write("discard", work)


async def test_child_has_no_due_time_until_its_parent_is_delivered(desk: Desk) -> None:
    root, first, second, grandchild = await owe_tree(desk)
    assert due_times(desk) == [START_MS, None, None, None]
    claimed = await desk.claim()
    desk.clock.advance(250)
    await desk.ledger.settle(claimed, DONE)
    assert due_times(desk) == [None, START_MS + 250, START_MS + 250, None]
    children = await desk.claim_each()
    assert {effect.id for effect in children} == {first.id, second.id}
    await desk.ledger.settle(next(effect for effect in children if effect.id == first.id), DONE)
    assert await desk.claimed_ids() == [grandchild.id]
    assert root.id == claimed.id


async def test_scheduled_child_keeps_its_time_and_ages_from_it(desk: Desk) -> None:
    _, child, _, _ = await owe_tree(desk, not_before=START_MS + 60_000)
    await desk.ledger.settle(await desk.claim(), DONE)
    stored = desk.effect(child.id)
    assert (stored.next_attempt_at, stored.aged_from) == (START_MS + 60_000, START_MS + 60_000)


async def test_child_ages_from_the_delivery_of_its_parent(desk: Desk) -> None:
    await owe_tree(desk)
    desk.clock.advance(3_600_000)
    await desk.ledger.settle(await desk.claim(), DONE)
    assert desk.effect(2).aged_from == START_MS + 3_600_000
    assert len(await desk.ledger.claim_effects({"slack.file": 1}, max_age_ms={"slack.file": 1_000})) == 1


@pytest.mark.parametrize("detour", [Retry(TROUBLE, 0), Uncertain(SENT, 0)])
async def test_retry_or_uncertainty_of_the_parent_does_not_wake_its_children(detour: Settlement, desk: Desk) -> None:
    await owe_tree(desk)
    await desk.ledger.settle(await desk.claim(), detour)
    assert due_times(desk)[1:] == [None, None, None]
    await desk.ledger.settle(await desk.claim(), DONE)
    assert due_times(desk)[1:] == [START_MS, START_MS, None]


async def test_children_of_a_dead_letter_wait_until_its_replay_is_delivered(desk: Desk) -> None:
    await owe_tree(desk)
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    assert (states(desk), due_times(desk)) == (["failed", "pending", "pending", "pending"], [None, None, None, None])
    await DeadLetters(desk.ledger, build="2").replay("1", actor="ops", reason=None, follow=no_follow_ups)
    assert due_times(desk)[1:] == [None, None, None]
    await desk.ledger.settle(await desk.claim(), DONE)
    assert due_times(desk)[1:] == [START_MS, START_MS, None]


async def test_superseded_parent_supersedes_its_whole_tree_and_audits_each(desk: Desk) -> None:
    await owe_tree(desk)
    await desk.ledger.settle(await desk.claim(), Drop(TROUBLE))
    assert states(desk) == ["superseded"] * 4
    assert desk.events().count("effect.superseded") == 4
    assert desk.rows("SELECT last_error FROM effects WHERE id = 4")[0]["last_error"] == "effect 2 became needless"


async def test_a_discarded_parent_makes_the_whole_tree_needless(desk: Desk) -> None:
    await owe_tree(desk)
    await discard(desk, sure(await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))))
    assert states(desk) == ["discarded", "superseded", "superseded", "superseded"]


async def test_a_parent_that_became_too_old_to_send_makes_the_tree_needless(desk: Desk) -> None:
    root_key, _ = await keys_of(desk)
    await desk.owe(intent(semantics="repeat_once", expires_at=START_MS + 10), intent("slack.file", after=root_key))
    desk.clock.advance(10)
    assert await desk.claimed_ids() == []
    assert states(desk) == ["superseded", "superseded"]


async def test_a_parent_that_expired_is_a_dead_letter_and_what_waits_for_it_waits_on(desk: Desk) -> None:
    await owe_tree(desk)
    desk.clock.advance(1_001)
    assert await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms={"slack.post": 1_000}) == []
    assert states(desk) == ["failed", "pending", "pending", "pending"]


async def test_superseding_a_pending_parent_at_enqueue_supersedes_its_children(desk: Desk) -> None:
    (old,) = await desk.owe(CARD, request_id="r1")
    operation = await desk.claim_operation("r2")

    def wait(tx: Tx) -> None:
        parent = Effect.of(sure(tx.one("effect_by_id", id=old.id)))
        desk.ledger.enqueue_children(tx, START_MS, parent, (waits_for(old),))

    await desk.ledger.database.write("wait", wait)
    await desk.ledger.retry_operation(operation, TROUBLE, 0)
    await desk.owe(CARD, request_id="r2")
    assert states(desk) == ["superseded", "superseded", "pending"]


@pytest.mark.parametrize(
    ("end", "child"),
    [
        (DONE, ("pending", START_MS)),
        (Fail(TROUBLE), ("pending", None)),
        (Drop(TROUBLE), ("superseded", None)),
        (Retry(TROUBLE, 60_000), ("pending", None)),
        (Uncertain(TROUBLE, 60_000), ("pending", None)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("in_the_same_commit", [True, False])
async def test_child_of_a_settled_parent_is_due_waiting_or_superseded_by_its_state(
    end: Settlement, child: tuple[str, int | None], in_the_same_commit: object, desk: Desk
) -> None:
    def follow(_: Tx, settled: Effect) -> FollowUps:
        return FollowUps((waits_for(settled),))

    await desk.owe(intent())
    effect = await desk.claim()
    if in_the_same_commit:
        await desk.ledger.settle(effect, end, follow)
    else:
        settled = sure(await desk.ledger.settle(effect, end))
        await desk.ledger.database.write(
            "owe", lambda tx: desk.ledger.enqueue_children(tx, START_MS, settled, (waits_for(settled),))
        )
    assert [tuple(row) for row in desk.rows("SELECT state, next_attempt_at FROM effects WHERE parent_id = 1")] == [child]


async def test_child_of_a_discarded_parent_is_superseded(desk: Desk) -> None:
    await desk.owe(intent())
    dead = sure(await desk.ledger.settle(await desk.claim(), Fail(TROUBLE)))
    await discard(desk, dead)
    await desk.ledger.database.write("owe", lambda tx: desk.ledger.enqueue_children(tx, START_MS, dead, (waits_for(dead),)))
    assert states(desk) == ["discarded", "superseded"]


# -------------------------------------------------------------------------------------------------------------- supersede


async def test_of_two_updates_of_one_target_in_one_command_the_later_stays(desk: Desk) -> None:
    await desk.owe(CARD, intent(), CARD)
    assert states(desk) == ["superseded", "pending", "pending"]


@pytest.mark.parametrize("sent_before", [False, True])
@pytest.mark.parametrize("sent_now", [False, True])
async def test_failed_update_is_superseded_by_a_newer_one_that_inherits_maybe_sent(
    sent_before: object, sent_now: object, desk: Desk
) -> None:
    await desk.owe(CARD, request_id="r1")
    if sent_before:
        await desk.ledger.settle(await desk.claim(), Retry(SENT, 0))
    older = await desk.claim()
    (newer,) = await desk.owe(CARD, request_id="r2")
    dropped = sure(await desk.ledger.settle(older, Retry(SENT if sent_now else TROUBLE, 500)))
    assert (dropped.state, dropped.category) == ("superseded", "superseded")
    assert desk.effect(newer.id).maybe_sent == bool(sent_before or sent_now)
    assert desk.last_event("effect.superseded")["effect_id"] == older.id


async def test_update_superseded_before_its_retry_passes_on_maybe_sent(desk: Desk) -> None:
    await desk.owe(CARD, request_id="r1")
    await desk.ledger.settle(await desk.claim(), Retry(SENT, 60_000))
    (newer,) = await desk.owe(CARD, request_id="r2")
    assert states(desk) == ["superseded", "pending"]
    assert desk.effect(newer.id).maybe_sent


async def test_late_failure_of_an_update_does_not_change_the_newer_one(desk: Desk) -> None:
    await desk.owe(CARD, request_id="r1")
    late = await desk.claim()
    await desk.ledger.settle(late, Retry(TROUBLE, 0))
    await desk.claim()
    await desk.owe(CARD, request_id="r2")
    before = desk.snapshot()
    assert await desk.ledger.settle(late, Retry(SENT, 0)) is None
    assert desk.snapshot() == before


async def test_a_create_never_gives_way(desk: Desk) -> None:
    create = intent("crm.create", "keyed")
    await desk.owe(create, request_id="r1")
    older = await desk.claim()
    await desk.owe(create, request_id="r2")
    await desk.ledger.settle(older, Retry(TROUBLE, 0))
    assert states(desk) == ["pending", "pending"]


# ---------------------------------------------------------------------------------------------------------------- max age


AGE = {"slack.post": 10_000}


async def test_what_is_exactly_as_old_as_allowed_is_sent_and_a_millisecond_later_it_is_not(desk: Desk) -> None:
    await desk.owe(intent(), intent(target="other"))
    desk.clock.advance(10_000)
    assert len(await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE)) == 1
    desk.clock.advance(1)
    assert await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE) == []
    expired = desk.effect(2)
    assert (expired.state, expired.category, expired.fence, expired.attempts) == ("failed", "expired", 0, 0)
    event = desk.last_event("system.error")
    assert (event["effect_id"], event["failure_category"], event["recovery_action"]) == (2, "expired", "replay")
    assert desk.rows("SELECT * FROM attempts") == []


async def test_follow_ups_of_an_expired_effect_are_enqueued_in_its_own_commit(desk: Desk) -> None:
    def follow(_: Tx, dead: Effect) -> FollowUps:
        assert (dead.state, dead.category) == ("failed", "expired")
        return FollowUps((intent("slack.card", "convergent"),))

    await desk.owe(intent())
    desk.clock.advance(10_001)
    before = desk.ledger.database.health.commits
    await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE, follow=follow)
    assert desk.ledger.database.health.commits == before + 1
    assert [tuple(row) for row in desk.rows("SELECT class, parent_id, state FROM effects WHERE id = 2")] == [
        ("slack.card", 1, "pending")
    ]


async def test_uncertain_effect_never_expires_before_it_is_checked(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 0))
    desk.clock.advance(99_999_999)
    (looking,) = await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE)
    assert looking.reconciling


async def test_a_replay_makes_an_expired_effect_young_again(desk: Desk) -> None:
    await desk.owe(intent())
    desk.clock.advance(10_001)
    await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE)
    await DeadLetters(desk.ledger, build="2").replay("1", actor="ops", reason=None, follow=no_follow_ups)
    desk.clock.advance(10_000)
    assert len(await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE)) == 1


@pytest.mark.parametrize("owed", [intent(), intent(expires_at=START_MS + 1)], ids=["too old", "needless"])
async def test_expired_effect_wakes_the_worker_for_the_next_in_its_lane(owed: EffectIntent, desk: Desk) -> None:
    await desk.owe(owed)
    desk.clock.advance(10_001)
    desk.ledger.effects_changed.clear()
    assert await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE) == []
    assert desk.ledger.effects_changed.is_set()
    desk.ledger.effects_changed.clear()
    assert await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms=AGE) == []
    assert not desk.ledger.effects_changed.is_set()


async def test_a_class_without_an_age_never_expires(desk: Desk) -> None:
    await desk.owe(intent())
    desk.clock.advance(99_999_999_999)
    assert len(await desk.ledger.claim_effects({"slack.post": 1}, max_age_ms={"crm.create": 1})) == 1
