"""Purge of rows that have a retention period, inside an open ledger transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.database import Tx

KINDS: Final = ("readings", "model_calls", "quote_summaries", "crm_conflicts")


def delete(tx: Tx, *, model_before: int, reconcile_before: int, limit: int) -> dict[str, int]:
    """Delete at most `limit` rows of each kind that ended before a time (Unix milliseconds); returns the number per kind.

    A row that has not ended stays at any age: an unanswered message, a summary that approvers may read, an open difference.
    """
    gone = {
        "readings": len(tx.all("forget_readings", before=model_before, limit=limit)),
        "model_calls": len(tx.all("forget_model_calls", before=model_before, limit=limit)),
        "quote_summaries": len(tx.all("forget_summaries", before=model_before, limit=limit)),
        "crm_conflicts": len(tx.all("forget_conflicts", before=reconcile_before, limit=limit)),
    }
    return {kind: count for kind, count in gone.items() if count}


def count(tx: Tx, *, model_before: int, reconcile_before: int) -> dict[str, int]:
    """Return the number of rows of each kind that `delete` would delete, without a limit."""
    found = tx.required("count_forgettable", model_before=model_before, reconcile_before=reconcile_before)
    return {kind: found[kind] for kind in KINDS}
