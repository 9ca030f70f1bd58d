"""Looking into the ledger row by row: everything that belongs to one user action, and what a row is waiting for.

All of it is found by indexes, so it stays quick on a file with a million commands. The one change that can be made from here is to
cancel what has not begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ledger.claims import SUSPECT_CLAIMS
from ledger.gates import Gate, family
from ledger.jsontext import dumps
from ledger.machine import EffectState, OperationState
from ledger.outbox import drop_waiting
from ledger.records import Effect, Operation
from ledger.resolution import DISCARDED_KEPT_MS, Ruling, Verdict

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.records import EffectIntent

PREFIX_MIN: Final = 8  # characters of a key: as many as the short reference has
SLACK_MS: Final = 2_000  # the commits of one moment may be written in another order than they were asked for
WINDOW_ROWS: Final = 5_000
NEEDS_NEWER_BUILD: Final = "needs_newer_build"
ROW_ID_MAX: Final = 2**63 - 1
_REFERENCE: Final = re.compile(r"(?:c-)?(?P<key>[0-9a-f]{8,64})|op(?P<operation>[0-9]{1,19})|#?(?P<effect>[0-9]{1,19})")

Answer = Callable[["Tx", Operation, str], tuple[Mapping[str, Any], Sequence["EffectIntent"]]]


# ------------------------------------------------------------------------------------------------------------- one action


@dataclass(frozen=True, slots=True)
class TracedEffect:
    """An owed effect with the attempts at it."""

    row: Row
    attempts: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One user action: how it came, what was remembered, what the audit says, what is owed and what was tried.

    The rows are the tables'; whoever prints them leaves payloads and texts out.
    """

    operation: Row
    delivery: Row | None  # None: purged, the operation is kept longer
    attempts: tuple[Row, ...]
    events: tuple[Row, ...]
    effects: tuple[TracedEffect, ...]


def find_operations(tx: Tx, reference: str, limit: int = 100) -> list[Row]:
    """Return the operations that a reference means, newest first.

    A reference is c-xxxxxxxx, an operation key or its first eight digits or more, op12, an effect's id, or an aggregate's id.
    Eight digits that are an effect's id as well as the beginning of a key mean the key where there is one.
    """
    read = _REFERENCE.fullmatch(reference)
    if read is None:
        return tx.all("operations_of_aggregate", aggregate_id=reference, limit=limit)
    if read["operation"]:
        return _by_id(tx, int(read["operation"]))
    if read["key"]:
        found = tx.all("operations_by_key", begin=read["key"], upto=read["key"] + "g", limit=limit)  # g: after every hex digit
        if found or not read["key"].isdigit() or reference.startswith("c-"):
            return found
    number = read["effect"] or read["key"]
    effect = None if len(number) > len(str(ROW_ID_MAX)) else _effect(tx, int(number))
    return [] if effect is None else _by_id(tx, effect["operation_id"])


def trace(tx: Tx, operation: Row) -> Trace:
    """Collect all that belongs to one operation."""
    attempts = tuple(tx.all("attempts_of_operation", operation_id=operation["id"]))
    effects = tuple(
        TracedEffect(row, tuple(tx.all("attempts_of_effect", effect_id=row["id"])))
        for row in tx.all("effects_of_operation", operation_id=operation["id"])
    )
    delivery = tx.one(
        "find_delivery",
        source=operation["source"],
        source_request_id=operation["source_request_id"],
        action_kind=operation["action_kind"],
    )
    return Trace(operation, delivery, attempts, tuple(_events(tx, operation, delivery, attempts, effects)), effects)


def _by_id(tx: Tx, row_id: int) -> list[Row]:
    row = None if row_id > ROW_ID_MAX else tx.one("operation_by_id", id=row_id)
    return [] if row is None else [row]


def _effect(tx: Tx, row_id: int) -> Row | None:
    return None if row_id > ROW_ID_MAX else tx.one("effect_by_id", id=row_id)


