"""Cause of a row's wait, as data: a pure function of the rows read. quotebot/views/waits.py makes the sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.claims import META, POISON_CLAIMS
from ledger.gates import Gate, family
from ledger.machine import EffectState, OperationState
from ledger.operator.trace import REFERENCE, ROW_ID_MAX, Kind, row_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Row, Tx

NEEDS_NEWER_BUILD: Final = "needs_newer_build"
_FINISHED: Final = frozenset({"completed", "delivered", "superseded", "discarded"})
_CAUSES_OF_HOLDS: Final = {"operator": "held", "auth": "held", "breaker": "breaker", "throttled": "throttled"}


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of `waiting`: everything that affects one row. `now` is Unix milliseconds.

    `budget` is the number of attempts its class allows; `gate` is the gate that restrains its class, `trial` the effect that tests
    it; `suspect` is a row that is tried alone before any other row is claimed, because it was claimed at `suspect_claims` crashes.
    """

    row: Row
    kind: Kind
    now: int
    ahead: int | None = None
    parent: Row | None = None
    gate: Gate | None = None
    trial: int | None = None
    owner: Row | None = None
    suspect: str | None = None
    suspect_claims: int = POISON_CLAIMS - 1
    budget: int | None = None
    bot_runs: bool = True

    @property
    def reference(self) -> str:
        """Return the id that people type: `118` for an effect, `op12` for an operation."""
        return f"op{self.row['id']}" if self.kind == "operation" else str(self.row["id"])


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of one row: its cause, and the facts from which it follows.

    `until` is Unix milliseconds, if a time ends the wait; `behind` is the row that must move first.
    """

    cause: str
    facts: Facts
    until: int | None = None
    behind: str | None = None


def waiting(facts: Facts) -> Waiting:
    """Return the cause of a row's wait. Pure."""
    row, owner = facts.row, facts.owner
    if row["state"] in _FINISHED:
        return Waiting("finished", facts)
    if row["state"] in (OperationState.FAILED_TERMINAL, EffectState.FAILED):
        return Waiting("dead", facts)
    if row["state"] in (OperationState.IN_PROGRESS, EffectState.IN_FLIGHT):
        if owner is not None and owner["ended_at"] is not None:
            return Waiting("owner_gone", facts, row["lease_until"])
        return Waiting("claimed", facts, row["lease_until"]) if facts.bot_runs else Waiting("no_bot", facts)
    return _not_due(facts) or _not_next(facts) or Waiting("due" if facts.bot_runs else "no_bot", facts)


def _not_due(facts: Facts) -> Waiting | None:
    """Return what a row waits for before it may be claimed: its parent, a hold of its class, or a time."""
    row, gate, due = facts.row, facts.gate, facts.row["next_attempt_at"]
    if facts.kind == "effect" and due is None:
        return Waiting("parent", facts, behind=None if facts.parent is None else f"#{row['after_id']}")
    if gate is not None and gate.state == "held" and (gate.until_at is None or gate.until_at > facts.now):
        return Waiting(_CAUSES_OF_HOLDS[gate.cause or "operator"], facts, gate.until_at)
    if facts.kind == "operation" and row["category"] == NEEDS_NEWER_BUILD:
        return Waiting(NEEDS_NEWER_BUILD, facts, due)
    if due <= facts.now:
        return None
    if row["state"] == EffectState.UNCERTAIN:
        return Waiting("uncertain", facts, due)
    owed_for_later = facts.kind == "effect" and row["not_before"] == due and row["last_attempt_at"] is None
    return Waiting("not_before" if owed_for_later else "time", facts, due)


def _not_next(facts: Facts) -> Waiting | None:
    """Return what a due row waits for: an earlier row of its lane, a suspect, or the trial of its class."""
    if facts.ahead is not None:
        return Waiting("lane", facts, behind=f"op{facts.ahead}" if facts.kind == "operation" else f"#{facts.ahead}")
    if facts.row["claims"] >= facts.suspect_claims:
        return Waiting("suspect", facts)
    if facts.suspect is not None:
        return Waiting("suspect", facts, behind=facts.suspect)
    if facts.gate is None or facts.gate.cause == "throttled":  # an expired wait leaves nothing to try
        return None
    return Waiting("half_open", facts, behind=None if facts.trial is None else f"#{facts.trial}")


