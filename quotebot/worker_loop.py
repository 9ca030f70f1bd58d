"""The worker loop: process due rows, then sleep until something changes or falls due, at most for the poll interval.

The poll guarantees progress; wake-ups only reduce latency. If the ledger cannot be written, the loop waits and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from ledger.database import NotRecorded, WritesRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.clock import Clock

POLL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


async def one_round(
    changed: asyncio.Event,
    step: Callable[[], Awaitable[int]],
    next_due_at: Callable[[], Awaitable[int | None]],
    clock: Clock,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Run one step; if there was nothing to do, sleep. `next_due_at` returns Unix milliseconds, or None if no row is scheduled.

    Raises WritesRefused when the ledger takes no writes until a restart.
    """
    changed.clear()  # before the step: a change during the step triggers a wake-up
    try:
        if await step():
            return
        nap = await nap_seconds(next_due_at, clock, poll_seconds)
    except WritesRefused:
        raise
    except NotRecorded as error:
        log.warning("ledger.busy", error=str(error))
        nap = POLL_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(nap):  # not wait_for: before Python 3.12 that may take a cancellation for the wake-up
            await changed.wait()


async def nap_seconds(next_due_at: Callable[[], Awaitable[int | None]], clock: Clock, poll_seconds: float = POLL_SECONDS) -> float:
    """Return the seconds to sleep: until the next row is due, and never longer than the poll interval."""
    due = await next_due_at()
    return poll_seconds if due is None else min(poll_seconds, max(0.0, (due - clock.now_ms()) / 1000))
