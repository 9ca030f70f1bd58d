"""Tests of the recovery of rows of dead processes at a start, and of a clean shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.claims import POISON_CLAIMS
from ledger.ledger import StaleFenceError, no_follow_ups
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered, Fail, FollowUps, Hold, Retry, Uncertain
from ledger.recovery import Recovered, give_back, take_back, take_back_lapsed
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, applied, intent, restart, sure

if TYPE_CHECKING:
    from ledger.database import Database, Tx
    from ledger.records import Effect, EffectIntent, Operation, Semantics
    from tests.ledger.parts import Desk


async def killed_while_executing(desk: Desk, times: int) -> tuple[Desk, Operation]:
    """Claim the next operation and crash, several times, with a recovery at every start except the last."""
    operation = sure(await desk.ledger.claim_operation())
    for _ in range(times - 1):
        desk = await restart(desk)
        await take_back(desk.ledger)
        operation = sure(await desk.ledger.claim_operation())
    return await restart(desk), operation


async def killed_while_delivering(desk: Desk, times: int) -> tuple[Desk, Effect]:
    """Do the same with the only due effect."""
    effect = await desk.claim()
    for _ in range(times - 1):
        desk = await restart(desk)
        await take_back(desk.ledger)
        effect = await desk.claim()
    return await restart(desk), effect


async def test_new_epoch_closes_those_of_crashed_processes(desk: Desk) -> None:
    desk.clock.advance(5)
    desk = await restart(desk)
    epochs = [
        (row["epoch"], row["build"], row["ended_at"], row["end_reason"]) for row in desk.rows("SELECT * FROM epochs ORDER BY epoch")
    ]
    assert epochs == [(1, "1.0", START_MS + 5, "died"), (2, "1.1", None, None)]


async def test_command_whose_executor_crashed_is_due_again_under_a_new_fence(desk: Desk) -> None:
    await desk.reserve()
    desk, dead = await killed_while_executing(desk, 1)
    assert await take_back(desk.ledger) == Recovered(operations=1, effects=0, poisoned=0)
    stored = desk.operation()
    assert (stored.state, stored.claims, stored.attempts, stored.next_attempt_at) == ("reserved", 1, 0, START_MS)
    assert desk.last_event("operation.released")["recovery_action"] == "retry"
    again = sure(await desk.ledger.claim_operation())
    assert (again.id, again.fence, again.claims) == (dead.id, 2, 2)
    assert [row["outcome"] for row in desk.rows("SELECT outcome FROM attempts")] == ["died"]


@pytest.mark.parametrize("semantics", ["pure", "keyed", "convergent"])
async def test_an_effect_that_may_be_repeated_is_due_again(semantics: Semantics, desk: Desk) -> None:
    await desk.owe(intent(semantics=semantics))
    desk, dead = await killed_while_delivering(desk, 1)
    assert await take_back(desk.ledger) == Recovered(operations=0, effects=1, poisoned=0)
    stored = desk.effect(dead.id)
    assert (stored.state, stored.claims, stored.attempts, stored.maybe_sent) == ("pending", 1, 0, True)
    assert desk.last_event("effect.released")["recovery_action"] == "retry"
    again = await desk.claim()
    assert (again.fence, again.claims, again.reconciling) == (2, 2, False)


@pytest.mark.parametrize("semantics", ["append", "repeat_once"])
async def test_crash_makes_an_effect_that_must_not_be_repeated_uncertain(semantics: Semantics, desk: Desk) -> None:
    await desk.owe(intent(semantics=semantics))
    desk.clock.advance(70)
    desk, dead = await killed_while_delivering(desk, 1)
    await take_back(desk.ledger)
    stored = desk.effect(dead.id)
    assert (stored.state, stored.claims, stored.uncertain_since, stored.maybe_sent) == ("uncertain", 1, START_MS + 70, True)
    assert desk.last_event("effect.uncertain")["recovery_action"] == "reconcile"
    assert (await desk.claim()).reconciling


async def test_crash_during_a_check_repeats_the_check_and_keeps_uncertain_since(desk: Desk) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(TROUBLE, 10))
    desk.clock.advance(10)
    desk, dead = await killed_while_delivering(desk, 1)
    await take_back(desk.ledger)
    assert desk.effect(dead.id).uncertain_since == START_MS
    assert (await desk.claim()).reconciling


async def test_recovery_leaves_settled_retrying_and_live_work_alone(desk: Desk) -> None:
    await desk.owe(intent(), intent("crm.create", "keyed"), intent("pdf.render", "pure"))
    settled, retried, held = await desk.claim_each()
    await desk.ledger.settle(settled, Delivered("ts", {}))
    await desk.ledger.settle(retried, Retry(TROUBLE, 1_000))
    await desk.claim_operation("r2")
    before, events = desk.snapshot(), desk.events()
    assert await take_back(desk.ledger) == Recovered(0, 0, 0)
    assert (desk.snapshot(), desk.events()) == (before, events)
    assert desk.effect(held.id).state == "in_flight"


async def test_second_recovery_changes_nothing(desk: Desk) -> None:
    await desk.owe(intent(), intent("crm.create", "keyed"))
    await desk.claim_each()
    await desk.claim_operation("r2")
    desk = await restart(desk)
    assert await take_back(desk.ledger) == Recovered(1, 2, 0)
    before, events = desk.snapshot(), desk.events()
    assert await take_back(desk.ledger) == Recovered(0, 0, 0)
    assert (desk.snapshot(), desk.events()) == (before, events)


async def test_crash_between_the_new_epoch_and_the_recovery_costs_no_claim(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.claim()
    for _ in range(3):
        desk = await restart(desk)
    assert await take_back(desk.ledger) == Recovered(0, 1, 0)
    assert (await desk.claim()).claims == 2


async def test_a_command_that_kills_its_executor_three_times_is_poison_and_frees_its_quote(desk: Desk) -> None:
    await desk.reserve("r1")
    await desk.reserve("r2")
    desk, dead = await killed_while_executing(desk, POISON_CLAIMS)
    assert await take_back(desk.ledger) == Recovered(operations=1, effects=0, poisoned=1)
    stored = desk.operation(dead.id)
    assert (stored.state, stored.category, stored.claims) == ("failed_terminal", "poison", 0)
    assert stored.last_error == "The process died 3 times while executing this command."
    assert (desk.last_event("system.error")["failure_category"]) == "poison"
    assert sure(await desk.ledger.claim_operation()).id == 2


@pytest.mark.parametrize("semantics", ["append", "convergent"])
async def test_effect_that_kills_its_dispatcher_three_times_is_poison_and_frees_its_lane(semantics: Semantics, desk: Desk) -> None:
    first, second = await desk.owe(intent(semantics=semantics), intent(semantics=semantics))
    desk, dead = await killed_while_delivering(desk, POISON_CLAIMS)
    assert await take_back(desk.ledger) == Recovered(operations=0, effects=1, poisoned=1)
    stored = desk.effect(first.id)
    assert (dead.id, stored.state, stored.category, stored.maybe_sent) == (first.id, "failed", "poison", True)
    assert await desk.claimed_ids() == [second.id]


async def test_reply_and_card_of_poison_are_enqueued_in_the_same_commit(desk: Desk, database: Database) -> None:
    def answer(_: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
        return (intent("slack.reply", "repeat_once", operation.actor),)

    def follow(_: Tx, buried: Effect) -> FollowUps:
        assert (buried.state, buried.category) == ("failed", "poison")
        return FollowUps((intent("slack.card", "convergent"),))

    await desk.owe(intent("crm.create", "keyed"))
    await desk.reserve("r2")
    for _ in range(POISON_CLAIMS - 1):
        await take_back(desk.ledger)
        await desk.claim()
        await desk.ledger.claim_operation()
        desk = await restart(desk)
    await take_back(desk.ledger)
    assert (await desk.claim()).claims == POISON_CLAIMS, "a suspect is tried alone"
    assert await desk.ledger.claim_operation() is None
    desk = await restart(desk)
    before = database.health.commits
    assert await take_back(desk.ledger, answer=answer, follow=follow) == Recovered(0, 1, 1)
    assert database.health.commits == before + 1
    assert sure(await desk.ledger.claim_operation()).claims == POISON_CLAIMS
    assert await desk.claimed_ids() == []
    desk = await restart(desk)
    before = database.health.commits
    assert await take_back(desk.ledger, answer=answer, follow=follow) == Recovered(1, 0, 1)
    assert database.health.commits == before + 1
    owed = desk.rows("SELECT class, state, operation_id, parent_id FROM effects ORDER BY id")[1:]
    assert [tuple(row) for row in owed] == [("slack.card", "pending", 1, 1), ("slack.reply", "pending", 2, None)]


async def test_restart_tries_refused_logins_with_one_effect_and_keeps_other_holds(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"), intent())
    crm, post = await desk.claim_each()
    await desk.ledger.settle(crm, Hold(TROUBLE))
    await desk.ledger.settle(post, Retry(TROUBLE, 0, hold_until=START_MS + 2_000))
    assert await desk.ledger.pause("pdf.render", "ops", "printer")
    assert await desk.ledger.pause("crm.update", "ops", "maintenance")
    desk = await restart(desk)
    await take_back(desk.ledger)
    gates = {row["name"]: (row["state"], row["until_at"]) for row in desk.rows("SELECT * FROM gates")}
    assert gates.pop("crm.update") == ("held", None), "what a person paused waits for a person"
    assert gates == {"crm": ("half_open", None), "pdf.render": ("held", None), "slack.post": ("held", START_MS + 2_000)}
    event = desk.last_event("class.half_open")
    assert (event["actor"], event["after"]) == ("quotebot", {"class": "crm", "why": "restart"})
    assert await desk.claimed_ids() == [crm.id]


async def test_settlement_between_two_crashes_resets_the_crash_count(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    desk, dead = await killed_while_delivering(desk, POISON_CLAIMS - 1)
    await take_back(desk.ledger)
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0))
    desk, _ = await killed_while_delivering(desk, POISON_CLAIMS - 1)
    assert await take_back(desk.ledger) == Recovered(0, 1, 0)
    assert desk.effect(dead.id).claims == POISON_CLAIMS - 1


async def test_late_results_of_a_crashed_process_are_audited_and_change_nothing(desk: Desk) -> None:
    dead_desk = desk
    await desk.owe(intent())
    effect = await desk.claim()
    operation = await desk.claim_operation("r2")
    desk = await restart(desk)
    await take_back(desk.ledger)
    before, count = desk.snapshot(), len(desk.events())
    assert await dead_desk.ledger.settle(effect, Delivered("ts", {})) is None
    with pytest.raises(StaleFenceError):
        await dead_desk.ledger.execute(operation, applied(intent()))
    assert desk.snapshot() == before
    assert desk.events()[count:] == ["effect.late_result", "operation.late_result"]


async def test_a_shutdown_gives_back_what_it_holds_and_says_so(desk: Desk) -> None:
    await desk.owe(intent(), intent("crm.create", "keyed"))
    post, crm = await desk.claim_each()
    operation = await desk.claim_operation("r2")
    await give_back(desk.ledger)
    assert [desk.effect(effect.id).state for effect in (post, crm)] == ["uncertain", "pending"]
    assert [desk.effect(effect.id).claims for effect in (post, crm)] == [0, 0]
    stored = desk.operation(operation.id)
    assert (stored.state, stored.claims) == ("reserved", 0)
    assert desk.rows("SELECT * FROM epochs")[0]["end_reason"] == "stopped"
    desk = await restart(desk)
    assert await take_back(desk.ledger) == Recovered(0, 0, 0)


async def test_shutdown_does_not_count_as_a_crash_even_for_suspects(desk: Desk) -> None:
    await desk.reserve("r1")
    desk, _ = await killed_while_executing(desk, POISON_CLAIMS - 1)
    await take_back(desk.ledger)
    await desk.ledger.execute(sure(await desk.ledger.claim_operation()), applied(intent("crm.create", "keyed")))
    await desk.reserve("r2")
    for _ in range(POISON_CLAIMS - 1):
        await desk.claim()
        await desk.ledger.claim_operation()
        desk = await restart(desk)
        await take_back(desk.ledger)
    assert (await desk.claim()).claims == POISON_CLAIMS
    await give_back(desk.ledger)
    assert (desk.effect(1).state, desk.effect(1).claims) == ("pending", POISON_CLAIMS - 1)
    desk = await restart(desk)
    await take_back(desk.ledger)
    assert sure(await desk.ledger.claim_operation()).claims == POISON_CLAIMS
    await give_back(desk.ledger)
    assert (desk.operation(2).state, desk.operation(2).claims) == ("reserved", POISON_CLAIMS - 1)


async def test_replay_of_poison_resets_its_crash_count(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    desk, dead = await killed_while_delivering(desk, POISON_CLAIMS)
    await take_back(desk.ledger)
    assert desk.effect(dead.id).claims == 0
    await DeadLetters(desk.ledger, build="2").replay(f"{dead.id}", actor="ops", reason=None, follow=no_follow_ups)
    again = await desk.claim()
    assert (again.claims, again.fence) == (1, POISON_CLAIMS + 1)
    assert sure(await desk.ledger.settle(again, Fail(TROUBLE))).category == "transient"


async def test_repeat_once_effect_is_repeated_once_however_often_it_is_interrupted(desk: Desk) -> None:
    await desk.owe(intent("slack.reply", "repeat_once"))
    desk, _ = await killed_while_delivering(desk, 1)
    await take_back(desk.ledger)
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 0, spent=False))
    desk, _ = await killed_while_delivering(desk, 1)
    await take_back(desk.ledger)
    stored = desk.effect(1)
    assert (stored.state, stored.category) == ("superseded", "uncertain")
    assert desk.last_event("effect.superseded")["after"]["why"] == stored.last_error


async def test_check_cut_off_by_a_crash_is_recorded_as_a_check(desk: Desk) -> None:
    await desk.owe(intent())
    desk, _ = await killed_while_delivering(desk, 2)
    await take_back(desk.ledger)
    kinds = [(row["kind"], row["outcome"]) for row in desk.rows("SELECT kind, outcome FROM attempts ORDER BY fence")]
    assert kinds == [("send", "died"), ("reconcile", "died")]


async def test_poison_whose_follow_ups_fail_is_dead_lettered_and_the_start_goes_on(desk: Desk) -> None:
    def broken(*_: object) -> FollowUps:
        raise ValueError("the quote's row cannot be read")

    await desk.owe(intent("crm.create", "keyed"))
    desk, dead = await killed_while_delivering(desk, POISON_CLAIMS)
    assert await take_back(desk.ledger, follow=broken) == Recovered(0, 1, 1)
    assert desk.effect(dead.id).category == "poison"


async def put_back_a_year(desk: Desk) -> None:
    """Correct a clock that was a year ahead, and run the next check for expired claims."""
    desk.clock.wall_ms -= 365 * 86_400_000
    await take_back_lapsed(desk.ledger)


async def test_command_recorded_by_a_fast_clock_is_due_after_the_clock_is_set_back(desk: Desk) -> None:
    await desk.reserve()
    await put_back_a_year(desk)
    assert sure(await desk.ledger.claim_operation()).id == 1


async def test_effect_delayed_by_a_fast_clock_waits_only_as_long_as_intended(desk: Desk) -> None:
    await desk.owe(intent("crm.create", "keyed"))
    await desk.ledger.settle(await desk.claim(), Retry(TROUBLE, 5_000, hold_until=START_MS + 8_000))
    await put_back_a_year(desk)
    assert await desk.ledger.next_effect_due_at(["crm.create"]) == desk.clock.now_ms() + 5_000
    desk.clock.advance(7_999)
    assert await desk.claimed_ids() == []
    desk.clock.advance(1)
    assert await desk.claimed_ids() == [1]
    before = desk.snapshot()
    await take_back_lapsed(desk.ledger)
    assert desk.snapshot() == before


@pytest.mark.parametrize("end", ["died", "held"])
async def test_an_update_that_comes_back_while_a_newer_one_waits_is_not_sent_any_more(end: str, desk: Desk) -> None:
    card = intent("slack.card", "convergent", supersede_key=f"card:{QUOTE}")
    await desk.owe(card)
    under_way = await desk.claim()
    await desk.owe(card, request_id="r2")
    if end == "died":
        desk = await restart(desk)
        await take_back(desk.ledger)
    else:
        await desk.ledger.settle(under_way, Hold(TROUBLE))
        await desk.ledger.resume("slack", "ops")
    assert desk.effect(1).state == "pending"
    desk.ledger.effects_changed.clear()
    assert await desk.claimed_ids() == []
    assert (desk.effect(1).state, desk.ledger.effects_changed.is_set()) == ("superseded", True)
    newer = await desk.claim()
    assert (newer.id, newer.maybe_sent) == (2, end == "died"), "what may have been sent may still arrive"
