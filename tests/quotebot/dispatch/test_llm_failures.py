"""Tests of a model provider's failures, row by row, through the real client over a real socket: retries and messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.llm.api import ANSWER_BYTES_MAX
from quotebot.views.extraction_messages import WITHOUT_MODEL
from tests.quotebot.reading_parts import READ, Script, completion, desk_at, scripted

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench
    from tests.quotebot.reading_parts import Desk

HELD, UNUSABLE, FAILED = (WITHOUT_MODEL[why] for why in ("held", "unusable", "failed"))
MODEL = "AI-read."
DEAD, PAUSED, DONE = "failed", "pending", "delivered"
TRIES = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour of the provider, at every attempt, and its outcome. `told` is sent to the author once."""

    answer: tuple[int, Any, dict[str, str]] | None
    state: str
    category: str | None
    requests: int
    told: str


def refused(status: int, code: str | None = None, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
    return status, {"error": {"message": "secret words", "type": "t", "param": None, "code": code}}, headers or {}


def said(content: object, **more: Any) -> tuple[int, Any, dict[str, str]]:
    return 200, completion(content, **more), {}


ROWS = {
    "the connection is dropped": Row(None, DEAD, "transient", TRIES, FAILED),
    "408": Row(refused(408), DEAD, "transient", TRIES, FAILED),
    "409": Row(refused(409), DEAD, "transient", TRIES, FAILED),
    "500": Row(refused(500), DEAD, "transient", TRIES, FAILED),
    "503": Row(refused(503), DEAD, "transient", TRIES, FAILED),
    "529, overloaded": Row(refused(529), DEAD, "transient", TRIES, FAILED),
    "a page instead of an answer": Row((200, "<html>maintenance</html>", {}), DEAD, "transient", TRIES, FAILED),
    "an empty object": Row((200, {}, {}), DEAD, "transient", TRIES, FAILED),
    "429 with a long wait": Row(
        refused(429, "rate_limit_exceeded", {"Retry-After": "60"}), DONE, "throttled", 1, HELD
    ),  # no longer needed by then
    "429, out of money": Row(refused(429, "insufficient_quota"), PAUSED, "auth", 1, HELD),
    "401": Row(refused(401, "invalid_api_key"), PAUSED, "auth", 1, HELD),
    "402": Row(refused(402), PAUSED, "auth", 1, HELD),
    "403": Row(refused(403), PAUSED, "auth", 1, HELD),
    "404": Row(refused(404, "model_not_found"), DEAD, "not_found", 1, FAILED),
    "400, too long": Row(refused(400, "context_length_exceeded"), DEAD, "validation", 1, FAILED),
    "400, filtered": Row(refused(400, "content_filter"), DEAD, "validation", 1, FAILED),
    "422": Row(refused(422), DEAD, "validation", 1, FAILED),
    "an answer that was withheld": Row(said(json.dumps(READ), finish="content_filter"), DEAD, "validation", 1, FAILED),
    "an answer that was cut off": Row(said(json.dumps(READ), finish="length"), DEAD, "validation", 1, FAILED),
    "a refusal": Row(said(None, refusal="I will not"), DEAD, "validation", 1, FAILED),
    "no JSON": Row(said("all of them"), DEAD, "llm_schema", 1, UNUSABLE),
    "wrong types": Row(said(json.dumps({**READ, "term_months": 24})), DEAD, "llm_schema", 1, UNUSABLE),
    "a field too many": Row(said(json.dumps({**READ, "unit_price": "1"})), DEAD, "llm_schema", 1, UNUSABLE),
    "too much": Row(said("x" * (ANSWER_BYTES_MAX + 1)), DEAD, "llm_schema", 1, UNUSABLE),
    "a fence around it": Row(said(f"```json\n{json.dumps(READ)}\n```"), DONE, None, 1, MODEL),
}


async def played(desk: Desk, script: Script, number: int) -> dict[str, Any]:
    """Let one person write one message; return the final row of the call to the model."""
    script.seen.clear()
    desk.bench.rows("DELETE FROM gates")  # each row starts with a working provider
    await desk.write(user=f"U{number}")
    await desk.work_until_over()
    return desk.asked()[-1]


async def test_each_row_of_the_table_has_its_class_its_wait_its_words_and_its_end(bench: Bench) -> None:
    async with scripted() as script, desk_at(bench, script.url) as desk:
        for number, (name, row) in enumerate(ROWS.items()):
            script.answers = [row.answer]
            asked = await played(desk, script, number)
            assert (asked["state"], asked["category"], len(script.seen)) == (row.state, row.category, row.requests), name
            (told,) = desk.said(f"U{number}")
            assert row.told in told, name
            assert "secret" not in told + str(asked["last_error"]), name
            held = bench.rows("SELECT name, cause FROM gates WHERE state = 'held'")
            paused = [("llm", "auth")] if row.category == "auth" else []
            assert [(gate["name"], gate["cause"]) for gate in held] == paused, name
            letters = bench.rows("SELECT category FROM dead_letters WHERE id = ? AND kind = 'effect'", asked["id"])
            assert [letter["category"] for letter in letters] == ([row.category] if row.state == DEAD else []), name
            events = [event["event_type"] for event in bench.rows("SELECT * FROM audit_events WHERE effect_id = ?", asked["id"])]
            assert events.count("system.error") == (row.state == DEAD), name
            assert events.count("class.paused") == (row.category == "auth"), name
            assert events.count("effect.retry_scheduled") == (row.requests - 1) + (row.category == "throttled"), name
        waits = bench.rows("SELECT delay_ms FROM attempts WHERE outcome = 'retry' AND category = 'transient'")
        assert {wait["delay_ms"] for wait in waits} == {225, 450, 900}  # 300, 600, 1200 ms with the lowest jitter
    assert desk.created() == 0


async def test_a_short_wait_that_a_provider_asks_for_is_waited_out(bench: Bench) -> None:
    async with scripted() as script, desk_at(bench, script.url) as desk:
        script.answers = [refused(429, "rate_limit_exceeded", {"Retry-After": "7"}), said(json.dumps(READ))]
        await desk.write()
        await desk.work()
        assert desk.said() == []
        (asked,) = desk.asked()
        assert (asked["state"], asked["attempts"]) == ("pending", 0)
        desk.bench.clock.advance(6_999)
        await desk.work()
        assert len(script.seen) == 1
        desk.bench.clock.advance(1)
        await desk.work()
        (told,) = desk.said()
        assert MODEL in told


async def test_a_provider_that_never_answers_is_cut_off_at_each_deadline_and_given_up(bench: Bench) -> None:
    async with scripted() as script, desk_at(bench, script.url, timeout_seconds=0.1) as desk:
        script.silent = True
        asked = await played(desk, script, 0)
        assert (asked["state"], asked["category"], asked["attempts"]) == (DEAD, "timeout", TRIES)
        assert "did not answer in time" in asked["last_error"]
        (told,) = desk.said("U0")
        assert FAILED in told
