"""Dead letters: found again, replayed as the same row under the same key, and never twice by accident."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger.dead_letters import HISTORY_INLINE, Replay, ReplayResult, parse_reference
from ledger.ledger import no_follow_ups
from ledger.records import Bury, Delivered, Doubt, Drop, Effect, FollowUps, Trouble
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, applied, intent, sure

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.dead_letters import DeadLetters
    from ledger.records import EffectIntent
    from tests.ledger.parts import Desk

SENT = Trouble("transient", "time-out after the request left", maybe_sent=True)
MAPPING = Trouble("mapping", 'refused field Term__c = "13 months"')
INTERNAL = Trouble("internal", "a bug")
CRM = intent("crm.create", "keyed")


async def bury(desk: Desk, owed: EffectIntent = CRM, trouble: Trouble = MAPPING, request_id: str = "r1") -> Effect:
    """Owe one effect and give it up at its first attempt."""
    await desk.owe(owed, request_id=request_id)
    return sure(await desk.ledger.settle(await desk.claim(), Bury(trouble)))


async def replay(letters: DeadLetters, reference: str, actor: str = "ops") -> ReplayResult:
    return await letters.replay(reference, actor=actor, reason="fixed the mapping", follow=no_follow_ups)


@pytest.mark.parametrize(("text", "reference"), [("118", ("effect", 118)), ("op12", ("operation", 12))])
def test_a_reference_is_a_number_or_op_and_a_number(text: str, reference: tuple[str, int]) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "op", "x1", "-1", "1.0", "opop1", "١", "1 "])  # noqa: RUF001 -- an Arabic digit on purpose
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 118 or op12"):
        parse_reference(text)


async def test_a_dead_letter_shows_what_failed_where_it_came_from_and_why(desk: Desk, letters: DeadLetters) -> None:
    desk.clock.advance(7)
    buried = await bury(desk)
    (letter,) = await letters.list()
    operation = desk.operation()
    assert letter == await letters.show(f"{buried.id}")
    assert (letter.kind, letter.reference, letter.effect_class, letter.aggregate_id) == ("effect", "1", "crm.create", QUOTE)
    assert (letter.operation_key, letter.source, letter.source_request_id) == (operation.operation_key, "slack_slash", "T01:r1")
    assert (letter.category, letter.last_error, letter.attempts) == ("mapping", MAPPING.error, 1)
    assert letter.first_failed_at == letter.last_attempt_at == letter.created_at == START_MS + 7
    assert (letter.state, letter.status, letter.prior_replay_count, letter.failure_history) == ("failed", "pending", 0, [])
    assert letter.payload == {"text": "hello"}


async def test_the_list_is_oldest_first_and_every_filter_narrows_it(desk: Desk, letters: DeadLetters) -> None:
    crm = await bury(desk, request_id="r1")
    desk.clock.advance(1_000)
    post = await bury(desk, intent(aggregate_id="Q-2026-0002"), TROUBLE, request_id="r2")
    desk.clock.advance(1_000)
    operation = await desk.claim_operation("r3")
    await desk.ledger.bury_operation(operation, INTERNAL, {"code": "failed"}, ())

    async def listed(**filters: object) -> list[str]:
        return [letter.reference for letter in await letters.list(**filters)]  # type: ignore[arg-type] # names of the filters

    assert await listed() == ["1", "2", "op3"]
    assert await listed(effect_class="crm.create") == ["1"]
    assert await listed(effect_class="quote.submit") == ["op3"]
    assert await listed(category="transient") == ["2"]
    assert await listed(aggregate_id=QUOTE) == ["1", "op3"]
    assert await listed(since=START_MS + 1_000) == ["2", "op3"]
    assert await listed(limit=2) == ["1", "2"]
    await replay(letters, f"{crm.id}")
    assert await listed() == ["2", "op3"]
    assert await listed(status="replaying") == ["1"]
    assert sorted(await listed(status=None)) == ["1", "2", "op3"]
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    assert await listed(status="replayed") == ["1"]
    assert await letters.show("9") is None
    assert sure(await letters.show(f"op{operation.id}")).category == "internal"
    assert post.state == "failed"


async def test_a_replay_keeps_the_row_its_id_its_key_and_its_steps(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent("slack.file"))
    effect = await desk.ledger.record_step(await desk.claim(), "ticket", {"file_id": "F1"})
    buried = sure(await desk.ledger.settle(effect, Bury(MAPPING)))
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
    assert event["after"] == {"reason": "fixed the mapping", "cycle": 2}


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
        await desk.ledger.settle(await desk.claim(), Bury(MAPPING))
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
    await desk.ledger.settle(await desk.claim(), Bury(MAPPING))
    await replay(letters, "1")
    assert desk.effect(1).state == "uncertain"


async def test_what_is_delivered_is_said_to_be_there_and_is_not_done_again(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(CRM)
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    before, events = desk.snapshot(), desk.events()
    assert await replay(letters, "1") == ReplayResult("1", Replay.ALREADY_THERE, "crm.create", "a01")
    assert (desk.snapshot(), desk.events()) == (before, events)


async def test_only_dead_letters_can_be_replayed(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent(), intent("slack.card", "convergent"), intent("slack.file"))
    post, card, _ = await desk.claim_each()
    await desk.ledger.settle(post, Doubt(SENT, 1_000))
    await desk.ledger.settle(card, Drop(TROUBLE))
    before = desk.snapshot()
    outcomes = [(await replay(letters, reference)).outcome for reference in ("1", "2", "3", "4", "op1", "op2")]
    assert outcomes == ["under way", "closed", "under way", "not found", "already there", "not found"]
    assert desk.snapshot() == before


async def test_of_two_operators_one_wins_and_the_other_is_told_who(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    first, second = await asyncio.gather(replay(letters, "1", "first"), replay(letters, "1", "second"))
    assert (first.outcome, second.outcome, second.detail) == (Replay.QUEUED, Replay.UNDER_WAY, "first")
    assert desk.effect(1).cycle == 2
    assert desk.events().count("effect.replayed") == 1
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    third = await replay(letters, "1", "third")
    assert (third.outcome, third.external_ref, third.detail) == (Replay.ALREADY_THERE, "a01", "first")


async def test_a_replay_owes_what_the_product_says_in_its_own_transaction(desk: Desk, letters: DeadLetters) -> None:
    def show(_: Tx, replayed: Effect) -> FollowUps:
        assert replayed.state == "pending"
        return FollowUps((intent("slack.card", "convergent"),))

    await bury(desk)
    for _ in range(2):
        await letters.replay("1", actor="ops", reason=None, follow=show)
        await desk.ledger.settle(next(e for e in await desk.claim_each() if e.id == 1), Bury(MAPPING))
    assert desk.value("SELECT count(*) FROM effects WHERE parent_id = 1") == 2


async def test_the_standing_of_a_replay_follows_the_row_to_its_end(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    queued = await replay(letters, "1")
    assert await letters.standing(queued) is None
    await desk.ledger.settle(await desk.claim(), Bury(MAPPING))
    assert sure(await letters.standing(queued)).outcome is Replay.FAILED_AGAIN
    await replay(letters, "1")
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}, already_there=True))
    ended = sure(await letters.standing(queued))
    assert (ended.outcome, ended.external_ref) == (Replay.ALREADY_THERE, "a01")


async def test_an_effect_replayed_behind_a_younger_one_waits_for_it(desk: Desk, letters: DeadLetters) -> None:
    old = await bury(desk, request_id="r1")
    (young,) = await desk.owe(CRM, request_id="r2")
    under_way = await desk.claim()
    await replay(letters, f"{old.id}")
    assert await desk.claimed_ids() == []
    await desk.ledger.settle(under_way, Delivered("a01", {}))
    assert (under_way.id, await desk.claimed_ids()) == (young.id, [old.id])


async def test_a_payload_shown_to_a_person_is_audited(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    await letters.record_payload_shown(sure(await letters.show("1")), "ops")
    event = desk.last_event("dead_letter.payload_shown")
    assert (event["actor"], event["aggregate_id"], event["after"]) == ("ops", QUOTE, {"id": "1"})


async def test_a_dead_command_is_executed_again_under_its_key(desk: Desk, letters: DeadLetters) -> None:
    operation = await desk.claim_operation()
    await desk.ledger.bury_operation(operation, INTERNAL, {"code": "failed"}, (intent("slack.reply", "repeat_once"),))
    first, second = await asyncio.gather(replay(letters, "op1", "first"), replay(letters, "op1", "second"))
    assert (first.outcome, second.outcome, second.detail) == (Replay.QUEUED, Replay.UNDER_WAY, "first")
    event = desk.last_event("operation.replayed")
    assert (event["actor"], event["actor_type"]) == ("first", "operator")
    again = sure(await desk.ledger.claim_operation())
    assert (again.operation_key, again.cycle, again.attempts, again.response) == (operation.operation_key, 2, 0, None)
    done = await desk.ledger.execute(again, applied(intent("slack.reply", "repeat_once")))
    assert (done.state, done.fence) == ("completed", 2)
    assert sure(await letters.standing(first)).outcome is Replay.DELIVERED
    assert (await replay(letters, "op1")).outcome is Replay.ALREADY_THERE
    assert len({row["effect_key"] for row in desk.rows("SELECT effect_key FROM effects")}) == 2, "the apology and the answer"


async def test_a_command_that_dies_again_after_its_replay_owes_a_second_answer(desk: Desk, letters: DeadLetters) -> None:
    answer = (intent("slack.reply", "repeat_once"),)
    await desk.ledger.bury_operation(await desk.claim_operation(), INTERNAL, {"code": "failed"}, answer)
    await replay(letters, "op1")
    await desk.ledger.bury_operation(sure(await desk.ledger.claim_operation()), INTERNAL, {"code": "failed"}, answer)
    assert desk.operation().state == "failed_terminal"
    assert desk.value("SELECT count(*) FROM effects") == 2


async def test_a_command_replayed_behind_a_younger_one_waits_for_it(desk: Desk, letters: DeadLetters) -> None:
    await desk.ledger.bury_operation(await desk.claim_operation("r1"), INTERNAL, {"code": "failed"}, ())
    under_way = await desk.claim_operation("r2")
    await replay(letters, "op1")
    assert await desk.ledger.claim_operation() is None
    await desk.ledger.execute(under_way, applied())
    assert sure(await desk.ledger.claim_operation()).id == 1
