"""Frozen rows: what the ledger hands out and what it is handed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from ledger.machine import EffectState, OperationState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Row

ActorType = Literal["user", "operator", "system"]
Semantics = Literal["convergent", "append", "keyed", "pure", "repeat_once"]


@dataclass(frozen=True, slots=True)
class Request:
    """A command about to be reserved. `payload` is canonical and JSON-ready; `transport` is stored, never hashed."""

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


@dataclass(frozen=True, slots=True)
class Operation:
    """One remembered command."""

    id: int
    operation_key: str
    source: str
    source_request_id: str
    action_kind: str
    aggregate_id: str
    aggregate_version: int | None
    payload: dict[str, Any]
    correlation_id: str
    actor: str
    actor_type: str
    team_id: str
    received_at: int
    state: OperationState
    outcome: str | None
    response: dict[str, Any] | None
    next_attempt_at: int | None
    claims: int
    attempts: int
    fence: int
    cycle: int
    category: str | None
    last_error: str | None

    @classmethod
    def of(cls, row: Row) -> Operation:
        """Read one row of `operations`."""
        return cls(
            **{name: row[name] for name in cls.__slots__ if name not in ("payload", "response", "state")},
            payload=json.loads(row["payload"]),
            response=None if row["response"] is None else json.loads(row["response"]),
            state=OperationState(row["state"]),
        )


class Sighting(StrEnum):
    """What a delivery turned out to be."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"  # the same request id with another meaning: refused


@dataclass(frozen=True, slots=True)
class Reservation:
    """The answer to a reserve: the operation this delivery belongs to, and whether it is the first of its kind."""

    sighting: Sighting
    operation: Operation


@dataclass(frozen=True, slots=True)
class EffectIntent:
    """A deed to be owed. `after` is the effect key of the one whose result it needs."""

    effect_class: str
    semantics: Semantics
    target: str
    aggregate_id: str
    payload: Mapping[str, Any]
    after: str | None = None
    supersede_key: str | None = None
    expires_at: int | None = None
    not_before: int | None = None  # ms; owed for later


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One domain event, written in the transaction of the change. `before` and `after` are JSON-ready."""

    event_type: str
    aggregate_id: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one execution decided: its answer, what is owed and what the audit must say."""

    kind: Literal["applied", "refused"]
    response: Mapping[str, Any]
    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """One owed deed. `reconciling` says that this claim must look before it sends."""

    id: int
    effect_key: str
    operation_id: int
    effect_class: str
    semantics: Semantics
    target: str
    aggregate_id: str
    correlation_id: str
    payload: dict[str, Any]
    steps: dict[str, Any]
    state: EffectState
    next_attempt_at: int | None
    expires_at: int | None
    claims: int
    attempts: int
    fence: int
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
    reconciling: bool = False

    @classmethod
    def of(cls, row: Row, *, reconciling: bool = False) -> Effect:
        """Read one row of `effects`."""
        special = ("effect_class", "payload", "steps", "state", "maybe_sent", "result", "reconciling")
        return cls(
            **{name: row[name] for name in cls.__slots__ if name not in special},
            effect_class=row["class"],
            payload=json.loads(row["payload"]),
            steps=json.loads(row["steps"]),
            state=EffectState(row["state"]),
            maybe_sent=bool(row["maybe_sent"]),
            result=None if row["result"] is None else json.loads(row["result"]),
            reconciling=reconciling,
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt did not deliver. `error` is redacted and written for people."""

    category: str
    error: str
    http_status: int | None = None
    retry_after_ms: int | None = None
    maybe_sent: bool = False


@dataclass(frozen=True, slots=True)
class Delivered:
    """The deed is done; `external_ref` is the other side's id of it."""

    external_ref: str | None
    result: Mapping[str, Any]
    already_there: bool = False  # it had been done before this attempt


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after the drawn delay. `spent` is false when the attempt does not count (absent after a lookup).

    `hold_until` (ms) keeps the whole class still until then: the other side asked for it (Retry-After).
    """

    trouble: Trouble
    delay_ms: int
    spent: bool = True
    hold_until: int | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """It may have been done: look again after the delay, before any repetition. `hold_until` as in Retry."""

    trouble: Trouble
    delay_ms: int
    spent: bool = True
    hold_until: int | None = None


@dataclass(frozen=True, slots=True)
class Bury:
    """Give up: a dead letter."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Drop:
    """No longer worth doing: superseded by something else or by nothing."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Hold:
    """Back to where it was claimed from without burning an attempt, and pause the whole class until somebody resumes it."""

    trouble: Trouble


Settlement = Delivered | Retry | Doubt | Bury | Drop | Hold


@dataclass(frozen=True, slots=True)
class FollowUps:
    """What a settled effect entails, decided in the settling transaction."""

    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()
