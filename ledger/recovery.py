"""What happens at start, before any socket opens: what dead processes held becomes claimable again, under a new epoch.

Re-entrant: a crash in the middle changes nothing or leaves less to do. The caller holds the instance lock, so every other epoch is
dead by proof, not by time-out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger.records import Effect, Operation, Trouble

if TYPE_CHECKING:
    from ledger.audit import Audit
    from ledger.database import Database, Tx
    from ledger.ledger import Ledger

POISON_CLAIMS: Final = 3
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


async def take_back(ledger: Ledger) -> Recovered:
    """Release what dead epochs held: operations to reserved; effects by their semantics, appends into doubt.

    A row claimed POISON_CLAIMS times without a settle is buried as poison instead, so that its lane moves on.
    """
    now = ledger.clock.now_ms()

    def work(tx: Tx) -> Recovered:
        poisoned = 0
        operations = [Operation.of(row) for row in tx.all("operations_of_dead_epochs", epoch=ledger.epoch)]
        for operation in operations:
            poisoned += _release_operation(ledger, tx, now, operation)
        effects = [Effect.of(row) for row in tx.all("effects_of_dead_epochs", epoch=ledger.epoch)]
        for effect in effects:
            poisoned += _release_effect(ledger.audit, tx, now, effect)
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
