"""Comparison of the tables with the audit: each row of a bound table must have the digest that its chain holds (`Binding`).

A program without the keys cannot write an event with a digest, so a row that was edited in the file no longer matches its chain.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.audit.events import BOUND, BOUND_EVENT, LEDGER_EVENTS, SYSTEM_CHAIN, is_system_chain, key_text, row_digest
from ledger.keys import dumps, loads
from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS, EffectState, OperationState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.audit.columns import TableColumns
    from ledger.database import Row, Tx


class Fault(StrEnum):
    """Kind of fault of a row."""

    CHANGED = "changed"  # or moved, or written without the key
    MISSING = "missing"
    UNKNOWN_KEY = "unknown key"
    UNREADABLE = "unreadable"
    ROLLED_BACK = "rolled back"  # the ledger is not the one the anchor was written in


@dataclass(frozen=True, slots=True)
class Finding:
    """The first faulty row: `row` is the id of an event or anchor, the aggregate id of a head, or the anchor id of a line."""

    fault: Fault
    table: str
    row: str
    meaning: str


BOUND_FROM: Final = "history.bound_from"  # event that bound the ledger of an older build as found
UNBOUND: Final = "history_unbound"  # key in `meta`: an upgrade that has not bound every row yet
_BOUND_MARK: Final = f'"{BOUND}":{{'
_SCRATCH: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE bound (name TEXT, key TEXT, digest TEXT, event_id INTEGER, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE facts (chain TEXT PRIMARY KEY, facts TEXT) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Words:
    """Domain callbacks that read facts from events and compare them with the domain's tables, in addition to the digests.

    `read` returns the facts that an event adds to those of its chain, or None. `compare` returns the first row that differs.
    """

    read: Callable[[str, Mapping[str, Any]], dict[str, Any] | None]
    compare: Callable[[Tx, TableReplay], Finding | None]


class TableReplay:
    """State of the bound tables according to the audit alone, compared with the tables. One pass over one snapshot; then close it.

    The digests are kept in a private scratch database, which SQLite spills to disk when it grows: memory use stays flat.
    """

    def __init__(self, tables: Mapping[str, TableColumns], words: Words | None = None) -> None:
        self._tables = {name: table for name, table in tables.items() if table.bound}
        self._words = words
        self._scratch = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._scratch.executescript(_SCRATCH)
        self._queue = QueueReplay(self._scratch)
        self._scratch.execute("BEGIN")
        self._binds = False  # this ledger's commits bind their rows: no upgrade is pending

    def close(self) -> None:
        """Close the scratch database."""
        self._scratch.close()

    def see(self, event: Row | Mapping[str, Any]) -> None:
        """Process one verified event. Call it in the order of ids: the later of two events about one row has the greater id."""
        self._queue.see(event)
        event_type, text = event["event_type"], event["after"]
        bound = text is not None and _BOUND_MARK in text
        self._binds = self._binds or event_type == BOUND_FROM or (bound and event_type != BOUND_EVENT)
        if text is None or not (bound or event_type not in LEDGER_EVENTS or event_type == BOUND_FROM):
            return
        after = loads(text)
        if bound:
            self._scratch.executemany(
                "INSERT OR REPLACE INTO bound VALUES (?, ?, ?, ?)",
                [(name, key, digest, event["id"]) for name, rows in after[BOUND].items() for key, digest in rows.items()],
            )
        added = None if self._words is None else self._words.read(event_type, after)
        if added is not None:
            chain = SYSTEM_CHAIN if is_system_chain(event["aggregate_id"]) else event["aggregate_id"]
            known = self.of(chain) or {}
            self._scratch.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (chain, dumps({**known, **added})))

    def of(self, chain: str) -> dict[str, Any] | None:
        """Return the facts of a chain after its last event, or None. `system` has those of every writer's system chain."""
        row = self._scratch.execute("SELECT facts FROM facts WHERE chain = ?", (chain,)).fetchone()
        found: dict[str, Any] | None = None if row is None else loads(row[0])
        return found

    def chains(self) -> Iterator[str]:
        """Yield every chain that has facts, in order."""
        for (chain,) in self._scratch.execute("SELECT chain FROM facts ORDER BY chain"):
            yield chain

    def finding(self, tx: Tx) -> Finding | None:
        """Return the first row that differs from the audit, or None."""
        found = (None if self._words is None else self._words.compare(tx, self)) or _arrows(tx)
        if found is not None:
            return found
        found = self._queue.wrong(tx)
        if found is not None:
            return found
        lenient = not self._binds and tx.one("history_not_bound") is not None
        there = {row["name"] for row in tx.all("tables_there")}
        for name, table in self._tables.items():
            if name not in there and lenient:  # a later migration adds the table
                continue
            compared = (
                row if isinstance(row, Finding) else self._compare_row(name, table, row, lenient=lenient)
                for row in pages(tx, name, table)
            )
            found = next(filter(None, compared), None) or self._left(name)
            if found is not None:
                return found
        return None

    def differs(self, name: str, rows: Sequence[Row | Mapping[str, Any]]) -> Finding | None:
        """Compare all rows of a table that the replayed events wrote with the digests. `rows` may be those of one aggregate."""
        table = self._tables[name]
        compared = (self._compare_row(name, table, row, lenient=False) for row in rows)
        return next(filter(None, compared), None) or self._left(name)

    def _compare_row(self, name: str, table: TableColumns, row: Row | Mapping[str, Any], *, lenient: bool) -> Finding | None:
        key = key_text([row[column] for column in table.keys])
        known = self._scratch.execute("SELECT digest, event_id FROM bound WHERE name = ? AND key = ?", (name, key)).fetchone()
        wrong = None
        if known is None:
            wrong = None if lenient else "no event of the audit knows this row: it was put in from outside"
        elif known[0] is None:
            wrong = f"event {known[1]} says that this row was deleted; it was put back"
        elif row_digest(name, row, table.bound) != known[0]:
            wrong = f"it is not the row that event {known[1]} wrote: one of its columns was edited"
        there = row.keys()
        for digest, text in table.hashes:
            if wrong is None and text in there and keys.sha256(str(row[text]).encode()) != row[digest]:
                wrong = f"column {text} does not have the hash in column {digest}: one of them was edited"
        if wrong is not None:
            return Finding(Fault.CHANGED, name, key, wrong)
        self._scratch.execute("DELETE FROM bound WHERE name = ? AND key = ?", (name, key))
        return None

    def _left(self, name: str) -> Finding | None:
        left = self._scratch.execute(
            "SELECT key, event_id FROM bound WHERE name = ? AND digest IS NOT NULL ORDER BY key LIMIT 1", (name,)
        ).fetchone()
        return None if left is None else Finding(Fault.MISSING, name, left[0], f"event {left[1]} wrote this row; it was deleted")


