"""Link between the tables and the audit: every commit puts digests of the rows it wrote into the chain of their aggregate.

Temporary triggers on the writer's connection report each row of a bound table (ledger/audit/columns.py) that a statement inserts,
updates or deletes. Right before COMMIT `Binding` reads these rows once more and adds `bound` to the `after` of an event of the same
commit and chain: {table: {key: digest}}, None for a deleted row. A program without the keys cannot write such an event, so a row
that was edited in the file no longer matches its chain. `TableReplay` compares the last digest of every row with the row.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from ledger.audit.events import LEDGER_EVENTS, SYSTEM_CHAIN, Entry
from ledger.audit.findings import Fault, Finding
from ledger.audit.queue_replay import QueueReplay
from ledger.jsontext import dumps, loads
from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.audit.columns import TableColumns
    from ledger.database import Row, Tx

BOUND: Final = "bound"  # the name in an event's `after`
BOUND_EVENT: Final = "history.bound"  # event of a commit that changed rows without another event in their chain
BOUND_FROM: Final = "history.bound_from"  # event that bound the ledger of an older build as found
UNBOUND: Final = "history_unbound"  # key in `meta`: an upgrade that has not bound every row yet
_BOUND_MARK: Final = f'"{BOUND}":{{'
_SCRATCH: Final = """
PRAGMA journal_mode = OFF;
CREATE TABLE bound (name TEXT, key TEXT, digest TEXT, event_id INTEGER, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE facts (chain TEXT PRIMARY KEY, facts TEXT) WITHOUT ROWID;
"""
_TRIGGERS: Final = {
    "insert": ("AFTER INSERT ON", "NEW"),
    "update": ("AFTER UPDATE OF {columns} ON", "NEW"),
    "delete": ("AFTER DELETE ON", "OLD"),
}


def row_digest(table: str, row: Mapping[str, Any] | Row, columns: Sequence[str]) -> str:
    """Return the SHA-256 of a row's bound columns: canonical JSON of [table, {column: value}], without NULL columns."""
    there = row.keys()
    values = {name: row[name] for name in columns if name in there and row[name] is not None}
    return hashlib.sha256(orjson.dumps([table, values], option=orjson.OPT_SORT_KEYS)).hexdigest()


def key_text(values: Sequence[object]) -> str:
    """Return a row's primary key as one text: the value itself, or a JSON array of several values."""
    return str(values[0]) if len(values) == 1 else orjson.dumps(values).decode()


class Binding:
    """Rows that the open transaction of one writer changed. `tables` is the classification."""

    def __init__(self, tables: Mapping[str, TableColumns]) -> None:
        self._tables = {name: table for name, table in tables.items() if table.bound}
        self._touched: dict[tuple[str, tuple[object, ...]], tuple[str, bool]] = {}

    def __bool__(self) -> bool:
        """Tell whether any bound row was changed since the last `entries`."""
        return bool(self._touched)

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make a writer's connection report the rows it changes. The triggers are temporary, so the file does not contain them."""
        connection.create_function("bind_row", -1, self._touch)
        connection.executescript("".join(self._triggers()))

    def bind(self, table: str, chain: str, key: Sequence[object]) -> None:
        """Bind the current state of a row with the next commit."""
        self._touched[(table, tuple(key))] = (chain, False)

    def entries(self, tx: Tx, entries: Sequence[Entry], now: int) -> list[Entry]:
        """Return the entries of a commit with the digests of its changed rows added.

        A rolled-back statement may have reported a row that is unchanged, or one that does not exist: the first is bound again, the
        second is left out.
        """
        touched, self._touched = self._touched, {}
        chains: dict[str, dict[str, dict[str, str | None]]] = {}
        told: dict[str, dict[str, object]] = {}
        for (name, key), (chain, deleted) in touched.items():
            table = self._tables[name]
            row = tx.one(f"bound_row_{name}", **dict(zip(table.keys, key, strict=True)))
            if row is None and not deleted:
                continue
            digest = None if row is None else row_digest(name, row, table.bound)
            chains.setdefault(chain, {}).setdefault(name, {})[key_text(key)] = digest
            if row is not None and table.told:
                told.setdefault(chain, {}).update({column: row[column] for column in table.told.split()})
        done = list(entries)
        for chain, bound in chains.items():
            _attach(done, chain, bound, told.get(chain, {}), now)
        return done

    def _touch(self, name: str, chain: str | None, deleted: int, *key: object) -> None:
        self._touched[(name, key)] = (chain or SYSTEM_CHAIN, bool(deleted))

    def _triggers(self) -> Iterator[str]:
        for name, table in self._tables.items():
            for event, (when, row) in _TRIGGERS.items():
                keys = ", ".join(f"{row}.{key}" for key in table.keys)
                yield (
                    f"CREATE TEMP TRIGGER bound_{name}_{event} {when.format(columns=', '.join(table.bound))} main.{name} "
                    f"BEGIN SELECT bind_row('{name}', {table.chain.format(row=row)}, {int(event == 'delete')}, {keys}); END;\n"
                )


def _attach(entries: list[Entry], chain: str, bound: Mapping[str, object], told: Mapping[str, object], now: int) -> None:
    """Put digests into the last domain event of the chain, else into the last event of the chain, else into a new event."""
    last = None
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].aggregate_id == chain:
            last = place if last is None else last
            if entries[place].event_type not in LEDGER_EVENTS:
                last = place
                break
    if last is None:
        after = dumps({BOUND: bound})
        entries.append(Entry(now, BOUND_EVENT, chain, None, None, None, "quotebot", "system", None, None, None, None, after))
        return
    entry = entries[last]
    after = {} if entry.after is None else loads(entry.after)
    entries[last] = entry._replace(after=dumps({**told, **after, BOUND: bound}))


