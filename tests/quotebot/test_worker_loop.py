"""Tests that a cancelled worker ends at any moment: a shutdown waits for it."""

from __future__ import annotations

import asyncio

import pytest

from ledger.clock import SystemClock
from quotebot.worker_loop import one_round


@pytest.mark.parametrize("steps_between", range(6))
async def test_a_worker_ends_when_it_is_cancelled_right_after_it_was_woken(steps_between: int) -> None:
    changed = asyncio.Event()
    asleep = asyncio.Event()

    async def nothing_to_do() -> int:
        return 0

    async def nothing_due() -> int | None:
        asleep.set()
        return None

    async def work() -> None:
        while True:
            await one_round(changed, nothing_to_do, nothing_due, SystemClock(), poll_seconds=30.0)

    worker = asyncio.create_task(work())
    await asleep.wait()
    for _ in range(5):
        await asyncio.sleep(0)  # it goes to sleep
    changed.set()
    for _ in range(steps_between):
        await asyncio.sleep(0)
    worker.cancel()
    done, _ = await asyncio.wait({worker}, timeout=5.0)
    worker.cancel()
    assert worker in done, "it took its cancellation for its wake-up and works on"