def why(tx: Tx, reference: str, now: int, *, budget: Callable[[str], int], bot_runs: bool) -> Waiting | None:
    """Return the cause of the wait of `118` or `op12`; None when there is no such row.

    `budget(name)` returns how many attempts a class of effects, or an `operation`, has. Raises ValueError for any other reference.
    """
    read = REFERENCE.fullmatch(reference)
    if read is None or reference.startswith("c-") or not (read["operation"] or (read["effect"] or read["key"]).isdigit()):
        raise ValueError(
            f"{reference!r} is not an id: use 118 for an effect, op12 for a command. "
            "Those of a quote: quotebot ops list --quote Q-2026-0042"
        )
    row = row_of(tx, "operation" if read["operation"] else "effect", int(read["operation"] or read["effect"] or read["key"]))
    if row is None:
        return None
    if read["operation"]:
        return waiting(operation_facts(tx, row, now, budget("operation"), bot_runs=bot_runs))
    return waiting(effect_facts(tx, row, now, budget(row["class"]), bot_runs=bot_runs))


def operation_facts(tx: Tx, row: Row, now: int, budget: int | None = None, *, bot_runs: bool = True) -> Facts:
    """Collect the facts about an operation."""
    suspect_claims = _suspect_claims(tx)
    ahead = None if row["aggregate_id"] == "new" else tx.one("ahead_of_operation", lane=row["lane"], id=row["id"])
    return Facts(
        row,
        "operation",
        now,
        ahead=None if ahead is None else ahead["id"],
        owner=_owner(tx, row),
        suspect=_suspect(tx, f"op{row['id']}", suspect_claims),
        suspect_claims=suspect_claims,
        budget=budget,
        bot_runs=bot_runs,
    )


def effect_facts(tx: Tx, row: Row, now: int, budget: int | None = None, *, bot_runs: bool = True) -> Facts:
    """Collect the facts about an effect."""
    suspect_claims = _suspect_claims(tx)
    ahead = tx.one("ahead_of_effect", **{"class": row["class"]}, target=row["target"], id=row["id"], now=now)
    gate = _gate(tx, row["class"], now)
    trial = None if gate is None else tx.one("trial_of_family", family=gate.name)
    return Facts(
        row,
        "effect",
        now,
        ahead=None if ahead is None else ahead["id"],
        parent=None if row["after_id"] is None else tx.one("effect_by_id", id=row["after_id"]),
        gate=gate,
        trial=None if trial is None else trial["id"],
        owner=_owner(tx, row),
        suspect=_suspect(tx, f"#{row['id']}", suspect_claims),
        suspect_claims=suspect_claims,
        budget=budget,
        bot_runs=bot_runs,
    )


def _owner(tx: Tx, row: Row) -> Row | None:
    return None if row["epoch"] is None else tx.one("epoch", epoch=row["epoch"])


def _gate(tx: Tx, effect_class: str, now: int) -> Gate | None:
    """Return the gate that restrains a class most: a held gate before a half-open one."""
    rows = (tx.one("gate", name=name) for name in (family(effect_class), effect_class))
    gates = [Gate.of(row) for row in rows if row is not None and row["state"] != "flowing"]
    return min(gates, key=lambda gate: (gate.state != "held", -(gate.until_at or now + ROW_ID_MAX)), default=None)


def _suspect_claims(tx: Tx) -> int:
    """Return the number of crashes that makes a row a suspect, by the settings of the bot that recovered last."""
    row = tx.one("meta", name=META)
    return (POISON_CLAIMS if row is None else int(row["value"])) - 1


def _suspect(tx: Tx, own: str, suspect_claims: int) -> str | None:
    """Return another row that is tried alone because the process crashed with it repeatedly."""
    operations = tx.all("suspect_operations", suspect_claims=suspect_claims)
    effects = tx.all("suspect_effects", suspect_claims=suspect_claims)
    names = (*(f"op{row['id']}" for row in operations), *(f"#{row['id']}" for row in effects))
    return next((name for name in names if name != own), None)