def _events(tx: Tx, operation: Row, delivery: Row | None, attempts: Sequence[Row], effects: Sequence[TracedEffect]) -> list[Row]:
    """Find an action's audit events: in the chain of its quote, and, where there was no quote yet, by the times its rows tell."""
    found: dict[int, Row] = {}
    chains = {operation["aggregate_id"], *(effect.row["aggregate_id"] for effect in effects)}
    for chain in chains - {"new"}:
        since = operation["created_at"] - SLACK_MS
        for row in tx.all("audit_chain_since", aggregate_id=chain, since=since, correlation_id=operation["correlation_id"]):
            found[row["id"]] = row
    if "new" in chains:
        moments = _moments(operation, delivery, attempts, effects)
        for row in _around(tx, moments, operation["correlation_id"]):
            found[row["id"]] = row
    return [found[number] for number in sorted(found)]


def _moments(operation: Row, delivery: Row | None, attempts: Sequence[Row], effects: Sequence[TracedEffect]) -> list[int]:
    """Return every time (ms) at which something is known to have happened to an action, in order."""
    rows: list[tuple[Row, tuple[str, ...]]] = [
        (operation, ("created_at", "claimed_at", "last_attempt_at", "finished_at", "updated_at"))
    ]
    rows += [] if delivery is None else [(delivery, ("last_seen_at",))]
    tried = [*attempts, *(attempt for effect in effects for attempt in effect.attempts)]
    rows += [(row, ("started_at", "ended_at")) for row in tried]
    rows += [(effect.row, ("created_at", "claimed_at", "finished_at", "updated_at")) for effect in effects]
    return sorted({row[name] for row, names in rows for name in names if row[name] is not None})


def _around(tx: Tx, moments: Sequence[int], correlation_id: str) -> list[Row]:
    """Return an action's events around these times: ids grow with time, so each is found by halving."""
    found: list[Row] = []
    done = 0
    for moment in moments:
        first = max(done, _first_event_at(tx, moment - SLACK_MS))
        page = tx.all("audit_page", first=first, limit=WINDOW_ROWS)
        window = [row for row in page if row["at"] <= moment + SLACK_MS]
        found += [row for row in window if row["correlation_id"] == correlation_id]
        done = max([done, *(row["id"] + 1 for row in window)])
    return found


