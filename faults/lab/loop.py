"""Time that jumps: an event loop without I/O whose clock moves to the next timer as soon as nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

DAY_ONE_MS: Final = 1_800_000_000_000  # where a laboratory's wall clock starts unless told: January 2027, UTC


TICK_SECONDS: Final = 1e-6  # no jump is shorter: after weeks, a shorter one would be lost in rounding and never arrive


class LabClock:
    """The two clocks of a bot. Both move together; the wall clock may also be put forward and back, as people do.

    `slept` counts the jumps, which tells a bot that spins from one that waits.
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
        """Unix seconds, as the outside reads them."""
        return self.now_ms() / 1000

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self.slept += 1

    def instant(self) -> tuple[float, float]:
        """Both clocks, to be told to another process."""
        return self._wall_at_zero_ms, self._monotonic

    def follow(self, instant: tuple[float, float]) -> None:
        """Show what another process's clock shows."""
        self._wall_at_zero_ms, self._monotonic = instant

    def twin(self) -> LabClock:
        """Return a clock of its own that shows the same."""
        clock = LabClock()
        clock.follow(self.instant())
        return clock

    def put(self, by_ms: int) -> None:
        """Put the wall clock forward or back; monotonic time does not notice."""
        self._wall_at_zero_ms += by_ms


class NothingLeftError(Exception):
    """Every task waits for something that nothing will ever do: a lost wake-up."""


class _Jump(selectors.SelectSelector):
    """Where the loop would wait for I/O, time passes instead: there is no I/O in a laboratory."""

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
        """Run it now, here."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- handed to whoever awaits it
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """Nobody sleeps in select, so nobody has to be woken."""
