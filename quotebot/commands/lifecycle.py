"""Payloads of commands about an existing quote, other than its approval: one frozen payload per kind, as in registry.py.

All but `quote.clone` concern the head version of the quote that the command names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPIENT_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class CloneQuote:
    """Clone: a new quote in `channel` with the content of another one.

    `version` None is the head at the time of execution; `account` None is the original's customer.
    """

    kind: ClassVar[str] = "quote.clone"
    schema: ClassVar[int] = 1
    quote_id: str
    channel: str
    version: int | None = None
    account: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {
            "v": self.schema,
            "quote_id": self.quote_id,
            "version": self.version,
            "account": self.account,
            "channel": self.channel,
        }

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> CloneQuote:
        """Rebuild from the canonical form of this schema version."""
        version = stored["version"]
        return cls(
            quote_id=str(stored["quote_id"]),
            channel=str(stored["channel"]),
            version=None if version is None else int(version),
            account=_text(stored["account"]),
        )


@dataclass(frozen=True, slots=True)
class CancelQuote:
    """Cancellation of a quote that is no longer wanted."""

    kind: ClassVar[str] = "quote.cancel"
    schema: ClassVar[int] = 1
    reason: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reason": self.reason}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> CancelQuote:
        """Rebuild from the canonical form of this schema version."""
        return cls(reason=_text(stored["reason"]))


@dataclass(frozen=True, slots=True)
class FinalizeQuote:
    """Finalization: freeze an approved version, so that it may be sent."""

    kind: ClassVar[str] = "quote.finalize"
    schema: ClassVar[int] = 1

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> FinalizeQuote:
        """Rebuild from the canonical form of this schema version."""
        del stored
        return cls()


@dataclass(frozen=True, slots=True)
class MarkSent:
    """Record that a finalized version was sent; `recipient` is the user's own text."""

    kind: ClassVar[str] = "quote.mark_sent"
    schema: ClassVar[int] = 1
    recipient: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "recipient": self.recipient}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> MarkSent:
        """Rebuild from the canonical form of this schema version."""
        return cls(recipient=str(stored["recipient"]))


@dataclass(frozen=True, slots=True)
class AcceptQuote:
    """Record that the customer accepted."""

    kind: ClassVar[str] = "quote.accept"
    schema: ClassVar[int] = 1

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> AcceptQuote:
        """Rebuild from the canonical form of this schema version."""
        del stored
        return cls()


@dataclass(frozen=True, slots=True)
class LoseQuote:
    """Record that the customer refused, with the reason."""

    kind: ClassVar[str] = "quote.lose"
    schema: ClassVar[int] = 1
    reason: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reason": self.reason}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> LoseQuote:
        """Rebuild from the canonical form of this schema version."""
        return cls(reason=str(stored["reason"]))


@dataclass(frozen=True, slots=True)
class RefreshCard:
    """Redraw of a quote's card. It does not change the quote."""

    kind: ClassVar[str] = "quote.refresh"
    schema: ClassVar[int] = 1

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> RefreshCard:
        """Rebuild from the canonical form of this schema version."""
        del stored
        return cls()


@dataclass(frozen=True, slots=True)
class ExpireQuote:
    """Expiry of a quote that was valid until `valid_until` (Unix ms) and was not accepted. The scheduler sends it."""

    kind: ClassVar[str] = "quote.expire"
    schema: ClassVar[int] = 1
    valid_until: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "valid_until": self.valid_until}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> ExpireQuote:
        """Rebuild from the canonical form of this schema version."""
        return cls(valid_until=int(stored["valid_until"]))


@dataclass(frozen=True, slots=True)
class NoteStaleDraft:
    """Reminder to the requester of a quote unchanged since `untouched_since` (Unix ms). The scheduler sends it."""

    kind: ClassVar[str] = "quote.note_stale"
    schema: ClassVar[int] = 1
    untouched_since: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "untouched_since": self.untouched_since}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> NoteStaleDraft:
        """Rebuild from the canonical form of this schema version."""
        return cls(untouched_since=int(stored["untouched_since"]))


def _text(stored: object) -> str | None:
    return None if stored is None else str(stored)
