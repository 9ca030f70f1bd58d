"""Deletes what is old of the rows that are kept for a time only, inside an open ledger transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.database import Tx

KINDS: Final = ("readings", "model_calls", "quote_summaries", "crm_conflicts")


def delete(tx: Tx, *, model_before: int, reconcile_before: int, limit: int) -> dict[str, int]:
    """Delete at most `limit` rows of each kind that ended before a moment (Unix milliseconds); returns how many of which.

    What is not ended stays however old it is: a message without an answer, a summary that approvers may look at, a difference.
    """
    gone = {
        "readings": len(tx.all("forget_readings", before=model_before, limit=limit)),
        "model_calls": len(tx.all("forget_model_calls", before=model_before, limit=limit)),
        "quote_summaries": len(tx.all("forget_summaries", before=model_before, limit=limit)),
        "crm_conflicts": len(tx.all("forget_conflicts", before=reconcile_before, limit=limit)),
    }
    return {kind: count for kind, count in gone.items() if count}


def count(tx: Tx, *, model_before: int, reconcile_before: int) -> dict[str, int]:
    """Return how many rows of each kind `delete` would delete, without a limit."""
    found = tx.one("count_forgettable", model_before=model_before, reconcile_before=reconcile_before)
    assert found is not None  # noqa: S101 -- counts always come to one row
    return {kind: found[kind] for kind in KINDS}
