"""Explanation of a row's wait: one sentence for its cause, and a remedy. The sentence is a pure function of the rows read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ledger.claims import SUSPECT_CLAIMS
from ledger.gates import Gate, family
from ledger.machine import EffectState, OperationState
from ledger.references import REFERENCE, ROW_ID_MAX, effect_row, operation_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Row, Tx

NEEDS_NEWER_BUILD: Final = "needs_newer_build"


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of `waiting`: everything that affects one row. `now` is Unix milliseconds.

    `budget` is the number of attempts its class allows; `gate` is the gate that restrains its class, `trial` the effect that tests
    it; `suspect` is a row that is tried alone before any other row is claimed.
    """

    row: Row
    kind: str  # operation | effect
    now: int
    ahead: int | None = None
    parent: Row | None = None
    gate: Gate | None = None
    trial: int | None = None
    owner: Row | None = None
    suspect: str | None = None
    budget: int | None = None
    bot_runs: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of one row. `cause` is for programs, `sentence` and `remedy` (the action to take, if any) are for people.

    `until` is Unix milliseconds, if a time ends the wait; `behind` is the row that must move first.
    """

    reference: str
    cause: str
    sentence: str
    remedy: str | None = None
    until: int | None = None
    behind: str | None = None


def waiting(facts: Facts) -> Waiting:
    """Return the cause of a row's wait. Pure."""
    state, reference = facts.row["state"], _reference(facts)
    if state in _FINISHED:
        return Waiting(reference, "finished", _finished(facts.row))
    if state in (OperationState.FAILED_TERMINAL, EffectState.FAILED):
        return _dead(facts, reference)
    if state in (OperationState.IN_PROGRESS, EffectState.IN_FLIGHT):
        return _claimed(facts, reference)
    for look in (_for_parent, _for_gate, _for_build, _for_time, _in_lane, _alone, _for_trial):
        found = look(facts, reference)
        if found is not None:
            return found
    overdue = f"It is due since {_time(facts.row['next_attempt_at'])}"
    if not facts.bot_runs:
        return Waiting(reference, "no_bot", f"{overdue}, and no bot is running.", "quotebot run")
    return Waiting(reference, "due", f"{overdue}: the bot takes it as soon as its class has a free hand.")


def why(tx: Tx, reference: str, now: int, *, budget: Callable[[str], int], bot_runs: bool) -> Waiting | None:
    """Return the cause of the wait of `118` or `op12`; None when there is no such row.

    `budget(name)` returns how many attempts a class of effects, or an `operation`, has. Raises ValueError for any other reference.
    """
    read = REFERENCE.fullmatch(reference)
    if read is None or reference.startswith("c-") or not (read["operation"] or (read["effect"] or read["key"]).isdigit()):
        raise ValueError(f"{reference!r} is not an id: use 118 for an effect or op12 for an operation")
    if read["operation"]:
        row = next(iter(operation_rows(tx, int(read["operation"]))), None)
        return None if row is None else waiting(operation_facts(tx, row, now, budget("operation"), bot_runs=bot_runs))
    row = effect_row(tx, int(read["effect"] or read["key"]))
    return None if row is None else waiting(effect_facts(tx, row, now, budget(row["class"]), bot_runs=bot_runs))


def operation_facts(tx: Tx, row: Row, now: int, budget: int | None = None, *, bot_runs: bool = True) -> Facts:
    """Collect the facts about an operation."""
    ahead = None if row["aggregate_id"] == "new" else tx.one("ahead_of_operation", lane=row["lane"], id=row["id"])
    return Facts(
        row,
        "operation",
        now,
        ahead=None if ahead is None else ahead["id"],
        owner=_owner(tx, row),
        suspect=_suspect(tx, f"op{row['id']}"),
        budget=budget,
        bot_runs=bot_runs,
    )


def effect_facts(tx: Tx, row: Row, now: int, budget: int | None = None, *, bot_runs: bool = True) -> Facts:
    """Collect the facts about an effect."""
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
        suspect=_suspect(tx, f"#{row['id']}"),
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


