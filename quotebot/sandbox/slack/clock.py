"""The world's clock: the given time plus an offset that tests move, for everything that expires in Slack."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class VirtualClock:
    """Seconds. The offset makes triggers, response URLs, tickets and event retries expire without waiting."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._offset = 0.0
        self._moved: asyncio.Event | None = None

    @property
    def offset_seconds(self) -> float:
        """The offset: how far this clock is ahead of the given time."""
        return self._offset

    def move(self, offset_seconds: float) -> None:
        """Set the offset and wake all that wait for a due time."""
        self._offset = offset_seconds
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    def now(self) -> float:
        """Unix seconds, offset included."""
        return self._now() + self._offset

    def microseconds(self) -> int:
        """Unix microseconds without the offset: the source of timestamps of messages and gestures."""
        return int(self._now() * 1_000_000)

    def date(self) -> str:
        """Return the time without the offset in HTTP's Date format: the bot's own clock does not move with the offset."""
        return formatdate(self._now(), usegmt=True)

    def stamp(self) -> str:
        """Return the timestamp of a gesture, `seconds.microseconds`."""
        now = self.microseconds()
        return f"{now // 1_000_000}.{now % 1_000_000:06d}"

    async def until(self, due: float) -> None:
        """Return once `now()` has reached `due`, by waiting or by the clock being moved."""
        while (left := due - self.now()) > 0:
            if self._moved is None:
                self._moved = asyncio.Event()
            moved = self._moved
            try:
                async with asyncio.timeout(left):
                    await moved.wait()
            except TimeoutError:
                continue
