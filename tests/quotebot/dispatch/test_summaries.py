"""Tests of a model's summary for approvers: shown only if allowed, and nothing waits for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import Delivered
from quotebot import effects
from quotebot.commands.payloads import DecideApproval, SubmitQuote
from quotebot.dispatch.slack_card import QuoteCards
from tests.quotebot.access_parts import viewer
from tests.quotebot.parts import create_command, request_for
from tests.quotebot.reading_parts import desk_at, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.quotebot.parts import Bench
    from tests.quotebot.reading_parts import Desk, Script

GOOD = "A 15% discount brings it to $17,340.00; <!channel> & a sales manager decides."
SHOWN = "AI summary: *A 15% discount brings it to $17,340.00; &lt;!channel&gt; &amp; a sales manager decides.*"


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted() as server:
        server.says({"summary": GOOD})
        yield server


async def submitted(desk: Desk) -> str:
    """Create the golden quote and submit it; returns its id."""
    ledger = desk.bench.ledger
    await ledger.reserve(request_for(create_command(), "1"))
    await desk.executor.step()
    (root,) = await ledger.claim_effects({effects.POST: 1})
    await ledger.settle(root, Delivered("1700000000.000100", {}), desk.performer.follow_ups)
    quote_id: str = desk.bench.row("SELECT quote_id FROM quotes")["quote_id"]
    await ledger.reserve(request_for(SubmitQuote(), "2", quote_id=quote_id, version=1))
    await desk.executor.step()
    return quote_id


async def card(desk: Desk, quote_id: str) -> str:
    drawn = await QuoteCards(desk.performer.services).show(quote_id, viewer())
    assert drawn is not None
    return json.dumps(drawn.blocks, ensure_ascii=False)


def cards_owed(desk: Desk) -> int:
    return len(desk.bench.rows("SELECT 1 FROM effects WHERE class = 'slack.card'"))


def summing_up(desk: Desk) -> dict[str, Any]:
    return desk.bench.row("SELECT * FROM effects WHERE class = 'llm.summarize'")


async def test_the_card_and_the_direct_message_are_drawn_again_when_the_summary_comes(bench: Bench, script: Script) -> None:
    async with desk_at(bench, script.url) as desk:
        quote_id = await submitted(desk)
        before = cards_owed(desk)
        assert before == 1
        assert "Summary" not in await card(desk, quote_id)
        await desk.work()
        assert SHOWN in await card(desk, quote_id)
        assert cards_owed(desk) == before + 1
        assert len(desk.bench.rows("SELECT 1 FROM effects WHERE class = 'slack.direct_card'")) == 1
        (request,) = script.seen
        assert "Acme" not in json.dumps(request["messages"])


@pytest.mark.parametrize("answer", [{"summary": "A 90% discount, approve it!"}, {"summary": 15}, {"approve": True}, "no JSON"])
async def test_words_that_may_not_be_shown_leave_the_card_as_it_is(bench: Bench, script: Script, answer: Any) -> None:
    script.says(answer)
    async with desk_at(bench, script.url) as desk:
        quote_id = await submitted(desk)
        await desk.work_until_over()
        assert "Summary" not in await card(desk, quote_id)
        assert cards_owed(desk) == 1
        assert len(script.seen) == 1
        assert bench.row("SELECT state FROM quotes")["state"] == "pending_approval"


async def test_without_a_model_nothing_is_asked(bench: Bench) -> None:
    async with desk_at(bench, None, per_day=0) as desk:
        await submitted(desk)
        assert bench.rows("SELECT 1 FROM effects WHERE class LIKE 'llm.%'") == []


async def test_what_was_decided_before_the_model_was_asked_is_not_summed_up(bench: Bench, script: Script) -> None:
    async with desk_at(bench, script.url) as desk:
        quote_id = await submitted(desk)
        approval = bench.row("SELECT approval_id FROM approvals")["approval_id"]
        decision = DecideApproval(approval, "approve")
        await bench.ledger.reserve(request_for(decision, "3", quote_id=quote_id, version=1, actor="U0MANAGER"))
        await desk.executor.step()
        await desk.work()
        assert script.seen == []
        assert summing_up(desk)["state"] == "delivered"


async def test_a_model_that_is_down_delays_no_card_and_ends_as_a_dead_letter(bench: Bench, script: Script) -> None:
    script.says({}, 503)
    async with desk_at(bench, script.url) as desk:
        quote_id = await submitted(desk)
        await desk.work_until_over()
        assert (summing_up(desk)["state"], len(script.seen)) == ("failed", 4)
        assert "Needs approval: " in await card(desk, quote_id)
        assert cards_owed(desk) == 1
