"""Frozen records: rows that the ledger returns and requests that it receives."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ledger.keys import correlation_id, loads, operation_label
from ledger.machine import EffectState, OperationState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Row, Tx

QUOTEBOT: Final = "quotebot"  # the actor of the system itself
ActorType = Literal["user", "operator", "system"]
Semantics = Literal["convergent", "append", "keyed", "pure", "repeat_once"]


@dataclass(frozen=True, slots=True)
class Request:
    """A command to be reserved. `payload` is canonical and JSON-ready; `transport` is stored, never hashed."""

    source: str
    source_request_id: str
    action_kind: str
    aggregate_id: str
    aggregate_version: int | None
    payload: Mapping[str, Any]
    fingerprint: str
    actor: str
    actor_type: ActorType
    team_id: str
    received_at: int
    transport: Mapping[str, Any] = field(default_factory=dict)
    replaces_id: int | None = None  # the operation whose payload this one edits


@dataclass(frozen=True, slots=True)
class Operation:
    """One stored command."""

    id: int
    operation_key: str
    source: str
    source_request_id: str
    action_kind: str
    aggregate_id: str
    aggregate_version: int | None
    pinned_version: int | None  # head version at reservation: the version of a typed command that names none
    payload: dict[str, Any]
    correlation_id: str
    actor: str
    actor_type: ActorType
    team_id: str
    received_at: int
    state: OperationState
    outcome: str | None
    response: dict[str, Any] | None
    next_attempt_at: int | None
    claims: int
    attempts: int
    fence: int
    epoch: int | None
    claimed_at: int | None
    cycle: int
    category: str | None
    last_error: str | None

    @property
    def label(self) -> str:
        """Return the readable name of the command."""
        seen = self.pinned_version if self.aggregate_version is None else self.aggregate_version
        return operation_label(self.action_kind, self.actor, self.aggregate_id, seen)

    @classmethod
    def of(cls, row: Row) -> Operation:
        """Read one row of `operations`."""
        values = _values(row, OPERATION_COLUMNS)
        values[_PAYLOAD] = loads(values[_PAYLOAD])
        values[_RESPONSE] = None if values[_RESPONSE] is None else loads(values[_RESPONSE])
        values[_OPERATION_STATE] = _OPERATION_STATES[values[_OPERATION_STATE]]
        return cls(*values)

    @classmethod
    def reserved(cls, row_id: int, key: str, request: Request, pinned_version: int | None, now: int) -> Operation:
        """Return the operation that was just reserved."""
        return cls(
            row_id,
            key,
            request.source,
            request.source_request_id,
            request.action_kind,
            request.aggregate_id,
            request.aggregate_version,
            pinned_version,
            dict(request.payload),
            correlation_id(key),
            request.actor,
            request.actor_type,
            request.team_id,
            request.received_at,
            OperationState.RESERVED,
            outcome=None,
            response=None,
            next_attempt_at=now,
            claims=0,
            attempts=0,
            fence=0,
            epoch=None,
            claimed_at=None,
            cycle=1,
            category=None,
            last_error=None,
        )

    @classmethod
    def remembered(cls, key: str, request: Request, outcome: str | None) -> Operation:
        """Return the operation that a tombstone stands for. It has no row any more, so its id is 0."""
        long_ago = cls.reserved(0, key, request, None, request.received_at)
        return replace(long_ago, state=OperationState.COMPLETED, outcome=outcome, next_attempt_at=None)


class DedupeResult(StrEnum):
    """Result of the deduplication of a delivery."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"  # the same request id with another meaning: refused
    TOMBSTONE = "tombstone"  # completed and purged: only its key and outcome are kept


@dataclass(frozen=True, slots=True)
class Reservation:
    """Result of a reserve: the operation this delivery belongs to, and whether it is the first delivery of it."""

    sighting: DedupeResult
    operation: Operation
    finished_at: int | None = None  # of a tombstone, Unix milliseconds
    delivery_id: int | None = None  # of a duplicate that is counted after its answer


