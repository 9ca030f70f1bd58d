"""Tests of a full disk: no acknowledged command is lost, people are notified, and work continues once there is space."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import pytest

from faults.checks import checker
from faults.harness.fork_server import FOLDER_VARIABLE
from faults.harness.rig import BotProcess, Deal, eventually
from quotebot.sandbox.world import World
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from faults.harness.rig import Json

ROOT: Final = Path(__file__).parents[2]
MOUNT: Final = 'mount -t tmpfs -o size=96m none "$0" && exec "$@"'  # room for the ballast, and as much again
OWN_DISK: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT)
REFUSED: Final = messages.NOTHING_RECORDED
TRIES: Final = 400  # a reservation takes about eight pages, and the WAL's allocated room needs no disk space


async def can_mount(folder: Path) -> str | None:
    """Return why a process may not mount its own disk here; None if it may."""
    try:
        probe = await asyncio.create_subprocess_exec(*OWN_DISK, str(folder), "true", stderr=asyncio.subprocess.PIPE)
    except FileNotFoundError as error:
        return str(error)
    _, refusal = await probe.communicate()
    return refusal.decode().strip() if probe.returncode else None


@pytest.mark.timeout(120)
async def test_full_disk_loses_nothing_acknowledged_notifies_users_and_ends_with_room(tmp_path: Path) -> None:
    disk = tmp_path / "bot"
    disk.mkdir()
    if why := await can_mount(disk):
        pytest.skip(f"this machine does not let a process mount a disk of its own: {why}")
    played = await asyncio.create_subprocess_exec(
        *OWN_DISK,
        str(disk),
        sys.executable,
        "-m",
        "faults.suites.test_full_disk",
        str(tmp_path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await played.communicate()
    assert played.returncode == 0, out.decode()[-4000:]
    assert b"were acknowledged on the way, and done" in out


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
            assert told.endswith("Please try again."), "people are told what to do"
            before = len(await deal.rows("SELECT id FROM operations"))
            card = next(card for card in await deal.cards() if "Acme" in card["text"])
            approve = {"user": "U0MANAGER", "channel": card["channel"], "message_ts": card["ts"], "action_id": "approval.approve"}
            refused = await deal.post("action", **approve)
            assert refused["ack"] is None, "a click that is not recorded is not acknowledged"
            assert len(await deal.rows("SELECT id FROM operations")) == before, "what was refused left nothing"

            (disk / "filler").unlink()
            await eventually(lambda: asks_again(deal), "commands to be taken again")
            await deal.settled()
            accounts = {row["account"] for row in await deal.rows("SELECT account FROM quotes")}
            assert {f"Full {number}" for number in heard} <= accounts, "what was acknowledged was done"
            await deal.post("action", **approve)
            await deal.settled()
            states = await deal.rows("SELECT state FROM quotes WHERE account = 'Acme'")
            assert states == [{"state": "approved"}], f"the deal goes on: {states}"
            found = await asyncio.to_thread(checker.violations_in, disk, await checker.outside_of(deal))
            assert not found, f"every invariant holds: {found}"
        finally:
            status = await bot.stop()
        assert status == 0, "the same process worked on all the time"
        sys.stdout.write(f"{len(heard)} commands were acknowledged on the way, and done\n")


async def asks_again(deal: Deal) -> bool:
    """Request one more quote; tell whether it was accepted."""
    answer = await deal.slash("new for Afterwards: 5 pro")
    return answer["ack"] is not None and REFUSED not in str(answer["ack"].get("text", ""))


if __name__ == "__main__":  # the process that has the disk to itself
    os.environ.pop(FOLDER_VARIABLE, None)  # a fork server outside this mount does not see the disk
    asyncio.run(play(Path(sys.argv[1])))
