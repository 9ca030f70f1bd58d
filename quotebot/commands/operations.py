"""Payloads of commands that change no quote: the App Home, dead letters, and retry or cancellation of an effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShowHome:
    """Update of `user`'s App Home after `after_ms` milliseconds, so that a click on it is executed before the tab is drawn."""

    kind: ClassVar[str] = "home.show"
    schema: ClassVar[int] = 1
    user: str
    after_ms: int = 0

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "user": self.user, "after_ms": self.after_ms}

    @classmethod
    def parse(cls, stored: Stored) -> ShowHome:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["user"]), int(stored["after_ms"]))

    @property
    def aggregate_id(self) -> str:
        """Return the aggregate: one App Home per user."""
        return f"home:{self.user}"


@dataclass(frozen=True, slots=True)
class AnnounceDeadLetter:
    """Card of a dead letter in the operators' channel. The bot itself sends this command, once per dead letter."""

    kind: ClassVar[str] = "letter.announce"
    schema: ClassVar[int] = 1
    reference: str
    channel: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reference": self.reference, "channel": self.channel}

    @classmethod
    def parse(cls, stored: Stored) -> AnnounceDeadLetter:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["reference"]), str(stored["channel"]))


@dataclass(frozen=True, slots=True)
class RetryDeadLetter:
    """Retry of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.retry"
    schema: ClassVar[int] = 1
    reference: str
    cycle: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reference": self.reference, "cycle": self.cycle}

    @classmethod
    def parse(cls, stored: Stored) -> RetryDeadLetter:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["reference"]), int(stored["cycle"]))


@dataclass(frozen=True, slots=True)
class DiscardDeadLetter:
    """Permanent discard of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.discard"
    schema: ClassVar[int] = 1
    reference: str
    cycle: int
    reason: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reference": self.reference, "cycle": self.cycle, "reason": self.reason}

    @classmethod
    def parse(cls, stored: Stored) -> DiscardDeadLetter:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["reference"]), int(stored["cycle"]), str(stored["reason"]))


LetterPayload = AnnounceDeadLetter | RetryDeadLetter | DiscardDeadLetter

Deed = Literal["retry", "cancel"]
_DEEDS: Mapping[str, Deed] = {"retry": "retry", "cancel": "cancel"}


@dataclass(frozen=True, slots=True)
class ActOnEffect:
    """Immediate retry or cancellation of a pending effect, valid only in the `cycle` that the card showed."""

    kind: ClassVar[str] = "effect.steer"
    schema: ClassVar[int] = 1
    deed: Deed
    effect_id: int
    cycle: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "deed": self.deed, "effect": self.effect_id, "cycle": self.cycle}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> ActOnEffect:
        """Rebuild from the canonical form of this schema version. Raises KeyError for an unknown `deed`."""
        return cls(_DEEDS[stored["deed"]], int(stored["effect"]), int(stored["cycle"]))
