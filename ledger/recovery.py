"""Recovery at start, before any socket opens: claims of crashed processes become claimable again, under a new epoch.

Re-entrant: after a crash in the middle, the next run has the same or less to do. The caller holds the instance lock, so every other
epoch is provably dead, without a time-out. Bots that share a ledger have no such lock: there an expired lease is the proof, and the
fence prevents a worker that was only slow from changing anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger.claims import META, POISON_CLAIMS, record_attempt
from ledger.database import DatabaseError
from ledger.gates import Gate
from ledger.intake import superseded
from ledger.ledger import no_follow_ups
from ledger.machine import EffectState
from ledger.ownership import MAIN
from ledger.records import QUOTEBOT, DeadNotice, Effect, EffectIntent, Operation, Trouble

if TYPE_CHECKING:
    from ledger.database import Database, Row, Tx
    from ledger.ledger import FollowUpDecision, Ledger

AnswerDecision = Callable[["Tx", Operation], Sequence[EffectIntent]]
Taking = Callable[["Tx", AnswerDecision, "FollowUpDecision"], tuple["Recovered", list[DeadNotice]]]
log = structlog.get_logger(__name__)
DEATHS_MAX: Final = 20  # epochs of a replica that are read to count its crashes in a row
_DIED: Final = Trouble("transient", "The process died while it worked on this.", maybe_sent=True)
_STOPPED: Final = Trouble("transient", "The process was stopped while it worked on this.", maybe_sent=True)
_LAPSED: Final = Trouble("transient", "Its worker gave no sign of life for longer than its claim lasts.", maybe_sent=True)


@dataclass(frozen=True, slots=True)
class Recovered:
    """Numbers of rows taken back from crashed processes."""

    operations: int
    effects: int
    poisoned: int


async def begin_epoch(
    database: Database, now_ms: int, *, role: str, build: str, alone: bool = True, replica: str = MAIN, host: str = ""
) -> int:
    """Register this process as one that may claim. `alone`: no other may, so the other epochs are closed as dead.

    Otherwise those of earlier processes of this replica are, and those of the command line.
    """

    def work(tx: Tx) -> int:
        row = tx.required("insert_epoch", role=role, pid=os.getpid(), build=build, now=now_ms, replica=replica, host=host)
        epoch: int = row["epoch"]
        if alone:
            tx.all("end_other_epochs", epoch=epoch, now=now_ms)
        else:
            tx.all("end_former_epochs", epoch=epoch, replica=replica, now=now_ms)
        return epoch

    return await database.write("begin_epoch", work)


async def deaths_in_a_row(database: Database, now_ms: int, *, within_ms: int, replica: str) -> int:
    """Count a replica's previous processes in a row that crashed soon after their start and recently: several are a boot loop."""

    def work(tx: Tx) -> int:
        count = 0
        for row in tx.all("last_epochs_of_replica", replica=replica, limit=DEATHS_MAX + 1)[1:]:
            young = row["ended_at"] is not None and row["ended_at"] - row["started_at"] <= within_ms
            if row["end_reason"] != "died" or not young or now_ms - row["ended_at"] > DEATHS_MAX * within_ms:
                break
            count += 1
        return count

    return await database.read(work)


def no_answer(tx: Tx, operation: Operation) -> Sequence[EffectIntent]:
    """Return no answer."""
    del tx, operation
    return ()


async def take_back(ledger: Ledger, *, answer: AnswerDecision = no_answer, follow: FollowUpDecision = no_follow_ups) -> Recovered:
    """Release the claims of closed epochs: operations become reserved; effects follow their semantics, appends become uncertain.

    A row claimed `poison_claims` times without a settlement becomes a dead letter (poison) instead, so that its lane continues.
    `answer` returns the effects that notify the user of a failed operation, `follow` the follow-ups of a failed effect. A refused
    login is tried again with one effect: the secret may have been changed in the meantime.
    """
    now = ledger.clock.now_ms()
    ledger.own_epoch()

    def work(tx: Tx, answer: AnswerDecision, follow: FollowUpDecision) -> tuple[Recovered, list[DeadNotice]]:
        recovered = _take_abandoned(ledger, tx, now, answer, follow)
        _try_logins_again(ledger, tx, now)
        _keep_poison_claims(tx, ledger.poison_claims)
        return recovered

    return await _recover(ledger, "take_back", work, answer, follow)


