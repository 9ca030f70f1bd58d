"""Tests of the real bot over real sockets at the best-known crash points: SIGKILL, requests in flight, lost answers.

Every crash point is tried in the laboratory (test_crash_points.py); here the socket, the threads and the renderer's child take
part.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from faults.checks import checker
from faults.harness.bot import KillPlan
from faults.harness.rig import BotProcess, Deal, eventually

RECOVERY_SECONDS = 15.0


async def finish_after_restart(bot: BotProcess, deal: Deal, last_step: str) -> None:
    """Restart a killed bot as shipped, let it recover, take the deal to its end from `last_step`, and check everything."""
    started = time.monotonic()
    await bot.start()
    await deal.settled()
    assert time.monotonic() - started < RECOVERY_SECONDS
    if last_step == "created":
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()
    if last_step in ("created", "submitted"):
        await deal.click("approval.approve", user="U0MANAGER")
        await deal.settled()
    await checker.golden_deal(deal)


async def test_creation_killed_before_its_acknowledgement_is_finished_once_after_restart(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start(KillPlan("ack", "before"))
    await asyncio.gather(deal.slash(), bot.died())
    await finish_after_restart(bot, deal, "created")


async def test_an_approval_killed_amid_the_upload_is_finished_once_by_the_restart(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    # The first step is that of the direct message to the approver.
    await bot.start(KillPlan("write:record_step", "after", 2))
    await deal.submitted_deal()
    await asyncio.gather(deal.click("approval.approve", user="U0MANAGER"), bot.died())
    await finish_after_restart(bot, deal, "approved")


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("salesforce", "composite/graph"),
        ("slack", "files.completeUploadExternal"),
    ],
)
async def test_bot_killed_with_a_request_in_flight_applies_it_once(rig: tuple[BotProcess, Deal], target: str, method: str) -> None:
    bot, deal = rig
    await bot.start()
    await deal.submitted_deal()
    await deal.arm(target, "slow", method=method, times=1, delay=1.0)
    await deal.click("approval.approve", user="U0MANAGER")
    await eventually(lambda: _struck(deal), "the request to be in flight")
    await bot.kill()
    await finish_after_restart(bot, deal, "approved")


async def _struck(deal: Deal) -> bool:
    return await deal.hits() >= 1


@pytest.mark.parametrize("method", ["composite/graph", "files.completeUploadExternal"])
async def test_lost_answer_leads_to_exactly_one_applied_effect(rig: tuple[BotProcess, Deal], method: str) -> None:
    bot, deal = rig
    await bot.start()
    await deal.submitted_deal()
    await deal.arm("salesforce" if method == "composite/graph" else "slack", "reset_after", method=method, times=1)
    await deal.click("approval.approve", user="U0MANAGER")
    await deal.settled()
    assert await deal.hits() == 1
    await checker.golden_deal(deal)


async def test_reset_after_on_the_root_leaves_one_message(rig: tuple[BotProcess, Deal]) -> None:
    bot, deal = rig
    await bot.start()
    await deal.arm("slack", "reset_after", method="chat.postMessage", times=1)
    await deal.slash()
    await deal.settled()
    assert await deal.hits() == 1
    assert len(await deal.cards()) == 1
    await checker.exactly_once(deal)
    (found,) = await deal.rows("SELECT result FROM effects WHERE class = 'slack.post'")
    assert '"already_there":true' in found["result"]
