"""Injected clock: no other module of the product reads the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for rows and monotonic time for deadlines inside one process."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never decreases."""
        ...


class SystemClock:
    """The system clocks."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never decreases."""
        return time.monotonic()