def pages(tx: Tx, name: str, table: TableColumns) -> Iterator[Row | Finding]:
    """Yield every row of a bound table, page by page, by its key; a finding where a page cannot be read."""
    statement, key = f"bound_first_{name}", dict[str, Any]()
    while True:
        try:
            rows = tx.all(statement, limit=table.page, **key)
        except Exception as error:  # noqa: BLE001 -- any error of the driver for an unreadable page
            after = key_text(list(key.values())) if key else "the first one"
            yield Finding(Fault.UNREADABLE, name, f"after {after}", f"the row cannot be read ({error})")
            return
        yield from rows
        if len(rows) < table.page:
            return
        statement, key = f"bound_after_{name}", {column: rows[-1][column] for column in table.keys}


def _arrows(tx: Tx) -> Finding | None:
    """Compare the transitions that the file's guards allow with the state machines."""
    for name, arrows in (("operation_arrows", OPERATION_ARROWS), ("effect_arrows", EFFECT_ARROWS)):
        wanted = {(str(source), str(target)) for source, targets in arrows.items() for target in targets}
        there = {(row["source"], row["target"]) for row in tx.all(name)}
        for source, target in sorted(wanted ^ there):
            words = "it is no arrow of the machine" if (source, target) in there else "an arrow of the machine is missing"
            return Finding(Fault.CHANGED, name, f"{source} {target}", words)
    return None


