"""What the store keeps for a time only: a model's calls, readings and summaries, and what was settled in the reconcile queue.

Small transactions, each audited with what it deleted; one that was killed is followed by the next hour's.
"""

from __future__ import annotations

from collections import Counter
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
    from quotebot.settings import Settings

BATCH: Final = 100  # rows of each kind in one transaction


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how many days after its end what is kept: what has to do with a model, and settled differences with Salesforce."""

    model_days: int
    reconcile_days: int

    @classmethod
    def of(cls, settings: Settings) -> Keeping:
        """Return what the installation's settings say."""
        return cls(settings.model_keep_days, settings.reconcile_keep_days)


async def let_go(
    ledger: Ledger, keeping: Keeping, *, batch: int = BATCH, between: Rest = rest, actor: str = QUOTEBOT
) -> dict[str, int]:
    """Delete what is older than it is kept, in batches, audited; returns how many rows of which kind those were.

    Raises NotRecorded as Database.write does: what earlier batches deleted is deleted, and the next run goes on from there.
    """
    now = ledger.clock.now_ms()
    work = partial(_some, ledger=ledger, keeping=keeping, now=now, limit=batch, actor=actor)
    forgotten = Counter(dict.fromkeys(store.KINDS, 0))
    while gone := await ledger.database.write("store.forget", work):
        forgotten.update(gone)
        await between()
    return dict(forgotten)


async def too_old(ledger: Ledger, keeping: Keeping) -> dict[str, int]:
    """Return how many rows of which kind `let_go` would delete now."""
    before = _before(keeping, ledger.clock.now_ms())
    return await ledger.database.read(lambda tx: store.count(tx, **before))


def _some(tx: Tx, *, ledger: Ledger, keeping: Keeping, now: int, limit: int, actor: str) -> dict[str, int]:
    gone = store.delete(tx, **_before(keeping, now), limit=limit)
    if gone:
        actor_type = "system" if actor == QUOTEBOT else "operator"
        ledger.audit.append(tx, now, "retention.purged", actor=actor, actor_type=actor_type, after=gone)
    return gone


def _before(keeping: Keeping, now: int) -> dict[str, int]:
    return {"model_before": now - keeping.model_days * DAY_MS, "reconcile_before": now - keeping.reconcile_days * DAY_MS}
