"""Rows that one command leaves in the file, commit by commit, recorded from the product and replayed as plain SQL.

The limit writes the same rows by construction: two consecutive commands run through the real ledger on a scratch file, the file is
compared before and after each of their three commits, and the differences between the two commands show which values are counters,
names or keys. There is no list of columns here, so a change of the schema also changes the limit.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.deed import decide, open_ledger, read_pragmas, request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOW_MS: Final = 1_750_000_000_000  # in the past: pending rows of a recorded history are due
COMMITS: Final = 3  # reserve; claim; execute
FIRST, SECOND = 1, 2  # the ordinals of the two recorded commands
_RUN = re.compile(r"([0-9a-f]{8,}|[0-9]+)")  # parts of a text that may differ: a key, the number in a name, an id
_TOKEN_PREFIX: Final = 8  # `c-` and the first digits of a key abbreviate it: equal prefixes stay equal

Maker = Callable[[int], Any]  # computes a value from the turn


class StillClock:
    """Clock that never advances, so that two commands differ only in their names."""

    def now_ms(self) -> int:
        """Return the constant time."""
        return NOW_MS

    def monotonic(self) -> float:
        """Return the constant time."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """One table at one moment: the columns of its key, and its rows by key."""

    keys: tuple[str, ...]
    rows: dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """One row inserted, or the changed columns of one row (`key`: how to find it)."""

    table: str
    values: Mapping[str, Any]
    key: Mapping[str, Any]

    @property
    def shape(self) -> tuple[object, ...]:
        """The part that must be equal in two records of the same work."""
        return self.table, tuple(self.values), tuple(self.key)

    @property
    def sql(self) -> str:
        """The statement that makes this change, by position."""
        if not self.key:
            return f"INSERT INTO {self.table} ({', '.join(self.values)}) VALUES ({', '.join('?' * len(self.values))})"  # noqa: S608 -- names from the schema
        assignments, guard = (", ".join(f"{name} = ?" for name in self.values), " AND ".join(f"{name} = ?" for name in self.key))
        return f"UPDATE {self.table} SET {assignments} WHERE {guard}"  # noqa: S608 -- names from the schema


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a command; `turn` counts the commands of this run from 0."""

    table: str
    columns: tuple[str, ...]
    sql: str
    fixed: tuple[Any, ...]
    varying: tuple[tuple[int, Maker], ...]

    def values(self, turn: int) -> list[Any]:
        """Return the parameters for one command."""
        values = list(self.fixed)
        for place, value_of in self.varying:
            values[place] = value_of(turn)
        return values


@dataclass(frozen=True, slots=True)
class Footprint:
    """Two records of the same work: pairs of changes per commit, and the final rows."""

    commits: tuple[tuple[tuple[Change, Change], ...], ...]
    final: tuple[tuple[Change, Change], ...]
    events: Counter[str]
    pragmas: dict[str, object]

    @property
    def rows_per_command(self) -> Counter[str]:
        """Number of rows that one command adds, by table."""
        return Counter(first.table for first, _ in self.final)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the values that one command leaves, each counted once: no index, no page, no header."""
        return sum(_size(value) for first, _ in self.final for value in first.values.values())

    def placed(self, connection: sqlite3.Connection) -> Placed:
        """Return the statements for an existing file: numbers continue after its largest ones."""
        return Placed(self, {table: _last(connection, table) for table in self.rows_per_command})


class Placed:
    """The statements of a footprint on one file."""

    def __init__(self, footprint: Footprint, last: Mapping[str, int]) -> None:
        self._rows = footprint.rows_per_command
        self._last = last
        self.first_ordinal = last["operations"] + 1
        self.commits = tuple(tuple(self._statement(*pair) for pair in commit) for commit in footprint.commits)
        self.final = tuple(self._statement(*pair) for pair in footprint.final)

    def _statement(self, first: Change, second: Change) -> Statement:
        columns = (*first.values, *first.key)
        pairs = list(
            zip(
                columns, (*first.values.values(), *first.key.values()), (*second.values.values(), *second.key.values()), strict=True
            )
        )
        varying = tuple(
            (place, self._value(first.table, column, one, two))
            for place, (column, one, two) in enumerate(pairs)
            if (type(one), one) != (type(two), two)
        )
        return Statement(first.table, columns, first.sql, tuple(one for _, one, _ in pairs), varying)

    def _value(self, table: str, column: str, one: Any, two: Any) -> Maker:
        if isinstance(one, int) and isinstance(two, int):
            return self._number(table, column, one, two)
        if isinstance(one, bytes) and isinstance(two, bytes) and len(one) == len(two):
            prefix, length = one[:_TOKEN_PREFIX].hex(), len(one)
            return lambda turn: bytes.fromhex(_token(self.first_ordinal + turn, prefix))[:length]
        if isinstance(one, str) and isinstance(two, str):
            return self._text(table, column, one, two)
        raise ValueError(f"cannot tell what {table}.{column} is from {one!r} and {two!r}")

    def _number(self, table: str, column: str, one: int, two: int) -> Maker:
        step = two - one
        shift = self._last[self._counted(table, column, step)]
        return lambda turn: shift + one + step * turn

    def _counted(self, table: str, column: str, step: int) -> str:
        """Return the table whose ids a column contains: by name, else the one that grows by the column's step."""
        plural = column.removesuffix("_id") + "s"
        named = [name for name in self._rows if name == plural or name.endswith(f"_{plural}")]
        for name in (*named, table, *self._rows):
            if self._rows[name] == step:
                return name
        raise ValueError(f"cannot tell what {table}.{column} counts: it grows by {step} per command")

    def _text(self, table: str, column: str, one: str, two: str) -> Maker:
        ours, theirs = _RUN.split(one), _RUN.split(two)
        if len(ours) != len(theirs):
            raise ValueError(f"cannot tell what {table}.{column} is from {one!r} and {two!r}")
        form, makers = "", []
        for mine, other in zip(ours, theirs, strict=True):
            if mine == other:
                form += mine.replace("%", "%%")
            else:
                form += "%s"
                makers.append(self._run(table, column, mine, other))
        if form == "%s":
            return makers[0]
        return lambda turn: form % tuple([maker(turn) for maker in makers])

    def _run(self, table: str, column: str, one: str, two: str) -> Maker:
        if (one, two) == (f"{FIRST:08d}", f"{SECOND:08d}"):
            return lambda turn: f"{self.first_ordinal + turn:08d}"
        if len(one) == len(two) and len(one) >= _TOKEN_PREFIX:
            prefix, length = one[:_TOKEN_PREFIX], len(one)
            return lambda turn: _token(self.first_ordinal + turn, prefix)[:length]
        return self._number(table, column, int(one), int(two))


