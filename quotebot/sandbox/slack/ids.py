"""Message timestamps, which are also the messages' ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.sandbox.slack.clock import VirtualClock


class Timestamps:
    """Strictly increasing message timestamps, `seconds.microseconds`."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> str:
        """Return now, or one microsecond after the last one given, whichever is later."""
        self._last = max(self._last + 1, self._clock.microseconds())
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"
