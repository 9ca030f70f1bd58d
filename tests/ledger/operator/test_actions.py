"""Tests of operator actions on a dead letter: discard, and the resolution of an unknown outcome."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger import keys
from ledger.ledger import no_follow_ups
from ledger.operator.actions import DISCARDED_KEPT_MS, Verdict
from ledger.operator.replay import last_replay
from ledger.records import Delivered, Effect, Fail, FollowUps, Uncertain
from tests.ledger.dead_parts import CRM, MAPPING, SENT, UNKNOWN, bury, bury_command, replay
from tests.ledger.parts import START_MS, applied, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision
    from ledger.operator.dead_letters import DeadLetters, Ruling
    from tests.ledger.parts import Desk


async def discard(
    letters: DeadLetters, reference: str, *, follow: FollowUpDecision = no_follow_ups, cycle: int | None = None
) -> Ruling:
    return await letters.discard(reference, actor="ops", reason="the deal is off", follow=follow, cycle_seen=cycle)


async def resolve(
    letters: DeadLetters, reference: str, *, delivered: bool, ref: str | None = None, follow: FollowUpDecision = no_follow_ups
) -> Ruling:
    return await letters.resolve(reference, delivered=delivered, actor="ops", reason="I looked", follow=follow, external_ref=ref)


def shows_a_card(_: Tx, moved: Effect) -> FollowUps:
    """Enqueue a card that shows the outcome of the effect."""
    return FollowUps((intent("slack.card", "convergent", payload={"shows": moved.state.value}),))


async def root_and_reply(desk: Desk) -> tuple[Effect, int]:
    """Enqueue a thread's root and a reply that waits for it; claim the root."""
    operation = await desk.claim_operation()
    root_key = keys.effect_key(operation.operation_key, "slack.post", 0)
    await desk.ledger.execute(operation, applied(intent(), intent("slack.card", "convergent", after=root_key)))
    return await desk.claim(), 2


# --------------------------------------------------------------------------------------------------------------- discard


async def test_a_discarded_effect_stays_and_what_waited_for_it_is_superseded(desk: Desk, letters: DeadLetters) -> None:
    root, child = await root_and_reply(desk)
    await desk.ledger.settle(root, Fail(MAPPING))
    ruling = await discard(letters, f"{root.id}", follow=shows_a_card)
    assert (ruling.verdict, ruling.effect_class) == (Verdict.DONE, "slack.post")
    assert (desk.effect(root.id).state, desk.effect(child).state) == ("discarded", "superseded")
    event = desk.last_event("effect.discarded")
    assert (event["actor"], event["actor_type"], event["after"]) == ("ops", "operator", {"reason": "the deal is off"})
    assert desk.last_event("effect.superseded")["effect_id"] == child
    assert desk.effect(3).payload == {"shows": "discarded"}, "what the product shows is owed in the same transaction"
    assert (await letters.list())[:] == []
    assert sure(await letters.show(f"{root.id}")).status == "discarded"


async def test_a_discarded_command_is_kept_for_thirty_days(desk: Desk, letters: DeadLetters) -> None:
    await bury_command(desk)
    assert (await discard(letters, "op1")).verdict is Verdict.DONE
    (row,) = desk.rows("SELECT state, retain_until, response FROM operations")
    assert (row["state"], row["retain_until"]) == ("discarded", START_MS + DISCARDED_KEPT_MS)
    assert DISCARDED_KEPT_MS == 30 * 24 * 60 * 60 * 1000
    assert json.loads(row["response"]) == {"code": "discarded"}
    event = desk.last_event("operation.discarded")
    assert (event["actor"], event["after"]) == ("ops", {"reason": "the deal is off"})
    assert (await replay(letters, "op1")).outcome == "discarded"


async def test_only_what_is_dead_can_be_discarded(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent(), CRM, intent("slack.file"))
    post, crm, _ = await desk.claim_each()
    await desk.ledger.settle(post, Uncertain(SENT, 1_000))
    await desk.ledger.settle(crm, Delivered("a01", {}))
    before, events = desk.snapshot(), desk.events()
    said = [await discard(letters, reference) for reference in ("1", "2", "3", "4", "op1", "op2")]
    assert [ruling.verdict for ruling in said] == ["refused", "refused", "refused", "not found", "refused", "not found"]
    assert [ruling.code for ruling in said] == [*["not_dead"] * 3, "not_found", "not_dead", "not_found"]
    states = [ruling.row and ruling.row["state"] for ruling in said]
    assert states == ["uncertain", "delivered", "in_flight", None, "completed", None]
    assert (desk.snapshot(), desk.events()) == (before, events)