async def record() -> Footprint:
    """Run two commands through the real ledger on a scratch file and record the changes of each commit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sample.db")
        ledger, database = await open_ledger(path, StillClock())
        shell = sqlite3.connect(path, isolation_level=None)
        try:
            pragmas = await read_pragmas(database)
            moments = [_snapshot(shell)]
            for ordinal in (FIRST, SECOND):
                await ledger.reserve(request(ordinal, NOW_MS))
                moments.append(_snapshot(shell))
                operation = await ledger.claim_operation()
                if operation is None:
                    raise RuntimeError("the recorded command was not claimed")
                moments.append(_snapshot(shell))
                await ledger.execute(operation, decide(operation, NOW_MS))
                moments.append(_snapshot(shell))
        finally:
            shell.close()
            await database.close()
    known = moments[0]["audit_events"].rows
    events = Counter(row["event_type"] for key, row in moments[3]["audit_events"].rows.items() if key not in known)
    return Footprint(tuple(_pair(moments, at, at + 1) for at in range(COMMITS)), _pair(moments, 0, COMMITS), events, pragmas)


def _pair(moments: Sequence[Mapping[str, Table]], begin: int, end: int) -> tuple[tuple[Change, Change], ...]:
    one, two = _changes(moments[begin], moments[end]), _changes(moments[begin + COMMITS], moments[end + COMMITS])
    if [change.shape for change in one] != [change.shape for change in two]:
        raise ValueError("two commands of the same kind changed different things; the limit cannot be derived from them")
    return tuple(zip(one, two, strict=True))


def _snapshot(shell: sqlite3.Connection) -> dict[str, Table]:
    tables = {}
    for (name,) in shell.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").fetchall():
        if name.startswith("sqlite_"):
            continue
        keys = tuple(column for _, column, _, _, _, place in shell.execute(f"PRAGMA table_info({name})") if place)
        cursor = shell.execute(f"SELECT * FROM {name}")  # noqa: S608 -- a name from the schema
        columns = [column for column, *_ in cursor.description]
        rows = [dict(zip(columns, values, strict=True)) for values in cursor]
        tables[name] = Table(keys, {tuple(row[key] for key in keys): row for row in rows})
    return tables


def _changes(before: Mapping[str, Table], after: Mapping[str, Table]) -> list[Change]:
    changes = []
    for name, table in after.items():
        known = before[name].rows
        if known.keys() - table.rows.keys():
            raise ValueError(f"a command deleted rows of {name}; the limit cannot be derived from it")
        for identity, row in sorted(table.rows.items()):
            old = known.get(identity)
            values = {column: value for column, value in row.items() if old is None or old[column] != value}
            if values:
                changes.append(Change(name, values, {} if old is None else dict(zip(table.keys, identity, strict=True))))
    return changes


def _last(connection: sqlite3.Connection, table: str) -> int:
    """Return the largest id of a table; 0 if it is empty or its key is not a number."""
    try:
        (last,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()  # noqa: S608 -- a name from the schema
    except sqlite3.OperationalError:
        return 0
    return last if isinstance(last, int) else 0


@functools.lru_cache(maxsize=256)
def _token(ordinal: int, prefix: str) -> str:
    return hashlib.sha256(f"{ordinal}:{prefix}".encode()).hexdigest()


def _size(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    number = abs(int(str(value)))
    return next(size for size in (0, 1, 2, 3, 4, 6, 8) if number < 1 << max(0, 8 * size - 1) or size == 8)  # noqa: PLR2004 -- SQLite's integer sizes