async def take_back_dead(
    ledger: Ledger, epochs: Sequence[int], *, answer: AnswerDecision = no_answer, follow: FollowUpDecision = no_follow_ups
) -> Recovered:
    """Close the epochs of processes that are proven dead, and release the claims of closed epochs as `take_back` does."""
    now = ledger.clock.now_ms()

    def work(tx: Tx, answer: AnswerDecision, follow: FollowUpDecision) -> tuple[Recovered, list[DeadNotice]]:
        for epoch in sorted(epochs):
            tx.one("end_dead_epoch", epoch=epoch, now=now)
        return _take_abandoned(ledger, tx, now, answer, follow)

    return await _recover(ledger, "take_back_dead", work, answer, follow)


async def take_back_lapsed(
    ledger: Ledger, *, answer: AnswerDecision = no_answer, follow: FollowUpDecision = no_follow_ups
) -> Recovered:
    """Release claims of other processes whose lease expired. Their late results are rejected by the newer fence."""
    now, own = ledger.clock.now_ms(), ledger.own_epoch()

    def work(tx: Tx, answer: AnswerDecision, follow: FollowUpDecision) -> tuple[Recovered, list[DeadNotice]]:
        operations = [Operation.of(row) for row in tx.all("lapsed_operations", epoch=own, now=now)]
        effects = [_claimed(row) for row in tx.all("lapsed_effects", epoch=own, now=now)]
        return _take(ledger, tx, now, operations, effects, _LAPSED, answer, follow)

    return await _recover(ledger, "take_back_lapsed", work, answer, follow)


async def renew_leases(ledger: Ledger) -> bool:
    """Extend the leases of this process's claims; false when another process closed its epoch."""
    now, own = ledger.clock.now_ms(), ledger.own_epoch()

    def work(tx: Tx) -> bool:
        tx.one("renew_operation_leases", epoch=own, lease_until=now + ledger.lease_ms)
        tx.one("renew_effect_leases", epoch=own, lease_until=now + ledger.lease_ms)
        return tx.one("see_epoch", epoch=own, now=now) is not None

    return await ledger.database.write("renew_leases", work)


async def give_back(ledger: Ledger) -> None:
    """Release the remaining claims of this process at shutdown.

    The rules of `take_back` apply, except that the claim does not count as a crash.
    """
    now, own = ledger.clock.now_ms(), ledger.own_epoch()

    def work(tx: Tx) -> None:
        operations = [Operation.of(row) for row in tx.all("operations_in_progress") if row["epoch"] == own]
        effects = [_claimed(row) for row in tx.all("effects_in_flight") if row["epoch"] == own]
        for operation in operations:  # unless another process has just taken one
            if _release_operation(ledger, tx, now, replace(operation, claims=operation.claims - 1), _STOPPED):
                ledger.record_operation_attempt(tx, now, operation, "released", _STOPPED)
        for effect in effects:
            if _release_effect(ledger, tx, now, replace(effect, claims=effect.claims - 1), _STOPPED):
                record_attempt(tx, now, effect, outcome="released", trouble=_STOPPED)
        tx.one("end_epoch", epoch=own, reason="stopped", now=now)

    await ledger.database.write("give_back", work)


def _claimed(row: Row) -> Effect:
    """Read an effect in flight. If it is still uncertain, it was claimed to be reconciled."""
    return Effect.of(row, reconciling=row["uncertain_since"] is not None)


async def _recover(ledger: Ledger, name: str, work: Taking, answer: AnswerDecision, follow: FollowUpDecision) -> Recovered:
    """Run the recovery `work`; if deciding answers or follow-ups raises, repeat without them: no row may block every start."""
    try:
        recovered, dead = await ledger.database.write(name, lambda tx: work(tx, answer, follow))
    except DatabaseError:
        raise
    except Exception:
        log.exception("recovery.follow_ups_failed", step=name)
        recovered, dead = await ledger.database.write(name, lambda tx: work(tx, no_answer, no_follow_ups))
    ledger.announce(dead)
    ledger.operations_changed.set()
    ledger.effects_changed.set()
    return recovered


