"""Ownership of CRM fields that both we and people in the CRM may write: four modes, decided by one function.

A value that is neither our current nor one of our earlier values was written by a person. It is never overwritten silently,
unless the mapping declares the field as ours alone (local_wins).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from quotebot.domain.quotes.quote import Quote, QuoteState

if TYPE_CHECKING:
    from collections.abc import Collection


Owner = Literal["crm_wins", "local_wins", "merge", "immutable_after_bind"]


class FieldVerdict(StrEnum):
    """Action for one field."""

    THERE = "there"  # the field already holds our value
    WRITE = "write"
    KEEP = "keep"  # the CRM's value stays, without notice
    ASK = "ask"  # the CRM's value stays until an operator decides


def judge(owner: Owner, ours: str, theirs: str | None, expected: Collection[str]) -> FieldVerdict:
    """Decide the action for a field with value `theirs` where we want `ours`. `expected` are our possible earlier values."""
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
    """Return the CRM status of an approved version: one of the mapping's statuses."""
    return "superseded" if quote.superseded else _STATUS.get(quote.state, "approved")


@dataclass(frozen=True, slots=True)
class CrmDifference:
    """Difference in `field` (e.g. Quote.Status) of a version's record or its opportunity: the CRM's value and ours.

    `what` is the update that writes the field.
    """

    quote_id: str
    version: int
    record_id: str
    field: str
    ours: str
    theirs: str
    what: Literal["status", "amount", "stage"] = "status"


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