@dataclass(frozen=True, slots=True)
class EffectIntent:
    """An effect to enqueue. `after` is the effect key of the effect whose result it needs."""

    effect_class: str
    semantics: Semantics
    target: str
    aggregate_id: str
    payload: Mapping[str, Any]
    after: str | None = None
    supersede_key: str | None = None
    expires_at: int | None = None  # then it is dropped; an append fails as expired at that age instead
    not_before: int | None = None  # ms; not due before


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One domain event, written in the transaction of the change. `before` and `after` are JSON-ready."""

    event_type: str
    aggregate_id: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one execution: its answer, the effects to enqueue and the audit events to write."""

    kind: Literal["applied", "refused"]
    response: Mapping[str, Any]
    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()
    retain_until: int | None = None  # ms; None: kept until the domain sets a date (its quote is closed)


class Origin(NamedTuple):
    """The command that enqueued an effect, as audit events and log lines name it. The last columns of `due_effects`."""

    operation_key: str
    source: str
    source_request_id: str
    action_kind: str
    actor: str
    actor_type: str
    team_id: str
    aggregate_id: str
    version: int | None

    @property
    def label(self) -> str:
        """Return the readable name of the command."""
        return operation_label(self.action_kind, self.actor, self.aggregate_id, self.version)


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect. `reconciling` means that this claim must check for an earlier delivery before it sends.

    `origin` is known of a claimed effect.
    """

    id: int
    effect_key: str
    operation_id: int
    effect_class: str
    semantics: Semantics
    target: str
    aggregate_id: str
    correlation_id: str
    after_id: int | None
    supersede_key: str | None
    payload: dict[str, Any]
    steps: dict[str, Any]
    state: EffectState
    next_attempt_at: int | None
    expires_at: int | None
    aged_from: int
    claims: int
    attempts: int
    fence: int
    epoch: int | None
    claimed_at: int | None
    uncertain_since: int | None
    maybe_sent: bool
    cycle: int
    category: str | None
    last_error: str | None
    external_ref: str | None
    result: dict[str, Any] | None
    first_failed_at: int | None
    last_attempt_at: int | None
    created_at: int
    lost_from: int | None = None  # since when (ms) a lost part of the ledger may have performed it
    reconciling: bool = False
    origin: Origin | None = field(default=None, compare=False)

    @classmethod
    def of(cls, row: Row, *, reconciling: bool = False, origin: Origin | None = None) -> Effect:
        """Read one row of `effects`."""
        values = _values(row, EFFECT_COLUMNS)
        for place in _EFFECT_JSON:
            values[place] = None if values[place] is None else loads(values[place])
        values[_EFFECT_STATE] = _EFFECT_STATES[values[_EFFECT_STATE]]
        values[_MAYBE_SENT] = bool(values[_MAYBE_SENT])
        values += (reconciling, origin)
        return cls(*values)


OPERATION_COLUMNS: Final = tuple(item.name for item in fields(Operation))
_PAYLOAD, _RESPONSE, _OPERATION_STATE = (OPERATION_COLUMNS.index(name) for name in ("payload", "response", "state"))
_OPERATION_STATES: Final = {state.value: state for state in OperationState}
EFFECT_COLUMNS: Final = tuple({"effect_class": "class"}.get(item.name, item.name) for item in fields(Effect))[:-2]
_EFFECT_JSON: Final = tuple(EFFECT_COLUMNS.index(name) for name in ("payload", "steps", "result"))
_EFFECT_STATE, _MAYBE_SENT = (EFFECT_COLUMNS.index(name) for name in ("state", "maybe_sent"))
_EFFECT_STATES: Final = {state.value: state for state in EffectState}


def _values(row: Row, names: tuple[str, ...]) -> list[Any]:
    """Return the named columns of a row. Frequent statements return just these, in this order (queries.sql)."""
    values = list(row)
    if len(values) == len(names):
        return values
    found = dict(zip(row.keys(), values, strict=True))  # a row scans its columns for each name, so read it once
    return [found[name] for name in names]


@dataclass(frozen=True, slots=True)
class DeadNotice:
    """Notice of a dead letter, sent once after the commit. `name` is an effect's class or a command's kind."""

    kind: Literal["effect", "operation"]
    id: int
    name: str
    source: str
    target: str
    aggregate_id: str
    correlation_id: str
    category: str | None
    last_error: str | None
    attempts: int
    cycle: int
    operation_key: str

    @classmethod
    def of_effect(cls, tx: Tx, effect: Effect) -> DeadNotice:
        """Return the notice of a failed effect, as it is now."""
        command = tx.required("operation_by_id", id=effect.operation_id)  # foreign key
        return cls(
            kind="effect",
            id=effect.id,
            name=effect.effect_class,
            source=command["source"],
            target=effect.target,
            aggregate_id=effect.aggregate_id,
            correlation_id=effect.correlation_id,
            category=effect.category,
            last_error=effect.last_error,
            attempts=effect.attempts,
            cycle=effect.cycle,
            operation_key=command["operation_key"],
        )

    @classmethod
    def of_operation(cls, operation: Operation, trouble: Trouble) -> DeadNotice:
        """Return the notice of a failed command, as it was claimed."""
        return cls(
            kind="operation",
            id=operation.id,
            name=operation.action_kind,
            source=operation.source,
            target=operation.aggregate_id,
            aggregate_id=operation.aggregate_id,
            correlation_id=operation.correlation_id,
            category=trouble.category,
            last_error=trouble.error,
            attempts=operation.attempts + 1,
            cycle=operation.cycle,
            operation_key=operation.operation_key,
        )


@dataclass(frozen=True, slots=True)
class PauseNotice:
    """Notice of a refused login, sent once per outage after the commit. `name` is the family of classes that waits."""

    name: str
    effect_id: int
    effect_class: str
    correlation_id: str
    error: str

    @classmethod
    def of(cls, effect: Effect) -> PauseNotice:
        """Return the notice of the effect whose login was refused."""
        name = effect.effect_class.partition(".")[0]
        return cls(name, effect.id, effect.effect_class, effect.correlation_id, effect.last_error or "")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Failure of an attempt. `error` is redacted and written for people."""

    category: str
    error: str
    http_status: int | None = None
    retry_after_ms: int | None = None
    maybe_sent: bool = False
    unavailable: bool = False  # the external service did not work at all: counts for its breaker
    code: str | None = None  # the external service's error code, or ours
    asked: bool = True  # false: no call was made, so the attempt says nothing about the external service


