"""What the store keeps for a time only: a model's calls, readings and summaries, and what was settled in the reconcile queue.

Small transactions, each audited with what it deleted; one that was killed is followed by the next hour's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ledger.retention import rest
from ledger.settlement import QUOTEBOT
from quotebot.domain.schedule import DAY_MS
from quotebot.store import forgetting as store

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.retention import Rest

BATCH: Final = 100  # rows of each kind in one transaction


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how many days after its end what is kept: what has to do with a model, and settled differences with Salesforce."""

    model_days: int
    reconcile_days: int


async def let_go(ledger: Ledger, keeping: Keeping, *, batch: int = BATCH, between: Rest = rest) -> int:
    """Delete what is older than it is kept, in batches, audited; returns how many rows those were.

    Raises NotRecorded as Database.write does: what earlier batches deleted is deleted, and the next run goes on from there.
    """
    now = ledger.clock.now_ms()
    work = partial(_some, ledger=ledger, keeping=keeping, now=now, limit=batch)
    forgotten = 0
    while gone := await ledger.database.write("store.forget", work):
        forgotten += gone
        await between()
    return forgotten


def _some(tx: Tx, *, ledger: Ledger, keeping: Keeping, now: int, limit: int) -> int:
    model_before, reconcile_before = now - keeping.model_days * DAY_MS, now - keeping.reconcile_days * DAY_MS
    gone = store.delete(tx, model_before=model_before, reconcile_before=reconcile_before, limit=limit)
    if gone:
        ledger.audit.append(tx, now, "retention.purged", actor=QUOTEBOT, actor_type="system", after=gone)
    return sum(gone.values())