async def test_discard_based_on_an_outdated_cycle_is_refused(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    await replay(letters, "1", "first")
    await desk.ledger.settle(await desk.claim(), Fail(MAPPING))
    ruling = await discard(letters, "1", cycle=1)
    assert (ruling.verdict, ruling.code, last_replay(sure(ruling.row))[0]) == (Verdict.LOST, "changed", "first")
    assert desk.effect(1).state == "failed"


# -------------------------------------------------------------------------------------------------------------- delivered


@pytest.mark.parametrize("dead", [True, False], ids=["given up", "in doubt"])
async def test_dependents_of_an_effect_marked_as_delivered_go_on(dead: object, desk: Desk, letters: DeadLetters) -> None:
    root, child = await root_and_reply(desk)
    await desk.ledger.settle(root, Fail(UNKNOWN) if dead else Uncertain(SENT, 60_000))
    desk.clock.advance(1_000)
    assert (await resolve(letters, f"{root.id}", delivered=True, ref="17.1", follow=shows_a_card)).verdict is Verdict.DONE
    now = desk.effect(root.id)
    assert (now.state, now.external_ref, now.result) == ("delivered", "17.1", {"already_there": True, "resolved_by": "ops"})
    assert (now.uncertain_since, now.next_attempt_at) == (None, None)
    assert desk.effect(child).next_attempt_at == START_MS + 1_000
    assert desk.effect(3).payload == {"shows": "delivered"}
    event = desk.last_event("effect.resolved")
    assert (event["actor"], event["after"]["reason"], event["after"]["state"]) == ("ops", "I looked", "delivered")
    assert json.loads(event["before"]) == {"state": "failed" if dead else "uncertain", "cycle": 1}


async def test_objection_of_the_product_refuses_a_resolution_and_changes_nothing(desk: Desk, letters: DeadLetters) -> None:
    root, _ = await root_and_reply(desk)
    await desk.ledger.settle(root, Fail(UNKNOWN))
    before, events = desk.snapshot(), desk.events()
    ruling = await letters.resolve(
        "1",
        delivered=True,
        actor="ops",
        reason="I looked",
        follow=no_follow_ups,
        objection=lambda effect, ref: f"{effect.effect_class} needs its timestamp, not {ref}.",
    )
    assert (ruling.verdict, ruling.code, ruling.objection) == (
        Verdict.REFUSED,
        "objection",
        "slack.post needs its timestamp, not None.",
    )
    assert (desk.snapshot(), desk.events()) == (before, events)


# ------------------------------------------------------------------------------------------------------------- send again


@pytest.mark.parametrize("dead", [True, False], ids=["given up", "in doubt"])
async def test_effect_sent_again_restarts_at_its_first_step_without_a_check(dead: object, desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent("slack.file"))
    effect = await desk.ledger.record_step(await desk.claim(), "ticket", {"file_id": "F1"})
    await desk.ledger.settle(effect, Fail(UNKNOWN) if dead else Uncertain(SENT, 60_000))
    assert (await resolve(letters, "1", delivered=False, follow=shows_a_card)).verdict is Verdict.DONE
    now = desk.effect(1)
    assert (now.state, now.steps, now.maybe_sent, now.cycle, now.attempts) == ("pending", {}, False, 2, 0)
    assert (now.effect_key, now.uncertain_since) == (effect.effect_key, None)
    assert desk.effect(2).payload == {"shows": "pending"}
    claimed = next(each for each in await desk.claim_each() if each.id == 1)
    assert not claimed.reconciling
    (entry,) = json.loads(desk.value("SELECT failure_history FROM effects WHERE id = 1"))
    assert (entry["cycle"], entry["category"], entry["replayed_by"]) == (1, "uncertain", "ops")


async def test_resolving_an_uncertain_effect_audits_the_failure_and_the_new_cycle(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 60_000))
    known = len(desk.events())
    await resolve(letters, "1", delivered=False)
    assert desk.events()[known:] == ["system.error", "effect.resolved"]
    assert desk.last_event("system.error")["failure_category"] == "uncertain"
    assert desk.last_event("effect.resolved")["after"]["state"] == "pending"


# ---------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("delivered", [True, False])
async def test_resolution_is_refused_where_the_state_can_be_determined(delivered: object, desk: Desk, letters: DeadLetters) -> None:
    await bury(desk, CRM, SENT, "r1")  # keyed: the service can be asked
    await bury(desk, intent(), MAPPING, "r2")  # refused before it was sent
    await desk.owe(intent("slack.card", "convergent"), request_id="r3")
    await bury_command(desk, "r4")
    before, events = desk.snapshot(), desk.events()
    references = ("1", "2", "3", "op4", "9", "op9")
    said = [await resolve(letters, reference, delivered=bool(delivered)) for reference in references]
    assert [ruling.verdict for ruling in said] == [*["refused"] * 4, "not found", "not found"]
    codes = ["repeatable", "repeatable", "not_uncertain", "is_command", "not_found", "not_found"]
    assert [ruling.code for ruling in said] == codes
    states = [ruling.row and ruling.row["state"] for ruling in said]
    assert states == ["failed", "failed", "pending", "failed_terminal", None, None]
    assert (desk.snapshot(), desk.events()) == (before, events)


async def test_resolution_during_a_running_check_is_refused(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 0))
    claimed = await desk.claim()
    ruling = await resolve(letters, "1", delivered=True, ref="17.1")
    assert (ruling.verdict, ruling.code, sure(ruling.row)["state"]) == (Verdict.REFUSED, "not_uncertain", "in_flight")
    assert sure(await desk.ledger.settle(claimed, Delivered("17.1", {}))).state == "delivered"


async def test_append_whose_check_failed_for_good_can_be_resolved(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk, intent(), SENT)
    assert (await resolve(letters, "1", delivered=True, ref="17.1")).verdict is Verdict.DONE
