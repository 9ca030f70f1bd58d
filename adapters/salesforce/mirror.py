"""Reader of an object's changed records, page by page, in order of change and including deletions, for an incremental copy.

A page begins after a position: the stamp and the id of a record. Many records may share a stamp (a bulk load), so paging by the
stamp alone would permanently skip some of them. The mapping names the objects and fields.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from adapters.salesforce.calls import Trip, soql_moment, soql_text
from adapters.salesforce.errors import Target, lost
from adapters.salesforce.records import Mirrored, MirrorPage, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.salesforce.calls import SalesforceCalls
    from adapters.salesforce.mapping import MirrorMapping

PAGE_RECORDS: Final = 200
OVERLAP_SECONDS: Final = 60.0  # simultaneous changes become visible one after the other, so reads overlap
_STAMP: Final = "SystemModstamp"


class Mirrors:
    """Page reader. `records` is the maximum number of records per page."""

    def __init__(self, calls: SalesforceCalls, records: int = PAGE_RECORDS) -> None:
        self._calls = calls
        self._records = records

    async def page(self, wanted: MirrorMapping, after: Position, *, again: bool, correlation_id: str) -> MirrorPage:
        """Read the page after `after`; with `again` start OVERLAP_SECONDS before it. Raises AdapterError."""
        target = Target("read what changed", wanted.sobject)
        query = self._query(wanted, after, again=again)
        rows = await self._calls.rows(query, Trip(correlation_id, target), deleted_too=True)
        if not all(_is_record(row) for row in rows):
            raise lost("unreadable", "its answer holds no records", target, sent=True)
        return MirrorPage(
            kept=tuple(_mirrored(row, wanted) for row in rows if row.get("IsDeleted") is not True),
            deleted=tuple(row["Id"] for row in rows if row.get("IsDeleted") is True),
            position=Position(rows[-1][_STAMP], rows[-1]["Id"]) if rows else after,
            more=len(rows) >= self._records,
        )

    def _query(self, wanted: MirrorMapping, after: Position, *, again: bool) -> str:
        fields = dict.fromkeys(("Id", "IsDeleted", _STAMP, wanted.name, *filter(None, [wanted.account]), *wanted.facts.values()))
        where = ""
        if after.modstamp and again:
            where = f" WHERE {_STAMP} >= {soql_moment(after.modstamp, back_seconds=OVERLAP_SECONDS)}"
        elif after.modstamp and not after.record_id:
            where = f" WHERE {_STAMP} >= {soql_moment(after.modstamp)}"
        elif after.modstamp:
            at = soql_moment(after.modstamp)
            where = f" WHERE {_STAMP} > {at} OR ({_STAMP} = {at} AND Id > {soql_text(after.record_id)})"
        order = f"ORDER BY {_STAMP} ASC, Id ASC LIMIT {self._records}"
        return f"SELECT {', '.join(fields)} FROM {wanted.sobject}{where} {order}"  # noqa: S608 -- names of the mapping: API names only


def _is_record(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("Id"), str) and isinstance(row.get(_STAMP), str)


def _mirrored(row: Mapping[str, Any], wanted: MirrorMapping) -> Mirrored:
    name, account = _reached(row, wanted.name), None if wanted.account is None else _reached(row, wanted.account)
    told = {fact: _fact(_reached(row, path)) for fact, path in wanted.facts.items()}
    return Mirrored(
        record_id=str(row["Id"]),
        name=name if isinstance(name, str) else "",
        account_id=account if isinstance(account, str) else "",
        facts={fact: value for fact, value in told.items() if value is not None},
    )


def _reached(row: Mapping[str, Any], path: str) -> object:
    """Return the value at a path such as Product2.Name; None if it is missing."""
    found: object = row
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _fact(value: object) -> str | bool | None:
    if isinstance(value, bool | str):
        return value
    return format(value, "f") if isinstance(value, Decimal) else str(value) if isinstance(value, int) else None
