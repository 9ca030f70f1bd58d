"""Slack delivers again: byte-identical or as a retry, five at once, before and after a restart. Nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from faults import checks
from faults.rig import FIRST_QUOTE, eventually

if TYPE_CHECKING:
    from faults.rig import BotProcess, Deal, Json

TIMES = 5


async def redeliver_both_ways(deal: Deal, request_id: str) -> list[Json]:
    """Send the same request five times as a resend and five times as a retry, all at once; return the ten acks."""
    acks = await asyncio.gather(*(deal.redeliver(request_id, kind, TIMES) for kind in ("resend", "retry")))
    return [answer["ack"] for some in acks for answer in some]


async def counted(deal: Deal, duplicates: int) -> None:
    """Wait until so many duplicates are counted: each is answered first, so a kill right after the answer may lose its count."""

    async def all_counted() -> bool:
        (found,) = await deal.rows("SELECT count(*) AS n FROM audit_events WHERE event_type = 'delivery.duplicate'")
        return bool(found["n"] == duplicates)

    await eventually(all_counted, f"{duplicates} duplicates to be counted")


async def test_a_redelivered_slash_command_answers_with_the_stored_response(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    request_id = (await deal.slash())["request_id"]
    await deal.settled()
    (operation,) = await deal.rows("SELECT json_extract(response, '$.text') AS text FROM operations")
    assert FIRST_QUOTE in operation["text"]
    assert "17,340.00 USD" in operation["text"]
    before = await redeliver_both_ways(deal, request_id)
    await counted(deal, 2 * TIMES)
    await bot.kill()
    await bot.start()
    after = await redeliver_both_ways(deal, request_id)
    await deal.settled()
    assert [ack["text"] for ack in before + after] == [operation["text"]] * 4 * TIMES
    assert len(await deal.cards()) == 1
    assert len(await deal.rows("SELECT 1 FROM quotes")) == 1
    await counted(deal, 4 * TIMES)
    (delivery,) = await deal.rows("SELECT seen FROM deliveries")
    assert delivery["seen"] == 1 + 4 * TIMES
    await checks.exactly_once(deal)


async def test_a_redelivered_slash_command_racing_with_its_first_delivery_makes_one_quote(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    answer = await deal.slash()
    acks = await redeliver_both_ways(deal, answer["request_id"])  # the first is very likely still being executed
    await deal.settled()
    texts = {ack["text"].split(",")[0] for ack in acks}
    assert all(text.startswith("Operation pending") or FIRST_QUOTE in text for text in texts), texts
    assert len(await deal.cards()) == 1
    await checks.exactly_once(deal)


async def test_a_redelivered_approval_click_decides_once(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    await deal.submitted_deal()
    click = await deal.click("approval.approve", user="U0MANAGER")
    racing = await redeliver_both_ways(deal, click["request_id"])
    await deal.settled()
    before = await redeliver_both_ways(deal, click["request_id"])
    await counted(deal, 4 * TIMES)
    await bot.kill()
    await bot.start()
    after = await redeliver_both_ways(deal, click["request_id"])
    await deal.settled()
    assert racing + before + after == [{}] * 6 * TIMES  # a click's ack carries nothing
    decided = await deal.rows("SELECT event_type FROM audit_events WHERE event_type LIKE 'approval.%'")
    assert [row["event_type"] for row in decided] == ["approval.requested", "approval.approved"]
    await counted(deal, 6 * TIMES)
    await checks.golden_deal(deal)


async def test_a_whole_deal_with_every_request_delivered_eleven_times_is_one_deal(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    slash = await deal.slash()
    await redeliver_both_ways(deal, slash["request_id"])
    await deal.settled()
    submit = await deal.click("quote.submit", user="U0REP")
    await redeliver_both_ways(deal, submit["request_id"])
    await deal.settled()
    approve = await deal.click("approval.approve", user="U0MANAGER")
    await redeliver_both_ways(deal, approve["request_id"])
    await deal.settled()
    await bot.kill()
    await bot.start()
    for request in (slash, submit, approve):
        await redeliver_both_ways(deal, request["request_id"])
    await deal.settled()
    await checks.golden_deal(deal)


async def test_a_second_click_by_another_gesture_is_told_who_decided(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    await deal.submitted_deal()
    await deal.click("approval.approve", user="U0MANAGER")
    await deal.settled()
    await deal.click("approval.approve", user="U0VP", stale=True)
    await deal.settled()
    (told,) = await deal.whispers("U0VP")
    assert "already approved by <@U0MANAGER>" in told
    await checks.golden_deal(deal)
