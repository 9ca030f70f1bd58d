"""What happens at start, before any socket opens: what dead processes held becomes claimable again, under a new epoch.

Re-entrant: a crash in the middle changes nothing or leaves less to do. The caller holds the instance lock, so every other epoch is
dead by proof, not by time-out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger.ledger import no_follow_ups
from ledger.records import Effect, EffectIntent, Operation, Trouble
from ledger.settlement import QUOTEBOT

if TYPE_CHECKING:
    from ledger.audit import Audit
    from ledger.database import Database, Tx
    from ledger.ledger import FollowUpDecision, Ledger

POISON_CLAIMS: Final = 3
AnswerDecision = Callable[["Tx", Operation], tuple[EffectIntent, ...]]
_DIED: Final = Trouble("transient", "The process died while it worked on this.", maybe_sent=True)


@dataclass(frozen=True, slots=True)
class Recovered:
    """How many rows were taken back from dead processes."""

    operations: int
    effects: int
    poisoned: int


async def begin_epoch(database: Database, now_ms: int, *, role: str, build: str) -> int:
    """Register this process as the one that may claim, and close the epochs of the dead."""

    def work(tx: Tx) -> int:
        row = tx.one("insert_epoch", role=role, pid=os.getpid(), build=build, now=now_ms)
        assert row is not None  # noqa: S101 -- an insert returns its row
        epoch: int = row["epoch"]
        tx.one("end_other_epochs", epoch=epoch, now=now_ms)
        return epoch

    return await database.write("begin_epoch", work)


def no_answer(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Tell nobody."""
    del tx, operation
    return ()


async def take_back(ledger: Ledger, *, answer: AnswerDecision = no_answer, follow: FollowUpDecision = no_follow_ups) -> Recovered:
    """Release what dead epochs held: operations to reserved; effects by their semantics, appends into doubt.

    A row claimed POISON_CLAIMS times without a settle is buried as poison instead, so that its lane moves on; `answer` says what
    the person of a buried operation is told, `follow` what a buried effect entails. Endless pauses that the bot set itself are
    lifted: what caused them may have been mended meanwhile, and if not, one attempt sets them again.
    """
    now = ledger.clock.now_ms()

    def work(tx: Tx) -> Recovered:
        poisoned = 0
        operations = [Operation.of(row) for row in tx.all("operations_of_dead_epochs", epoch=ledger.epoch)]
        for operation in operations:
            if _release_operation(ledger, tx, now, operation):
                poisoned += 1
                ledger.owe_for(tx, now, operation, answer(tx, operation))
        effects = [Effect.of(row) for row in tx.all("effects_of_dead_epochs", epoch=ledger.epoch)]
        for effect in effects:
            if _release_effect(ledger.audit, tx, now, effect):
                poisoned += 1
                buried = tx.one("effect_by_id", id=effect.id)
                assert buried is not None  # noqa: S101 -- just updated
                ledger.owe_children(tx, now, effect, follow(tx, Effect.of(buried)).effects)
        for pause in tx.all("lift_own_pauses", paused_by=QUOTEBOT):
            details = {"class": pause["class"], "why": "restart"}
            ledger.audit.append(tx, now, "class.resumed", actor=QUOTEBOT, actor_type="system", after=details)
        return Recovered(len(operations), len(effects), poisoned)

    recovered = await ledger.database.write("take_back", work)
    ledger.operations_changed.set()
    ledger.effects_changed.set()
    return recovered


async def give_back(ledger: Ledger) -> None:
    """Release, at a shutdown's end, what this process still holds: by the same rule, without counting the claim as a death."""
    now = ledger.clock.now_ms()

    def work(tx: Tx) -> None:
        for operation in [Operation.of(row) for row in tx.all("operations_of_epoch", epoch=ledger.epoch)]:
            tx.one("forget_operation_claim", id=operation.id)
            _release_operation(ledger, tx, now, replace(operation, claims=operation.claims - 1))
        for effect in [Effect.of(row) for row in tx.all("effects_of_epoch", epoch=ledger.epoch)]:
            _release_effect(ledger.audit, tx, now, replace(effect, claims=effect.claims - 1))
        tx.one("end_epoch", epoch=ledger.epoch, reason="stopped", now=now)

    await ledger.database.write("give_back", work)


def _release_operation(ledger: Ledger, tx: Tx, now: int, operation: Operation) -> bool:
    if operation.claims >= POISON_CLAIMS:
        trouble = Trouble("poison", f"The process died {operation.claims} times while executing this command.")
        ledger.bury_in(tx, now, operation, trouble, {"code": "failed", "category": "poison"})
        return True
    tx.one("release_operation", id=operation.id, fence=operation.fence, now=now)
    ledger.audit.of_operation(tx, now, "operation.released", operation, actor="quotebot", recovery_action="retry")
    return False


def _release_effect(audit: Audit, tx: Tx, now: int, effect: Effect) -> bool:
    guard: dict[str, Any] = {"id": effect.id, "fence": effect.fence, "now": now}
    if effect.claims >= POISON_CLAIMS:
        error = f"The process died {effect.claims} times while delivering this."
        tx.one("bury_effect", **guard, maybe_sent=1, category="poison", last_error=error)
        audit.of_effect(tx, now, "system.error", effect, failure_category="poison", recovery_action="replay")
        return True
    claims = effect.claims
    if effect.semantics in ("append", "repeat_once"):
        tx.one("doubt_effect", **guard, spent=0, next_attempt_at=now, category=_DIED.category, last_error=_DIED.error)
        audit.of_effect(tx, now, "effect.uncertain", effect, recovery_action="reconcile")
    else:
        tx.one("retry_effect", **guard, spent=0, maybe_sent=1, next_attempt_at=now, category=_DIED.category, last_error=_DIED.error)
        audit.of_effect(tx, now, "effect.released", effect, recovery_action="retry")
    tx.one("keep_claims", id=effect.id, claims=claims)
    return False
