"""Queries as values: read-only requests that every surface understands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import QuoteState

PAGE_MAX: Final = 10_000
OPEN: Final = frozenset(state for state in QuoteState if not is_final(state))


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Query for a list of quotes, newest first. `owner` None without `mine` selects every owner, an empty `states` every state."""

    mine: bool = True
    owner: str | None = None
    states: frozenset[QuoteState] = frozenset()
    account: str | None = None
    page: int = 1


class Section(StrEnum):
    """Section of a Home tab, as its menu offers it; ALL shows the beginning of each."""

    ALL = "all"
    NEEDS_YOU = "needs_you"
    WAITING = "waiting"
    READY = "ready"
    EXPIRING = "expiring"
    OPEN = "open"
    CLOSED = "closed"
