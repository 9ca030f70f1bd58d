"""Operator decisions about a row other than replay: discard, resolve, cancel and retry now.

Each function runs inside an open transaction. Nothing is deleted, and every change is audited with its actor, and its reason where
one is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ledger.intake import drop_waiting
from ledger.keys import dumps
from ledger.machine import EffectState, OperationState
from ledger.operator.explain import effect_facts, operation_facts, waiting
from ledger.operator.replay import closed_cycle
from ledger.operator.trace import row_of
from ledger.records import DedupeResult, Effect, Operation

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.intake import KeyedRequest
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.operator.explain import Waiting
    from ledger.operator.replay import Order
    from ledger.records import ActorType, EffectIntent, Reservation

DISCARDED_KEPT_MS: Final = 30 * 24 * 3_600_000


class Verdict(StrEnum):
    """Result of an operator action."""

    DONE = "done"
    REFUSED = "refused"
    LOST = "lost to another operator"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer to one operator action. `code` names the new state, or why nothing was changed.

    `row` is the row before the action, `wait` what it waited for; `objection` is the caller's own reason for a refusal.
    """

    reference: str
    verdict: Verdict
    code: str
    row: Row | None = None
    wait: Waiting | None = None
    objection: str | None = None

    @property
    def effect_class(self) -> str:
        """Return the class of the effect or the kind of the command; empty when there is no such row."""
        return "" if self.row is None else self.row["action_kind" if self.reference.startswith("op") else "class"]


def is_uncertain(effect: Effect) -> bool:
    """Tell whether the ledger cannot know if this effect was performed. Only such an effect may be resolved by an operator."""
    if effect.state is EffectState.UNCERTAIN:
        return True
    unknown = effect.category == "uncertain" or (effect.maybe_sent and effect.semantics == "append")
    return effect.state is EffectState.FAILED and unknown


def discard(ledger: Ledger, tx: Tx, order: Order) -> Ruling:
    """Close a dead letter for good.

    The effects that wait for a discarded effect are superseded. The key of a discarded command still answers repeated deliveries
    for 30 days.
    """
    row = row_of(tx, order.kind, order.row_id, to_change=True)
    if row is None:
        return Ruling(order.reference, Verdict.NOT_FOUND, "not_found")
    if order.came_late(row):
        return Ruling(order.reference, Verdict.LOST, "changed", row)
    if row["state"] not in (EffectState.FAILED, OperationState.FAILED_TERMINAL):
        return Ruling(order.reference, Verdict.REFUSED, "not_dead", row)
    facts = {**order.who, "failure_category": row["category"], "recovery_action": "discard", "after": {"reason": order.reason}}
    if order.kind == "effect":
        discarded = Effect.of(tx.required("discard_effect", id=row["id"], cycle=row["cycle"], now=order.now))
        ledger.audit.of_effect(tx, order.now, "effect.discarded", discarded, **facts)
        reason = f"effect {discarded.id}, which it waited for, was discarded"
        drop_waiting(tx, ledger.audit, order.now, discarded.id, reason)
        ledger.settle_follow_ups(tx, order.now, discarded, order.follow)
    else:
        operation = Operation.of(row)
        tx.one(
            "discard_operation",
            id=operation.id,
            cycle=operation.cycle,
            response=json.dumps({**(operation.response or {}), "code": "discarded"}, sort_keys=True),
            retain_until=order.now + DISCARDED_KEPT_MS,
            now=order.now,
        )
        ledger.audit.of_operation(tx, order.now, "operation.discarded", operation, **facts)
    return Ruling(order.reference, Verdict.DONE, "discarded", row)


def resubmit(ledger: Ledger, tx: Tx, order: Order, request: KeyedRequest) -> tuple[Ruling, Reservation | None]:
    """Reserve an edited copy of a dead command and discard the original, which has at most one such copy.

    Returns the reservation of the copy, also for a repetition of the same request; None if it was refused.
    """
    row = row_of(tx, "operation", order.row_id, to_change=True)
    if row is None:
        return Ruling(order.reference, Verdict.NOT_FOUND, "no_operation"), None
    asked = request.request
    known = {"source": asked.source, "source_request_id": asked.source_request_id, "action_kind": asked.action_kind}
    repeated = tx.one("find_delivery", **known) is not None
    if not repeated and row["state"] != OperationState.FAILED_TERMINAL:
        newer = tx.one("replacement_of_operation", id=order.row_id)
        if newer is None:
            return Ruling(order.reference, Verdict.REFUSED, "not_dead_command", row), None
        said = f"{order.reference} was replaced by op{newer['id']} ({newer['correlation_id']})."
        return Ruling(order.reference, Verdict.LOST, "objection", row, objection=said), None
    if not repeated and order.came_late(row):
        return Ruling(order.reference, Verdict.LOST, "changed", row), None
    reservation = ledger.reserve_in(tx, order.now, request)
    copy = reservation.operation
    if reservation.sighting is DedupeResult.NEW:
        after = {"replaces": row["operation_key"], "reason": order.reason}
        facts = {**order.who, "failure_category": row["category"], "recovery_action": "resubmit", "after": after}
        ledger.audit.of_operation(tx, order.now, "operation.resubmitted", copy, **facts)
        because = f"replaced by op{copy.id} ({copy.correlation_id})"
        reason = because if order.reason is None else f"{because}: {order.reason}"
        discard(ledger, tx, replace(order, reason=reason))
    return Ruling(order.reference, Verdict.DONE, "resubmitted", row), reservation


