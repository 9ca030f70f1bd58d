"""Who has the last word about a field that both we and people in the CRM may write: the four modes of ownership, as one function.

A value that is neither ours nor the one we wrote before was put there by a person. It is never overwritten silently, unless the
mapping says that the field is ours alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from quotebot.domain.quotes.quote import QuoteState

if TYPE_CHECKING:
    from collections.abc import Collection

    from quotebot.domain.quotes.quote import Quote

Owner = Literal["crm_wins", "local_wins", "merge", "immutable_after_bind"]


class FieldVerdict(StrEnum):
    """What to do about one field."""

    THERE = "there"  # it holds our value already
    WRITE = "write"
    KEEP = "keep"  # what is there stays, and nobody needs to know
    ASK = "ask"  # what is there stays until an operator decides


def judge(owner: Owner, ours: str, theirs: str | None, expected: Collection[str]) -> FieldVerdict:
    """Decide about a field that holds `theirs` where we want `ours`. `expected` are the values we may have written before."""
    if theirs == ours:
        return FieldVerdict.THERE
    if owner == "local_wins":
        return FieldVerdict.WRITE
    if theirs is None or theirs in expected:
        return FieldVerdict.KEEP if owner == "immutable_after_bind" else FieldVerdict.WRITE
    return FieldVerdict.KEEP if owner == "crm_wins" else FieldVerdict.ASK


_STATUS = {
    QuoteState.SENT: "sent",
    QuoteState.ACCEPTED: "accepted",
    QuoteState.LOST: "lost",
    QuoteState.CANCELLED: "cancelled",
    QuoteState.EXPIRED: "expired",
}


def status_of(quote: Quote) -> str:
    """Return how far a version that was approved is, as the CRM is told it: one of the mapping's words."""
    return "superseded" if quote.superseded else _STATUS.get(quote.state, "approved")


@dataclass(frozen=True, slots=True)
class CrmDifference:
    """What was found: what `field` (Quote.Status) of a version's record holds, and what we would have there."""

    quote_id: str
    version: int
    record_id: str
    field: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """One row of the reconcile queue. Times are Unix milliseconds."""

    id: int
    difference: CrmDifference
    found_at: int
    state: Literal["open", "ours", "theirs", "over"]
    decided_by: str | None
    decided_at: int | None
    reason: str | None
