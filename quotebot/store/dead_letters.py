"""Persistence of dead letter cards: their messages and the decisions made with their buttons; inside an open ledger transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ledger.database import Tx


Decision = Literal["retried", "discarded"]


@dataclass(frozen=True, slots=True)
class DeadLetterCard:
    """One card. `post_key` is the effect that posts it; `decided_at` is Unix milliseconds."""

    reference: str
    channel: str
    post_key: str
    ts: str | None
    decision: Decision | None
    decided_by: str | None
    decided_at: int | None
    reason: str | None


def unannounced(tx: Tx, most: int) -> list[tuple[str, str]]:
    """Return dead letters without a card, so many that at most `most` cards wait for a decision: reference and workspace."""
    found: list[tuple[str, str]] = []
    for kind in ("operations", "effects"):
        most -= tx.required(f"dead_{kind}_with_card", since=0)["cards"]
    for kind in ("operations", "effects"):
        rows = tx.all(f"dead_{kind}_without_card", since=0, limit=max(0, most - len(found)))
        found += [(row["reference"], row["team_id"]) for row in rows]
    return found


def insert(tx: Tx, reference: str, channel: str, post_key: str, now: int) -> bool:
    """Record that a dead letter gets a card; false if it has one."""
    return tx.one("insert_letter_card", reference=reference, channel=channel, post_key=post_key, now=now) is not None


def find(tx: Tx, reference: str) -> DeadLetterCard | None:
    """Return the card of a dead letter, or None."""
    row = tx.one("letter_card", reference=reference)
    return None if row is None else DeadLetterCard(*(row[name] for name in DeadLetterCard.__slots__))


def place(tx: Tx, reference: str, ts: str) -> None:
    """Record the message of a card."""
    tx.one("place_letter_card", reference=reference, ts=ts)


def orphans(tx: Tx) -> int:
    """Return the number of cards whose dead letters were purged."""
    return int(tx.required("count_orphaned_letter_cards")["found"])


def forget(tx: Tx, most: int) -> int:
    """Delete at most `most` cards whose dead letters were purged; returns the number deleted."""
    return len(tx.all("forget_letter_cards", limit=most))


def decide(tx: Tx, reference: str, decision: Decision, decided_by: str, now: int, reason: str | None) -> None:
    """Record a decision by a card's button, and who made it."""
    tx.one("decide_letter", reference=reference, decision=decision, decided_by=decided_by, now=now, reason=reason)
