"""Salesforce lookups for menus that Slack fills while a person types. Read-only and bounded in time.

Slack waits 3 seconds for the options. If a lookup takes longer or fails, the Salesforce mirror answers, and the result states
the mirror's time (`as_of`). Without a mirror there are no options, and the person types the name instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from adapters.failures import AdapterError
from quotebot.store.crm_mirror import Found

if TYPE_CHECKING:
    from adapters.salesforce.records import OpenOpportunity
    from ledger.clock import Clock

LOOK_SECONDS: Final = 1.5
FRESH_SECONDS: Final = 60.0
AWAY_SECONDS: Final = 30.0  # after a failure only the mirror, if there is one, answers for so long
REMEMBERED: Final = 256  # cached queries
CHARACTERS_MIN: Final = 2
ACCOUNT_LOOK_CHARACTERS_MAX: Final = 255  # Salesforce's limit for a name

log = structlog.get_logger(__name__)
T = TypeVar("T")


Find = Callable[[str, float], Awaitable[tuple[str, ...]]]
FindOpen = Callable[[str, str, float], Awaitable[tuple["OpenOpportunity", ...]]]


class _Recent(Generic[T]):
    """Cache of query results for FRESH_SECONDS. Failures are not cached: `instead` answers, or the next call asks again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, ...], tuple[float, tuple[T, ...]]] = OrderedDict()
        self._away_until = float("-inf")

    async def get(
        self,
        question: tuple[str, ...],
        ask: Callable[[], Awaitable[tuple[T, ...]]],
        instead: Callable[[], Awaitable[Found[T] | None]] | None,
    ) -> Found[T]:
        """Return the cached result or that of `ask`; if `ask` raises AdapterError, the result of `instead`, or nothing.

        After such an error `instead`, if given, answers without `ask` for AWAY_SECONDS.
        """
        now = self._clock.monotonic()
        known = self._known.get(question)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return Found(known[1])
        if instead is not None and now < self._away_until:
            return await instead() or Found()
        try:
            found = await ask()
        except AdapterError as error:
            log.info("crm.lookup_failed", code=error.code)
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            return Found() if instead is None else await instead() or Found()
        self._known[question] = (self._clock.monotonic(), found)
        self._known.move_to_end(question)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return Found(found)


class AccountLookup:
    """Account names. `find(beginning, seconds)` queries Salesforce, `instead(beginning)` its mirror."""

    def __init__(self, find: Find, clock: Clock, instead: Callable[[str], Awaitable[Found[str] | None]] | None = None) -> None:
        self._find = find
        self._instead = instead
        self._recent: _Recent[str] = _Recent(clock)

    async def __call__(self, typed: str) -> Found[str]:
        """Return at most 20 names that begin with `typed`; none if it is too short or no source answers in time."""
        beginning, instead = _typed(typed), self._instead
        if len(beginning) < CHARACTERS_MIN:
            return Found()
        return await self._recent.get(
            (beginning,),
            lambda: self._find(beginning, LOOK_SECONDS),
            None if instead is None else lambda: instead(beginning),
        )


class OpportunityLookup:
    """Open opportunities of one account. `find(account, typed, seconds)` queries Salesforce, `instead` its mirror."""

    def __init__(
        self,
        find: FindOpen,
        clock: Clock,
        instead: Callable[[str, str], Awaitable[Found[OpenOpportunity] | None]] | None = None,
    ) -> None:
        self._find = find
        self._instead = instead
        self._recent: _Recent[OpenOpportunity] = _Recent(clock)

    async def __call__(self, account: str, typed: str) -> Found[OpenOpportunity]:
        """Return at most 20 opportunities whose name contains `typed`; none if no source answers in time."""
        piece, instead = _typed(typed), self._instead
        if not 0 < len(account) <= ACCOUNT_LOOK_CHARACTERS_MAX:
            return Found()
        return await self._recent.get(
            (account, piece),
            lambda: self._find(account, piece, LOOK_SECONDS),
            None if instead is None else lambda: instead(account, piece),
        )


def _typed(typed: str) -> str:
    return " ".join(typed.split()).casefold()
