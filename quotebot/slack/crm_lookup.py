"""What Salesforce has, for menus that are looked up while somebody types. Read-only, bounded, and never in the way.

Slack waits 3 seconds for the options. A look that takes longer, or fails, is answered from what was read of Salesforce before,
where that is kept, and then says so; else there are none, and whoever asks types the name instead.
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
AWAY_SECONDS: Final = 30.0  # so long nobody who types waits again for an org that did not answer, when there is something to show
REMEMBERED: Final = 256  # beginnings of names
CHARACTERS_MIN: Final = 2
ACCOUNT_LOOK_CHARACTERS_MAX: Final = 255  # as long as Salesforce takes a name

log = structlog.get_logger(__name__)
T = TypeVar("T")


Find = Callable[[str, float], Awaitable[tuple[str, ...]]]
FindOpen = Callable[[str, str, float], Awaitable[tuple["OpenOpportunity", ...]]]


class _Recent(Generic[T]):
    """Remembers for a minute what each question found; what failed is asked again, or answered by `instead`."""

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
        """Return what `ask` finds; when it raises AdapterError what `instead` has, or nothing."""
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
    """Names of accounts. `find(beginning, seconds)` asks Salesforce, `instead(beginning)` what was read of it before."""

    def __init__(self, find: Find, clock: Clock, instead: Callable[[str], Awaitable[Found[str] | None]] | None = None) -> None:
        self._find = find
        self._instead = instead
        self._recent: _Recent[str] = _Recent(clock)

    async def __call__(self, typed: str) -> Found[str]:
        """Return names that begin with what was typed, at most 20; none when nobody tells in time."""
        beginning, instead = _typed(typed), self._instead
        if len(beginning) < CHARACTERS_MIN:
            return Found()
        return await self._recent.get(
            (beginning,),
            lambda: self._find(beginning, LOOK_SECONDS),
            None if instead is None else lambda: instead(beginning),
        )


class OpportunityLookup:
    """Open opportunities of one account. `find(account, typed, seconds)` asks Salesforce, `instead` what was read of it before."""

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
        """Return those whose name holds what was typed, at most 20; none when nobody tells in time."""
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