def resolve(
    ledger: Ledger,
    tx: Tx,
    order: Order,
    *,
    delivered: bool,
    external_ref: str | None,
    objection: Callable[[Effect, str | None], str | None],
) -> Ruling:
    """Resolve an uncertain effect on an operator's statement that it was `delivered`, or that it never arrived.

    The effects that wait for a delivered effect continue. Any other effect is sent again: a new cycle without a lookup, at the
    first step. A command is never uncertain: it either completed in the ledger or it did not.
    """
    row = row_of(tx, order.kind, order.row_id, to_change=True)
    if row is None:
        return Ruling(order.reference, Verdict.NOT_FOUND, "not_found")
    if order.kind == "operation":
        return Ruling(order.reference, Verdict.REFUSED, "is_command", row)
    effect = Effect.of(row)
    if not is_uncertain(effect):
        code = "repeatable" if effect.state is EffectState.FAILED else "not_uncertain"
        return Ruling(order.reference, Verdict.REFUSED, code, row)
    missing = objection(effect, external_ref) if delivered else None
    if missing is not None:
        return Ruling(order.reference, Verdict.REFUSED, "objection", row, objection=missing)
    if delivered:
        moved = tx.required(
            "resolve_effect_delivered",
            id=effect.id,
            fence=effect.fence,
            external_ref=external_ref,
            result=json.dumps({"already_there": True, "resolved_by": order.actor}, sort_keys=True),
            now=order.now,
        )
    else:
        dead = _give_up(ledger, tx, order, effect) if effect.state is EffectState.UNCERTAIN else row
        moved = tx.required(
            "resolve_effect_undone",
            id=effect.id,
            cycle=effect.cycle,
            failure_history=closed_cycle(dead, order.build, order.actor, order.now),
            handler_version=order.build,
            replayed_by=order.actor,
            now=order.now,
        )
    after = Effect.of(moved)
    ledger.audit.of_effect(
        tx,
        order.now,
        "effect.resolved",
        after,
        **order.who,
        retry_count=effect.attempts,
        failure_category=effect.category,
        recovery_action="resolve",
        before={"state": effect.state.value, "cycle": effect.cycle},
        after={"state": after.state.value, "cycle": after.cycle, "external_ref": after.external_ref, "reason": order.reason},
    )
    if delivered:
        tx.one("wake_children", id=after.id, now=order.now)  # the effects that waited for it
    ledger.settle_follow_ups(tx, order.now, after, order.follow)
    return Ruling(order.reference, Verdict.DONE, "delivered" if delivered else "sent_again", row)


def _give_up(ledger: Ledger, tx: Tx, order: Order, effect: Effect) -> Row:
    error = "A person ended the doubt."
    row = tx.required("fail_uncertain", id=effect.id, fence=effect.fence, last_error=effect.last_error or error, now=order.now)
    ledger.audit.of_effect(
        tx,
        order.now,
        "system.error",
        Effect.of(row),
        **order.who,
        failure_category="uncertain",
        recovery_action="resolve",
        after={"class": effect.effect_class, "error": error},
    )
    return row


Answer = Callable[["Tx", Operation, str], tuple[Mapping[str, Any], Sequence["EffectIntent"]]]


def cancel_operation(
    ledger: Ledger,
    tx: Tx,
    row_id: int,
    *,
    actor: str,
    reason: str,
    now: int,
    answer: Answer,
    actor_type: ActorType = "operator",
) -> Ruling:
    """Close a command that was not executed yet, inside an open transaction.

    `answer` returns the response for repeated deliveries, and the effects to enqueue, which notify the user.
    """
    reference = f"op{row_id}"
    row = row_of(tx, "operation", row_id, to_change=True)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, "no_operation")
    operation = Operation.of(row)
    if operation.state not in (OperationState.RESERVED, OperationState.FAILED_RETRYABLE):
        return Ruling(reference, Verdict.REFUSED, "too_late", row)
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
    ledger.audit.of_operation(
        tx,
        now,
        "operation.cancelled",
        operation,
        actor=actor,
        actor_type=actor_type,
        failure_category=operation.category,
        recovery_action="cancel",
        after={"reason": reason, "state": operation.state.value},
    )
    ledger.enqueue_for(tx, now, operation, intents)
    return Ruling(reference, Verdict.DONE, "cancelled", row)


