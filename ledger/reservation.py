"""Reservation of a command, the first step of its processing. Runs inside one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import keys
from ledger.keys import dumps
from ledger.records import DedupeResult, Operation, Request, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.events import Audit
    from ledger.database import Row, Tx


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
    known = tx.one(
        "find_delivery",
        source=request.source,
        source_request_id=request.source_request_id,
        action_kind=request.action_kind,
    )
    if known is None:
        return _at_first_sight(tx, audit, pin, now, sighted)
    row = tx.one("operation_by_id", id=known["operation_id"])
    if row is None:
        return _remembered(tx, audit, now, sighted, tx.one("tombstone", operation_key=sighted.key))
    operation = Operation.of(row)
    if known["fingerprint"] != request.fingerprint:
        tx.one("see_delivery_again", id=known["id"], now=now)
        audit.of_operation(tx, now, "delivery.conflict", operation)
        return Reservation(DedupeResult.CONFLICT, operation)
    return Reservation(DedupeResult.DUPLICATE, operation, delivery_id=known["id"])


def note_duplicate(tx: Tx, audit: Audit, now: int, reservation: Reservation) -> None:
    """Count and audit one more delivery of a known request. Runs after the answer, which was recorded at the first delivery."""
    tx.one("see_delivery_again", id=reservation.delivery_id, now=now)
    audit.of_operation(tx, now, "delivery.duplicate", reservation.operation)


def _at_first_sight(tx: Tx, audit: Audit, pin: Callable[[Tx, str], int | None], now: int, sighted: KeyedRequest) -> Reservation:
    tombstone = tx.one("tombstone", operation_key=sighted.key)
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