def _take_abandoned(
    ledger: Ledger, tx: Tx, now: int, answer: AnswerDecision, follow: FollowUpDecision
) -> tuple[Recovered, list[DeadNotice]]:
    operations = [Operation.of(row) for row in tx.all("abandoned_operations")]
    effects = [_claimed(row) for row in tx.all("abandoned_effects")]
    return _take(ledger, tx, now, operations, effects, _DIED, answer, follow)


def _take(
    ledger: Ledger,
    tx: Tx,
    now: int,
    operations: list[Operation],
    effects: list[Effect],
    why: Trouble,
    answer: AnswerDecision,
    follow: FollowUpDecision,
) -> tuple[Recovered, list[DeadNotice]]:
    if ledger.ownership.alone:  # otherwise another process may have written it a moment later
        _wake_what_a_clock_left_in_the_future(tx, now)
    dead: list[DeadNotice] = []
    for operation in operations:
        poison = Trouble("poison", f"The process died {operation.claims} times while executing this command.")
        answered = {"code": "failed", "category": "poison"}
        if _is_poison(ledger, operation) and ledger.fail_in(tx, now, operation, poison, answered):
            dead.append(DeadNotice.of_operation(operation, poison))
            ledger.enqueue_for(tx, now, operation, answer(tx, operation))
        elif _release_operation(ledger, tx, now, operation, why):
            ledger.record_operation_attempt(tx, now, operation, "died", why)
    for effect in effects:
        record_attempt(tx, now, effect, outcome="died", trouble=why)
        if _is_poison(ledger, effect):
            buried = _fail_poison_effect(ledger, tx, now, effect)
            dead.append(DeadNotice.of_effect(tx, buried))
            ledger.settle_follow_ups(tx, now, buried, follow)
        else:
            _release_effect(ledger, tx, now, effect, why)
    ledger.suspects.load(tx)
    return Recovered(len(operations), len(effects), len(dead)), dead


def _is_poison(ledger: Ledger, row: Operation | Effect) -> bool:
    """Tell whether a row was claimed at as many crashes as its ledger allows."""
    return row.claims >= ledger.poison_claims


def _keep_poison_claims(tx: Tx, claims: int) -> None:
    """Store the limit in force, where it is not the default: explanations by other processes depend on it."""
    row = tx.one("meta", name=META)
    if claims != (POISON_CLAIMS if row is None else int(row["value"])):
        tx.one("put_meta", name=META, value=str(claims))


def _wake_what_a_clock_left_in_the_future(tx: Tx, now: int) -> None:
    """Recompute waits written by a clock that was later set back (it may have been a year ahead), so that they count from now."""
    names = ("wake_operations_of_the_future", "wake_effects_of_the_future", "shorten_holds_of_the_future")
    rows = sum(len(tx.all(name, now=now)) for name in names)
    if rows:
        log.warning("clock.was_put_back", rows=rows)


def _fail_poison_effect(ledger: Ledger, tx: Tx, now: int, effect: Effect) -> Effect:
    error = f"The process died {effect.claims} times while delivering this."
    guard = {"id": effect.id, "fence": effect.fence, "now": now}
    row = tx.required("fail_effect", **guard, maybe_sent=1, category="poison", code=None, last_error=error)
    buried = Effect.of(row)
    details = {"class": effect.effect_class, "error": error}
    ledger.audit.of_effect(tx, now, "system.error", buried, failure_category="poison", recovery_action="replay", after=details)
    return buried


def _release_operation(ledger: Ledger, tx: Tx, now: int, operation: Operation, why: Trouble) -> bool:
    """Release a claimed operation; false when the fence is stale and nothing was changed."""
    released = tx.one(
        "release_operation",
        id=operation.id,
        fence=operation.fence,
        claims=operation.claims,
        next_attempt_at=now,
        category=operation.category,
        now=now,
    )
    if released is None:
        return False
    ledger.audit.of_operation(
        tx, now, "operation.released", operation, actor=QUOTEBOT, failure_category=why.category, recovery_action="retry"
    )
    return True