def _suspect(tx: Tx, own: str) -> str | None:
    """Return another row that is tried alone because the process crashed with it repeatedly."""
    operations = tx.all("suspect_operations", suspect_claims=SUSPECT_CLAIMS)
    effects = tx.all("suspect_effects", suspect_claims=SUSPECT_CLAIMS)
    names = (*(f"op{row['id']}" for row in operations), *(f"#{row['id']}" for row in effects))
    return next((name for name in names if name != own), None)


def _bare(sentence: str | None) -> str:
    """Return a sentence without its full stop, for use inside another."""
    return (sentence or "").removesuffix(".")


def _reference(facts: Facts) -> str:
    return f"op{facts.row['id']}" if facts.kind == "operation" else str(facts.row["id"])


def _dead(facts: Facts, reference: str) -> Waiting:
    row = facts.row
    tries = f"after {row['attempts']} attempt{'' if row['attempts'] == 1 else 's'}"
    sentence = f"It is a dead letter: given up {tries} ({row['category']}: {_bare(row['last_error'])})."
    remedy = f"quotebot replay {reference}"
    if row["category"] == "uncertain":
        sentence += " Whether it was done can only be seen on the other side."
        remedy = f"quotebot dead resolve {reference} --delivered|--send-again --reason ..."
    return Waiting(reference, "dead", sentence, remedy)


def _claimed(facts: Facts, reference: str) -> Waiting:
    row, owner = facts.row, facts.owner
    process = f"epoch {row['epoch']}" + ("" if owner is None else f" ({owner['role']}, process {owner['pid']})")
    since = f"since {_time(row['claimed_at'])} ({_span(facts.now - row['claimed_at'])})"
    if owner is not None and owner["ended_at"] is not None:
        sentence = f"It was claimed by {process} {since}, which ended: the next start of the bot takes it back."
        return Waiting(reference, "owner_gone", sentence, "quotebot run", until=row["lease_until"])
    sentence = f"It is under way: claimed by {process} {since}, attempt {row['attempts'] + 1}{_of(facts)}."
    if not facts.bot_runs:
        return Waiting(reference, "no_bot", f"{sentence} But no bot is running: its next start takes it back.", "quotebot run")
    return Waiting(reference, "claimed", sentence, until=row["lease_until"])


def _for_parent(facts: Facts, reference: str) -> Waiting | None:
    if facts.kind == "operation" or facts.row["next_attempt_at"] is not None:
        return None
    parent, number = facts.parent, facts.row["after_id"]
    if parent is None:
        return Waiting(reference, "parent", f"It waits for effect #{number}, which is not there any more.", _cancel(reference))
    sentence = f"It waits for the result of effect #{number} ({parent['class']}), which is {parent['state']}"
    if parent["state"] == EffectState.FAILED:
        return Waiting(reference, "parent", f"{sentence}.", f"quotebot replay {number}", behind=f"#{number}")
    return Waiting(reference, "parent", f"{sentence}.", f"quotebot why {number}", behind=f"#{number}")


def _for_gate(facts: Facts, reference: str) -> Waiting | None:
    gate = facts.gate
    if gate is None or gate.state != "held" or (gate.until_at is not None and gate.until_at <= facts.now):
        return None
    because = f"since {_time(gate.held_at)} because: {_bare(gate.reason)}"
    until = "" if gate.until_at is None else f", until {_when(gate.until_at, facts.now)}"
    cause, words, remedy = {
        "operator": ("held", f"Class {gate.name} is paused by {gate.held_by} {because}", f"quotebot resume {gate.name}"),
        "auth": ("held", f"Class {gate.name} is held {because}", f"mend the login, then: quotebot resume {gate.name}"),
        "breaker": ("breaker", f"The breaker of {gate.name} is open {because}", None),
        "throttled": ("throttled", f"{gate.name} is throttled by the other side {because}", None),
    }[gate.cause or "operator"]
    return Waiting(reference, cause, f"{words}{until}.", remedy, until=gate.until_at)


