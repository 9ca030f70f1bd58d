"""What a person decides about a dead letter instead of replaying it: discard it, or say what happened where nobody else can know.

Each function runs inside an open transaction. Nothing is deleted, and every move is audited with who and why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ledger.machine import EffectState, OperationState
from ledger.outbox import drop_waiting, wake_waiting
from ledger.records import Effect, Operation
from ledger.replay import closed_cycle, last_replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger

DISCARDED_KEPT_MS: Final = 30 * 24 * 3_600_000


class Verdict(StrEnum):
    """Whether a person's word was carried out."""

    DONE = "done"
    REFUSED = "refused"
    LOST = "lost to another operator"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer to one word. `detail` is a sentence for people: what it is now, or why nothing was changed."""

    reference: str
    verdict: Verdict
    detail: str
    effect_class: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """What a person said about one row. `now` is Unix milliseconds."""

    reference: str
    row_id: int
    actor: str
    reason: str
    follow: FollowUpDecision
    now: int
    build: str
    cycle_seen: int | None = None


def any_reference(effect: Effect, external_ref: str | None) -> str | None:
    """Take any reference of the other side, or none."""
    del effect, external_ref
    return None


def in_doubt(effect: Effect) -> bool:
    """Tell whether the ledger cannot know if this was done: then, and only then, a person may say so."""
    if effect.state is EffectState.UNCERTAIN:
        return True
    unknown = effect.category == "uncertain" or (effect.maybe_sent and effect.semantics == "append")
    return effect.state is EffectState.FAILED and unknown


def discard_effect(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Close a failed effect; what waited for it will not happen either."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    effect = Effect.of(row)
    refused = _refused(word, row, effect.effect_class, dead=effect.state is EffectState.FAILED)
    if refused is not None:
        return refused
    closed = tx.one("discard_effect", id=effect.id, cycle=effect.cycle, now=word.now)
    assert closed is not None  # noqa: S101 -- read in this very transaction
    discarded = Effect.of(closed)
    ledger.audit.of_effect(tx, word.now, "effect.discarded", discarded, actor=word.actor, after={"reason": word.reason})
    drop_waiting(tx, ledger.audit, word.now, effect.id, f"effect {effect.id}, which it waited for, was discarded")
    ledger.settle_follow_ups(tx, word.now, discarded, word.follow)
    return Ruling(word.reference, Verdict.DONE, "Discarded: it will not be sent.", effect.effect_class)


def discard_operation(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Close a given-up command; its key still answers repeated deliveries for 30 days."""
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
    """Take a person's word that it arrived: what waited for it goes on, as after any delivery."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    effect = Effect.of(row)
    if not in_doubt(effect):
        return _not_in_doubt(word, row, effect)
    missing = objection(effect, external_ref)
    if missing is not None:
        return Ruling(word.reference, Verdict.REFUSED, f"{missing} Nothing was changed.", effect.effect_class)
    moved = tx.one(
        "resolve_effect_delivered",
        id=effect.id,
        fence=effect.fence,
        external_ref=external_ref,
        result=json.dumps({"already_there": True, "resolved_by": word.actor}, sort_keys=True),
        now=word.now,
    )
    assert moved is not None  # noqa: S101 -- read in this very transaction
    delivered = Effect.of(moved)
    _audit_resolved(ledger, tx, word, effect, delivered)
    wake_waiting(tx, word.now, delivered)
    ledger.settle_follow_ups(tx, word.now, delivered, word.follow)
    return Ruling(word.reference, Verdict.DONE, "Marked as delivered: what waited for it goes on.", effect.effect_class)


def send_again(ledger: Ledger, tx: Tx, word: Word) -> Ruling:
    """Take a person's word that it never arrived: a new cycle that does not look first and starts from its first step."""
    row = tx.one("effect_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    effect = Effect.of(row)
    if not in_doubt(effect):
        return _not_in_doubt(word, row, effect)
    if effect.state is EffectState.UNCERTAIN:
        row = _give_up(ledger, tx, word, effect)
    moved = tx.one(
        "resolve_effect_undone",
        id=effect.id,
        cycle=effect.cycle,
        failure_history=closed_cycle(row, word.build, word.actor, word.now),
        handler_version=word.build,
        replayed_by=word.actor,
        now=word.now,
    )
    assert moved is not None  # noqa: S101 -- read in this very transaction
    waiting = Effect.of(moved)
    _audit_resolved(ledger, tx, word, effect, waiting)
    ledger.settle_follow_ups(tx, word.now, waiting, word.follow)
    return Ruling(word.reference, Verdict.DONE, "Queued to be sent again, without looking for it first.", effect.effect_class)


def refuse_operation(tx: Tx, word: Word) -> Ruling:
    """Say that a command is never in doubt: it either completed in the ledger or it did not."""
    row = tx.one("operation_by_id", id=word.row_id)
    if row is None:
        return _not_found(word)
    detail = (
        f"{word.reference} is a command, and whether a command was done is always known: {_what_it_is(row)}. Nothing was changed."
    )
    return Ruling(word.reference, Verdict.REFUSED, detail, row["action_kind"])


def _give_up(ledger: Ledger, tx: Tx, word: Word, effect: Effect) -> Row:
    error = "A person ended the doubt."
    row = tx.one("fail_uncertain", id=effect.id, fence=effect.fence, last_error=effect.last_error or error, now=word.now)
    assert row is not None  # noqa: S101 -- read in this very transaction
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
    """Say why a row cannot be discarded; None when it can."""
    if word.cycle_seen is not None and row["cycle"] != word.cycle_seen:
        return Ruling(word.reference, Verdict.LOST, f"{_what_it_is(row)}. Nothing was changed.", what)
    if dead:
        return None
    detail = f"Only a dead letter can be discarded, and {word.reference} is none: {_what_it_is(row)}. Nothing was changed."
    return Ruling(word.reference, Verdict.REFUSED, detail, what)


def _not_in_doubt(word: Word, row: Row, effect: Effect) -> Ruling:
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
