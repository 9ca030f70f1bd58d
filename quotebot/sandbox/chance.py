"""Time and chance of the local world: its clock, the counter of its changes, and the source of every id and random choice."""

from __future__ import annotations

import asyncio
import base64
import random
import time
import uuid
from email.utils import formatdate
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
_SHORT_ID_LENGTH = 5


class Tokens:
    """Values in the vendors' formats, random or seeded. Unseeded, no two worlds ever send a bot's ledger the same request id."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = random.SystemRandom() if source is None else source

    @classmethod
    def seeded(cls, seed: int) -> Tokens:
        """Return a source that gives the same values every time."""
        return cls(random.Random(seed))  # noqa: S311 -- to repeat a run, not to keep a secret

    def hex(self, size: int) -> str:
        """Return `size` random bytes as lower-case hexadecimal digits."""
        return self._source.randbytes(size).hex()

    def urlsafe(self, size: int) -> str:
        """Return `size` random bytes as text that may stand in a URL."""
        return base64.urlsafe_b64encode(self._source.randbytes(size)).rstrip(b"=").decode()

    def uuid(self) -> str:
        """Return a random UUID."""
        return str(uuid.UUID(bytes=self._source.randbytes(16), version=4))

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to below `limit`."""
        return self._source.randrange(limit)

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return self._source.choice(options)

    def object_id(self, prefix: str) -> str:
        """Return an object id such as F3K9..., upper-case."""
        return f"{prefix}{self.hex(5).upper()}"

    def short_id(self) -> str:
        """Return an id such as Slack gives to a block without a block_id."""
        return self.urlsafe(4)[:_SHORT_ID_LENGTH]


class Signal:
    """Wakes all that wait for it when it is fired."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None  # created on demand: most firings have no waiter

    def fire(self) -> None:
        """Wake every waiter."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, seconds: float | None = None) -> bool:
        """Return True when it is fired, False after `seconds`."""
        if self._event is None:
            self._event = asyncio.Event()
        event = self._event
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True


class VirtualClock:
    """Seconds. The offset makes triggers, response URLs, tickets and event retries expire without waiting."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._offset = 0.0
        self._moved = Signal()

    @property
    def offset_seconds(self) -> float:
        """The offset: how far this clock is ahead of the given time."""
        return self._offset

    def move(self, offset_seconds: float) -> None:
        """Set the offset and wake all that wait for a due time."""
        self._offset = offset_seconds
        self._moved.fire()

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
            await self._moved.wait(left)


class Changes:
    """Version counter that the event stream watches."""

    def __init__(self) -> None:
        self.version = 0
        self.closed = False
        self._changed = Signal()

    def bump(self) -> None:
        """Count one change and wake every watcher."""
        self.version += 1
        self._changed.fire()

    def close(self) -> None:
        """Wake every watcher for the last time: the world is stopping."""
        self.closed = True
        self._changed.fire()

    async def after(self, version: int, timeout_seconds: float) -> bool:
        """Wait until the version differs from `version` (True), or until the timeout or the end of the world (False)."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.version == version and not self.closed:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return not self.closed
