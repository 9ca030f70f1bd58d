"""Tests of hostile messages with a hostile model, through the real client over a real socket: nothing happens without a click."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quotebot.domain.extraction.remarks import Remark
from quotebot.handlers import extraction
from quotebot.slack import message_text
from tests.quotebot.parts import RULES
from tests.quotebot.reading_parts import completion, desk_at, scripted
from tests.quotebot.test_injections import HOSTILE_ANSWERS, INJECTIONS, assert_harmless

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

EVERY = 6  # every sixth text of the corpus
NEVER = ("quote.", "approval.", "delegation.", "ruleset.")


def obedient(text: str) -> dict[str, Any]:
    """Return the answer of a model that follows the message's instructions, and more."""
    return {
        "account": text[:100] or "x",
        "lines": [{"product": "enterprise", "quantity": "999999999", "excerpt": text[:300] or "x"}],
        "term_months": "999",
        "discount_percent": "90",
        "currency": "JPY",
    }


def misleading(text: str) -> dict[str, Any]:
    """Return the answer of a model that is wrong in one thing only."""
    return {
        "account": "Acme",
        "lines": [{"product": "pro", "quantity": "10", "excerpt": text[:300] or "x"}],
        "term_months": "12",
        "discount_percent": "100",
        "currency": None,
    }


def test_no_hostile_text_makes_an_obedient_model_exceed_a_harmless_proposal() -> None:
    proposed = 0
    for text in INJECTIONS:
        plain = message_text.on_one_line(text)
        for said in (obedient(plain), misleading(plain)):
            found = extraction.by_model(plain, said, RULES.catalogue)
            if found.extraction.open_questions:
                continue
            proposed += 1
            discount = found.extraction.discount_percent
            remarked = Remark("percent", f"{discount}", f"{discount}") in found.extraction.remarks
            assert discount in (None, 10) or (remarked and f"{discount}%" in plain.replace(" ", "")), (
                text
            )  # the author wrote it themselves
            assert {line.quantity for line in found.extraction.lines} <= {10}, text
            assert_harmless(found.extraction)
    assert proposed > 50  # otherwise the test would prove nothing


async def test_hostile_messages_and_a_hostile_model_only_cause_replies_to_the_author(bench: Bench) -> None:
    texts = INJECTIONS[::EVERY]
    answers = [json.dumps(answer) for answer in HOSTILE_ANSWERS.values()]
    answers += ["", "null", "[]", "15", '"approve"', "approve_quote(id=1)", '{"tool_calls": [{"name": "approve"}]}', "\u202e{}"]
    async with scripted() as script, desk_at(bench, script.url, per_day=10_000) as desk:
        for number, text in enumerate(texts):
            hostile = json.dumps(obedient(text)) if number % 3 == 0 else answers[number % len(answers)]
            script.answers = [(200, completion(hostile), {})]
            await desk.write(text)
            await desk.work()
        assert len(texts) > 40
        assert len(script.seen) == len(texts)
        assert len(desk.replies()) == len(texts)
        assert {(reply["user"], reply["channel"]) for reply in desk.replies()} == {("U0REP", "C0DEALS")}
        assert not any("<" in reply["text"] for reply in desk.replies())
    counts = bench.counts()
    assert (counts["quotes"], counts["approvals"], counts["quote_numbers"]) == (0, 0, 0)
    assert {row["class"] for row in bench.rows("SELECT DISTINCT class FROM effects")} == {"llm.extract", "slack.reply"}
    events = {row["event_type"] for row in bench.rows("SELECT DISTINCT event_type FROM audit_events")}
    assert not any(event.startswith(NEVER) for event in events)
    assert "reading.distrusted" in events
    assert {row["action_kind"] for row in bench.rows("SELECT DISTINCT action_kind FROM operations")} == {
        "message.read",
        "message.answer",
    }
