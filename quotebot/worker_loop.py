"""The loop of a worker: do what is due, then sleep until something changes or falls due, and never longer than the poll.

The poll is what guarantees progress; wake-ups only make it quick. A ledger that cannot be written for a while is waited for.
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
    """Take one step; when there was nothing to do, sleep. `next_due_at` is Unix milliseconds, None when nothing sleeps.

    Raises WritesRefused when the ledger takes no writes until a restart.
    """
    changed.clear()  # before looking: what changes while we look wakes us
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
    """Return how long to sleep: until the next row is due, and never longer than the poll."""
    due = await next_due_at()
    return poll_seconds if due is None else min(poll_seconds, max(0.0, (due - clock.now_ms()) / 1000))
