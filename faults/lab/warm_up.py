"""Warm-up: one whole deal in this process, so that imports, compiled code and caches exist before the first fork."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import tempfile
from pathlib import Path
from typing import Any

import simple_salesforce.api  # noqa: F401 -- the adapter imports it lazily, which would be in every fork

import adapters.llm.api  # noqa: F401 -- as above, in scenarios that use a model
from faults.lab.bot import Conditions, LabBot
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.setting import lab_settings, ram
from faults.lab.steps import newest
from faults.lab.traps import Trap
from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.slack.line import Ack
from quotebot.sandbox.world import World


class _Line:
    """Line that hands envelopes to the bot in this process."""

    bot: LabBot

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        del envelope_id, kind
        answers: list[dict[str, Any]] = []
        await self.bot.deliver(text, answers.append)
        return Ack(answers[0] if answers else None, 1.0)


def warm_up() -> None:
    """Run the deal, and freeze its objects: otherwise the garbage collector's scan would copy them into each fork."""
    _run_the_deal()
    gc.collect()
    gc.freeze()
    gc.disable()


@functools.cache  # a fork of a warm process is warm
def _run_the_deal() -> None:
    clock = LabClock()
    loop = VirtualLoop(clock)
    with tempfile.TemporaryDirectory(prefix="quotebot-warmth-", dir=ram()) as folder:
        loop.run_until_complete(_deal(clock, Path(folder)))
    loop.close()
    asyncio.set_event_loop(None)


async def _deal(clock: LabClock, folder: Path) -> None:
    line = _Line()
    world = World(None, now=clock.seconds, monotonic=clock.monotonic, tokens=Tokens.seeded(1), line=line).unserved()
    chance = random.Random(1)  # noqa: S311 -- to repeat a run
    line.bot = LabBot(lab_settings(folder), Conditions(clock, world, Trap(), chance.uniform, lambda: 0.03))
    await line.bot.start()
    await world.gestures.slash("U0REP", "C0DEALS", "/quote", "new for Acme: 150 pro, 150 sso, 1 support; discount 15%")
    await line.bot.settled(60)
    for action_id, user in (("quote.submit", "U0REP"), ("approval.approve", "U0MANAGER")):
        ts = newest(world)["ts"]
        await world.gestures.click_message(user, "C0DEALS", ts, action_id, block_id=None, value=None, values={}, stale=False)
        await line.bot.settled(60)
    await line.bot.stop()
