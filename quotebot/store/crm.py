"""Cursor of the Salesforce sync, and the reconcile queue; inside an open ledger transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference

if TYPE_CHECKING:
    from ledger.database import Row, Tx

ID_MAX: Final = 2**63 - 1  # larger than any row id


def cursor(tx: Tx, sobject: str) -> str:
    """Return the newest SystemModstamp that was read of an object, or an empty string."""
    row = tx.one("crm_cursor", object=sobject)
    return "" if row is None else str(row["modstamp"])


def move_cursor(tx: Tx, sobject: str, came_from: str, modstamp: str, now: int) -> bool:
    """Store the new cursor if it still is `came_from`; false if another sync has moved it."""
    return tx.one("move_crm_cursor", object=sobject, came_from=came_from, modstamp=modstamp, now=now) is not None


def quote_of_record(tx: Tx, record_id: str) -> str | None:
    """Return the number of the quote whose record begins with this id of 15 characters; None if it is no record of ours."""
    row = tx.one("quote_of_crm_record", record_id=record_id)
    return None if row is None else str(row["quote_id"])


def keep(tx: Tx, found: CrmDifference, now: int) -> Conflict | None:
    """Put a difference into the queue; returns the row if it is new to people, None if they know it."""
    known = tx.one("crm_conflict_of", quote_id=found.quote_id, version=found.version, field=found.field)
    row = tx.required(
        "open_crm_conflict",
        quote_id=found.quote_id,
        version=found.version,
        record_id=found.record_id,
        field=found.field,
        ours=found.ours,
        theirs=found.theirs,
        what=found.what,
        now=now,
    )  # inserted, or updated
    return find(tx, row["id"]) if known is None or known["theirs"] != found.theirs else None


def over(tx: Tx, quote_id: str, version: int | None, field: str, now: int, *, but: int | None = None) -> None:
    """Close the open differences about a field of a version, or of every version (None) `but` one: they no longer exist."""
    for row in tx.all("crm_conflicts_of", quote_id=quote_id, version=version, field=field, but=but):
        tx.one("settle_crm_conflict", id=row["id"], state="over", decided_by=None, reason=None, now=now)


def settle(tx: Tx, conflict_id: int, take: str, decided_by: str, reason: str, now: int) -> None:
    """Store an operator's decision on an open difference."""
    tx.one("settle_crm_conflict", id=conflict_id, state=take, decided_by=decided_by, reason=reason, now=now)


def find(tx: Tx, conflict_id: int) -> Conflict | None:
    """Return one row of the queue, or None."""
    row = tx.one("crm_conflict", id=conflict_id)
    return None if row is None else _conflict(row)


def listed(tx: Tx, limit: int, *, everything: bool = False) -> list[Conflict]:
    """Return the open differences, the newest first; with `everything` the settled ones too."""
    return [_conflict(row) for row in tx.all("crm_conflicts_listed", before=ID_MAX, limit=limit, everything=everything)]


def _conflict(row: Row) -> Conflict:
    found = CrmDifference(*(row[name] for name in CrmDifference.__slots__))
    rest = {name: row[name] for name in ("id", "found_at", "state", "decided_by", "decided_at", "reason")}
    return Conflict(difference=found, **rest)
