"""Time of the database's server, which all replicas share: the clocks of their machines may differ by seconds.

Between two comparisons with the server the time that the machine has counted since its start goes on, also while it is suspended.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import structlog

from ledger.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.clock import Clock

SERVER_TIME: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8"
SKEW_MS_MAX: Final = 500  # between the clocks of the machine and the server
SLOWER: Final = 0.5  # of each second, while the clock is ahead of the server's
log = structlog.get_logger(__name__)


def counted_ms() -> float:
    """Return the milliseconds since the machine's start. Suspended time counts where the system can tell."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) / 1e6


def skew(before_ms: int, server_ms: float, after_ms: int) -> int:
    """Return how far at least a clock is ahead of the server's (ms; negative: behind), read before and after the server's."""
    return round(max(before_ms - server_ms, 0) + min(after_ms - server_ms, 0))


class DatabaseClock:
    """Clock of the database's server, or of this machine before the first comparison. Used by any thread.

    It never goes back: after a failover to a server whose clock is behind, it runs at half speed until the server's has caught up.
    """

    def __init__(self, machine: Clock | None = None, counted: Callable[[], float] = counted_ms, *, reports: bool = False) -> None:
        """`reports`: write to the log when the machine's clock differs, and when it agrees again."""
        self._reports = reports
        self._machine = machine or SystemClock()
        self._counted = counted
        self._lock = threading.Lock()
        self._offset: float | None = None  # the server's time (Unix ms), less what is counted
        self._ahead = 0.0  # ms of this clock before the server's, at `_compared_at`
        self._compared_at = 0.0
        self.skew_ms = 0  # at least so far is the machine's clock ahead of the server's; negative: behind

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        with self._lock:
            offset = self._offset
            return self._machine.now_ms() if offset is None else int(self._shown(self._counted(), offset))

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never decreases. The time in which the machine was suspended counts, as for a lease."""
        return self._counted() / 1000

    def compare(self, ask: Callable[[], float]) -> None:
        """Compare with the server. `ask` returns its time, read at some moment of the call (Unix ms).

        The clock changes only as far as the answer proves it wrong: a slow answer proves little.
        """
        before_ms, asked = self._machine.now_ms(), self._counted()
        server = ask()
        skew_ms = skew(before_ms, server, self._machine.now_ms())
        with self._lock:
            now = self._counted()  # no thread has been told a later time
            low, high = server - now, server - asked
            before = self._offset
            self._offset = offset = (low + high) / 2 if before is None else min(max(before, low), high)
            if before is not None:
                self._ahead = max(0.0, self._shown(now, before) - now - offset)
            self._compared_at = now
        was, self.skew_ms = self.skew_ms, skew_ms
        if self._reports:
            _report(abs(was) > SKEW_MS_MAX, skew_ms)

    def _shown(self, now: float, offset: float) -> float:
        return now + offset + max(0.0, self._ahead - (now - self._compared_at) * SLOWER)


def _report(differed: bool, skew_ms: int) -> None:  # noqa: FBT001 -- a fact
    differs = abs(skew_ms) > SKEW_MS_MAX
    if differs and not differed:
        log.error("clock.differs", ahead_ms=skew_ms, do="set this machine's clock, or the database server's: doctor says more")
    elif differed and not differs:
        log.info("clock.agrees", ahead_ms=skew_ms)