def _for_build(facts: Facts, reference: str) -> Waiting | None:
    if facts.kind == "effect" or facts.row["category"] != NEEDS_NEWER_BUILD:
        return None
    again = facts.row["next_attempt_at"]
    sentence = f"It was recorded by a newer build, which this one cannot read; it is looked at again {_when(again, facts.now)}."
    return Waiting(reference, NEEDS_NEWER_BUILD, sentence, "install the newer build and restart the bot", until=again)


def _for_time(facts: Facts, reference: str) -> Waiting | None:
    row = facts.row
    due = row["next_attempt_at"]
    if due <= facts.now:
        return None
    when = _when(due, facts.now)
    after = "" if row["last_error"] is None else f', after "{_bare(row["last_error"])}"'
    if row["state"] == EffectState.UNCERTAIN:
        sentence = f"Whether it was done is not known; it is looked for at {when}{after}."
        return Waiting(reference, "uncertain", sentence, f"quotebot replay {reference} --status uncertain", until=due)
    if facts.kind == "effect" and row["not_before"] == due and row["last_attempt_at"] is None:
        return Waiting(reference, "not_before", f"It is owed for later: due at {when}.", until=due)
    return Waiting(reference, "time", f"It is due at {when}, attempt {row['attempts'] + 1}{_of(facts)}{after}.", until=due)


def _in_lane(facts: Facts, reference: str) -> Waiting | None:
    if facts.ahead is None:
        return None
    number = f"op{facts.ahead}" if facts.kind == "operation" else f"#{facts.ahead}"
    lane = facts.row["lane"] if facts.kind == "operation" else f"{facts.row['class']} of {facts.row['target']}"
    sentence = f"It stands behind {number} in its lane ({lane}): one at a time, in the order they came."
    return Waiting(reference, "lane", sentence, f"quotebot why {number.removeprefix('#')}", behind=number)


def _alone(facts: Facts, reference: str) -> Waiting | None:
    if facts.row["claims"] >= SUSPECT_CLAIMS:
        sentence = f"The process died {facts.row['claims']} times with it, so it is tried alone: when nothing else is under way."
        return Waiting(reference, "suspect", sentence)
    if facts.suspect is None:
        return None
    sentence = f"{facts.suspect}, with which the process died before, is tried alone first."
    return Waiting(reference, "suspect", sentence, f"quotebot why {facts.suspect.removeprefix('#')}", behind=facts.suspect)


def _for_trial(facts: Facts, reference: str) -> Waiting | None:
    gate = facts.gate
    if gate is None or gate.cause == "throttled":  # an expired wait leaves nothing to try
        return None
    if facts.trial is None:
        return Waiting(reference, "half_open", f"{gate.name} is tried with one effect at a time after a hold; its turn comes next.")
    sentence = f"{gate.name} is tried with one effect at a time after a hold: #{facts.trial} is under way."
    return Waiting(reference, "half_open", sentence, f"quotebot why {facts.trial}", behind=f"#{facts.trial}")


def _finished(row: Row) -> str:
    words = {
        "completed": f"It is done ({row['outcome'] if 'outcome' in row.keys() else ''})",  # noqa: SIM118 -- `in` looks at a row's values
        "delivered": "It was delivered",
        "superseded": "It became needless",
        "discarded": "It was cancelled or discarded",
    }[row["state"]]
    because = f": {row['last_error']}" if row["last_error"] and row["state"] in ("superseded", "discarded") else ""
    return f"{words} at {_time(row['finished_at'])}{because.removesuffix('.')}. It waits for nothing."


_FINISHED: Final = frozenset({"completed", "delivered", "superseded", "discarded"})


def _cancel(reference: str) -> str:
    return f"quotebot ops cancel {reference} --reason ..."


def _of(facts: Facts) -> str:
    return "" if facts.budget is None else f" of {facts.budget}"


def _time(at: int | None) -> str:
    return "an unknown time" if at is None else f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _when(at: int, now: int) -> str:
    return f"{_time(at)} (in {_span(at - now)})"


def _span(milliseconds: int) -> str:
    """Return "12 s", "5 min", "3 h" or "9 d": whole units, a started second counts as one."""
    seconds = max(0, -(-milliseconds // 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
