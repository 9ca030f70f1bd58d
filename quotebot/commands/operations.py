"""Payloads of commands that change no quote: the App Home, dead letters, and retry or cancellation of an effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from quotebot.commands.payload import StoredPayload


@dataclass(frozen=True, slots=True)
class ShowHome(StoredPayload):
    """Update of `user`'s App Home after `after_ms` milliseconds, so that a click on it is executed before the tab is drawn."""

    kind: ClassVar[str] = "home.show"
    user: str
    after_ms: int = 0

    @property
    def aggregate_id(self) -> str:
        """Return the aggregate: one App Home per user."""
        return f"home:{self.user}"


@dataclass(frozen=True, slots=True)
class AnnounceDeadLetter(StoredPayload):
    """Card of a dead letter in the operators' channel. The bot itself sends this command, once per dead letter."""

    kind: ClassVar[str] = "letter.announce"
    reference: str
    channel: str


@dataclass(frozen=True, slots=True)
class RetryDeadLetter(StoredPayload):
    """Retry of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.retry"
    reference: str
    cycle: int


@dataclass(frozen=True, slots=True)
class DiscardDeadLetter(StoredPayload):
    """Permanent discard of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.discard"
    reference: str
    cycle: int
    reason: str


LetterPayload = AnnounceDeadLetter | RetryDeadLetter | DiscardDeadLetter

Deed = Literal["retry", "cancel"]


@dataclass(frozen=True, slots=True)
class ActOnEffect(StoredPayload):
    """Immediate retry or cancellation of a pending effect, valid only in the `cycle` that the card showed."""

    kind: ClassVar[str] = "effect.steer"
    names: ClassVar = {"effect_id": "effect"}
    deed: Deed
    effect_id: int
    cycle: int
