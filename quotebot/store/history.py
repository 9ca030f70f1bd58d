"""History of an installation: the rows that the audit binds, and the comparison of quotes with the contents of their events.

The digests (ledger/audit/history.py) cover every chained column. The contents of the events (state, version, total, decisions) are
compared as well: they identify the column that differs, and events of 0.1.0 have nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from ledger import keys
from ledger.audit.events import EMPTY, SYSTEM_CHAIN, Binding, ChainHead, Keyring, head_seal, is_system_chain
from ledger.audit.history import BOUND_FROM, UNBOUND, Fault, Finding, TableReplay, Words
from ledger.audit.verification import event_is_sound, verify
from ledger.database import Database, DatabaseError, Row, Tx
from ledger.keys import loads
from ledger.records import QUOTEBOT
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.store.columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.audit.events import Audit
    from ledger.clock import Clock
    from ledger.records import Operation

PAGE_ROWS: Final = 500
NEWEST_EVENTS: Final = 64  # of a chain, read first for the event of a reservation...
WIDER: Final = 4  # ...and so many times as many, until it is found
NUMBERS_SKIPPED: Final = "quote_numbers.skipped"
_WORDS: Final = (
    "version",
    "state",
    "valid_until",
    "requester",
    "channel",
    "account_sha256",
    "pricing_hash",
    "net_total",
    "currency",
    "approval_id",
    "required_roles",
    "decided_by",
    "decided_role",
)
_ABOUT_QUOTES: Final = ("quote.", "approval.")
log = structlog.get_logger(__name__)


class BrokenChainError(Exception):
    """Unverifiable chain of one aggregate: it must not be the basis of a decision or a signature."""


def binding() -> Binding:
    """Return the recorder of the rows that one writer changes."""
    return Binding(TABLES)


def replay() -> TableReplay:
    """Return a comparison of a whole ledger with its audit."""
    return TableReplay(TABLES, Words(_read, _compare))


async def bind_as_found(database: Database, audit: Audit, bound: Binding, clock: Clock) -> None:
    """Bind the rows of a ledger that an older build wrote, once, after comparing them with its events.

    Raises DatabaseError if they differ: then nothing is bound, and no bot works on the ledger.
    """
    if await database.read(lambda tx: tx.one("meta", name=UNBOUND)) is None:
        return
    report = await verify(database, audit.keyring, replay=replay)
    if report.finding is not None:
        found = report.finding
        raise DatabaseError(
            f"The ledger is of an older build and its history is not whole: {found.table} {found.row}: {found.meaning}. "
            "No command was touched. Keep this file as it is; restore a backup from before: quotebot restore."
        )
    rows = 0
    place: Place | None = Place(0, None)
    while place is not None:
        counted, place = await database.write("history.bind", functools.partial(_bind_page, bound, place))
        rows += counted

    def done(tx: Tx) -> None:
        numbers = {str(row["year"]): row["last"] for row in tx.all("quote_numbers")}
        after = {"rows": rows, "events": report.events, "numbers": numbers}
        audit.append(tx, clock.now_ms(), BOUND_FROM, actor=QUOTEBOT, actor_type="system", after=after)
        tx.one("delete_meta", name=UNBOUND)

    await database.write("history.bound_from", done)
    log.info("ledger.history_bound", rows=rows, events=report.events)


def proven_chain(tx: Tx, aggregate_id: str, keyring: Keyring) -> list[Row]:
    """Return the verified events of one chain, from the first to the sealed head. Raises BrokenChainError."""
    head = tx.one("audit_head_sealed", aggregate_id=aggregate_id)
    if head is None or head["key_id"] not in keyring.keys:
        raise BrokenChainError(f"the end of the chain of {aggregate_id} is missing")
    end = ChainHead(head["event_id"], head["seq"], head["mac"])
    if head_seal(keyring.keys[head["key_id"]], aggregate_id, end) != head["seal"]:
        raise BrokenChainError(f"the end of the chain of {aggregate_id} was changed")
    events = tx.all("audit_chain", aggregate_id=aggregate_id, limit=end.seq)
    mac = EMPTY.mac
    for seq, event in enumerate(events, 1):
        if event["seq"] != seq or not event_is_sound(keyring, mac, event):
            raise BrokenChainError(f"event {event['id']} of {aggregate_id} does not verify")
        mac = event["mac"]
    if len(events) != end.seq or mac != end.mac:
        raise BrokenChainError(f"the chain of {aggregate_id} is not whole")
    return events


def require_as_audited(tx: Tx, operation: Operation, keyring: Keyring) -> None:
    """Raise BrokenChainError unless a command was reserved by its actor and its quote's rows match the quote's chain.

    A commit binds the rows that it writes in their current state. Without this check, the next command on a quote would bind a row
    that was edited in the file, and a command inserted into the queue from outside would be executed. A creation has no chain of
    its own yet: the verification of the whole ledger detects an inserted one.
    """
    if not _is_reserved(tx, operation, keyring):
        raise BrokenChainError(f"no event says that {operation.actor} gave operation {operation.id}: it was put in from outside")
    if parse_quote_id(operation.aggregate_id) is None:
        return
    rows = rows_of_quote(tx, operation.aggregate_id, proven_chain(tx, operation.aggregate_id, keyring))
    if isinstance(rows, Finding):
        raise BrokenChainError(f"{rows.table} {rows.row}: {rows.meaning}")


def _is_reserved(tx: Tx, operation: Operation, keyring: Keyring) -> bool:
    """Tell whether a signed event says that the operation was reserved by its actor.

    Chains of people's Home tabs and of scheduled jobs grow for good, so the newest events are read first.
    """
    limit = NEWEST_EVENTS
    while True:
        events = tx.all("audit_chain", aggregate_id=operation.aggregate_id, limit=limit)
        is_whole = len(events) < limit
        mac = EMPTY.mac if is_whole else None  # that of the event before the first is not known
        for event in events:
            is_sound = mac is not None and event_is_sound(keyring, mac, event)
            mac = event["mac"]
            named = (event["event_type"], event["operation_key"], event["actor"])
            if is_sound and named == ("operation.reserved", operation.operation_key, operation.actor):
                return True
        if is_whole:
            return False
        limit *= WIDER


def rows_of_quote(tx: Tx, quote_id: str, events: Sequence[Row | Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]] | Finding:
    """Return a quote's rows by table, or the first finding where they contradict its events (its whole chain, proven)."""
    of_quotes = {name: table for name, table in TABLES.items() if table.of_chain}
    with contextlib.closing(TableReplay(of_quotes, Words(_read, _compare))) as replayed:
        for event in events:
            replayed.see(event)
        for row in tx.all("quote_replayed", quote_id=quote_id):
            said = replayed.of(quote_id) or {}
            found = differing(row, said) or _differing_slots(tx, row, said)
            if found is not None:
                return found
        rows = {}
        for name, table in of_quotes.items():
            rows[name] = [
                {column: row[column] for column in table.bound} for row in tx.all(f"bound_of_chain_{name}", chain=quote_id)
            ]
            found = replayed.differs(name, rows[name])
            if found is not None:
                return found
    return rows


