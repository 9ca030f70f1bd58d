"""Replay of dead letters: the same row, the same key, a new cycle. It changes nothing outside the ledger and no decision.

Each function runs inside an open transaction and is guarded by the row's state and by the cycle the operator saw: of two operators
one replays, and the other learns who did and when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ledger.intake import superseded
from ledger.machine import EffectState, OperationState
from ledger.operator.trace import row_of
from ledger.records import Effect, Operation

if TYPE_CHECKING:
    from ledger.database import Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.operator.trace import Kind
    from ledger.records import ActorType

HISTORY_INLINE: Final = 20  # older cycles stay in `attempts`


class Replay(StrEnum):
    """Result of a replay request."""

    QUEUED = "queued"
    ALREADY_THERE = "already there"  # done before this replay
    REDONE = "redone"  # done by this replay
    CANNOT_KNOW = "cannot know"  # it may have been performed: an operator must check
    FAILED_AGAIN = "failed again"
    UNDER_WAY = "under way"
    SUPERSEDED = "superseded"  # a newer effect replaces it
    DISCARDED = "discarded"
    LOST = "lost to another operator"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The answer to one replay request. Times are Unix milliseconds.

    `external_ref` is the external object, if it exists; `detail` is why the replay failed or what replaced the effect;
    `replayed_by` and `replayed_at` describe the last earlier replay, when that one prevents this one.
    """

    reference: str
    outcome: Replay
    effect_class: str = ""
    external_ref: str | None = None
    detail: str | None = None
    replayed_by: str | None = None
    replayed_at: int | None = None


