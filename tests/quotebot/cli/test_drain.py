"""Test of SIGTERM under load on the real process: it ends in time with status 0, and the next one continues its work."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from faults.harness.rig import bot_process
from quotebot.sandbox.world import World
from tests.rig import eventually

if TYPE_CHECKING:
    from pathlib import Path

DRAIN_SECONDS = 2.0  # instead of 8; the rest is relative to it
NOISE_SECONDS = 1.5  # tolerance on a busy machine
COMMANDS = 24


async def test_sigterm_under_load_ends_in_time_burns_no_attempt_and_everything_goes_on(tmp_path: Path) -> None:
    async with (
        World(tmp_path / "world", ack_seconds=2.0).serve() as world,
        bot_process(world, tmp_path, QUOTEBOT_DRAIN_SECONDS=str(DRAIN_SECONDS)) as (bot, deal),
    ):
        await bot.start()
        await deal.arm(
            "slack", "slow", method="chat.postMessage", times=2, delay=30.0
        )  # two attempts will not finish: as many as one channel has
        typed = [asyncio.create_task(deal.slash(f"new for Acme {n}: 1 pro")) for n in range(COMMANDS)]
        await eventually(lambda: world.weather.describe()[0]["hits"] == 2, "two posts to hang")
        began = time.monotonic()
        assert await bot.stop() == 0
        assert time.monotonic() - began < DRAIN_SECONDS + NOISE_SECONDS

        answers = [await each for each in typed]
        promised = [each for each in answers if each["ack"] == {}]
        assert len(await deal.rows("SELECT 1 FROM operations")) == len(promised) > 0
        assert await deal.rows("SELECT 1 FROM operations WHERE state = 'in_progress'") == []
        assert await deal.rows("SELECT 1 FROM effects WHERE state = 'in_flight'") == []
        assert await deal.rows("SELECT attempts FROM effects WHERE attempts > 0 AND state != 'delivered'") == []
        assert [row["end_reason"] for row in await deal.rows("SELECT end_reason FROM epochs")] == ["stopped"]

        await deal.clear_faults()
        await bot.start()
        again = [each for each in answers if each not in promised]  # Slack, or the person, repeats it
        for each in again:
            await deal.redeliver(each["request_id"], "retry", 1)
        await deal.settled()
        assert len(await deal.rows("SELECT 1 FROM quotes")) == len(await deal.cards()) == COMMANDS
        assert await deal.rows("SELECT 1 FROM effects WHERE state != 'delivered' AND class = 'slack.post'") == []
