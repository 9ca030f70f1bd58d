"""Persistence of the cards in the operators' channel: their messages and the decisions made with their buttons.

A dead letter has a card of its own, or its cause has one: class, category and code. Every function runs inside an open ledger
transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ledger.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ledger.database import Row, Tx


Decision = Literal["retried", "discarded"]
CAUSE, PAUSE, HOLDER = "cause:", "pause:", "holder:"  # how the subject of a card begins
PAUSES_SHOWN: Final = ("crm", "llm")  # a refused login of Slack cannot be reported in Slack


@dataclass(frozen=True, slots=True)
class DeadLetterCard:
    """One card. `awaited` is the effect that posts it, until it is posted; `decided_at` is Unix milliseconds."""

    reference: str
    channel: str
    awaited: str | None
    ts: str | None
    decision: Decision | None
    decided_by: str | None
    decided_at: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class OpsCard:
    """The card of a cause, a refused login, or a role holder who is gone. Times are Unix milliseconds."""

    subject: str
    team_id: str
    channel: str
    awaited: str | None
    ts: str | None
    revision: int
    shown: str
    opened_at: int
    refreshed_at: int
    closed_at: int | None
    decided_by: str | None
    decided_at: int | None


@dataclass(frozen=True, slots=True)
class Unannounced:
    """A dead letter that no card shows."""

    reference: str
    team_id: str
    effect_class: str
    cycle: int
    cause: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number of open dead letters of one cause, of how many quotes, since when, and when one of them was replayed last (ms)."""

    letters: int
    aggregates: int
    oldest_at: int | None
    replayed_at: int | None
    gate: Gate | None = None  # of a refused login; `letters` counts the effects that wait for it

    @property
    def shown(self) -> str:
        """Return the state that a card of this subject shows."""
        return str(self.letters) if self.gate is None else f"{self.gate.state} {self.letters}"

    @property
    def over(self) -> bool:
        """Return true if nothing of the subject waits."""
        return not self.letters if self.gate is None else self.gate.state == "flowing"


def unannounced(tx: Tx, most: int) -> list[Unannounced]:
    """Return dead letters of whose present cycle no card tells, at most `most` effects and as many commands."""
    return [
        Unannounced(row["reference"], row["team_id"], row["class"], row["cycle"], row["cause"])
        for kind in ("operations", "effects")
        for row in tx.all(f"dead_{kind}_without_card", since=0, limit=most)
    ]


def undecided(tx: Tx) -> int:
    """Return the number of open dead letters with a card of their own."""
    return sum(int(tx.required(f"dead_{kind}_with_card", since=0)["cards"]) for kind in ("operations", "effects"))


def announced_since(tx: Tx, since: int) -> dict[str, int]:
    """Return how many cards of single dead letters were announced since then (ms), by class."""
    return {row["class"]: row["cards"] for row in tx.all("recent_letter_cards", since=since)}


def insert(tx: Tx, reference: str, channel: str, post_key: str, now: int, *, cycle: int, effect_class: str) -> bool:
    """Record that a dead letter gets a card in this cycle; false if it has one."""
    values = {"reference": reference, "channel": channel, "post_key": post_key, "now": now}
    return tx.one("insert_letter_card", **values, cycle=cycle, **{"class": effect_class}) is not None


def find(tx: Tx, reference: str) -> DeadLetterCard | None:
    """Return the card of a dead letter, or None."""
    row = tx.one("letter_card", reference=reference)
    return None if row is None else DeadLetterCard(*(row[name] for name in DeadLetterCard.__slots__))


def place(tx: Tx, reference: str, post_key: str, ts: str) -> None:
    """Record the message of a card, unless another one took its place."""
    tx.one("place_letter_card", reference=reference, post_key=post_key, ts=ts)


def orphans(tx: Tx) -> int:
    """Return the number of cards whose dead letters were purged."""
    return int(tx.required("count_orphaned_letter_cards")["found"])


def forget(tx: Tx, most: int) -> int:
    """Delete at most `most` cards whose dead letters were purged; returns the number deleted."""
    return len(tx.all("forget_letter_cards", limit=most))


