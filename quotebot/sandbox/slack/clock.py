"""The world's clock: real time plus an offset that tests move, for whatever Slack lets expire."""

from __future__ import annotations

import asyncio
import time


class VirtualClock:
    """Seconds. The offset makes triggers, response URLs, tickets and event retries expire without waiting."""

    def __init__(self) -> None:
        self._offset = 0.0
        self._moved = asyncio.Event()

    @property
    def offset_seconds(self) -> float:
        """How far this clock is ahead of real time."""
        return self._offset

    def move(self, offset_seconds: float) -> None:
        """Set the offset and wake whoever waits for a due time."""
        self._offset = offset_seconds
        self._moved.set()
        self._moved = asyncio.Event()

    def now(self) -> float:
        """Unix seconds, offset included."""
        return time.time() + self._offset

    async def until(self, due: float) -> None:
        """Return once `now()` has reached `due`, by waiting or by the clock being moved."""
        while (left := due - self.now()) > 0:
            moved = self._moved
            try:
                async with asyncio.timeout(left):
                    await moved.wait()
            except TimeoutError:
                continue
