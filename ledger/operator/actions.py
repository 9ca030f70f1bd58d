"""Operator decisions about a row other than replay: discard, resolve, cancel and retry now.

Each function runs inside an open transaction. Nothing is deleted, and every change is audited with its actor, and its reason where
one is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ledger.jsontext import dumps
from ledger.machine import EffectState, OperationState
from ledger.operator.explain import effect_facts, waiting
from ledger.operator.replay import closed_cycle
from ledger.outbox import drop_waiting, wake_waiting
from ledger.records import Effect, Operation
from ledger.references import effect_row, operation_rows

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.operator.explain import Waiting
    from ledger.records import EffectIntent

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


@dataclass(frozen=True, slots=True)
class Word:
    """One operator action on one row. `now` is Unix milliseconds."""

    reference: str
    row_id: int
    actor: str
    reason: str
    follow: FollowUpDecision
    now: int
    build: str
    cycle_seen: int | None = None


def any_reference(effect: Effect, external_ref: str | None) -> str | None:
    """Accept any external reference, or none."""
    del effect, external_ref
    return None


def is_uncertain(effect: Effect) -> bool:
    """Tell whether the ledger cannot know if this effect was performed. Only such an effect may be resolved by an operator."""
    if effect.state is EffectState.UNCERTAIN:
        return True
    unknown = effect.category == "uncertain" or (effect.maybe_sent and effect.semantics == "append")
    return effect.state is EffectState.FAILED and unknown


def discard_effect(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Close a failed effect; the effects that wait for it are superseded."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return Ruling(word.reference, Verdict.NOT_FOUND, "not_found")
    effect = Effect.of(row)
    refused = _refused(word, row, dead=effect.state is EffectState.FAILED)
    if refused is not None:
        return refused
    closed = tx.required("discard_effect", id=effect.id, cycle=effect.cycle, now=word.now)
    discarded = Effect.of(closed)
    ledger.audit.of_effect(tx, word.now, "effect.discarded", discarded, actor=word.actor, after={"reason": word.reason})
    drop_waiting(tx, ledger.audit, word.now, effect.id, f"effect {effect.id}, which it waited for, was discarded")
    ledger.settle_follow_ups(tx, word.now, discarded, word.follow)
    return Ruling(word.reference, Verdict.DONE, "discarded", row)


def discard_operation(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Close a failed command; its key still answers repeated deliveries for 30 days."""
    row = tx.one("operation_by_id", id=word.row_id)
    if row is None:
        return Ruling(word.reference, Verdict.NOT_FOUND, "not_found")
    operation = Operation.of(row)
    refused = _refused(word, row, dead=operation.state is OperationState.FAILED_TERMINAL)
    if refused is not None:
        return refused
    tx.one(
        "discard_operation",
        id=operation.id,
        cycle=operation.cycle,
        response=json.dumps({**(operation.response or {}), "code": "discarded"}, sort_keys=True),
        retain_until=word.now + DISCARDED_KEPT_MS,
        now=word.now,
    )
    ledger.audit.of_operation(tx, word.now, "operation.discarded", operation, actor=word.actor, after={"reason": word.reason})
    return Ruling(word.reference, Verdict.DONE, "discarded", row)


def mark_delivered(
    ledger: Ledger, tx: Tx, word: Word, external_ref: str | None, objection: Callable[[Effect, str | None], str | None]
) -> Ruling:
    """Mark an uncertain effect as delivered on an operator's statement; the effects that wait for it continue."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return Ruling(word.reference, Verdict.NOT_FOUND, "not_found")
    effect = Effect.of(row)
    if not is_uncertain(effect):
        return Ruling(word.reference, Verdict.REFUSED, _known(effect), row)
    missing = objection(effect, external_ref)
    if missing is not None:
        return Ruling(word.reference, Verdict.REFUSED, "objection", row, objection=missing)
    moved = tx.required(
        "resolve_effect_delivered",
        id=effect.id,
        fence=effect.fence,
        external_ref=external_ref,
        result=json.dumps({"already_there": True, "resolved_by": word.actor}, sort_keys=True),
        now=word.now,
    )
    delivered = Effect.of(moved)
    _audit_resolved(ledger, tx, word, effect, delivered)
    wake_waiting(tx, word.now, delivered)
    ledger.settle_follow_ups(tx, word.now, delivered, word.follow)
    return Ruling(word.reference, Verdict.DONE, "delivered", row)


def send_again(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Send an uncertain effect again on an operator's statement that it never arrived.

    Starts a new cycle without a lookup, at the first step.
    """
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return Ruling(word.reference, Verdict.NOT_FOUND, "not_found")
    effect = Effect.of(row)
    if not is_uncertain(effect):
        return Ruling(word.reference, Verdict.REFUSED, _known(effect), row)
    if effect.state is EffectState.UNCERTAIN:
        row = _give_up(ledger, tx, word, effect)
    moved = tx.required(
        "resolve_effect_undone",
        id=effect.id,
        cycle=effect.cycle,
        failure_history=closed_cycle(row, word.build, word.actor, word.now),
        handler_version=word.build,
        replayed_by=word.actor,
        now=word.now,
    )
    waiting = Effect.of(moved)
    _audit_resolved(ledger, tx, word, effect, waiting)
    ledger.settle_follow_ups(tx, word.now, waiting, word.follow)
    return Ruling(word.reference, Verdict.DONE, "sent_again", row)