def decide(tx: Tx, reference: str, decision: Decision, decided_by: str, now: int, reason: str | None) -> None:
    """Record a decision by a card's button, and who made it."""
    tx.one("decide_letter", reference=reference, decision=decision, decided_by=decided_by, now=now, reason=reason)


def ops_card(tx: Tx, subject: str) -> OpsCard | None:
    """Return the card of a subject, or None if it never had one."""
    row = tx.one("ops_card", subject=subject)
    return None if row is None else _card(row)


def open_ops_cards(tx: Tx) -> list[OpsCard]:
    """Return the cards whose subject is not over."""
    return [_card(row) for row in tx.all("open_ops_cards")]


def put_ops_card(tx: Tx, subject: str, team_id: str, channel: str, post_key: str, shown: str, now: int) -> None:
    """Record a new message about a subject."""
    values = {"subject": subject, "team_id": team_id, "channel": channel, "post_key": post_key}
    tx.one("put_ops_card", **values, shown=shown, now=now)


def refresh_ops_card(tx: Tx, subject: str, state: Backlog, now: int) -> None:
    """Record that a card is redrawn, and closed if its subject is over."""
    tx.one("refresh_ops_card", subject=subject, shown=state.shown, over=int(state.over), now=now)


def place_ops_card(tx: Tx, subject: str, post_key: str, ts: str) -> None:
    """Record the message of a card, unless another one took its place."""
    tx.one("place_ops_card", subject=subject, post_key=post_key, ts=ts)


def decide_ops_card(tx: Tx, subject: str, decided_by: str, upto: int) -> None:
    """Record who replays the dead letters of a cause that failed up to then (ms)."""
    tx.one("decide_ops_card", subject=subject, decided_by=decided_by, upto=upto)


def waiting_of(tx: Tx, subject: str, gone: Collection[str] = ()) -> Backlog:
    """Return the state of a subject: the open dead letters of a cause, a refused login, or one of the role holders who are gone."""
    if subject.startswith(PAUSE):
        return pause_of(tx, subject.removeprefix(PAUSE))
    if subject.startswith(HOLDER):
        return Backlog(int(subject.removeprefix(HOLDER) in gone), 0, None, None)
    row = tx.required("waiting_of_cause", since=0, cause=subject.removeprefix(CAUSE))
    return Backlog(row["letters"], row["aggregates"], row["oldest_at"], row["replayed_at"])


def waiting_of_causes(tx: Tx) -> Mapping[str, Backlog]:
    """Return the open dead letters of every cause that has some."""
    return {
        row["cause"]: Backlog(row["letters"], row["aggregates"], row["oldest_at"], row["replayed_at"])
        for row in tx.all("waiting_of_causes", since=0)
    }


def dead_letters_of_cause(tx: Tx, cause: str, most: int, *, upto: int | None = None) -> list[Row]:
    """Return open dead letters of a cause that failed up to then (ms): kind, id, cycle and what operators see; the oldest first."""
    return tx.all("dead_letters_of_cause", since=0, cause=cause, upto=upto, limit=most)


def newest_error(tx: Tx, cause: str) -> str | None:
    """Return the error of the letter of a cause that failed last."""
    row = tx.one("newest_of_cause", since=0, cause=cause)
    return None if row is None else str(row["last_error"])


def pause_of(tx: Tx, name: str) -> Backlog:
    """Return the state of a family of classes with the number of effects that wait for it."""
    row = tx.one("gate", name=name)
    waits = tx.required("waiting_of_family", family=name)
    return Backlog(waits["effects"], waits["aggregates"], waits["oldest_at"], None, Gate(name) if row is None else Gate.of(row))


def team_of_family(tx: Tx, name: str) -> str:
    """Return the workspace of an effect that waits for a family of classes; empty if none does."""
    row = tx.one("team_of_family", family=name)
    return "" if row is None else str(row["team_id"])


def _card(row: Row) -> OpsCard:
    return OpsCard(*(row[name] for name in OpsCard.__slots__))