class Expectation(StrEnum):
    """Expected result of a replay, as far as it is known in advance."""

    ALREADY_THERE = "already there"
    WOULD_BE_REDONE = "would be redone"
    CANNOT_KNOW = "cannot know"
    LOOKED_FOR = "looked for first, sent only if it is not there"
    NEVER_SENT = "sent again: no earlier attempt can have arrived"
    SAME_KEY = "repeated under the same key: the other side refuses it when it is already there"
    DRAWN_AGAIN = "drawn again from the state of that moment"
    COMPUTED_AGAIN = "computed again: nothing outside changes"
    REPEATED = "repeated: at worst one person reads it twice"
    EXECUTED = "executed again under its key"
    SUPERSEDED = "not done: a newer one with the same target is"
    UNDER_WAY = "under way already"
    DISCARDED = "not done: it was discarded"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class ReplayPreview:
    """The expected result of one replay. `detail` is the external reference, or why the result cannot be known."""

    expectation: Expectation
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One operator action on one dead letter. Times are Unix milliseconds. `due_at` and `look_now` concern replays."""

    reference: str
    kind: Kind
    row_id: int
    actor: str
    reason: str | None
    follow: FollowUpDecision
    build: str
    now: int
    cycle_seen: int | None = None
    due_at: int | None = None
    look_now: bool = False
    actor_type: ActorType = "operator"

    @property
    def who(self) -> dict[str, Any]:
        """Return the acting person, as the audit records them."""
        return {"actor": self.actor, "actor_type": self.actor_type}

    def came_late(self, row: Row) -> bool:
        """Tell whether the row was replayed since the operator viewed it."""
        return self.cycle_seen is not None and row["cycle"] != self.cycle_seen


def replay(ledger: Ledger, tx: Tx, order: Order) -> ReplayResult:
    """Return a failed effect or command to the queue."""
    row = row_of(tx, order.kind, order.row_id, to_change=True)
    if row is None:
        return ReplayResult(order.reference, Replay.NOT_FOUND)
    return (_replay_effect if order.kind == "effect" else _replay_operation)(ledger, tx, order, row)


def _replay_effect(ledger: Ledger, tx: Tx, order: Order, row: Row) -> ReplayResult:
    """Replay an effect; an append that may have been sent is reconciled first."""
    effect = Effect.of(row)
    if effect.state is EffectState.UNCERTAIN and order.look_now:
        tx.one("look_now", id=effect.id, fence=effect.fence, next_attempt_at=order.due_at or order.now, now=order.now)
        _audit_replay(ledger, tx, order, effect, "reconcile", {"cycle": effect.cycle})
        return ReplayResult(order.reference, Replay.QUEUED, effect.effect_class)
    if order.came_late(row) or effect.state is not EffectState.FAILED:
        return _in_the_way(order, row, effect.effect_class, effect.external_ref)
    newer = _newer(tx, effect)
    if newer is not None:
        return _supersede(ledger, tx, order, effect, newer)
    is_uncertain = effect.maybe_sent and effect.semantics == "append"
    replayed = tx.required(
        "replay_effect_in_doubt" if is_uncertain else "replay_effect",
        id=effect.id,
        cycle=effect.cycle,
        failure_history=closed_cycle(row, order.build, order.actor, order.now),
        handler_version=order.build,
        replayed_by=order.actor,
        next_attempt_at=order.due_at or order.now,
        now=order.now,
    )
    waiting = Effect.of(replayed)
    after = {"cycle": waiting.cycle, "handler_version": order.build}
    _audit_replay(ledger, tx, order, effect, "reconcile" if is_uncertain else "retry", after)
    ledger.settle_follow_ups(tx, order.now, waiting, order.follow)
    return ReplayResult(order.reference, Replay.QUEUED, effect.effect_class)


def _replay_operation(ledger: Ledger, tx: Tx, order: Order, row: Row) -> ReplayResult:
    """Replay a command: it is decided again, against the state at that time."""
    operation = Operation.of(row)
    if order.came_late(row) or operation.state is not OperationState.FAILED_TERMINAL:
        return _in_the_way(order, row, operation.action_kind, None)
    tx.one(
        "replay_operation",
        id=operation.id,
        cycle=operation.cycle,
        failure_history=closed_cycle(row, order.build, order.actor, order.now),
        handler_version=order.build,
        replayed_by=order.actor,
        next_attempt_at=order.due_at or order.now,
        now=order.now,
    )
    ledger.audit.of_operation(
        tx,
        order.now,
        "operation.replayed",
        operation,
        **order.who,
        failure_category=operation.category,
        recovery_action="retry",
        after={"reason": order.reason, "cycle": operation.cycle + 1, "handler_version": order.build},
    )
    return ReplayResult(order.reference, Replay.QUEUED, operation.action_kind)


def _audit_replay(ledger: Ledger, tx: Tx, order: Order, failed: Effect, action: str, after: dict[str, Any]) -> None:
    """Audit the replay of an effect, with the attempts and the failure of the cycle that it ends."""
    ledger.audit.of_effect(
        tx,
        order.now,
        "effect.replayed",
        failed,
        **order.who,
        failure_category=failed.category,
        recovery_action=action,
        after={"reason": order.reason, **after},
    )


def standing(tx: Tx, result: ReplayResult, kind: Kind, row_id: int) -> ReplayResult | None:
    """Return how a queued replay ended, or None while it is under way."""
    row = tx.required(f"{kind}_by_id", id=row_id)  # it was replayed, and rows that may still be needed are not deleted
    outcome = _ENDED.get(row["state"])
    if outcome is None:
        return None
    if outcome is Replay.FAILED_AGAIN:
        unknown = row["category"] == "uncertain"
        return replace(result, outcome=Replay.CANNOT_KNOW if unknown else outcome, detail=row["last_error"])
    if kind == "operation":
        return replace(result, outcome=outcome, detail=row["outcome"])
    before = outcome is Replay.REDONE and json.loads(row["result"] or "{}").get("already_there", False)
    return replace(result, outcome=Replay.ALREADY_THERE if before else outcome, external_ref=row["external_ref"])


def preview_replay(tx: Tx, kind: Kind, row_id: int) -> tuple[ReplayPreview, Effect | None]:
    """Return the expected result of a replay from the ledger alone, with the effect for callers that can query the service."""
    row = tx.one(f"{kind}_by_id", id=row_id)
    if row is None:
        return ReplayPreview(Expectation.NOT_FOUND), None
    if kind == "operation":
        dead = row["state"] == OperationState.FAILED_TERMINAL
        return ReplayPreview(Expectation.EXECUTED if dead else _FORESEEN[_STANDING[row["state"]]]), None
    effect = Effect.of(row)
    return _preview_effect(tx, effect), effect


def closed_cycle(row: Row, build: str, actor: str, now: int) -> str:
    """Return the failure history with the cycle that a replay by `actor`, with this build, closes."""
    history = json.loads(row["failure_history"])
    history.append(
        {
            "cycle": row["cycle"],
            "attempts": row["attempts"],
            "first_failed_at": row["first_failed_at"],
            "failed_at": row["finished_at"],
            "category": row["category"],
            "code": row["code"],
            "last_error": row["last_error"],
            "handler_version": build,
            "replayed_by": actor,
            "replayed_at": now,
        }
    )
    return json.dumps(history[-HISTORY_INLINE:], sort_keys=True)


def last_replay(row: Row) -> tuple[str | None, int | None]:
    """Return who replayed a row last, and when (ms)."""
    history: list[dict[str, Any]] = json.loads(row["failure_history"])
    return (history[-1]["replayed_by"], history[-1]["replayed_at"]) if history else (None, None)


def _preview_effect(tx: Tx, effect: Effect) -> ReplayPreview:
    if effect.state is EffectState.UNCERTAIN:
        return ReplayPreview(Expectation.LOOKED_FOR)
    if effect.state is not EffectState.FAILED:
        return ReplayPreview(_FORESEEN[_STANDING[effect.state]], effect.external_ref)
    newer = _newer(tx, effect)
    if newer is not None:
        return ReplayPreview(Expectation.SUPERSEDED, f"effect {newer.id}")
    if effect.semantics == "append":
        return ReplayPreview(Expectation.LOOKED_FOR if effect.maybe_sent else Expectation.NEVER_SENT)
    return ReplayPreview(_BY_SEMANTICS[effect.semantics])


def _supersede(ledger: Ledger, tx: Tx, order: Order, effect: Effect, newer: Effect) -> ReplayResult:
    if effect.maybe_sent and newer.state is not EffectState.DELIVERED:
        tx.one("mark_maybe_sent", effect_key=newer.effect_key)  # the older one may still arrive
    row = tx.required("supersede_dead", id=effect.id, fence=effect.fence, now=order.now)
    needless = Effect.of(row)
    after = {"by": newer.id, "actor": order.actor, "reason": order.reason}
    superseded(tx, ledger.audit, order.now, needless, after, **order.who)
    ledger.settle_follow_ups(tx, order.now, needless, order.follow)
    return ReplayResult(order.reference, Replay.SUPERSEDED, effect.effect_class, detail=f"by effect {newer.id}")


def _newer(tx: Tx, effect: Effect) -> Effect | None:
    """Return a later effect with the same target that was performed, is under way or is pending."""
    if effect.supersede_key is None:
        return None
    found = tx.one("newer_target", aggregate_id=effect.aggregate_id, id=effect.id, supersede_key=effect.supersede_key)
    row = None if found is None else tx.one("effect_by_id", id=found["id"])
    return None if row is None else Effect.of(row)


def _in_the_way(order: Order, row: Row, what: str, external_ref: str | None) -> ReplayResult:
    """Return why a row is not replayed: another operator was first, or it is not a dead letter (any more)."""
    outcome = Replay.LOST if order.came_late(row) else _STANDING[row["state"]]
    who, when = last_replay(row)
    return ReplayResult(order.reference, outcome, what, external_ref, replayed_by=who, replayed_at=when)


_ENDED: Final = {
    "delivered": Replay.REDONE,
    "completed": Replay.REDONE,
    "failed": Replay.FAILED_AGAIN,
    "failed_terminal": Replay.FAILED_AGAIN,
    "superseded": Replay.SUPERSEDED,
    "discarded": Replay.DISCARDED,
}

_STANDING: Final = {
    "delivered": Replay.ALREADY_THERE,
    "completed": Replay.ALREADY_THERE,
    "pending": Replay.UNDER_WAY,
    "in_flight": Replay.UNDER_WAY,
    "uncertain": Replay.UNDER_WAY,
    "reserved": Replay.UNDER_WAY,
    "in_progress": Replay.UNDER_WAY,
    "failed_retryable": Replay.UNDER_WAY,
    "superseded": Replay.SUPERSEDED,
    "discarded": Replay.DISCARDED,
}

_FORESEEN: Final = {
    Replay.ALREADY_THERE: Expectation.ALREADY_THERE,
    Replay.UNDER_WAY: Expectation.UNDER_WAY,
    Replay.SUPERSEDED: Expectation.SUPERSEDED,
    Replay.DISCARDED: Expectation.DISCARDED,
}

_BY_SEMANTICS: Final = {
    "convergent": Expectation.DRAWN_AGAIN,
    "keyed": Expectation.SAME_KEY,
    "pure": Expectation.COMPUTED_AGAIN,
    "repeat_once": Expectation.REPEATED,
}