def _release_effect(ledger: Ledger, tx: Tx, now: int, effect: Effect, why: Trouble) -> bool:
    """Release a claimed effect; false when the fence is stale and nothing was changed."""
    guard: dict[str, Any] = {"id": effect.id, "fence": effect.fence, "now": now}
    if effect.semantics == "repeat_once" and effect.maybe_sent and not effect.reconciling:
        # It cannot be reconciled and was interrupted while being repeated: it may arrive twice, not three times.
        error = "It was cut off twice and may have arrived each time, so it is not repeated once more."
        row = tx.one("drop_effect", **guard, category="uncertain", last_error=error)
        if row is not None:
            superseded(tx, ledger.audit, now, Effect.of(row), {"why": error})
        return row is not None
    guard |= {"claims": effect.claims, "spent": 0, "next_attempt_at": now, "category": why.category, "last_error": why.error}
    if effect.semantics in ("append", "repeat_once"):
        row = tx.one("mark_uncertain", **guard)
        event, action = "effect.uncertain", "reconcile"
    else:
        row = tx.one("retry_effect", **guard, maybe_sent=1)
        event, action = "effect.released", "retry"
    if row is not None:
        ledger.audit.of_effect(tx, now, event, effect, failure_category=why.category, recovery_action=action)
    return row is not None


def _try_logins_again(ledger: Ledger, tx: Tx, now: int) -> None:
    for row in tx.all("all_gates"):
        gate = Gate.of(row)
        if gate.state == "held" and gate.cause == "auth":
            ledger.gates.resume(tx, now, gate.name, cause="auth")
            details = {"class": gate.name, "why": "restart"}
            ledger.audit.append(tx, now, "class.half_open", actor=QUOTEBOT, actor_type="system", after=details)


DOUBT_MS: Final = 3 * 86_400_000  # redeliveries and repeated schedule slots come within hours
LOST: Final = Trouble(
    "uncertain", "The ledger was put back to a backup: this may have been done in the part that was lost.", maybe_sent=True
)


def begin_generation(
    ledger: Ledger, tx: Tx, now: int, *, number: int, backup_made_at: int, backup_sha256: str, started_by: str
) -> int:
    """Begin the generation that a restored backup starts, in an open transaction; return how many effects became uncertain.

    Between the backup and the restore the bot may have performed any pending effect, and Slack and Salesforce keep the results. So
    every unsettled effect becomes uncertain: its next claim reconciles first where the external service can be queried, and repeats
    it under its own key where a repetition is harmless. The same applies to the effects that a command of the backup enqueues
    later, and for `DOUBT_MS` to the effects of every command: one that arrives again, or a schedule slot that is due again, may
    have been executed in the lost part.

    The ledger must have an epoch; every other epoch is closed and its claims are released. `number` is higher than that of every
    known generation. The write is `alone`: the newest command's id separates those of the backup from later ones.
    """
    for row in tx.all("unsettled_effects"):
        _mark_uncertain(ledger, tx, now, Effect.of(row))
    doubted = tx.all("doubt_lost", lost_from=backup_made_at, now=now)
    is_uncertain: int = sum(row["state"] != EffectState.FAILED for row in doubted)
    tx.one(
        "insert_generation",
        generation=number,
        backup_made_at=backup_made_at,
        backup_sha256=backup_sha256,
        doubt_until=now + DOUBT_MS,
        started_by=started_by,
        now=now,
    )
    details = {
        "generation": number,
        "backup_made_at": backup_made_at,
        "backup_sha256": backup_sha256,
        "is_uncertain": is_uncertain,
    }
    ledger.audit.append(tx, now, "ledger.restored", actor=started_by, actor_type="operator", after=details)
    return is_uncertain


def _mark_uncertain(ledger: Ledger, tx: Tx, now: int, effect: Effect) -> None:
    """Make a pending effect uncertain, as if a crashed process had attempted it: claimed, with unknown outcome."""
    due = effect.next_attempt_at
    row = tx.required(
        "claim_effect", id=effect.id, fence=effect.fence, epoch=ledger.epoch, lease_until=now + ledger.lease_ms, now=now
    )
    claimed = Effect.of(row)
    after = {"key": claimed.effect_key}
    ledger.audit.of_effect(tx, now, "effect.claimed", claimed, after=after)
    record_attempt(tx, now, claimed, outcome="died", trouble=LOST)
    tx.one(
        "mark_uncertain",
        id=claimed.id,
        fence=claimed.fence,
        claims=effect.claims,
        spent=0,
        next_attempt_at=due,
        category=LOST.category,
        last_error=LOST.error,
        now=now,
    )
    ledger.audit.of_effect(tx, now, "effect.uncertain", claimed, failure_category=LOST.category, recovery_action="reconcile")