def skipped(tx: Tx, audit: Audit, numbers: Mapping[int, int], actor: str, now: int) -> None:
    """Audit the last number of every year after which a restore continues."""
    after = {"numbers": {str(year): last for year, last in numbers.items()}}
    audit.append(tx, now, NUMBERS_SKIPPED, actor=actor, actor_type="operator", after=after)


class Place(NamedTuple):
    """Position of the upgrade that binds existing rows: the next table, and the last key read of it."""

    table: int
    key: dict[str, Any] | None


def _bind_page(bound: Binding, place: Place, tx: Tx) -> tuple[int, Place | None]:
    """Bind one page of rows in their current state; return their number, and the start of the next page."""
    tables = [(name, table) for name, table in TABLES.items() if table.bound]
    counted, key = 0, place.key
    for number in range(place.table, len(tables)):
        name, table = tables[number]
        rows = tx.all(f"chained_first_{name}" if key is None else f"chained_after_{name}", limit=PAGE_ROWS, **(key or {}))
        for row in rows:
            bound.bind(name, row["chain"], [row[column] for column in table.keys])
        counted, key = counted + len(rows), None
        if len(rows) == PAGE_ROWS:
            return counted, Place(number, {column: rows[-1][column] for column in table.keys})
        if counted >= PAGE_ROWS and number + 1 < len(tables):
            return counted, Place(number + 1, None)
    return counted, None