def cancel_effect(
    ledger: Ledger,
    tx: Tx,
    row_id: int,
    *,
    actor: str,
    reason: str,
    now: int,
    follow: FollowUpDecision,
    actor_type: ActorType = "operator",
) -> Ruling:
    """Close a pending effect, inside an open transaction; the effects that wait for it are superseded."""
    reference = str(row_id)
    row = row_of(tx, "effect", row_id, to_change=True)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, "no_effect")
    effect = Effect.of(row)
    if effect.state is not EffectState.PENDING:
        return Ruling(reference, Verdict.REFUSED, "too_late", row)
    cancelled = Effect.of(tx.required("cancel_effect", id=effect.id, fence=effect.fence, reason=reason, now=now))
    ledger.audit.of_effect(
        tx,
        now,
        "effect.cancelled",
        cancelled,
        actor=actor,
        actor_type=actor_type,
        failure_category=effect.category,
        recovery_action="cancel",
        after={"reason": reason},
    )
    drop_waiting(tx, ledger.audit, now, effect.id, f"effect {effect.id}, which it waited for, was cancelled")
    ledger.settle_follow_ups(tx, now, cancelled, follow)
    return Ruling(reference, Verdict.DONE, "cancelled_after_attempt" if effect.maybe_sent else "cancelled", row)


THROTTLED: Final = "throttled"  # the external service named a time: that wait must not be shortened
_FOR_TIME: Final = frozenset({"time", "uncertain"})  # causes where only the due time is missing
_OVER_SOON: Final = frozenset({"breaker", "throttled"})  # holds that end by themselves


def retry_effect_now(
    ledger: Ledger, tx: Tx, row_id: int, *, actor: str, now: int, cycle_seen: int, actor_type: ActorType = "operator"
) -> Ruling:
    """Make an effect due that waits between two attempts, or reconcile an uncertain one now, inside an open transaction.

    Other waits (a paused class, the previous effect in the lane, a wait the external service requested) stay: then the action is
    refused with the cause of the wait. During a hold that ends by itself, the effect is tried as soon as the hold ends.
    """
    reference = str(row_id)
    row = row_of(tx, "effect", row_id, to_change=True)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, "no_effect")
    effect, found = Effect.of(row), waiting(effect_facts(tx, row, now))
    if effect.cycle != cycle_seen:
        return Ruling(reference, Verdict.LOST, "replayed", row, found)
    held = found.cause in _OVER_SOON and effect.next_attempt_at is not None and effect.next_attempt_at > now
    if not (held or found.cause in _FOR_TIME) or effect.category == THROTTLED:
        return Ruling(reference, Verdict.REFUSED, "waits", row, found)
    if effect.state is EffectState.UNCERTAIN:
        tx.one("look_now", id=effect.id, fence=effect.fence, next_attempt_at=now, now=now)
        code, action = "looked_for", "reconcile"
    else:
        tx.one("hasten_effect", id=effect.id, fence=effect.fence, now=now)
        code, action = "tried", "retry"
    ledger.audit.of_effect(
        tx,
        now,
        "effect.hastened",
        effect,
        actor=actor,
        actor_type=actor_type,
        failure_category=effect.category,
        recovery_action=action,
        after={"due_at": effect.next_attempt_at},
    )
    return Ruling(reference, Verdict.DONE, "tried_after_hold" if held else code, row, found)


def retry_operation_now(
    ledger: Ledger, tx: Tx, row_id: int, *, actor: str, now: int, cycle_seen: int, actor_type: ActorType = "operator"
) -> Ruling:
    """Make a command due that waits between two attempts, inside an open transaction. Other waits stay, and are its answer."""
    reference = f"op{row_id}"
    row = row_of(tx, "operation", row_id, to_change=True)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, "no_operation")
    operation, found = Operation.of(row), waiting(operation_facts(tx, row, now))
    if operation.cycle != cycle_seen:
        return Ruling(reference, Verdict.LOST, "replayed", row, found)
    if operation.state is not OperationState.FAILED_RETRYABLE or found.cause not in _FOR_TIME:
        return Ruling(reference, Verdict.REFUSED, "waits", row, found)
    tx.one("hasten_operation", id=operation.id, fence=operation.fence, now=now)
    ledger.audit.of_operation(
        tx,
        now,
        "operation.hastened",
        operation,
        actor=actor,
        actor_type=actor_type,
        failure_category=operation.category,
        recovery_action="retry",
        after={"due_at": operation.next_attempt_at},
    )
    return Ruling(reference, Verdict.DONE, "tried", row, found)