SCRATCH: Final = """
CREATE TABLE operation (
  key TEXT PRIMARY KEY, actor TEXT, actor_type TEXT, correlation_id TEXT, state TEXT, outcome TEXT, seen INTEGER) WITHOUT ROWID;
CREATE TABLE owed (key TEXT PRIMARY KEY, class TEXT, target TEXT, payload TEXT, cause TEXT, seen INTEGER) WITHOUT ROWID;
CREATE TABLE effect (id INTEGER PRIMARY KEY, state TEXT, seen INTEGER);
"""
OPERATION_STATES: Final = {
    "operation.reserved": OperationState.RESERVED,
    "operation.claimed": OperationState.IN_PROGRESS,
    "operation.applied": OperationState.COMPLETED,
    "operation.refused": OperationState.COMPLETED,
    "operation.retry_scheduled": OperationState.FAILED_RETRYABLE,
    "operation.released": OperationState.RESERVED,
    "operation.shelved": OperationState.RESERVED,
    "system.error": OperationState.FAILED_TERMINAL,
    "operation.replayed": OperationState.RESERVED,
    "operation.cancelled": OperationState.DISCARDED,
    "operation.discarded": OperationState.DISCARDED,
}
EFFECT_STATES: Final = {
    "effect.claimed": EffectState.IN_FLIGHT,
    "effect.delivered": EffectState.DELIVERED,
    "effect.retry_scheduled": EffectState.PENDING,
    "effect.uncertain": EffectState.UNCERTAIN,
    "effect.superseded": EffectState.SUPERSEDED,
    "effect.cancelled": EffectState.DISCARDED,
    "effect.discarded": EffectState.DISCARDED,
    "system.error": EffectState.FAILED,
}
RELEASED: Final = "pending uncertain"  # the state before the claim
REPLAYED: Final = {"reconcile": EffectState.UNCERTAIN, "retry": EffectState.PENDING}
PAGE_ROWS: Final = 500


class QueueReplay:
    """State of every operation and effect according to the events. `scratch` is the replay's private database.

    An operation's key is the hash of its identity and its payload, and the event of its reservation contains the key. Editing or
    inserting a request is therefore detected, even if its row is removed after its execution. The event of its cause names an
    effect with the hash of its payload, and the event of its claim names it by its key. The state of both is that of their last
    event.
    """

    def __init__(self, scratch: sqlite3.Connection) -> None:
        self._scratch = scratch
        self._put_in: Finding | None = None  # the first row with events but without one that created it
        scratch.executescript(SCRATCH)

    def see(self, event: Row | Mapping[str, Any]) -> None:
        """Process one event. Call it in the order of ids."""
        event_type = event["event_type"]
        if event["effect_id"] is not None:
            self._effect(event, event_type)
        elif event["operation_key"] is not None and event_type in OPERATION_STATES:
            self._operation(event, event_type)
        if event_type in ("operation.applied", "operation.refused", "effect.owed") and event["after"] is not None:
            after = loads(event["after"])
            owed = [after] if event_type == "effect.owed" else after.get("owes", ())
            self._scratch.executemany(
                "INSERT OR REPLACE INTO owed VALUES (?, ?, ?, ?, ?, 0)",
                [(one["key"], one["class"], one["target"], one.get("payload_sha256"), event["operation_key"]) for one in owed],
            )

    def wrong(self, tx: Tx) -> Finding | None:
        """Return the first row that differs from the events or is missing."""
        return self._operations(tx) or self._effects(tx) or self._put_in or self._gone()

    def _operation(self, event: Row | Mapping[str, Any], event_type: str) -> None:
        key, state = event["operation_key"], OPERATION_STATES[event_type].value
        if event_type == "operation.reserved":
            who = (event["actor"], event["actor_type"], event["correlation_id"])
            self._scratch.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?, NULL, 0)", (key, *who, state))
            return
        outcome = event_type.removeprefix("operation.") if state == OperationState.COMPLETED else None
        found = self._scratch.execute("UPDATE operation SET state = ?, outcome = ? WHERE key = ?", (state, outcome, key))
        if not found.rowcount:
            why = "it was worked on, and no event reserved it: it was put in from outside"
            self._put_in = self._put_in or Finding(Fault.CHANGED, "operations", key, why)

    def _effect(self, event: Row | Mapping[str, Any], event_type: str) -> None:
        if event_type == "effect.claimed":
            self._claimed(event)
        if event_type == "effect.released":
            state = RELEASED
        elif event_type == "effect.replayed":
            state = REPLAYED[event["recovery_action"]].value
        elif event_type == "effect.resolved":
            state = loads(event["after"])["state"]
        elif event_type in EFFECT_STATES:
            state = EFFECT_STATES[event_type].value
        else:
            return
        self._scratch.execute("INSERT OR REPLACE INTO effect VALUES (?, ?, 0)", (event["effect_id"], state))

    def _claimed(self, event: Row | Mapping[str, Any]) -> None:
        """Record an effect that was claimed without a cause. Events of 0.1.0 do not contain its key."""
        key = None if event["after"] is None else loads(event["after"]).get("key")
        if key is None or self._scratch.execute("SELECT 1 FROM owed WHERE key = ?", (key,)).fetchone() is not None:
            return
        why = f"it was worked on as effect {event['effect_id']}, and no event caused it: it was put in from outside"
        self._put_in = self._put_in or Finding(Fault.CHANGED, "effects", key, why)

    def _operations(self, tx: Tx) -> Finding | None:
        for row in _rows(tx, "operations_replayed"):
            found = self._scratch.execute("SELECT * FROM operation WHERE key = ?", (row["operation_key"],)).fetchone()
            why = "no event of the audit reserved it: it was put in from outside" if found is None else _differing(row, found)
            if why is not None:
                return Finding(Fault.CHANGED, "operations", str(row["id"]), why)
            self._scratch.execute("UPDATE operation SET seen = 1 WHERE key = ?", (row["operation_key"],))
        return None

    def _effects(self, tx: Tx) -> Finding | None:
        for row in _rows(tx, "effects_replayed"):
            why = self._differing_effect(row)
            if why is not None:
                return Finding(Fault.CHANGED, "effects", str(row["id"]), why)
            self._scratch.execute("UPDATE owed SET seen = 1 WHERE key = ?", (row["effect_key"],))
            self._scratch.execute("UPDATE effect SET seen = 1 WHERE id = ?", (row["id"],))
        return None

    def _differing_effect(self, row: Row) -> str | None:
        owed = self._scratch.execute("SELECT class, target, payload FROM owed WHERE key = ?", (row["effect_key"],)).fetchone()
        if owed is None:
            return "no event of the audit caused it: it was put in from outside"
        stepped = self._scratch.execute("SELECT state FROM effect WHERE id = ?", (row["id"],)).fetchone()
        states = EffectState.PENDING.value if stepped is None else stepped[0]
        if row["state"] not in states.split():
            return f"column state is {row['state']!r}; the audit says {states!r}: it was edited"
        for name, said in (("class", owed[0]), ("target", owed[1])):
            if row[name] != said:
                return f"column {name} is {row[name]!r}; the audit says {said!r}: it was edited"
        if owed[2] is not None and keys.sha256(str(row["payload"]).encode()) != owed[2]:
            return "column payload does not have the hash that the audit says: it was edited"
        return None

    def _gone(self) -> Finding | None:
        """Return a missing row that was not finished: only finished rows are ever deleted."""
        done = (OperationState.COMPLETED.value, OperationState.DISCARDED.value)
        row = self._scratch.execute(
            "SELECT key, state FROM operation WHERE seen = 0 AND state NOT IN (?, ?) LIMIT 1", done
        ).fetchone()
        if row is not None:
            return Finding(Fault.MISSING, "operations", row[0], f"the audit says that it is {row[1]}; it was deleted")
        ended = (EffectState.DELIVERED.value, EffectState.SUPERSEDED.value, EffectState.DISCARDED.value)
        row = self._scratch.execute(
            "SELECT id, state FROM effect WHERE seen = 0 AND state NOT IN (?, ?, ?) LIMIT 1", ended
        ).fetchone()
        if row is not None:
            return Finding(Fault.MISSING, "effects", str(row[0]), f"the audit says that it is {row[1]}; it was deleted")
        row = self._scratch.execute(
            "SELECT owed.key FROM owed JOIN operation ON operation.key = owed.cause WHERE operation.seen AND NOT owed.seen LIMIT 1"
        ).fetchone()
        return None if row is None else Finding(Fault.MISSING, "effects", row[0], "its command is there; it was deleted")