def _first_event_at(tx: Tx, at: int) -> int:
    """Return the id of the first audit event at or after a time (ms). Ids have no gaps."""
    last = tx.one("last_audit_id")
    low, high = 1, (0 if last is None else last["id"] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        row = tx.one("audit_time", id=middle)
        if row is not None and row["at"] < at:
            low = middle + 1
        else:
            high = middle
    return low


# ---------------------------------------------------------------------------------------------------------------- listing


@dataclass(frozen=True, slots=True)
class Choice:
    """Which operations; what is None does not narrow. `since` is Unix milliseconds, counted from when it was recorded."""

    state: str | None = None
    aggregate_id: str | None = None
    actor: str | None = None
    action_kind: str | None = None
    since: int | None = None

    def fits(self, row: Row) -> bool:
        """Tell whether an operation is one of them."""
        wanted = {"state": self.state, "actor": self.actor, "action_kind": self.action_kind}
        return row["created_at"] >= (self.since or 0) and all(value is None or row[name] == value for name, value in wanted.items())


def list_operations(tx: Tx, choice: Choice, limit: int) -> list[Row]:
    """Return operations: the unfinished first, then dead letters, then what is done; the newest of each first."""
    if choice.aggregate_id is not None:
        found = tx.all("operations_of_aggregate", aggregate_id=choice.aggregate_id, limit=WINDOW_ROWS)
        return sorted((row for row in found if choice.fits(row)), key=lambda row: (_RANK[row["state"]], -row["id"]))[:limit]
    parameters = {"actor": choice.actor, "action_kind": choice.action_kind, "since": choice.since or 0, "limit": limit}
    rows: list[Row] = []
    if choice.state is None or _RANK[choice.state] == 0:
        rows += tx.all("unfinished_operations", state=choice.state, **parameters)
    if choice.state in (None, "failed_terminal"):
        rows += tx.all("dead_operations", **parameters)
    if choice.state in ("completed", "discarded"):
        rows += tx.all("finished_operations", state=choice.state, **parameters)
    elif choice.state is None and len(rows) < limit:
        known = {row["id"] for row in rows}
        rows += [row for row in tx.all("finished_operations", state=None, **parameters) if row["id"] not in known]
    return rows[:limit]


_RANK: Final = {
    "reserved": 0,
    "in_progress": 0,
    "failed_retryable": 0,
    "failed_terminal": 1,
    "completed": 2,
    "discarded": 2,
}
STATES: Final = tuple(_RANK)


# ---------------------------------------------------------------------------------------------------------------- waiting


@dataclass(frozen=True, slots=True)
class Facts:
    """What bears on one row: all that `waiting` looks at. `now` is Unix milliseconds.

    `budget` is how many attempts its class allows; `gate` is the one that restrains its class, `trial` the effect that tries it;
    `suspect` is a row that is tried alone before anything else is taken.
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
    """What one row waits for. `cause` is for programs, `sentence` and `remedy` (what to do, if anything) for people.

    `until` is Unix milliseconds, where a time ends it; `behind` is the row that has to move first.
    """

    reference: str
    cause: str
    sentence: str
    remedy: str | None = None
    until: int | None = None
    behind: str | None = None


def waiting(facts: Facts) -> Waiting:
    """Say what a row waits for. Pure."""
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
    """Say what `118` or `op12` waits for; None when there is no such row.

    `budget(name)` returns how many attempts a class of effects has, or an `operation`.

    Raises ValueError for what is no such reference.
    """
    read = _REFERENCE.fullmatch(reference)
    if read is None or reference.startswith("c-") or not (read["operation"] or (read["effect"] or read["key"]).isdigit()):
        raise ValueError(f"{reference!r} is not an id: use 118 for an effect or op12 for an operation")
    if read["operation"]:
        row = next(iter(_by_id(tx, int(read["operation"]))), None)
        return None if row is None else waiting(operation_facts(tx, row, now, budget("operation"), bot_runs=bot_runs))
    row = _effect(tx, int(read["effect"] or read["key"]))
    return None if row is None else waiting(effect_facts(tx, row, now, budget(row["class"]), bot_runs=bot_runs))


def operation_facts(tx: Tx, row: Row, now: int, budget: int | None = None, *, bot_runs: bool = True) -> Facts:
    """Collect what bears on an operation."""
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
    """Collect what bears on an effect."""
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
    """Return the gate that restrains a class most: held before half open."""
    rows = (tx.one("gate", name=name) for name in (family(effect_class), effect_class))
    gates = [Gate.of(row) for row in rows if row is not None and row["state"] != "flowing"]
    return min(gates, key=lambda gate: (gate.state != "held", -(gate.until_at or now + ROW_ID_MAX)), default=None)


def _suspect(tx: Tx, own: str) -> str | None:
    """Return a row, other than this one, that died so often with its process that it is tried alone."""
    operations = tx.all("suspect_operations", suspect_claims=SUSPECT_CLAIMS)
    effects = tx.all("suspect_effects", suspect_claims=SUSPECT_CLAIMS)
    names = (*(f"op{row['id']}" for row in operations), *(f"#{row['id']}" for row in effects))
    return next((name for name in names if name != own), None)


def _reference(facts: Facts) -> str:
    return f"op{facts.row['id']}" if facts.kind == "operation" else str(facts.row["id"])


def _dead(facts: Facts, reference: str) -> Waiting:
    row = facts.row
    tries = f"after {row['attempts']} attempt{'' if row['attempts'] == 1 else 's'}"
    sentence = f"It is a dead letter: given up {tries} ({row['category']}: {row['last_error']})."
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
    because = f"since {_time(gate.held_at)} because: {gate.reason}"
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
    after = "" if row["last_error"] is None else f', after "{row["last_error"]}"'
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
    if gate is None or gate.cause == "throttled":  # a wait that is over leaves nothing to try
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
    """Return "12 s", "5 min", "3 h" or "9 d": whole ones, a beginning second counted as one."""
    seconds = max(0, -(-milliseconds // 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# ----------------------------------------------------------------------------------------------------------------- cancel


def cancel_operation(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, answer: Answer) -> Ruling:
    """Close a command that was not executed yet, inside an open transaction. `answer` says what its person is told.

    It returns the response that repeated deliveries get, and the effects that are owed.
    """
    reference = f"op{row_id}"
    row = next(iter(_by_id(tx, row_id)), None)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, f"There is no operation {reference}.")
    operation = Operation.of(row)
    if operation.state not in (OperationState.RESERVED, OperationState.FAILED_RETRYABLE):
        return Ruling(reference, Verdict.REFUSED, f"{_UNCANCELLED[operation.state]} Nothing was changed.", operation.action_kind)
    response, intents = answer(tx, operation, reason)
    tx.one(
        "cancel_operation",
        id=operation.id,
        fence=operation.fence,
        reason=reason,
        response=dumps(response),
        retain_until=now + DISCARDED_KEPT_MS,
        now=now,
    )
    details = {"reason": reason, "state": operation.state.value}
    ledger.audit.of_operation(tx, now, "operation.cancelled", operation, actor=actor, after=details)
    ledger.owe_for(tx, now, operation, intents)
    return Ruling(reference, Verdict.DONE, "Cancelled: it will not be executed.", operation.action_kind)


def cancel_effect(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, follow: FollowUpDecision) -> Ruling:
    """Close an effect that waits, inside an open transaction; what waits for it will not happen either."""
    reference = str(row_id)
    row = _effect(tx, row_id)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, f"There is no effect {reference}.")
    effect = Effect.of(row)
    if effect.state is not EffectState.PENDING:
        words = _UNCANCELLED[effect.state].format(id=reference)
        return Ruling(reference, Verdict.REFUSED, f"{words} Nothing was changed.", effect.effect_class)
    closed = tx.one("cancel_effect", id=effect.id, fence=effect.fence, reason=reason, now=now)
    assert closed is not None  # noqa: S101 -- read in this very transaction
    cancelled = Effect.of(closed)
    ledger.audit.of_effect(tx, now, "effect.cancelled", cancelled, actor=actor, after={"reason": reason})
    drop_waiting(tx, ledger.audit, now, effect.id, f"effect {effect.id}, which it waited for, was cancelled")
    ledger.settle_follow_ups(tx, now, cancelled, follow)
    unsure = " An earlier attempt may have reached the other side all the same." if effect.maybe_sent else ""
    return Ruling(reference, Verdict.DONE, f"Cancelled: it will not be sent.{unsure}", effect.effect_class)


_UNCANCELLED: Final[Mapping[OperationState | EffectState, str]] = {
    OperationState.IN_PROGRESS: "It is being executed right now: it is too late to cancel it.",
    OperationState.COMPLETED: "It is done already.",
    OperationState.FAILED_TERMINAL: "It is a dead letter: close it with quotebot dead discard.",
    OperationState.DISCARDED: "It was cancelled or discarded before.",
    EffectState.IN_FLIGHT: "It is being sent right now: it is too late to cancel it.",
    EffectState.UNCERTAIN: "It may have been done already: end the doubt with quotebot dead resolve {id}.",
    EffectState.DELIVERED: "It was delivered already.",
    EffectState.FAILED: "It is a dead letter: close it with quotebot dead discard {id}.",
    EffectState.SUPERSEDED: "It became needless before.",
}