class ChainFacts(Protocol):
    """Facts that the events of one ledger state, by chain. The domain reads them from events, the replay stores them."""

    def of(self, chain: str) -> dict[str, Any] | None:
        """Return the facts of a chain after its last event, or None."""
        ...

    def chains(self) -> Iterator[str]:
        """Yield every chain that has facts, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """Domain callbacks that read facts from events and compare them with the domain's tables, in addition to the digests.

    `read` returns the facts that an event adds to those of its chain, or None. `compare` returns the first row that differs.
    """

    read: Callable[[str, Mapping[str, Any]], dict[str, Any] | None]
    compare: Callable[[Tx, ChainFacts], Finding | None]


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
        """Process one verified event. Call it in the order of ids."""
        self._queue.see(event)
        event_type, text = event["event_type"], event["after"]
        bound = text is not None and _BOUND_MARK in text
        self._binds = self._binds or event_type == BOUND_FROM or (bound and event_type != BOUND_EVENT)
        if text is None or not (bound or event_type not in LEDGER_EVENTS or event_type == BOUND_FROM):
            return
        after = loads(text)
        if bound:
            self._note(event["id"], after[BOUND])
        added = None if self._words is None else self._words.read(event_type, after)
        if added is not None:
            known = self.of(event["aggregate_id"]) or {}
            self._scratch.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (event["aggregate_id"], dumps({**known, **added})))

    def of(self, chain: str) -> dict[str, Any] | None:
        """Return the facts of a chain after its last event, or None."""
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
        wrong = self._queue.wrong(tx)
        if wrong is not None:
            name, row, meaning, missing = wrong
            return Finding(Fault.MISSING if missing else Fault.CHANGED, name, row, meaning)
        lenient = not self._binds and tx.one("history_not_bound") is not None
        there = {row["name"] for row in tx.all("tables_there")}
        for name, table in self._tables.items():
            if name not in there and lenient:  # a later migration adds the table
                continue
            found = self._compare(tx, name, table, lenient=lenient)
            if found is not None:
                return found
        return None

    def differs(self, name: str, rows: Sequence[Row | Mapping[str, Any]]) -> Finding | None:
        """Compare all rows of a table that the replayed events wrote with the digests. `rows` may be those of one aggregate."""
        table = self._tables[name]
        for row in rows:
            found = self._compare_row(name, table, row, lenient=False)
            if found is not None:
                return found
        return self._left(name)

    def _note(self, event_id: int, bound: Mapping[str, Mapping[str, str | None]]) -> None:
        self._scratch.executemany(
            "INSERT OR REPLACE INTO bound VALUES (?, ?, ?, ?)",
            [(name, key, digest, event_id) for name, rows in bound.items() for key, digest in rows.items()],
        )

    def _compare(self, tx: Tx, name: str, table: TableColumns, *, lenient: bool) -> Finding | None:
        for row in pages(tx, name, table):
            found = row if isinstance(row, Finding) else self._compare_row(name, table, row, lenient=lenient)
            if found is not None:
                return found
        return self._left(name)

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
            if wrong is None and text in there and _sha256(row[text]) != row[digest]:
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


def _sha256(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()