def _rows(tx: Tx, statement: str) -> Iterator[Row]:
    """Yield the rows of a statement, page by page, by their ids."""
    last = -1
    while rows := tx.all(statement, after=last, limit=PAGE_ROWS):
        yield from rows
        last = rows[-1]["id"]


def _differing(row: Row, said: tuple[Any, ...]) -> str | None:
    """Return the first column of an operation that differs from its key or its events, as a sentence."""
    if keys.sha256(str(row["payload"]).encode()) != row["payload_hash"]:
        return "column payload does not have the hash in column payload_hash: one of them was edited"
    named = ("source", "source_request_id", "action_kind", "aggregate_id", "aggregate_version", "payload_hash")
    if keys.operation_key(**{name: row[name] for name in named}) != row["operation_key"]:
        return f"its key is not the one of its columns ({', '.join(named)}): one of them was edited"
    lane = row["operation_key"] if row["aggregate_id"] == "new" else row["aggregate_id"]
    wanted = {
        "actor": said[1],
        "actor_type": said[2],
        "correlation_id": said[3],
        "state": said[4],
        "outcome": said[5],
        "lane": lane,
    }
    for name, value in wanted.items():
        if row[name] != value:
            return f"column {name} is {row[name]!r}; the audit says {value!r}: it was edited"
    return None