def refuse_operation(tx: Tx, word: Word) -> Ruling:
    """Refuse to resolve a command: it is never uncertain, it either completed in the ledger or it did not."""
    row = tx.one("operation_by_id", id=word.row_id)
    if row is None:
        return Ruling(word.reference, Verdict.NOT_FOUND, "not_found")
    return Ruling(word.reference, Verdict.REFUSED, "is_command", row)


def _give_up(ledger: Ledger, tx: Tx, word: Word, effect: Effect) -> Row:
    error = "A person ended the doubt."
    row = tx.required("fail_uncertain", id=effect.id, fence=effect.fence, last_error=effect.last_error or error, now=word.now)
    details = {"class": effect.effect_class, "error": error}
    ledger.audit.of_effect(
        tx,
        word.now,
        "system.error",
        Effect.of(row),
        actor=word.actor,
        failure_category="uncertain",
        recovery_action="resolve",
        after=details,
    )
    return row


def _audit_resolved(ledger: Ledger, tx: Tx, word: Word, before: Effect, after: Effect) -> None:
    ledger.audit.of_effect(
        tx,
        word.now,
        "effect.resolved",
        after,
        actor=word.actor,
        recovery_action="resolve",
        before={"state": before.state.value, "cycle": before.cycle},
        after={"state": after.state.value, "cycle": after.cycle, "external_ref": after.external_ref, "reason": word.reason},
    )


def _refused(word: Word, row: Row, *, dead: bool) -> Ruling | None:
    """Return why a row cannot be discarded; None when it can."""
    if word.cycle_seen is not None and row["cycle"] != word.cycle_seen:
        return Ruling(word.reference, Verdict.LOST, "changed", row)
    return None if dead else Ruling(word.reference, Verdict.REFUSED, "not_dead", row)


def _known(effect: Effect) -> str:
    """Return why the outcome of an effect is not in doubt."""
    return "repeatable" if effect.state is EffectState.FAILED else "not_uncertain"


Answer = Callable[["Tx", Operation, str], tuple[Mapping[str, Any], Sequence["EffectIntent"]]]


def cancel_operation(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, answer: Answer) -> Ruling:
    """Close a command that was not executed yet, inside an open transaction.

    `answer` returns the response for repeated deliveries, and the effects to enqueue, which notify the user.
    """
    reference = f"op{row_id}"
    row = next(iter(operation_rows(tx, row_id)), None)
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
    details = {"reason": reason, "state": operation.state.value}
    ledger.audit.of_operation(tx, now, "operation.cancelled", operation, actor=actor, after=details)
    ledger.enqueue_for(tx, now, operation, intents)
    return Ruling(reference, Verdict.DONE, "cancelled", row)


def cancel_effect(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, follow: FollowUpDecision) -> Ruling:
    """Close a pending effect, inside an open transaction; the effects that wait for it are superseded."""
    reference = str(row_id)
    row = effect_row(tx, row_id)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, "no_effect")
    effect = Effect.of(row)
    if effect.state is not EffectState.PENDING:
        return Ruling(reference, Verdict.REFUSED, "too_late", row)
    closed = tx.required("cancel_effect", id=effect.id, fence=effect.fence, reason=reason, now=now)
    cancelled = Effect.of(closed)
    ledger.audit.of_effect(tx, now, "effect.cancelled", cancelled, actor=actor, after={"reason": reason})
    drop_waiting(tx, ledger.audit, now, effect.id, f"effect {effect.id}, which it waited for, was cancelled")
    ledger.settle_follow_ups(tx, now, cancelled, follow)
    return Ruling(reference, Verdict.DONE, "cancelled_after_attempt" if effect.maybe_sent else "cancelled", row)


THROTTLED: Final = "throttled"  # the external service named a time: that wait must not be shortened
_FOR_TIME: Final = frozenset({"time", "uncertain"})  # causes where only the due time is missing
_OVER_SOON: Final = frozenset({"breaker", "throttled"})  # holds that end by themselves


def retry_effect_now(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, now: int, cycle_seen: int) -> Ruling:
    """Make an effect due that waits between two attempts, or reconcile an uncertain one now, inside an open transaction.

    Other waits (a paused class, the previous effect in the lane, a wait the external service requested) stay: then the action is
    refused with the cause of the wait. During a hold that ends by itself, the effect is tried as soon as the hold ends.
    """
    reference = str(row_id)
    row = effect_row(tx, row_id)
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
        code = "looked_for"
    else:
        tx.one("hasten_effect", id=effect.id, fence=effect.fence, now=now)
        code = "tried"
    ledger.audit.of_effect(tx, now, "effect.hastened", effect, actor=actor, after={"due_at": effect.next_attempt_at})
    return Ruling(reference, Verdict.DONE, "tried_after_hold" if held else code, row, found)
