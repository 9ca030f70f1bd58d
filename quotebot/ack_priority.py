"""Acknowledgements go before work: Slack waits for the first, nobody for the second.

Both write to one ledger. While an envelope is on its way to its acknowledgement, the workers take little and wait before they take
it; while nobody has asked for anything they take as much as shares a commit. In a flood, when more arrives than can be worked off
anyway, they all but rest. They wait for a moment only, so that a flood delays what is owed and never stops it.

What is known of this stands on a board: three numbers that whoever holds the socket writes and the workers read. Where those are
two processes the board is memory of both, for a message would wake the workers just when they are to keep still.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.clock import Clock

    Board = memoryview[float]

GIVE_WAY_SECONDS: Final = 0.025
LOOK_SECONDS: Final = 0.0025  # how often who gives way looks whether it still has to
LET_BY_SECONDS: Final = 0.0005  # as long as who waits at the gate needs to be awake...
LET_BY_TIMES: Final = 6  # ...and until an acknowledgement that met nobody has left
BREATH_SECONDS: Final = 0.020  # between two writes of the workers in a flood: who waited for one is worked off before the next
FLOOD: Final = 10  # so many reservations...
FLOOD_SECONDS: Final = 0.1  # ...in this time are one
FLOOD_MOMENTS: Final = 10  # for so many moments the workers give way to it, then they take one
LATELY_SECONDS: Final = 0.25  # who was asked so lately will probably be asked again
BUSY: Final = 1  # taken at once while envelopes are on their way
LATELY: Final = 3  # while there is none, but was lately
QUIET: Final = 64

# The board's numbers. Times are of the clock that all processes of a machine share, in seconds.
_ON_THE_WAY: Final = 0  # how many envelopes
_LAST_AT: Final = 1  # when the last was answered
_TENTH_AT: Final = 2  # when the tenth before the next reservation was asked for: lately, in a flood
_BYTES: Final = 3 * 8
_NEVER: Final = float("-inf")


def shared_board() -> Board:
    """Return a board that a process forked after this one shares with it. Each number is written and read as a whole."""
    return _blank(mmap.mmap(-1, _BYTES))


def _blank(memory: mmap.mmap | bytearray) -> Board:
    board = memoryview(memory).cast("d")
    board[_LAST_AT] = board[_TENTH_AT] = _NEVER
    return board


class Precedence:
    """Who is on the way to an acknowledgement. `begin`, `reserving` and `end` are of the socket, `turn` is of the workers.

    Only what asks for a write of the ledger counts towards a flood: a refusal competes with no worker, however many there are.
    """

    def __init__(self, clock: Clock, board: Board | None = None) -> None:
        """`board` is one of the process in front, or to be read there; without one it is of this process alone."""
        self._clock = clock
        self._board = _blank(bytearray(_BYTES)) if board is None else board
        self._arrivals: deque[float] = deque(maxlen=FLOOD)
        self._follows = False
        self._let_by_at = _NEVER

    @property
    def busy(self) -> bool:
        """Whether somebody is on the way."""
        return self._board[_ON_THE_WAY] > 0

    @property
    def flooded(self) -> bool:
        """Whether more arrives than can be worked off anyway."""
        return self._clock.monotonic() - self._board[_TENTH_AT] < FLOOD_SECONDS

    @property
    def contended(self) -> bool:
        """Whether the ledger's writer should make room: somebody is on the way, or about to be. From any thread."""
        return self.busy or self.flooded

    def follow(self, board: Board) -> None:
        """Read what another process writes from now on."""
        self._board = board
        self._follows = True

    def let_by(self) -> None:
        """Let whoever is on the way in another process write first, for a moment at most. For the writer's thread: it waits here.

        The kernel gives the write gate to whoever comes to it first, and a process that works comes back sooner than one that waits
        is awake. In a flood two writes in a row would keep those waiting who have just waited.
        """
        if self._follows and self.flooded:  # somebody always is on the way: who they are is for turns to say
            time.sleep(max(0.0, self._let_by_at + BREATH_SECONDS - self._clock.monotonic()))
        else:
            for _ in range(LET_BY_TIMES):
                if not self._follows or not self.busy:
                    break
                time.sleep(LET_BY_SECONDS)
        self._let_by_at = self._clock.monotonic()

    def begin(self) -> None:
        """Note that an envelope arrived."""
        self._board[_ON_THE_WAY] += 1

    def reserving(self) -> None:
        """Note that one is about to be recorded."""
        self._arrivals.append(self._clock.monotonic())
        if len(self._arrivals) == FLOOD:
            self._board[_TENTH_AT] = self._arrivals[0]

    def end(self) -> None:
        """Note that one was answered, one way or another."""
        self._board[_LAST_AT] = self._clock.monotonic()
        self._board[_ON_THE_WAY] -= 1

    async def turn(self) -> int:
        """Give way for a moment, if there is somebody to give way to; return how much may be taken at once."""
        for moment in range(FLOOD_MOMENTS):
            if not self.flooded:
                break
            if moment == FLOOD_MOMENTS - 1:
                return BUSY
            await asyncio.sleep(GIVE_WAY_SECONDS)
        looks = round(GIVE_WAY_SECONDS / LOOK_SECONDS)
        while self.busy:
            if not looks:
                return BUSY
            looks -= 1
            await asyncio.sleep(LOOK_SECONDS)
        return LATELY if self._clock.monotonic() - self._board[_LAST_AT] < LATELY_SECONDS else QUIET
