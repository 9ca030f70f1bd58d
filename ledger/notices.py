"""Dead-letter notices, sent once and after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.records import DeadNotice

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, Operation, Trouble


def of_effect(tx: Tx, effect: Effect) -> DeadNotice:
    """Return the notice of a failed effect, as it is now."""
    row = tx.required("operation_by_id", id=effect.operation_id)  # foreign key
    return DeadNotice(
        kind="effect",
        id=effect.id,
        name=effect.effect_class,
        source=row["source"],
        target=effect.target,
        aggregate_id=effect.aggregate_id,
        correlation_id=effect.correlation_id,
        category=effect.category,
        last_error=effect.last_error,
        attempts=effect.attempts,
        cycle=effect.cycle,
    )


def of_operation(operation: Operation, trouble: Trouble) -> DeadNotice:
    """Return the notice of a failed command, as it was claimed."""
    return DeadNotice(
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
    )
