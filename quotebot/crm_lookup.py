"""Names of accounts in Salesforce for a menu that is looked up while somebody types. Read-only, bounded, and never in the way.

Slack waits 3 seconds for the options. A look that takes longer, or fails, gives none: whoever asks types the name instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import structlog

from adapters.failures import AdapterError

if TYPE_CHECKING:
    from ledger.clock import Clock

LOOK_SECONDS: Final = 1.5
FRESH_SECONDS: Final = 60.0
REMEMBERED: Final = 256  # beginnings of names
CHARACTERS_MIN: Final = 2

log = structlog.get_logger(__name__)
Find = Callable[[str, float], Awaitable[tuple[str, ...]]]


class AccountLookup:
    """Remembers for a minute what each beginning of a name found. `find(beginning, seconds)` asks Salesforce."""

    def __init__(self, find: Find, clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()

    async def __call__(self, typed: str) -> tuple[str, ...]:
        """Return names that begin with what was typed, at most 20; none when Salesforce does not tell in time."""
        beginning = " ".join(typed.split()).casefold()
        if len(beginning) < CHARACTERS_MIN:
            return ()
        known = self._known.get(beginning)
        if known is not None and self._clock.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        try:
            found = await self._find(beginning, LOOK_SECONDS)
        except AdapterError as error:
            log.info("crm.lookup_failed", code=error.code)
            return ()
        self._known[beginning] = (self._clock.monotonic(), found)
        self._known.move_to_end(beginning)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found
