"""Cancelling what has not begun, on a person's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ledger.jsontext import dumps
from ledger.machine import EffectState, OperationState
from ledger.outbox import drop_waiting
from ledger.records import Effect, Operation
from ledger.references import effect_row, operation_rows
from ledger.resolution import DISCARDED_KEPT_MS, Ruling, Verdict

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.records import EffectIntent


Answer = Callable[["Tx", Operation, str], tuple[Mapping[str, Any], Sequence["EffectIntent"]]]


def cancel_operation(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, answer: Answer) -> Ruling:
    """Close a command that was not executed yet, inside an open transaction. `answer` says what its person is told.

    It returns the response that repeated deliveries get, and the effects that are owed.
    """
    reference = f"op{row_id}"
    row = next(iter(operation_rows(tx, row_id)), None)
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
    row = effect_row(tx, row_id)
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
