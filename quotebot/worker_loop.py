"""Worker loop: process due rows, then sleep until something changes or falls due, at most for the poll interval.

The poll guarantees progress; wake-ups only reduce latency. If the ledger cannot be written, the loop waits and tries again.

The workers yield to acknowledgements: Slack waits for an acknowledgement, no one waits for the workers, and both write to one
ledger. While an envelope waits for its acknowledgement, the workers claim little and yield before they claim; when no request is
pending they claim as much as shares one commit. Under overload, when more arrives than can be processed, they nearly stop. Each
wait is bounded, so overload delays pending effects but never blocks them.
The state is three numbers that the process with the socket writes and the workers read. If those are two processes, the numbers are
in shared memory: a message would wake the workers exactly when they should stay idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from ledger.database import NotRecorded, WritesRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.clock import Clock

    Board = memoryview[float]

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 1.0
GIVE_WAY_SECONDS: Final = 0.025
YIELD_POLL_SECONDS: Final = 0.0025  # poll interval while yielding to an acknowledgement
FLOOD: Final = 10  # so many reservations...
FLOOD_SECONDS: Final = 0.1  # ...within this time count as overload
FLOOD_MOMENTS: Final = 10  # the workers yield for so many intervals of GIVE_WAY_SECONDS, then they claim
LATELY_SECONDS: Final = 0.25  # after a request this recent another one is likely
BUSY: Final = 1  # claimed at once while envelopes are pending
LATELY: Final = 3  # while none is pending, but one was recently
QUIET: Final = 64

# Indexes of the shared numbers. Times are seconds of the monotonic clock that all processes of a machine share.
_ON_THE_WAY: Final = 0  # number of envelopes
_LAST_AT: Final = 1  # time of the last acknowledgement
_TENTH_AT: Final = 2  # time of the oldest of the last FLOOD reservations: recent under overload
_BYTES: Final = 3 * 8
_NEVER: Final = float("-inf")


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


def shared_board() -> Board:
    """Return shared memory that a process forked after this call shares. Each number is read and written atomically."""
    return _blank(mmap.mmap(-1, _BYTES))


def _blank(memory: mmap.mmap | bytearray) -> Board:
    board = memoryview(memory).cast("d")
    board[_LAST_AT] = board[_TENTH_AT] = _NEVER
    return board


class AckPriority:
    """State of pending acknowledgements. The socket calls `begin`, `reserving` and `end`; the workers call `turn`.

    Only requests for a ledger write count towards overload: a refusal does not compete with a worker.
    """

    def __init__(self, clock: Clock, board: Board | None = None) -> None:
        """`board` is the memory shared with the workers' process; by default it is private to this process."""
        self._clock = clock
        self._board = _blank(bytearray(_BYTES)) if board is None else board
        self._arrivals: deque[float] = deque(maxlen=FLOOD)

    @property
    def busy(self) -> bool:
        """True while an envelope waits for its acknowledgement."""
        return self._board[_ON_THE_WAY] > 0

    @property
    def flooded(self) -> bool:
        """True while more arrives than can be processed."""
        return self._clock.monotonic() - self._board[_TENTH_AT] < FLOOD_SECONDS

    def follow(self, board: Board) -> None:
        """Read the numbers that another process writes from now on."""
        self._board = board

    def begin(self) -> None:
        """Record that an envelope arrived."""
        self._board[_ON_THE_WAY] += 1

    def reserving(self) -> None:
        """Record that a reservation is about to be written."""
        self._arrivals.append(self._clock.monotonic())
        if len(self._arrivals) == FLOOD:
            self._board[_TENTH_AT] = self._arrivals[0]

    def end(self) -> None:
        """Record that an envelope was answered, with any outcome."""
        self._board[_LAST_AT] = self._clock.monotonic()
        self._board[_ON_THE_WAY] -= 1

    async def turn(self) -> int:
        """Yield for a bounded time if an acknowledgement is pending; return how many rows may be claimed at once."""
        for moment in range(FLOOD_MOMENTS):
            if not self.flooded:
                break
            if moment == FLOOD_MOMENTS - 1:
                return BUSY
            await asyncio.sleep(GIVE_WAY_SECONDS)
        looks = round(GIVE_WAY_SECONDS / YIELD_POLL_SECONDS)
        while self.busy:
            if not looks:
                return BUSY
            looks -= 1
            await asyncio.sleep(YIELD_POLL_SECONDS)
        return LATELY if self._clock.monotonic() - self._board[_LAST_AT] < LATELY_SECONDS else QUIET
