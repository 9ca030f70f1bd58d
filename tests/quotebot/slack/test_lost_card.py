"""Tests of a deleted card: one new card replaces it, and its thread continues below the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.records import Delivered, Drop, Fail, Trouble
from quotebot import effects
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch.services import GONE
from quotebot.execution.executor import Executor
from quotebot.views.card import SUBMIT
from tests.quotebot.dispatch.test_follow_ups import claimed, performer_of, settle
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from ledger.records import Effect
    from quotebot.sandbox.world import World
    from tests.quotebot.parts import Bench
    from tests.rig import Deal

DEAD_TS = "1700000000.000100"
REPLACED = "SELECT count(*) AS n FROM audit_events WHERE event_type = 'quote.card_replaced'"
POSTED = "SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%replaces%'"


def delete(world: World, ts: str) -> None:
    message = world.slack.messages.get("C0DEALS", ts)
    assert message is not None
    world.slack.messages.delete(message)


@pytest.mark.parametrize("had_replies", [False, True])
async def test_a_deleted_card_is_posted_anew_once_and_the_quote_goes_on_in_its_thread(
    deal: Deal, world: World, *, had_replies: bool
) -> None:
    if had_replies:
        await deal.submitted_deal()
    else:
        await deal.slash()
        await deal.settled()
    lost = await deal.card()
    delete(world, lost["ts"])
    await deal.slash(f"revise {FIRST_QUOTE}: discount 12%")
    await deal.settled()

    (again,) = [card for card in await deal.cards() if card["ts"] != lost["ts"]]
    assert f"{FIRST_QUOTE} v2" in again["text"]
    assert await deal.rows(REPLACED) == [{"n": 1}]
    assert await deal.rows("SELECT thread_ts FROM quotes") == [{"thread_ts": again["ts"]}]
    assert await deal.rows("SELECT 1 FROM dead_letters") == []
    assert had_replies or "v1 no longer applies" in (await deal.replies())[-1]["text"]

    await deal.click(SUBMIT, user="U0REP")
    await deal.settled()
    assert "Waiting for approval" in (await deal.card())["text"]
    assert (await deal.card())["ts"] == (await deal.replies())[-1]["thread_ts"] == again["ts"]
    assert await deal.rows(REPLACED) == [{"n": 1}]


async def owed(bench: Bench) -> tuple[Effect, Effect]:
    """Return a card and a notice of one quote that are both in flight."""
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await settle(bench, effects.POST, Delivered(DEAD_TS, {}))
    quote_id = bench.row("SELECT quote_id FROM quotes")["quote_id"]
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=quote_id, version=1))
    await executor.step()
    found = await claimed(bench, effects.CARD), await claimed(bench, effects.POST)
    card, notice = [await bench.ledger.record_step(each, GONE, {"ts": DEAD_TS}) for each in found]
    return card, notice


async def test_updates_to_a_deleted_card_post_one_new_card_and_keep_the_notice(
    bench: Bench,
) -> None:
    card, notice = await owed(bench)
    gone = Drop(Trouble("not_found", "It is gone."))
    decide = performer_of(bench).follow_ups
    await bench.ledger.settle(card, gone, decide)
    await bench.ledger.settle(notice, gone, decide)
    assert len(bench.rows(POSTED)) == 1
    await settle(bench, effects.POST, Delivered("1700000099.000100", {}))
    assert bench.row("SELECT thread_ts FROM quotes")["thread_ts"] == "1700000099.000100"
    said = await claimed(bench, effects.POST)
    assert said.payload["what"] == "notice"
    assert said.payload["text"] == notice.payload["text"]
    await bench.ledger.settle(said, Delivered("1700000099.000200", {}), decide)
    await settle(bench, effects.CARD, Delivered(None, {}))  # the update of the deleted card
    assert bench.row(REPLACED)["n"] == 1


async def test_a_card_whose_channel_is_gone_is_a_dead_letter_and_is_not_posted_elsewhere(bench: Bench) -> None:
    card, _ = await owed(bench)
    await bench.ledger.settle(card, Fail(Trouble("not_found", "channel_not_found")), performer_of(bench).follow_ups)
    assert bench.rows(POSTED) == []
