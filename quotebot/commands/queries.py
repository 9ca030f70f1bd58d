"""Queries as values: read-only requests that every surface understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quotebot.domain.quotes.lifecycle import is_final
from quotebot.domain.quotes.quote import QuoteState

PAGE_MAX: Final = 10_000
OPEN: Final = frozenset(state for state in QuoteState if not is_final(state))


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Show quotes, the newest first. `owner` None with `mine` false: everybody's. An empty set of states leaves them open."""

    mine: bool = True
    owner: str | None = None
    states: frozenset[QuoteState] = frozenset()
    account: str | None = None
    page: int = 1
