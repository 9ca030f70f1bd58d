"""Tests of two bots on one ledger: only the lock's holder works; a stopped one keeps the lock, a dead one releases it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from faults.checks import checker
from faults.harness.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from faults.harness.rig import BotProcess, Deal

LOCKED = 75


@asynccontextmanager
async def another_bot(bot: BotProcess, log: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a second `quotebot run` on the same ledger; end it afterwards."""
    with log.open("ab") as lines:
        command = (sys.executable, "-m", "quotebot", "run", *options)
        process = await asyncio.create_subprocess_exec(*command, stderr=lines, env={**os.environ, **bot.environment})
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 15)


async def test_second_bot_ends_with_a_message_that_names_the_running_process(rig: tuple[BotProcess, Deal], tmp_path: Path) -> None:
    bot, _ = rig
    await bot.start()
    log = tmp_path / "second.log"
    async with another_bot(bot, log) as second:
        assert await asyncio.wait_for(second.wait(), 15) == LOCKED
    assert f"process {bot.pid}" in log.read_text()
    assert "--standby" in log.read_text()


async def test_a_stopped_bot_keeps_its_ledger_and_resumes_without_harm(rig: tuple[BotProcess, Deal], tmp_path: Path) -> None:
    bot, deal = rig
    await bot.start()
    first = await deal.slash()
    os.kill(bot.pid, signal.SIGSTOP)
    try:
        async with another_bot(bot, tmp_path / "second.log", "--standby") as second:
            redelivered = asyncio.create_task(deal.redeliver(first["request_id"], "retry", 3))
            await eventually(lambda: "standing_by" in (tmp_path / "second.log").read_text(), "the second bot to wait")
            assert len(await deal.rows("SELECT 1 FROM epochs")) == 1, "a stopped bot is not taken for dead"
            assert second.returncode is None
            os.kill(bot.pid, signal.SIGCONT)
            await redelivered
            await deal.settled()
    finally:
        os.kill(bot.pid, signal.SIGCONT)
    await checker.exactly_once(deal)
    assert len(await deal.cards()) == 1
    assert len(await deal.rows("SELECT 1 FROM epochs")) == 1


async def test_a_bot_that_stands_by_takes_over_from_a_dead_one(rig: tuple[BotProcess, Deal], tmp_path: Path) -> None:
    bot, deal = rig
    await bot.start()
    async with another_bot(bot, tmp_path / "second.log", "--standby"):
        await eventually(lambda: "standing_by" in (tmp_path / "second.log").read_text(), "the second bot to wait")
        await deal.slash()
        os.kill(bot.pid, signal.SIGKILL)
        await eventually(lambda: "bot.started" in (tmp_path / "second.log").read_text(), "the second bot to take over")
        await deal.settled()
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()
        await checker.exactly_once(deal)
        assert [row["end_reason"] for row in await deal.rows("SELECT end_reason FROM epochs ORDER BY epoch")] == ["died", None]
