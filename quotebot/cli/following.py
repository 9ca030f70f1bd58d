"""Detection of a running bot, and progress of the rows it works on."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import Progress

from ledger.operator.dead_letters import Replay
from ledger.sqlite.locks import instance_holder
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetters, ReplayResult

WAIT_SECONDS: Final = 600.0  # after the last row is due
WAIT_POLL_SECONDS: Final = 0.2
EPOCHS: Final = 100  # processes checked: those of the command line take epochs too


async def settled(found: DeadLetters, results: Sequence[ReplayResult], spread_seconds: float) -> list[ReplayResult]:
    """Follow the queued rows until they are settled, for ten minutes after the last is due; the bot does the work."""
    now = list(results)
    waiting = [number for number, result in enumerate(now) if result.outcome in (Replay.QUEUED, Replay.UNDER_WAY)]
    give_up_at = asyncio.get_running_loop().time() + WAIT_SECONDS + spread_seconds
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("Settled", total=len(now), completed=len(now) - len(waiting))
        while waiting and asyncio.get_running_loop().time() < give_up_at:
            ended = await found.standings([now[number] for number in waiting])
            for number, result in zip(waiting, ended, strict=True):
                now[number] = result or now[number]
            waiting = [number for number, result in zip(waiting, ended, strict=True) if result is None]
            bar.update(task, completed=len(now) - len(waiting))
            if waiting:
                await asyncio.sleep(WAIT_POLL_SECONDS)
    for number in waiting:
        now[number] = replace(now[number], outcome=Replay.UNDER_WAY)
    return now


async def bot_runs(ledger: Ledger) -> bool:
    """Return true if the process that last took the bot's lock is alive. Trying the lock could stop a starting bot."""
    pid = instance_holder(load_settings().ledger_path)
    rows = await ledger.database.read(lambda tx: tx.all("last_epochs", limit=EPOCHS))
    if pid is None or not any(row["pid"] == pid and row["ended_at"] is None for row in rows):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is alive and belongs to another user
        return True
    return True