def _read(event_type: str, after: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts of an event on its quote, or on allocated numbers; None if it has none."""
    if event_type in (BOUND_FROM, NUMBERS_SKIPPED):
        return {"numbers": after["numbers"]}
    if not event_type.startswith(_ABOUT_QUOTES) or "state" not in after:
        return None
    facts = {name: after[name] for name in _WORDS if name in after}
    if "slots" in after:
        facts["slots"], facts["slots_of"] = after["slots"], after.get("approval_id")
    return facts


def _compare(tx: Tx, facts: TableReplay) -> Finding | None:
    last = ""
    while rows := tx.all("quotes_replayed", after=last, limit=PAGE_ROWS):
        for row in rows:
            said = facts.of(row["quote_id"])
            if said is None:
                return Finding(Fault.CHANGED, "quotes", row["quote_id"], "no event of the audit made this quote")
            found = differing(row, said) or _differing_slots(tx, row, said)
            if found is not None:
                return found
        last = rows[-1]["quote_id"]
    return _lost(tx, facts) or _numbers(tx, facts)


def differing(row: Row | Mapping[str, Any], said: Mapping[str, Any]) -> Finding | None:
    """Return a finding for the first column of a quote (see quotes_replayed) that contradicts its events."""
    quote_id = row["quote_id"]
    for name in ("version", "state", "valid_until", "requester", "channel"):
        if name in said and said[name] != row[name]:
            return _finding("quotes", quote_id, name, row[name], said[name])
    if "account_sha256" in said and said["account_sha256"] != keys.digest([quote_id, row["account"]]):
        return Finding(Fault.CHANGED, "quotes", quote_id, "column account is not the one the audit has the hash of: it was edited")
    for name in ("net_total", "currency", "pricing_hash"):
        if name in said and not _same(said[name], row[name]):
            return _finding("quote_versions", f"{quote_id} v{row['version']}", name, row[name], said[name])
    if "approval_id" not in said:
        return None
    roles = [] if row["required_roles"] is None else loads(row["required_roles"])
    decided = {"required_roles": roles, **{name: row[name] for name in ("approval_id", "decided_by", "decided_role")}}
    for name, value in decided.items():
        if name in said and said[name] != value:
            return _finding("approvals", row["approval_id"] or said["approval_id"], name, value, said[name])
    return None


def _differing_slots(tx: Tx, row: Row, said: Mapping[str, Any]) -> Finding | None:
    if said.get("slots_of") is None or said["slots_of"] != row["approval_id"]:
        return None
    found = tx.all("approval_slots", approval_id=row["approval_id"])
    for slot, wanted in zip(found, said["slots"], strict=False):
        for name in ("state", "decided_by", "decided_role", "on_behalf_of"):
            if slot[name] != wanted[name]:
                return _finding("approval_slots", f"{row['approval_id']} {slot['slot']}", name, slot[name], wanted[name])
        reason = None if slot["reason"] is None else keys.digest([row["approval_id"], slot["reason"]])
        if wanted.get("reason_sha256", reason) != reason:
            return _finding("approval_slots", f"{row['approval_id']} {slot['slot']}", "reason", reason, wanted["reason_sha256"])
    if len(found) != len(said["slots"]):
        return Finding(
            Fault.CHANGED, "approval_slots", row["approval_id"], f"it has {len(found)} slots; the audit says {len(said['slots'])}"
        )
    return None


def _lost(tx: Tx, facts: TableReplay) -> Finding | None:
    """Return a finding for the first quote that has events but no row."""
    for chain in facts.chains():
        if not is_system_chain(chain) and tx.one("head_version", quote_id=chain) is None:
            return Finding(Fault.MISSING, "quotes", chain, "the audit tells of this quote; its row was deleted")
    return None


def _numbers(tx: Tx, facts: TableReplay) -> Finding | None:
    """Compare the last number of every year with the existing quotes and the skipped numbers."""
    for year, (there, wanted) in _wrong_numbers(tx, (facts.of(SYSTEM_CHAIN) or {}).get("numbers", {})).items():
        return _finding("quote_numbers", year, "last", there, wanted)
    return None


def _wrong_numbers(tx: Tx, skipped: Mapping[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """Return the last number of each year that is wrong, as stored and as it should be."""
    unknown = tx.one("history_not_bound") is not None  # a restore by an older build skipped numbers without an audit event
    wanted = {str(row["year"]): row["last"] for row in tx.all("quote_numbers_given")}
    for year, last in skipped.items():
        wanted[year] = max(last, wanted.get(year, 0))
    there = {str(row["year"]): row["last"] for row in tx.all("quote_numbers")}
    compared = {year: (there.get(year), wanted.get(year)) for year in sorted({*wanted, *there})}
    return {
        year: (found, last)
        for year, (found, last) in compared.items()
        if found != last and not (unknown and (found or 0) > (last or 0))
    }


def wrong_numbers(tx: Tx) -> dict[str, tuple[int | None, int | None]]:
    """Return the last quote number of each year that contradicts the quotes and the audit, as stored and as it should be."""
    told = tx.one("newest_of_system", event_type=BOUND_FROM, or_type=NUMBERS_SKIPPED)
    return _wrong_numbers(tx, {} if told is None else loads(told["after"])["numbers"])


def mend_numbers(tx: Tx) -> dict[str, tuple[int | None, int | None]]:
    """Store the last quote number of each year as it should be; return what was wrong."""
    wrong = wrong_numbers(tx)
    for year, (_, last) in wrong.items():
        tx.one("delete_quote_numbers" if last is None else "put_quote_numbers", year=int(year), last=last)
    return wrong


def _same(said: object, value: object) -> bool:
    try:
        return said == value or Decimal(str(said)) == Decimal(str(value))
    except InvalidOperation:
        return False


def _finding(table: str, row: str, column: str, value: object, said: object) -> Finding:
    return Finding(Fault.CHANGED, table, row, f"column {column} is {value!r}; the audit says {said!r}: it was edited")
