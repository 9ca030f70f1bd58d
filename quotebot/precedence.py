"""Acknowledgements go before work: Slack waits for the first, nobody for the second.

Both write to one ledger. While an envelope is on its way to its acknowledgement, the workers take little and wait before they take
it; while nobody has asked for anything they take as much as shares a commit. In a flood, when more arrives than can be worked off
anyway, they all but rest. They wait for a moment only, so that a flood delays what is owed and never stops it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.clock import Clock

GIVE_WAY_SECONDS: Final = 0.025
FLOOD: Final = 10  # so many arrivals...
FLOOD_SECONDS: Final = 0.1  # ...in this time are one
FLOOD_MOMENTS: Final = 10  # for so many moments the workers give way to it, then they take one
LATELY_SECONDS: Final = 0.25  # who was asked so lately will probably be asked again
BUSY: Final = 1  # taken at once while envelopes are on their way
LATELY: Final = 3  # while there is none, but was lately
QUIET: Final = 64


class Precedence:
    """Who is on the way to an acknowledgement. `begin` and `end` are of the socket, `turn` is of the workers.

    `changed` is told when the first sets out and when the last has arrived.
    """

    def __init__(self, clock: Clock, changed: Callable[[bool], object] = lambda _: None) -> None:
        self._clock = clock
        self._changed = changed
        self._elsewhere: Callable[[], bool] = lambda: False
        self._on_the_way = 0
        self._arrivals: deque[float] = deque(maxlen=FLOOD)
        self._flood_elsewhere = False
        self._last_at = float("-inf")
        self._clear: asyncio.Event | None = None  # made for whoever waits

    @property
    def busy(self) -> bool:
        """Whether somebody is on the way, here or in the process that `follow` named."""
        return self._on_the_way > 0 or self._elsewhere()

    def follow(self, busy: Callable[[], bool]) -> None:
        """Know of another process whether somebody is on the way there: at once, for the writer; `begin` tells the loop."""
        self._elsewhere = busy

    @property
    def flooded(self) -> bool:
        """Whether more arrives than can be worked off anyway."""
        full = len(self._arrivals) == FLOOD
        return self._flood_elsewhere or (full and self._clock.monotonic() - self._arrivals[0] < FLOOD_SECONDS)

    @property
    def pressing(self) -> bool:
        """Whether the ledger's writer should make room: somebody is on the way, or about to be."""
        return self.busy or self.flooded

    def note_flood(self, flooded: bool) -> None:  # noqa: FBT001 -- what is noted
        """Know of another process whether there is a flood."""
        self._flood_elsewhere = flooded

    def begin(self) -> None:
        """Note that an envelope arrived."""
        self._on_the_way += 1
        self._arrivals.append(self._clock.monotonic())
        if self._on_the_way == 1:
            self._changed(True)  # noqa: FBT003 -- it is whether somebody is on the way

    def end(self) -> None:
        """Note that one was answered, one way or another."""
        self._on_the_way -= 1
        self._last_at = self._clock.monotonic()
        if self._on_the_way:
            return
        self._changed(False)  # noqa: FBT003 -- as above
        if self._clear is not None:
            self._clear.set()
            self._clear = None

    async def turn(self) -> int:
        """Give way for a moment, if there is somebody to give way to; return how much may be taken at once."""
        for moment in range(FLOOD_MOMENTS):
            if not self.flooded:
                break
            if moment == FLOOD_MOMENTS - 1:
                return BUSY
            await asyncio.sleep(GIVE_WAY_SECONDS)
        if self._on_the_way:
            if self._clear is None:
                self._clear = asyncio.Event()
            clear = self._clear
            try:
                async with asyncio.timeout(GIVE_WAY_SECONDS):
                    await clear.wait()
            except TimeoutError:
                return BUSY
        return LATELY if self._clock.monotonic() - self._last_at < LATELY_SECONDS else QUIET
