"""Retention: deletes completed, old rows of the ledger and of the bot; used by the bot's job and by `ledger prune`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ledger.records import QUOTEBOT
from ledger.retention import Progress, Purged, Rest, purge, quiet, rest
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.store import dead_letters

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.settings import Settings

FORGOTTEN_AT_ONCE: Final = 100  # per transaction


@dataclass(frozen=True, slots=True)
class Forgotten(Purged):
    """Number of rows that were deleted, or would be.

    In a dry run, `letter_cards` counts cards whose dead letter is purged already.
    """

    letter_cards: int = 0


async def forget(ledger: Ledger, now: int, *, dry_run: bool, progress: Progress = quiet, actor: str = QUOTEBOT) -> Forgotten:
    """Purge what ledger.retention.purge allows, then the cards of the purged dead letters; `dry_run` only counts."""
    purged = await purge(ledger, now, dry_run=dry_run, progress=progress, actor=actor)
    if dry_run:
        cards = await ledger.database.read(dead_letters.orphans)
    else:
        cards = await forget_cards(ledger, actor)
    return Forgotten(**asdict(purged), letter_cards=cards)


async def forget_cards(ledger: Ledger, actor: str = QUOTEBOT) -> int:
    """Delete the cards of purged dead letters, in batches, audited; returns their number."""
    actor_type = "system" if actor == QUOTEBOT else "operator"

    def work(tx: Tx) -> int:
        gone = dead_letters.forget(tx, FORGOTTEN_AT_ONCE)
        if gone:
            after = {"letter_cards": gone}
            ledger.audit.append(tx, ledger.clock.now_ms(), "retention.purged", actor=actor, actor_type=actor_type, after=after)
        return gone

    forgotten = 0
    while gone := await ledger.database.write("letters.forget", work):
        forgotten += gone
    return forgotten


BATCH: Final = 100  # rows of each kind in one transaction
_STATEMENTS: Final = {  # kind -> its statement, and its period
    "readings": ("forget_readings", "model_before"),
    "model_calls": ("forget_model_calls", "model_before"),
    "quote_summaries": ("forget_summaries", "model_before"),
    "crm_conflicts": ("forget_conflicts", "reconcile_before"),
}


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """Retention periods in days after the end of a row: LLM data, and settled differences with Salesforce."""

    model_days: int
    reconcile_days: int

    @classmethod
    def of(cls, settings: Settings) -> RetentionPeriods:
        """Return the periods of the installation's settings."""
        return cls(settings.model_keep_days, settings.reconcile_keep_days)


async def let_go(
    ledger: Ledger, keeping: RetentionPeriods, *, batch: int = BATCH, between: Rest = rest, actor: str = QUOTEBOT
) -> dict[str, int]:
    """Delete rows past their retention period, in batches, audited; returns the number of rows per kind.

    Raises NotRecorded as Database.write does: the rows of earlier batches stay deleted, and the next run continues.
    """
    work = partial(_some, ledger=ledger, keeping=keeping, now=ledger.clock.now_ms(), limit=batch, actor=actor)
    forgotten = Counter(dict.fromkeys(_STATEMENTS, 0))
    while gone := await ledger.database.write("store.forget", work):
        forgotten.update(gone)
        await between()
    return dict(forgotten)


async def too_old(ledger: Ledger, keeping: RetentionPeriods) -> dict[str, int]:
    """Return the number of rows per kind that `let_go` would delete now."""
    before = _before(keeping, ledger.clock.now_ms())
    found = await ledger.database.read(lambda tx: tx.required("count_forgettable", **before))
    return {kind: found[kind] for kind in _STATEMENTS}


def _some(tx: Tx, *, ledger: Ledger, keeping: RetentionPeriods, now: int, limit: int, actor: str) -> dict[str, int]:
    """Delete at most `limit` rows of each kind past its period; returns the number per kind.

    A row that has not ended stays at any age: an unanswered message, a summary that approvers may read, an open difference.
    """
    before = _before(keeping, now)
    deleted = {kind: len(tx.all(name, before=before[period], limit=limit)) for kind, (name, period) in _STATEMENTS.items()}
    gone = {kind: count for kind, count in deleted.items() if count}
    if gone:
        actor_type = "system" if actor == QUOTEBOT else "operator"
        ledger.audit.append(tx, now, "retention.purged", actor=actor, actor_type=actor_type, after=gone)
    return gone


def _before(keeping: RetentionPeriods, now: int) -> dict[str, int]:
    return {"model_before": now - keeping.model_days * DAY_MS, "reconcile_before": now - keeping.reconcile_days * DAY_MS}