@dataclass(frozen=True, slots=True)
class Delivered:
    """The effect is performed; `external_ref` is its id in the external service."""

    external_ref: str | None
    result: Mapping[str, Any]
    already_there: bool = False  # an earlier attempt had performed it


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after the drawn delay. `spent` is false when the attempt does not count (absent after a lookup).

    `hold_until` (ms) holds the whole class until then: the external service asked for it (Retry-After).
    """

    trouble: Trouble
    delay_ms: int
    spent: bool = True
    hold_until: int | None = None


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The call may have succeeded: reconcile after the delay, before any repetition. `hold_until` as in Retry."""

    trouble: Trouble
    delay_ms: int
    spent: bool = True
    hold_until: int | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Give up: record a dead letter."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Drop:
    """The effect is no longer needed, with or without a replacement. `hold_until` as in Retry."""

    trouble: Trouble
    hold_until: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Return the effect to its previous state without counting an attempt, and pause its family until an operator resumes it."""

    trouble: Trouble


Settlement = Delivered | Retry | Uncertain | Fail | Drop | Hold


@dataclass(frozen=True, slots=True)
class FollowUps:
    """Follow-ups of a settled effect, decided in the settling transaction, which also reserves the `commands`."""

    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()
    commands: tuple[Request, ...] = ()
