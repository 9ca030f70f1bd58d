"""Intake of work, inside one transaction: commands are reserved, effects are enqueued, each once under its key.

A delivery is bound to the operation of its command: the first delivery creates it, every later one finds it.

Effects are enqueued in the transaction of their cause (transactional outbox), under keys stable over attempts and replays. An
effect that needs another's result has no due time until that one is delivered; settling the parent wakes or drops it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.keys import dumps
from ledger.machine import EffectState
from ledger.records import DedupeResult, Effect, Operation, Request, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.audit.events import Audit
    from ledger.database import Row, Tx
    from ledger.records import EffectIntent


RETRY_FIELDS: Final = ("retry_attempt", "retry_reason")  # of a delivery's transport: the source's own count of its retries


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with the values computed before the transaction: its canonical payload, its hash, its key."""

    request: Request
    payload: str
    payload_hash: str
    key: str

    @classmethod
    def of(cls, request: Request) -> KeyedRequest:
        """Compute the identity of a request. Raises TypeError for a payload that contains a float."""
        payload = keys.canonical_json(request.payload)
        payload_hash = keys.sha256(payload)
        key = keys.operation_key(
            source=request.source,
            source_request_id=request.source_request_id,
            action_kind=request.action_kind,
            aggregate_id=request.aggregate_id,
            aggregate_version=request.aggregate_version,
            payload_hash=payload_hash,
        )
        return cls(request, payload.decode(), payload_hash, key)


def reserve(tx: Tx, audit: Audit, pin: Callable[[Tx, str], int | None], now: int, sighted: KeyedRequest) -> Reservation:
    """Bind the delivery to its operation: a new one at the first delivery, the same one for every later delivery."""
    request = sighted.request
    delivery = (request.source, request.source_request_id, request.action_kind)
    found, stones = tx.each("find_delivery", (delivery,)), tx.each("tombstone", ((sighted.key,),))
    (known,), (tombstone,) = found, stones
    if known is None:
        return _at_first_sight(tx, audit, pin, now, sighted, tombstone)
    row = tx.one("operation_by_id", id=known["operation_id"])
    if row is None:
        return _remembered(tx, audit, now, sighted, tombstone)
    operation = Operation.of(row)
    if known["fingerprint"] != request.fingerprint:
        retry = _retry_of(request)
        tx.one("see_delivery_again", id=known["id"], retry=dumps(retry), now=now)
        audit.of_operation(tx, now, "delivery.conflict", operation, after=retry or None)
        return Reservation(DedupeResult.CONFLICT, operation)
    return Reservation(DedupeResult.DUPLICATE, operation, delivery_id=known["id"])


def note_duplicate(tx: Tx, audit: Audit, now: int, reservation: Reservation, request: Request) -> None:
    """Count and audit one more delivery of a known request. Runs after the answer, which was recorded at the first delivery."""
    retry = _retry_of(request)
    tx.one("see_delivery_again", id=reservation.delivery_id, retry=dumps(retry), now=now)
    audit.of_operation(tx, now, "delivery.duplicate", reservation.operation, after=retry or None)


def _retry_of(request: Request) -> dict[str, Any]:
    return {name: request.transport[name] for name in RETRY_FIELDS if request.transport.get(name)}


def _at_first_sight(
    tx: Tx, audit: Audit, pin: Callable[[Tx, str], int | None], now: int, sighted: KeyedRequest, tombstone: Row | None
) -> Reservation:
    if tombstone is not None:
        return _remembered(tx, audit, now, sighted, tombstone)
    request = sighted.request
    creates = request.aggregate_id == "new"
    pinned = None if creates else pin(tx, request.aggregate_id)
    row = tx.one(
        "insert_operation",
        operation_key=sighted.key,
        source=request.source,
        source_request_id=request.source_request_id,
        action_kind=request.action_kind,
        aggregate_id=request.aggregate_id,
        lane=sighted.key if creates else request.aggregate_id,
        aggregate_version=request.aggregate_version,
        pinned_version=pinned,
        payload_hash=sighted.payload_hash,
        payload=sighted.payload,
        correlation_id=keys.correlation_id(sighted.key),
        actor=request.actor,
        actor_type=request.actor_type,
        team_id=request.team_id,
        received_at=request.received_at,
        replaces_id=request.replaces_id,
        now=now,
    )
    if row is not None:
        operation, sighting = Operation.reserved(row["id"], sighted.key, request, pinned, now), DedupeResult.NEW
    else:
        known = tx.required("operation_by_key", operation_key=sighted.key)  # a conflict on this key prevented the insert
        operation, sighting = Operation.of(known), DedupeResult.DUPLICATE
    tx.one(
        "insert_delivery",
        source=request.source,
        source_request_id=request.source_request_id,
        action_kind=request.action_kind,
        operation_id=operation.id,
        fingerprint=request.fingerprint,
        transport=dumps(request.transport),
        now=now,
    )
    audit.of_operation(tx, now, "operation.reserved" if sighting is DedupeResult.NEW else "delivery.duplicate", operation)
    return Reservation(sighting, operation)


