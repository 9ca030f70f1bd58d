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
from ledger.operator.replay import closed_cycle, last_replay
from ledger.outbox import drop_waiting, wake_waiting
from ledger.records import Effect, Operation
from ledger.references import effect_row, operation_rows

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger
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
    """The answer to one operator action. `detail` is a sentence for people: the new state, or why nothing was changed."""

    reference: str
    verdict: Verdict
    detail: str
    effect_class: str = ""


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
        return _not_found(word)
    effect = Effect.of(row)
    refused = _refused(word, row, effect.effect_class, dead=effect.state is EffectState.FAILED)
    if refused is not None:
        return refused
    closed = tx.required("discard_effect", id=effect.id, cycle=effect.cycle, now=word.now)
    discarded = Effect.of(closed)
    ledger.audit.of_effect(tx, word.now, "effect.discarded", discarded, actor=word.actor, after={"reason": word.reason})
    drop_waiting(tx, ledger.audit, word.now, effect.id, f"effect {effect.id}, which it waited for, was discarded")
    ledger.settle_follow_ups(tx, word.now, discarded, word.follow)
    return Ruling(word.reference, Verdict.DONE, "Discarded: it will not be sent.", effect.effect_class)


def discard_operation(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Close a failed command; its key still answers repeated deliveries for 30 days."""
    row = tx.one("operation_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    operation = Operation.of(row)
    refused = _refused(word, row, operation.action_kind, dead=operation.state is OperationState.FAILED_TERMINAL)
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
    return Ruling(word.reference, Verdict.DONE, "Discarded: it will not be executed.", operation.action_kind)


def mark_delivered(
    ledger: Ledger, tx: Tx, word: Word, external_ref: str | None, objection: Callable[[Effect, str | None], str | None]
) -> Ruling:
    """Mark an uncertain effect as delivered on an operator's statement; the effects that wait for it continue."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    effect = Effect.of(row)
    if not is_uncertain(effect):
        return _not_uncertain(word, row, effect)
    missing = objection(effect, external_ref)
    if missing is not None:
        return Ruling(word.reference, Verdict.REFUSED, f"{missing} Nothing was changed.", effect.effect_class)
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
    return Ruling(word.reference, Verdict.DONE, "Marked as delivered: what waited for it goes on.", effect.effect_class)


def send_again(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Send an uncertain effect again on an operator's statement that it never arrived.

    Starts a new cycle without a lookup, at the first step.
    """
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    effect = Effect.of(row)
    if not is_uncertain(effect):
        return _not_uncertain(word, row, effect)
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
    return Ruling(word.reference, Verdict.DONE, "Queued to be sent again, without looking for it first.", effect.effect_class)


def refuse_operation(tx: Tx, word: Word) -> Ruling:
    """Refuse to resolve a command: it is never uncertain, it either completed in the ledger or it did not."""
    row = tx.one("operation_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    detail = (
        f"{word.reference} is a command, and whether a command was done is always known: {_what_it_is(row)}. Nothing was changed."
    )
    return Ruling(word.reference, Verdict.REFUSED, detail, row["action_kind"])


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


def _refused(word: Word, row: Row, what: str, *, dead: bool) -> Ruling | None:
    """Return why a row cannot be discarded; None when it can."""
    if word.cycle_seen is not None and row["cycle"] != word.cycle_seen:
        return Ruling(word.reference, Verdict.LOST, f"{_what_it_is(row)}. Nothing was changed.", what)
    if dead:
        return None
    detail = f"Only a dead letter can be discarded, and {word.reference} is none: {_what_it_is(row)}. Nothing was changed."
    return Ruling(word.reference, Verdict.REFUSED, detail, what)


def _not_uncertain(word: Word, row: Row, effect: Effect) -> Ruling:
    if effect.state is EffectState.FAILED:
        why = (
            f"{word.reference} failed ({effect.category}) and it is known that a repetition does no harm. Nothing was changed. "
            f"Use: quotebot replay {word.reference}"
        )
    else:
        why = f"{word.reference} is not in doubt: {_what_it_is(row)}. Nothing was changed."
    return Ruling(word.reference, Verdict.REFUSED, why, effect.effect_class)


def _not_found(word: Word) -> Ruling:
    return Ruling(word.reference, Verdict.NOT_FOUND, f"There is no {word.reference}.")


def _what_it_is(row: Row) -> str:
    who, _ = last_replay(row)
    replayed = "" if who is None else f", last replayed by {who}"
    return f"it is {_STATE_WORDS[row['state']]}{replayed}"


_STATE_WORDS: Final = {
    "reserved": "waiting to be executed",
    "in_progress": "being executed right now",
    "failed_retryable": "waiting to be executed again",
    "completed": "done",
    "failed_terminal": "a dead letter",
    "pending": "waiting to be sent",
    "in_flight": "being sent or looked for right now",
    "uncertain": "in doubt and will be looked for",
    "delivered": "delivered",
    "failed": "a dead letter",
    "superseded": "superseded by a newer one",
    "discarded": "discarded",
}


Answer = Callable[["Tx", Operation, str], tuple[Mapping[str, Any], Sequence["EffectIntent"]]]


def cancel_operation(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, answer: Answer) -> Ruling:
    """Close a command that was not executed yet, inside an open transaction.

    `answer` returns the response for repeated deliveries, and the effects to enqueue, which notify the user.
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
    ledger.enqueue_for(tx, now, operation, intents)
    return Ruling(reference, Verdict.DONE, "Cancelled: it will not be executed.", operation.action_kind)


def cancel_effect(ledger: Ledger, tx: Tx, row_id: int, *, actor: str, reason: str, now: int, follow: FollowUpDecision) -> Ruling:
    """Close a pending effect, inside an open transaction; the effects that wait for it are superseded."""
    reference = str(row_id)
    row = effect_row(tx, row_id)
    if row is None:
        return Ruling(reference, Verdict.NOT_FOUND, f"There is no effect {reference}.")
    effect = Effect.of(row)
    if effect.state is not EffectState.PENDING:
        words = _UNCANCELLED[effect.state].format(id=reference)
        return Ruling(reference, Verdict.REFUSED, f"{words} Nothing was changed.", effect.effect_class)
    closed = tx.required("cancel_effect", id=effect.id, fence=effect.fence, reason=reason, now=now)
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
        return Ruling(reference, Verdict.NOT_FOUND, f"There is no effect {reference}.")
    effect, found = Effect.of(row), waiting(effect_facts(tx, row, now))
    if effect.cycle != cycle_seen:
        return Ruling(reference, Verdict.LOST, f"An operator replayed it meanwhile. {found.sentence}", effect.effect_class)
    held = found.cause in _OVER_SOON and effect.next_attempt_at is not None and effect.next_attempt_at > now
    if not (held or found.cause in _FOR_TIME) or effect.category == THROTTLED:
        return Ruling(reference, Verdict.REFUSED, found.sentence, effect.effect_class)
    if effect.state is EffectState.UNCERTAIN:
        tx.one("look_now", id=effect.id, fence=effect.fence, next_attempt_at=now, now=now)
        sentence = "It is looked for now, and sent again only if it is not there."
    else:
        tx.one("hasten_effect", id=effect.id, fence=effect.fence, now=now)
        sentence = "It is tried again now, under the same key: what is there already is not done twice."
    if held:
        sentence = f"It is tried as soon as that is over: {found.sentence}"
    ledger.audit.of_effect(tx, now, "effect.hastened", effect, actor=actor, after={"due_at": effect.next_attempt_at})
    return Ruling(reference, Verdict.DONE, sentence, effect.effect_class)
