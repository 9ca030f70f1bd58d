"""Generations: restoring a backup begins a new one, in which every unfinished effect is uncertain.

Between the backup and the restore the bot may have performed any pending effect, and Slack and Salesforce keep the results. So
every unsettled effect becomes uncertain: its next claim reconciles first where the external service can be queried, and repeats it
under its own key where a repetition is harmless. The same applies to the effects that a command of the backup enqueues later, and
for `DOUBT_MS` to the effects of every command: one that arrives again, or a schedule slot that is due again, may have been executed
in the lost part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.machine import EffectState
from ledger.records import Effect, Trouble
from ledger.settlement import QUOTEBOT, record_attempt

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger

DOUBT_MS: Final = 3 * 86_400_000  # redeliveries and repeated schedule slots come within hours
LOST: Final = Trouble(
    "uncertain", "The ledger was put back to a backup: this may have been done in the part that was lost.", maybe_sent=True
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start of a generation: its backup and its initiator. `number` is higher than that of every known generation."""

    number: int
    backup_made_at: int
    backup_sha256: str
    started_by: str


def begin_generation(ledger: Ledger, tx: Tx, now: int, beginning: Beginning) -> int:
    """Begin a generation in an open transaction; return how many effects became uncertain.

    The ledger must have an epoch; every other epoch is closed and its claims are released.
    """
    for row in tx.all("unsettled_effects"):
        _mark_uncertain(ledger, tx, now, Effect.of(row))
    doubted = tx.all("doubt_lost", lost_from=beginning.backup_made_at, now=now)
    in_doubt: int = sum(row["state"] != EffectState.FAILED for row in doubted)
    tx.one(
        "insert_generation",
        generation=beginning.number,
        backup_made_at=beginning.backup_made_at,
        backup_sha256=beginning.backup_sha256,
        doubt_until=now + DOUBT_MS,
        started_by=beginning.started_by,
        now=now,
    )
    details = {
        "generation": beginning.number,
        "backup_made_at": beginning.backup_made_at,
        "backup_sha256": beginning.backup_sha256,
        "in_doubt": in_doubt,
    }
    ledger.audit.append(tx, now, "ledger.restored", actor=beginning.started_by, actor_type="operator", after=details)
    return in_doubt


def _mark_uncertain(ledger: Ledger, tx: Tx, now: int, effect: Effect) -> None:
    """Make a pending effect uncertain, as if a crashed process had attempted it: claimed, with unknown outcome."""
    due = effect.next_attempt_at
    row = tx.required(
        "claim_effect", id=effect.id, fence=effect.fence, epoch=ledger.epoch, lease_until=now + ledger.lease_ms, now=now
    )
    claimed = Effect.of(row)
    after = {"key": claimed.effect_key}
    ledger.audit.of_effect(tx, now, "effect.claimed", claimed, actor=QUOTEBOT, retry_count=claimed.attempts, after=after)
    record_attempt(tx, now, claimed, outcome="died", trouble=LOST)
    tx.one(
        "doubt_effect",
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
