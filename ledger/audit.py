"""The append-only audit: one row per change, in the transaction of the change. Event types are a registry; others are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from ledger.records import Effect, Operation

LEDGER_EVENTS = frozenset(
    {
        "operation.reserved",
        "operation.claimed",
        "operation.applied",
        "operation.refused",
        "operation.retry_scheduled",
        "operation.released",
        "operation.late_result",
        "operation.replayed",
        "delivery.duplicate",
        "delivery.conflict",
        "effect.owed",
        "effect.claimed",
        "effect.delivered",
        "effect.retry_scheduled",
        "effect.uncertain",
        "effect.superseded",
        "effect.late_result",
        "effect.released",
        "effect.replayed",
        "dead_letter.payload_shown",
        "class.paused",
        "class.resumed",
        "system.error",  # a dead letter
    }
)


class Audit:
    """Writes events. `domain_events` are the types the product adds to the ledger's own."""

    def __init__(self, domain_events: frozenset[str]) -> None:
        self._known = LEDGER_EVENTS | domain_events

    def of_operation(
        self, tx: Tx, at: int, event_type: str, operation: Operation, *, actor: str | None = None, **details: Any
    ) -> None:
        """Append an event about an operation. `details`: retry_count, failure_category, recovery_action, before, after."""
        self.append(
            tx,
            at,
            event_type,
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            aggregate_id=details.pop("aggregate_id", operation.aggregate_id),
            actor=actor or operation.actor,
            actor_type=operation.actor_type if actor is None else _actor_type(actor),
            **details,
        )

    def of_effect(self, tx: Tx, at: int, event_type: str, effect: Effect, *, actor: str = "quotebot", **details: Any) -> None:
        """Append an event about an effect."""
        self.append(
            tx,
            at,
            event_type,
            effect_id=effect.id,
            correlation_id=effect.correlation_id,
            aggregate_id=details.pop("aggregate_id", effect.aggregate_id),
            actor=actor,
            actor_type=_actor_type(actor),
            **details,
        )

    def append(
        self,
        tx: Tx,
        at: int,
        event_type: str,
        *,
        actor: str,
        actor_type: str,
        operation_key: str | None = None,
        effect_id: int | None = None,
        correlation_id: str | None = None,
        aggregate_id: str | None = None,
        retry_count: int | None = None,
        failure_category: str | None = None,
        recovery_action: str | None = None,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one event. Raises ValueError for a type outside the registry."""
        if event_type not in self._known:
            raise ValueError(f"{event_type} is not a registered audit event type")
        tx.one(
            "insert_audit",
            at=at,
            event_type=event_type,
            operation_key=operation_key,
            effect_id=effect_id,
            correlation_id=correlation_id,
            aggregate_id=aggregate_id,
            actor=actor,
            actor_type=actor_type,
            retry_count=retry_count,
            failure_category=failure_category,
            recovery_action=recovery_action,
            before=None if before is None else json.dumps(before, sort_keys=True),
            after=None if after is None else json.dumps(after, sort_keys=True),
        )


def _actor_type(actor: str) -> str:
    return "system" if actor == "quotebot" else "operator"
