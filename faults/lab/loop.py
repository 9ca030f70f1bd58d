"""Virtual time: an event loop without I/O whose clock jumps to the next timer as soon as no task is ready."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

DAY_ONE_MS: Final = 1_800_000_000_000  # default start of a laboratory's wall clock: January 2027, UTC


TICK_SECONDS: Final = 1e-6  # the shortest jump: after weeks, rounding would swallow a shorter one and time would stand still


class LabClock:
    """The two clocks of a bot. Both move together; the wall clock may also be set forward and back, as people do.

    `slept` counts the jumps, which distinguishes a bot that spins from one that waits.
    """

    def __init__(self, now_ms: int = DAY_ONE_MS) -> None:
        self._wall_at_zero_ms = float(now_ms)
        self._monotonic = 0.0
        self.slept = 0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return int(self._wall_at_zero_ms + self._monotonic * 1000)

    def monotonic(self) -> float:
        """Seconds since this clock was made; never goes back."""
        return self._monotonic

    def seconds(self) -> float:
        """Unix seconds, as the external services read them."""
        return self.now_ms() / 1000

    def advance(self, seconds: float) -> None:
        """Advance both clocks by `seconds`, as one jump."""
        self._monotonic += seconds
        self.slept += 1

    def instant(self) -> tuple[float, float]:
        """The state of both clocks, to be sent to another process."""
        return self._wall_at_zero_ms, self._monotonic

    def follow(self, instant: tuple[float, float]) -> None:
        """Set both clocks to the state of another process's clock."""
        self._wall_at_zero_ms, self._monotonic = instant

    def twin(self) -> LabClock:
        """Return an independent clock that shows the same time."""
        clock = LabClock()
        clock.follow(self.instant())
        return clock

    def put(self, by_ms: int) -> None:
        """Set the wall clock forward or back; monotonic time is unaffected."""
        self._wall_at_zero_ms += by_ms


class NothingLeftError(Exception):
    """Every task waits for an event that can never occur: a lost wake-up."""


class _Jump(selectors.SelectSelector):
    """Selector that advances the clock instead of waiting for I/O: a laboratory has no I/O."""

    def __init__(self, clock: LabClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftError("every task waits, and no timer is set")
        if timeout > 0:
            self._clock.advance(max(timeout, TICK_SECONDS))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a LabClock. Blocking work given to threads runs in place, so the order of events is always the same."""

    def __init__(self, clock: LabClock) -> None:
        super().__init__(_Jump(clock))
        self._clock = clock
        self._clock_resolution = TICK_SECONDS

    def time(self) -> float:
        """Seconds on the clock."""
        return self._clock.monotonic()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # as asyncio documents it
        """Run the function at once, on this thread."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- passed to the task that awaits it
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """Does nothing: the loop never sleeps in select, so it needs no waking."""
