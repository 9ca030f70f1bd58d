"""Tests of replay: the same row under the same key in a new cycle, and never twice by accident."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger.operator.dead_letters import Expectation, Replay, ReplayPreview, ReplayResult
from ledger.operator.replay import HISTORY_INLINE
from ledger.records import Delivered, Drop, Effect, Fail, FollowUps, Uncertain
from tests.ledger.dead_parts import CRM, INTERNAL, MAPPING, SENT, UNKNOWN, bury, bury_command, replay
from tests.ledger.parts import START_MS, TROUBLE, applied, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.operator.dead_letters import DeadLetters
    from ledger.records import EffectIntent, Trouble
    from tests.ledger.parts import Desk

CARD = intent("slack.card", "convergent", supersede_key="card")
REPLY = intent("slack.reply", "repeat_once")


async def test_a_replay_keeps_the_row_its_id_its_key_and_its_steps(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent("slack.file"))
    effect = await desk.ledger.record_step(await desk.claim(), "ticket", {"file_id": "F1"})
    buried = sure(await desk.ledger.settle(effect, Fail(MAPPING)))
    desk.clock.advance(60_000)
    assert await replay(letters, "1") == ReplayResult("1", Replay.QUEUED, "slack.file")
    again = desk.effect(1)
    assert (again.effect_key, again.steps, again.fence) == (buried.effect_key, {"ticket": {"file_id": "F1"}}, buried.fence)
    assert (again.state, again.cycle, again.attempts, again.claims) == ("pending", 2, 0, 0)
    assert (again.category, again.last_error, again.first_failed_at) == (None, None, None)
    assert again.next_attempt_at == START_MS + 60_000
    assert desk.value("SELECT count(*) FROM effects") == 1
    event = desk.last_event("effect.replayed")
    assert (event["actor"], event["actor_type"], event["recovery_action"]) == ("ops", "operator", "retry")
    assert event["after"] == {"reason": "fixed the mapping", "cycle": 2, "handler_version": "1.1"}
    assert tuple(desk.rows("SELECT handler_version, replayed_by FROM effects")[0]) == ("1.1", "ops")


async def test_a_replay_closes_the_cycle_into_the_history(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    desk.clock.advance(60_000)
    await replay(letters, "1")
    letter = sure(await letters.show("1"))
    assert letter.prior_replay_count == 1
    assert letter.failure_history == [
        {
            "cycle": 1,
            "attempts": 1,
            "first_failed_at": START_MS,
            "failed_at": START_MS,
            "category": "mapping",
            "code": None,
            "last_error": MAPPING.error,
            "handler_version": "1.1",
            "replayed_by": "ops",
            "replayed_at": START_MS + 60_000,
        }
    ]


async def test_the_newest_twenty_cycles_stay_inline_and_all_are_counted(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    for _ in range(HISTORY_INLINE + 3):
        await replay(letters, "1")
        await desk.ledger.settle(await desk.claim(), Fail(MAPPING))
    letter = sure(await letters.show("1"))
    assert [entry["cycle"] for entry in letter.failure_history] == list(range(4, HISTORY_INLINE + 4))
    assert letter.prior_replay_count == HISTORY_INLINE + 3
    assert desk.value("SELECT count(DISTINCT cycle) FROM attempts WHERE effect_id = 1") == HISTORY_INLINE + 4


@pytest.mark.parametrize(
    ("owed", "trouble", "state"),
    [
        (intent(), SENT, "uncertain"),
        (intent(), MAPPING, "pending"),
        (intent("slack.card", "convergent"), SENT, "pending"),
        (CRM, SENT, "pending"),
        (intent("slack.reply", "repeat_once"), SENT, "pending"),
    ],
)
async def test_only_an_append_that_may_have_been_sent_is_looked_up_before_it_is_sent_again(
    owed: EffectIntent, trouble: Trouble, state: str, desk: Desk, letters: DeadLetters
) -> None:
    await bury(desk, owed, trouble)
    desk.clock.advance(60_000)
    await replay(letters, "1")
    assert desk.effect(1).state == state
    assert desk.last_event("effect.replayed")["recovery_action"] == ("reconcile" if state == "uncertain" else "retry")
    claimed = await desk.claim()
    assert claimed.reconciling == (state == "uncertain")
    assert claimed.uncertain_since == (START_MS if state == "uncertain" else None), "the doubt is as old as the last attempt"


async def test_an_append_sent_in_an_earlier_cycle_is_still_looked_up(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk, intent(), SENT)
    await replay(letters, "1")
    await desk.ledger.settle(await desk.claim(), Fail(MAPPING))
    await replay(letters, "1")
    assert desk.effect(1).state == "uncertain"


async def test_replay_of_a_delivered_effect_reports_already_there_and_changes_nothing(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(CRM)
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    before, events = desk.snapshot(), desk.events()
    assert await replay(letters, "1") == ReplayResult("1", Replay.ALREADY_THERE, "crm.create", "a01")
    assert (desk.snapshot(), desk.events()) == (before, events)


async def test_only_dead_letters_can_be_replayed(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent(), intent("slack.card", "convergent"), intent("slack.file"))
    post, card, _ = await desk.claim_each()
    await desk.ledger.settle(post, Uncertain(SENT, 1_000))
    await desk.ledger.settle(card, Drop(TROUBLE))
    before = desk.snapshot()
    outcomes = [(await replay(letters, reference)).outcome for reference in ("1", "2", "3", "4", "op1", "op2")]
    assert outcomes == ["under way", "superseded", "under way", "not found", "already there", "not found"]
    assert desk.snapshot() == before


async def test_of_two_operators_one_replays_and_the_other_learns_the_first_ones_name(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    first, second = await asyncio.gather(replay(letters, "1", "first"), replay(letters, "1", "second"))
    assert (first.outcome, second.outcome, second.replayed_by) == (Replay.QUEUED, Replay.UNDER_WAY, "first")
    assert desk.effect(1).cycle == 2
    assert desk.events().count("effect.replayed") == 1
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    third = await replay(letters, "1", "third")
    assert (third.outcome, third.external_ref, third.replayed_by) == (Replay.ALREADY_THERE, "a01", "first")
    assert third.replayed_at == START_MS


async def test_replay_enqueues_its_follow_ups_in_its_own_transaction(desk: Desk, letters: DeadLetters) -> None:
    def show(_: Tx, replayed: Effect) -> FollowUps:
        assert replayed.state == "pending"
        return FollowUps((intent("slack.card", "convergent"),))

    await bury(desk)
    for _ in range(2):
        await letters.replay("1", actor="ops", reason=None, follow=show)
        await desk.ledger.settle(next(e for e in await desk.claim_each() if e.id == 1), Fail(MAPPING))
    assert desk.value("SELECT count(*) FROM effects WHERE parent_id = 1") == 2


async def test_the_standing_of_a_replay_follows_the_row_to_its_end(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    queued = await replay(letters, "1")
    assert (await letters.standings([queued]))[0] is None
    await desk.ledger.settle(await desk.claim(), Fail(MAPPING))
    assert sure((await letters.standings([queued]))[0]).outcome is Replay.FAILED_AGAIN
    await replay(letters, "1")
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}, already_there=True))
    ended = sure((await letters.standings([queued]))[0])
    assert (ended.outcome, ended.external_ref) == (Replay.ALREADY_THERE, "a01")


async def test_an_effect_replayed_behind_a_younger_one_waits_for_it(desk: Desk, letters: DeadLetters) -> None:
    old = await bury(desk, request_id="r1")
    (young,) = await desk.owe(CRM, request_id="r2")
    under_way = await desk.claim()
    await replay(letters, f"{old.id}")
    assert await desk.claimed_ids() == []
    await desk.ledger.settle(under_way, Delivered("a01", {}))
    assert (under_way.id, await desk.claimed_ids()) == (young.id, [old.id])


async def test_a_dead_command_is_executed_again_under_its_key(desk: Desk, letters: DeadLetters) -> None:
    operation = await desk.claim_operation()
    await desk.ledger.fail_operation(operation, INTERNAL, {"code": "failed"}, (intent("slack.reply", "repeat_once"),))
    first, second = await asyncio.gather(replay(letters, "op1", "first"), replay(letters, "op1", "second"))
    assert (first.outcome, second.outcome, second.replayed_by) == (Replay.QUEUED, Replay.UNDER_WAY, "first")
    event = desk.last_event("operation.replayed")
    assert (event["actor"], event["actor_type"]) == ("first", "operator")
    again = sure(await desk.ledger.claim_operation())
    assert (again.operation_key, again.cycle, again.attempts, again.response) == (operation.operation_key, 2, 0, None)
    await desk.ledger.execute(again, applied(intent("slack.reply", "repeat_once")))
    assert (desk.operation().state, desk.operation().fence) == ("completed", 2)
    assert sure((await letters.standings([first]))[0]).outcome is Replay.REDONE
    assert (await replay(letters, "op1")).outcome is Replay.ALREADY_THERE
    assert len({row["effect_key"] for row in desk.rows("SELECT effect_key FROM effects")}) == 2, "the apology and the answer"


async def test_command_that_fails_again_after_its_replay_enqueues_a_second_reply(desk: Desk, letters: DeadLetters) -> None:
    answer = (intent("slack.reply", "repeat_once"),)
    await desk.ledger.fail_operation(await desk.claim_operation(), INTERNAL, {"code": "failed"}, answer)
    await replay(letters, "op1")
    await desk.ledger.fail_operation(sure(await desk.ledger.claim_operation()), INTERNAL, {"code": "failed"}, answer)
    assert desk.operation().state == "failed_terminal"
    assert desk.value("SELECT count(*) FROM effects") == 2


async def test_a_command_replayed_behind_a_younger_one_waits_for_it(desk: Desk, letters: DeadLetters) -> None:
    await bury_command(desk)
    under_way = await desk.claim_operation("r2")
    await replay(letters, "op1")
    assert await desk.ledger.claim_operation() is None
    await desk.ledger.execute(under_way, applied())
    assert sure(await desk.ledger.claim_operation()).id == 1


# --------------------------------------------------------------------------------------------------- two operators, one row


async def test_second_replay_of_a_cycle_is_lost_and_names_the_first_operator_and_time(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    seen = sure(await letters.show("1")).cycle
    desk.clock.advance(5_000)
    first, second = await asyncio.gather(
        replay(letters, "1", "first", cycle_seen=seen), replay(letters, "1", "second", cycle_seen=seen)
    )
    assert (first.outcome, second.outcome) == (Replay.QUEUED, Replay.LOST)
    assert (second.replayed_by, second.replayed_at) == ("first", START_MS + 5_000)
    assert desk.effect(1).cycle == 2


async def test_replay_based_on_an_outdated_cycle_is_lost_and_changes_nothing(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    await replay(letters, "1", "first")
    await desk.ledger.settle(await desk.claim(), Fail(TROUBLE))
    before = desk.snapshot()
    late = await replay(letters, "1", "second", cycle_seen=1)
    assert (late.outcome, late.replayed_by) == (Replay.LOST, "first")
    assert desk.snapshot() == before
    assert (await replay(letters, "1", "second", cycle_seen=2)).outcome is Replay.QUEUED


async def test_of_two_operators_one_replays_a_command(desk: Desk, letters: DeadLetters) -> None:
    await bury_command(desk)
    outcomes = await asyncio.gather(*(replay(letters, "op1", f"operator {n}", cycle_seen=1) for n in range(3)))
    assert sorted(result.outcome for result in outcomes) == [Replay.LOST, Replay.LOST, Replay.QUEUED]
    assert desk.operation().cycle == 2


# ------------------------------------------------------------------------------------------------------ when, and what instead


@pytest.mark.parametrize("reference", ["1", "op1"])
async def test_a_replay_may_be_due_later(reference: str, desk: Desk, letters: DeadLetters) -> None:
    await (bury(desk) if reference == "1" else bury_command(desk))
    await replay(letters, reference, due_at=START_MS + 2_000)
    row = desk.effect(1) if reference == "1" else desk.operation()
    assert row.next_attempt_at == START_MS + 2_000


@pytest.mark.parametrize("newer_state", ["pending", "in_flight", "delivered"])
async def test_an_older_one_with_the_same_target_becomes_superseded_and_says_by_what(
    newer_state: str, desk: Desk, letters: DeadLetters
) -> None:
    old = await bury(desk, CARD, SENT)
    (newer,) = await desk.owe(CARD, request_id="r2")
    if newer_state != "pending":
        claimed = await desk.claim()
        if newer_state == "delivered":
            await desk.ledger.settle(claimed, Delivered("ts", {}))
    result = await replay(letters, f"{old.id}")
    assert (result.outcome, result.detail) == (Replay.SUPERSEDED, f"by effect {newer.id}")
    assert (desk.effect(old.id).state, desk.effect(newer.id).state) == ("superseded", newer_state)
    assert desk.last_event("effect.superseded")["after"]["by"] == newer.id
    assert desk.effect(newer.id).maybe_sent == (newer_state != "delivered"), "the older one may still arrive after the newer one"


@pytest.mark.parametrize("supersede_key", [None, "another card"])
async def test_only_the_same_target_supersedes(supersede_key: str | None, desk: Desk, letters: DeadLetters) -> None:
    old = await bury(desk, CARD)
    await desk.owe(intent("slack.card", "convergent", supersede_key=supersede_key), request_id="r2")
    assert (await replay(letters, f"{old.id}")).outcome is Replay.QUEUED


async def test_a_newer_one_that_failed_too_supersedes_nothing(desk: Desk, letters: DeadLetters) -> None:
    old = await bury(desk, CARD)
    await bury(desk, CARD, request_id="r2")
    assert (await replay(letters, f"{old.id}")).outcome is Replay.QUEUED


async def test_uncertain_effect_is_checked_now_on_request(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 60_000))
    assert await desk.claimed_ids() == []
    assert (await replay(letters, "1")).outcome is Replay.UNDER_WAY
    assert await desk.claimed_ids() == []
    assert (await replay(letters, "1", look_now=True)).outcome is Replay.QUEUED
    claimed = await desk.claim()
    assert (claimed.id, claimed.cycle, claimed.reconciling) == (1, 1, True)
    assert desk.last_event("effect.replayed")["recovery_action"] == "reconcile"


async def test_looking_now_never_puts_a_look_off(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent())
    await desk.ledger.settle(await desk.claim(), Uncertain(SENT, 1_000))
    await replay(letters, "1", look_now=True, due_at=START_MS + 60_000)
    assert desk.effect(1).next_attempt_at == START_MS + 1_000


# ------------------------------------------------------------------------------------------------------------ what came of it


@pytest.mark.parametrize(
    ("trouble", "outcome"), [(UNKNOWN, Replay.CANNOT_KNOW), (MAPPING, Replay.FAILED_AGAIN), (SENT, Replay.FAILED_AGAIN)]
)
async def test_a_replay_that_fails_says_why_and_whether_it_can_be_known(
    trouble: Trouble, outcome: Replay, desk: Desk, letters: DeadLetters
) -> None:
    await bury(desk, intent())
    queued = await replay(letters, "1")
    await desk.ledger.settle(await desk.claim(), Fail(trouble))
    ended = sure((await letters.standings([queued]))[0])
    assert (ended.outcome, ended.detail) == (outcome, trouble.error)


@pytest.mark.parametrize(("already_there", "outcome"), [(True, Replay.ALREADY_THERE), (False, Replay.REDONE)])
async def test_a_replay_that_delivers_says_where_and_whether_it_was_there_before(
    already_there: object, outcome: Replay, desk: Desk, letters: DeadLetters
) -> None:
    await bury(desk)
    queued = await replay(letters, "1")
    assert await letters.standings([queued, queued]) == [None, None]
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}, already_there=bool(already_there)))
    (ended,) = await letters.standings([queued])
    assert (sure(ended).outcome, sure(ended).external_ref) == (outcome, "a01")


@pytest.mark.parametrize(
    ("owed", "trouble", "expected"),
    [
        (intent(), SENT, Expectation.LOOKED_FOR),
        (intent(), MAPPING, Expectation.NEVER_SENT),
        (CRM, SENT, Expectation.SAME_KEY),
        (CARD, SENT, Expectation.DRAWN_AGAIN),
        (REPLY, SENT, Expectation.REPEATED),
        (intent("pdf.render", "pure"), MAPPING, Expectation.COMPUTED_AGAIN),
    ],
)
async def test_the_ledger_alone_says_what_a_replay_would_do(
    owed: EffectIntent, trouble: Trouble, expected: Expectation, desk: Desk, letters: DeadLetters
) -> None:
    await bury(desk, owed, trouble)
    before = desk.snapshot()
    assert await letters.preview(["1", "2", "op1", "op2"]) == [
        ReplayPreview(expected),
        ReplayPreview(Expectation.NOT_FOUND),
        ReplayPreview(Expectation.ALREADY_THERE),
        ReplayPreview(Expectation.NOT_FOUND),
    ]
    assert desk.snapshot() == before


async def test_replay_preview_names_newer_updates_and_external_references(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk, CARD)
    await desk.owe(CARD, CRM, request_id="r2")
    crm = next(effect for effect in await desk.claim_each() if effect.effect_class == "crm.create")
    await desk.ledger.settle(crm, Delivered("a01", {}))
    await bury_command(desk, "r3")
    assert await letters.preview(["1", "2", "3", "op3"]) == [
        ReplayPreview(Expectation.SUPERSEDED, "effect 2"),
        ReplayPreview(Expectation.UNDER_WAY),
        ReplayPreview(Expectation.ALREADY_THERE, "a01"),
        ReplayPreview(Expectation.EXECUTED),
    ]


async def test_replay_preview_asks_only_about_effects_that_would_be_checked(desk: Desk, letters: DeadLetters) -> None:
    asked: list[int] = []

    async def ask(effect: Effect) -> ReplayPreview:
        asked.append(effect.id)
        return ReplayPreview(Expectation.ALREADY_THERE, "ts")

    await bury(desk, intent(), SENT)
    await bury(desk, CRM, SENT, "r2")
    assert await letters.preview(["1", "2"], ask) == [
        ReplayPreview(Expectation.ALREADY_THERE, "ts"),
        ReplayPreview(Expectation.SAME_KEY),
    ]
    assert asked == [1]