def _remembered(tx: Tx, audit: Audit, now: int, sighted: KeyedRequest, tombstone: Row | None) -> Reservation:
    """Return the reservation of a command that was completed and purged."""
    operation = Operation.remembered(sighted.key, sighted.request, None if tombstone is None else tombstone["outcome"])
    audit.of_operation(tx, now, "delivery.duplicate", operation, after={"tombstone": True})
    return Reservation(DedupeResult.TOMBSTONE, operation, None if tombstone is None else tombstone["finished_at"])


NEEDLESS: Final = frozenset({EffectState.SUPERSEDED, EffectState.DISCARDED})  # an effect that waits for one of these is never due


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of enqueued effects: an operation or an effect of it (`parent_id`).

    `first_ordinal` separates the keys of later causes.
    """

    operation_id: int
    key: str
    correlation_id: str
    parent_id: int | None = None
    first_ordinal: int = 0


def enqueue(tx: Tx, audit: Audit, now: int, cause: Cause, intents: Sequence[EffectIntent]) -> list[dict[str, Any]]:
    """Enqueue effects inside an open transaction; they supersede older pending effects with the same supersede key.

    Returns what was enqueued, for the audit of the cause. Raises LookupError when an intent waits for an effect that does not
    exist.
    """
    if not intents:
        return []
    rows: list[dict[str, Any]] = []  # not inserted yet
    owed: list[dict[str, Any]] = []
    needless = []
    doubted = []
    for ordinal, intent in enumerate(intents, start=cause.first_ordinal):
        key = keys.effect_key(cause.key, intent.effect_class, ordinal)
        if intent.supersede_key is not None:
            # Rows that are not inserted yet can neither be superseded nor be found waiting for a superseded row.
            if any(row["supersede_key"] == intent.supersede_key or row["after_id"] is not None for row in rows):
                tx.many("insert_effect", rows)
                rows.clear()
            for older in tx.all("supersede_pending", supersede_key=intent.supersede_key, now=now):
                superseded(tx, audit, now, Effect.of(older), {"by": key})
                doubted += [key] if older["maybe_sent"] else []
        parent = _parent(tx, rows, intent.after)
        if parent is not None and parent["state"] in NEEDLESS:
            needless.append(parent["id"])
        waits = parent is not None and parent["state"] != EffectState.DELIVERED
        payload = dumps(intent.payload)
        owed.append(
            {
                "class": intent.effect_class,
                "target": intent.target,
                "key": key,
                "payload_sha256": keys.sha256(payload.encode()),
            }
        )
        rows.append(
            {
                "effect_key": key,
                "operation_id": cause.operation_id,
                "parent_id": cause.parent_id,
                "class": intent.effect_class,
                "semantics": intent.semantics,
                "target": intent.target,
                "aggregate_id": intent.aggregate_id,
                "correlation_id": cause.correlation_id,
                "after_id": None if parent is None else parent["id"],
                "supersede_key": intent.supersede_key,
                "payload": payload,
                "next_attempt_at": None if waits else max(now, intent.not_before or 0),
                "not_before": intent.not_before,
                "expires_at": intent.expires_at,
                "aged_from": max(now, intent.not_before or 0),
                "now": now,
            }
        )
    tx.many("insert_effect", rows)
    for key in doubted:
        tx.one("mark_maybe_sent", effect_key=key)
    for parent_id in needless:
        drop_waiting(tx, audit, now, parent_id, "what it waited for will not happen")
    return owed


def drop_waiting(tx: Tx, audit: Audit, now: int, parent_id: int, reason: str) -> None:
    """Supersede the effects that wait for one that will never be delivered, and the effects that wait for those."""
    for row in tx.all("supersede_children", id=parent_id, reason=reason, now=now):
        superseded(tx, audit, now, Effect.of(row), {"by": parent_id, "why": reason})


def superseded(tx: Tx, audit: Audit, now: int, effect: Effect, after: dict[str, Any], **who: Any) -> None:
    """Audit that an effect became needless, and drop the effects that waited for it. `who`: actor and actor_type."""
    audit.of_effect(tx, now, "effect.superseded", effect, failure_category=effect.category, after=after, **who)
    drop_waiting(tx, audit, now, effect.id, f"effect {effect.id} became needless")


def _parent(tx: Tx, unwritten: list[dict[str, Any]], key: str | None) -> Row | None:
    if key is None:
        return None
    if any(row["effect_key"] == key for row in unwritten):
        tx.many("insert_effect", unwritten)
        unwritten.clear()
    row = tx.one("effect_by_key", effect_key=key)
    if row is None:
        raise LookupError(f"an effect waits for one that was never owed: {key}")
    return row
