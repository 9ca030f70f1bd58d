"""A full disk under the real bot, played by a process that has this disk to itself: `python -m faults.suites.full_disk FOLDER`.

The messages that people see are asserted here; faults/suites/test_full_disk.py starts this where a process may mount its own disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from faults.checks import checker
from faults.harness.fork_server import FOLDER_VARIABLE
from faults.harness.rig import BotProcess, Deal, eventually
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from faults.harness.rig import Json

REFUSED: Final = "Nothing was recorded and nothing was done"
TRIES: Final = 400  # a reservation takes about eight pages, and the WAL's allocated room needs no disk space


def expect(fact: str, held: object) -> None:
    """Raise AssertionError if a fact does not hold."""
    if not held:
        raise AssertionError(fact)


def fill(disk: Path) -> None:
    """Fill the disk to the last byte."""
    with (disk / "filler").open("ab", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


async def until_refused(ask: Callable[[int], Awaitable[Json]], disk: Path) -> tuple[list[int], str]:
    """Request quotes on a disk that is refilled before each, the ballast too; return the acknowledged numbers and the refusal."""
    heard: list[int] = []
    for number in range(TRIES):
        await asyncio.to_thread(fill, disk)
        answer = await ask(number)
        text = str((answer["ack"] or {}).get("text", ""))
        if REFUSED in text:
            return heard, text
        if answer["ack"] is not None:
            heard.append(number)
    raise AssertionError("the disk was never full enough")


async def play(folder: Path) -> None:
    """Fill the disk at `folder`/bot under a running bot, then free space. Raises AssertionError with the fact that did not hold."""
    disk = folder / "bot"
    async with World(folder / "world").serve() as world, aiohttp.ClientSession() as session:
        bot, deal = BotProcess(world, disk, folder / "bot.log"), Deal(world.url, disk, session)
        await bot.start()
        try:
            await deal.submitted_deal()
            heard, told = await until_refused(lambda number: deal.slash(f"new for Full {number}: 5 pro"), disk)
            expect("people are told what to do", told.endswith("Try again."))
            before = len(await deal.rows("SELECT id FROM operations"))
            card = next(card for card in await deal.cards() if "Acme" in card["text"])
            approve = {"user": "U0MANAGER", "channel": card["channel"], "message_ts": card["ts"], "action_id": "approval.approve"}
            expect("a click that is not recorded is not acknowledged", (await deal.post("action", **approve))["ack"] is None)
            expect("what was refused left nothing", len(await deal.rows("SELECT id FROM operations")) == before)

            (disk / "filler").unlink()
            await eventually(lambda: asks_again(deal), "commands to be taken again")
            await deal.settled()
            accounts = {row["account"] for row in await deal.rows("SELECT account FROM quotes")}
            expect("what was acknowledged was done", {f"Full {number}" for number in heard} <= accounts)
            await deal.post("action", **approve)
            await deal.settled()
            states = await deal.rows("SELECT state FROM quotes WHERE account = 'Acme'")
            expect(f"the deal goes on: {states}", states == [{"state": "approved"}])
            outside = await checker.outside_of(deal)
            found = await asyncio.to_thread(checker.violations_in, disk, outside)
            expect(f"every invariant holds: {found}", not found)
        finally:
            status = await bot.stop()
        expect("the same process worked on all the time", status == 0)
        sys.stdout.write(f"{len(heard)} commands were acknowledged on the way, and done\n")


async def asks_again(deal: Deal) -> bool:
    """Request one more quote; tell whether it was accepted."""
    answer = await deal.slash("new for Afterwards: 5 pro")
    return answer["ack"] is not None and REFUSED not in str(answer["ack"].get("text", ""))


if __name__ == "__main__":
    os.environ.pop(FOLDER_VARIABLE, None)  # a fork server outside this mount does not see the disk
    asyncio.run(play(Path(sys.argv[1])))
