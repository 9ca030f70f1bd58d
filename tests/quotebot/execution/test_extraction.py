"""Tests of messages for a model: one proposal or one question, whatever happens to the model and the bot meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import recovery
from ledger.operator.dead_letters import DeadLetters
from ledger.records import Delivered
from quotebot.cli import ops
from quotebot.commands.payloads import ANSWER_MS, CreateAnother
from quotebot.dispatch.registry import follow_ups
from quotebot.execution.membership import Known, keep_person
from quotebot.views import extraction_messages
from tests.quotebot.parts import Bench, request_for
from tests.quotebot.reading_parts import PER_DAY, READ, TEXT, completion, desk_at, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.quotebot.reading_parts import Desk, Script

PROPOSAL = "*New quote for Acme?* 24 months"
BY_MODEL = "AI-read. Check each line before creating."
LATE, HELD, UNUSABLE, FAILED = (extraction_messages.WITHOUT_MODEL[why] for why in ("late", "held", "unusable", "failed"))


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted() as server:
        server.says(READ)
        yield server


@pytest.fixture
async def desk(bench: Bench, script: Script) -> AsyncIterator[Desk]:
    async with desk_at(bench, script.url) as opened:
        yield opened


async def confirm(desk: Desk, request_id: str = "click", user: str = "U0REP") -> dict[str, Any]:
    """Press "Create it" under the newest proposal; return the result of the command."""
    token = next(reply["offer"]["token"] for reply in reversed(desk.replies()) if "offer" in reply)
    reserved = await desk.bench.ledger.reserve(
        request_for(CreateAnother(token), request_id, source="slack_interactive", actor=user)
    )
    await desk.executor.step()
    row = desk.bench.row("SELECT outcome, response FROM operations WHERE id = ?", reserved.operation.id)
    return {"outcome": row["outcome"], **json.loads(row["response"])}


async def test_listed_guest_gets_what_the_model_read(bench: Bench, script: Script) -> None:
    script.says(READ)
    async with desk_at(bench, script.url, guest_reps=("U0GUEST",)) as desk:
        guest = Known("guest", bench.clock.now_ms())
        await bench.ledger.database.write("test", lambda tx: keep_person(tx, "T0HOME", "U0GUEST", guest))
        await desk.write(user="U0GUEST")
        await desk.work()
        (said,) = desk.said("U0GUEST")
        assert said.startswith(PROPOSAL)
        assert (await confirm(desk, user="U0GUEST"))["outcome"] == "applied"


async def test_what_the_model_read_is_proposed_to_its_author_and_created_once_by_a_click(desk: Desk) -> None:
    await desk.write()
    assert desk.replies() == []
    await desk.work()
    (reply,) = desk.replies()
    assert reply["text"].startswith(f"{PROPOSAL}\n• 150 \u00d7 Pro ")
    assert f"• {BY_MODEL}" in reply["text"]
    assert (reply["user"], reply["channel"], reply["thread_ts"]) == ("U0REP", "C0DEALS", "17.5")
    assert desk.created() == 0

    assert (await confirm(desk, "1", "U0MANAGER"))["code"] == "not_your_offer"
    assert (await confirm(desk, "2"))["outcome"] == "applied"
    assert (await confirm(desk, "3"))["code"] == "already_created"
    assert desk.created() == 1


async def test_redelivered_message_gets_one_model_call_and_one_reply(desk: Desk) -> None:
    await desk.write()
    desk.written -= 1
    await desk.write()
    await desk.work()
    await desk.tick(2 * ANSWER_MS)
    assert len(desk.said()) == 1
    assert len(desk.asked()) == 1


async def test_after_45_seconds_fixed_rules_reply_and_the_late_model_answer_is_not_shown(desk: Desk, script: Script) -> None:
    script.answers = [(503, {}, {}), (200, completion(json.dumps(READ)), {})]
    await desk.write("150 profesional for Acme, 2 years")
    await desk.work()
    await desk.tick(ANSWER_MS - 1)
    assert desk.said() == []
    await desk.tick(1)
    (said,) = desk.said()
    assert LATE in said
    assert said.startswith(f"{PROPOSAL}\n• 150 \u00d7 Pro ")
    await desk.work()
    (asked,) = desk.asked()
    assert (asked["state"], json.loads(asked["result"])["account"]) == ("delivered", "Acme")
    assert len(desk.said()) == 1


async def test_fixed_rules_reply_during_a_model_call_and_its_late_answer_is_not_shown(desk: Desk) -> None:
    await desk.write()
    (effect,) = await desk.bench.ledger.claim_effects({"llm.extract": 1})
    await desk.tick(ANSWER_MS)
    (said,) = desk.said()
    assert LATE in said
    await desk.bench.ledger.settle(effect, Delivered(None, READ), desk.performer.follow_ups)
    await desk.tick()
    assert len(desk.said()) == 1


async def test_a_lost_answer_is_asked_for_again_under_the_same_key(desk: Desk, script: Script) -> None:
    script.answers = [None, (200, completion(json.dumps(READ)), {})]
    await desk.write()
    await desk.work_until_over()
    assert len(script.seen) == 2
    (asked,) = desk.asked()
    assert (asked["state"], asked["attempts"]) == ("delivered", 2)
    assert len(desk.said()) == 1


async def test_messages_of_a_paused_class_are_answered_at_once_without_the_model(desk: Desk, script: Script) -> None:
    await desk.write("150 profesional for Acme, 2 years")
    await desk.bench.ledger.pause("llm", "operator", "too dear")
    await desk.write("20 profesional for Globex, 2 years")  # it arrives while the class is paused
    assert len(desk.asked()) == 1
    await desk.tick()
    first, second = desk.said()
    assert all(HELD in said for said in (first, second))
    await desk.bench.ledger.resume("llm", "operator")
    await desk.work()
    assert script.seen == []  # its result is no longer needed
    assert desk.asked()[0]["state"] == "delivered"
    assert len(desk.said()) == 2


async def test_replayed_dead_letter_of_an_answered_message_does_not_ask_the_model_again(desk: Desk, script: Script) -> None:
    script.says("no JSON")
    await desk.write()
    await desk.work()
    (dead,) = desk.asked()
    letters = DeadLetters(desk.bench.ledger, build="test")
    await letters.replay(str(dead["id"]), actor="operator", reason="why not", follow=desk.performer.follow_ups)
    await desk.work()
    assert len(script.seen) == 1
    assert [row["state"] for row in desk.asked()] == ["delivered"]
    (said,) = desk.said()
    assert UNUSABLE in said


async def test_a_question_that_an_operator_cancels_is_answered_by_fixed_rules(desk: Desk, script: Script) -> None:
    await desk.write()
    await ops.give_up_effect(desk.bench.ledger, desk.asked()[0]["id"], "operator", "too dear")
    await desk.executor.step()
    (said,) = desk.said()
    assert FAILED in said
    assert script.seen == []


async def test_a_refused_key_pauses_the_class_and_answers_at_once(desk: Desk, script: Script) -> None:
    script.says({"error": {"code": "invalid_api_key"}}, 401)
    await desk.write("150 profesional for Acme, 2 years")
    await desk.work()
    assert [row["state"] for row in desk.bench.rows("SELECT state FROM gates WHERE name = 'llm'")] == ["held"]
    (said,) = desk.said()
    assert HELD in said
    (asked,) = desk.asked()
    assert (asked["state"], asked["attempts"]) == ("pending", 0)


async def test_an_outage_opens_the_breaker_and_everybody_is_answered(desk: Desk, script: Script) -> None:
    script.says({}, 503)
    for name in ("Acme", "Globex", "Initech"):
        await desk.write(f"150 profesional for {name}, 2 years")
    await desk.work_until_over()
    await desk.tick(ANSWER_MS)
    assert len(desk.said()) == 3
    assert len(script.seen) <= 6


async def test_over_the_daily_budget_fixed_rules_reply_until_the_next_day(desk: Desk, script: Script) -> None:
    for number in range(PER_DAY):
        await desk.write(f"{number + 2} profesional for Acme, 2 years")
        await desk.work()
    await desk.write("99 profesional for Acme, 2 years")
    await desk.write("98 profesional for Acme, 2 years", user="U0MANAGER")
    await desk.work()
    assert len(script.seen) == PER_DAY + 1
    assert extraction_messages.budget_spent(PER_DAY) in desk.said()[-1]
    assert len(desk.said()) == PER_DAY + 1
    assert len(desk.said("U0MANAGER")) == 1
    desk.bench.clock.advance(86_400_000)
    await desk.write("97 profesional for Acme, 2 years")
    await desk.work()
    assert len(script.seen) == PER_DAY + 2


async def test_model_call_cut_off_by_a_crash_is_repeated_and_answered_once(bench: Bench, script: Script) -> None:
    async with desk_at(bench, script.url) as desk:
        await desk.write()
        await bench.ledger.claim_effects({"llm.extract": 1})  # the call starts, and the process dies
        again = await bench.another_bot()
        await recovery.take_back(again, answer=lambda _, __: (), follow=lambda tx, effect: follow_ups(tx, effect, 0))
    async with desk_at(Bench(again, bench.clock, bench.path), script.url) as desk:
        await desk.work()
        assert len(desk.said()) == 1
        assert [row["state"] for row in desk.asked()] == ["delivered"]


async def test_the_log_of_calls_holds_hashes_and_text_only_where_it_is_to_be_kept(bench: Bench, script: Script) -> None:
    async with desk_at(bench, script.url) as desk:
        await desk.write()
        await desk.work()
    async with desk_at(bench, script.url, keep_text=True) as desk:
        desk.written = 1
        await desk.write(TEXT.replace("Acme", "Globex"))
        await desk.work()
    bare, full = bench.rows("SELECT * FROM model_calls ORDER BY id")
    assert (bare["outcome"], bare["request"], bare["answer"]) == ("ok", None, None)
    assert len(bare["request_sha256"]) == len(bare["answer_sha256"]) == 64
    assert "Globex" in full["request"]
    assert "Acme" in full["answer"]


async def test_a_slot_that_was_filled_cannot_be_filled_again_even_from_a_shell(desk: Desk) -> None:
    await desk.write()
    await desk.work()
    with pytest.raises(Exception, match="this message was answered"):
        desk.bench.rows("UPDATE readings SET answered_by = 'me'")
