"""Payloads of commands about an existing quote, other than its approval: one frozen payload per kind, as in registry.py.

All but `quote.clone` concern the head version of the quote that the command names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quotebot.commands.payload import StoredPayload

RECIPIENT_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class CloneQuote(StoredPayload):
    """Clone: a new quote in `channel` with the content of another one.

    `version` None is the head at the time of execution; `account` None is the original's customer.
    """

    kind: ClassVar[str] = "quote.clone"
    quote_id: str
    channel: str
    version: int | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class CancelQuote(StoredPayload):
    """Cancellation of a quote that is no longer wanted."""

    kind: ClassVar[str] = "quote.cancel"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FinalizeQuote(StoredPayload):
    """Finalization: freeze an approved version, so that it may be sent."""

    kind: ClassVar[str] = "quote.finalize"


@dataclass(frozen=True, slots=True)
class MarkSent(StoredPayload):
    """Record that a finalized version was sent; `recipient` is the user's own text."""

    kind: ClassVar[str] = "quote.mark_sent"
    recipient: str


@dataclass(frozen=True, slots=True)
class AcceptQuote(StoredPayload):
    """Record that the customer accepted."""

    kind: ClassVar[str] = "quote.accept"


@dataclass(frozen=True, slots=True)
class LoseQuote(StoredPayload):
    """Record that the customer refused, with the reason."""

    kind: ClassVar[str] = "quote.lose"
    reason: str


@dataclass(frozen=True, slots=True)
class RefreshCard(StoredPayload):
    """Redraw of a quote's card. It does not change the quote."""

    kind: ClassVar[str] = "quote.refresh"


@dataclass(frozen=True, slots=True)
class ExpireQuote(StoredPayload):
    """Expiry of a quote that was valid until `valid_until` (Unix ms) and was not accepted. The scheduler sends it."""

    kind: ClassVar[str] = "quote.expire"
    valid_until: int


@dataclass(frozen=True, slots=True)
class NoteStaleDraft(StoredPayload):
    """Reminder to the requester of a quote unchanged since `untouched_since` (Unix ms). The scheduler sends it."""

    kind: ClassVar[str] = "quote.note_stale"
    untouched_since: int
