"""Per-person command budgets: token buckets that hold a minute's worth of commands and refill evenly. In memory only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.clock import Clock

PEOPLE_MAX: Final = 10_000  # budgets in memory; the least recently used is dropped first
ROUNDING_SECONDS: Final = 1e-6


class Budgets:
    """Token buckets, one per person."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._seconds = 60.0 / per_minute  # time to refill one command
        self._full_at: dict[str, float] = {}  # person -> time when their budget is full again (monotonic seconds)

    def spend(self, person: str) -> int:
        """Spend one command of a person and return 0; if none is left, spend nothing and return the seconds until the next."""
        now = self._clock.monotonic()
        full_at = max(self._full_at.pop(person, now), now)
        wait_seconds = full_at + self._seconds - now - 60.0
        within = wait_seconds <= ROUNDING_SECONDS
        self._full_at[person] = full_at + self._seconds if within else full_at
        while len(self._full_at) > PEOPLE_MAX:
            del self._full_at[next(iter(self._full_at))]
        return 0 if within else math.ceil(wait_seconds)
