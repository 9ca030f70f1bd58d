"""Hardened connections to a ledger's file, whose schema and content are not trusted, and the transaction passed to work."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import sqlite3
from contextlib import closing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ledger.database import DamagedError, DatabaseError, MissingRow, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ledger.database import Tx


# The file may be damaged: it is not written again until a restart has checked it.
FATAL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# Errors of the disk, the machine or another program, as opposed to a bug in the work: they do not concern the command.
TROUBLE: Final = FATAL | {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}


_PARAMETER: Final = re.compile(r":([a-z_0-9]+)")


@functools.cache
def numbered(text: str) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Return a statement with `?1` in place of its first `:name`, and a function that orders parameters by name accordingly.

    For each name the driver would release and take back the interpreter's lock once per execution.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"?{names.index(found[1]) + 1}"

    sql = _PARAMETER.sub(number, "\n".join(line.partition("--")[0] for line in text.split("\n")))
    if len(names) > 1:
        return sql, itemgetter(*names)
    return sql, lambda given: tuple([given[name] for name in names])


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's primary result code; 0 when the error is not SQLite's (the driver's own errors carry none)."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


class SqliteTx:
    """An open transaction on one connection. One cursor serves every statement: results are always fetched completely."""

    __slots__ = ("_connection", "_cursor", "_statements", "events", "trouble")

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str], events: list[object] | None) -> None:
        """`events` collects emitted items; None forbids emitting."""
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self.events = events
        self.trouble: sqlite3.Error | None = None  # of the disk or the machine; kept even when the work handles it

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:
            sql, ordered = numbered(self._statements[name])
            return self._cursor.execute(sql, ordered(parameters)).fetchall()
        except sqlite3.Error as error:
            self._note(error)
            raise

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:  # fetched completely: a half-read RETURNING statement would keep the transaction open
            sql, ordered = numbered(self._statements[name])
            rows = self._cursor.execute(sql, ordered(parameters)).fetchall()
        except sqlite3.Error as error:
            self._note(error)
            raise
        return rows[0] if rows else None

    def required(self, name: str, /, **parameters: object) -> Row:
        """Run the named statement and return its first row. Raises MissingRow if there is none."""
        row = self.one(name, **parameters)
        if row is None:
            raise MissingRow(name)
        return row

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run the named statement once for each row of parameters (see Tx.many). It may not return rows."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:
            sql, ordered = numbered(self._statements[name])
            self._cursor.executemany(sql, [row if isinstance(row, tuple) else ordered(row) for row in rows])
        except sqlite3.Error as error:
            self._note(error)
            raise

    def emit(self, event: object, /) -> None:
        """Pass an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        if self.events is None:
            raise DatabaseError("Nothing can be emitted here: only a write hands events over, before its batch is finished.")
        self.events.append(event)

    def _note(self, error: sqlite3.Error) -> None:
        if self.trouble is None and primary_code(error) in TROUBLE:
            self.trouble = error

    def _gone(self, name: str) -> DatabaseError:
        # A full disk ended the transaction: a later statement would commit by itself.
        return DatabaseError(f"The transaction was rolled back before {name}; nothing of it is recorded.")


T = TypeVar("T")

_DEFENSIVE: Final = "SQLITE_DBCONFIG_DEFENSIVE"  # Python 3.12 and newer
_NOT_WRITABLE: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_JSON_CHECK: Final = "CREATE TABLE t (a CHECK (json_valid(a)))"  # the ledger's tables have such checks


def harden(connection: sqlite3.Connection) -> None:
    """Set the options that protect a connection from a hostile file. Call it before anything is read."""
    # For the whole process. Without them the driver searches each NULL and each bytes parameter for a method and drops the error.
    sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type] # a function in C that returns None for None
    sqlite3.register_adapter(bytes, bytes)
    if _can_distrust():
        connection.execute("PRAGMA trusted_schema = OFF")  # triggers, views and indexes may call only harmless functions
    connection.execute("PRAGMA cell_size_check = ON")  # a page whose cells overlap is reported, not followed
    if hasattr(sqlite3, _DEFENSIVE):
        connection.setconfig(getattr(sqlite3, _DEFENSIVE), True)  # type: ignore[attr-defined] # noqa: FBT003 -- positional only


@functools.cache
def _can_distrust() -> bool:
    """Tell whether this SQLite classifies its JSON functions as harmless. Versions before 3.41 do not.

    There the triggers are still the ledger's own: a file whose schema differs is refused (migrations.py).
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as probe:
        probe.execute(_JSON_CHECK)
        probe.execute("PRAGMA trusted_schema = OFF")
        try:
            probe.execute("INSERT INTO t VALUES ('{}')")
        except sqlite3.OperationalError:
            return False
        return True


def open_read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a ledger for reading, with rows by name. `immutable`: no process writes to it.

    SQLite needs to write beside a file in WAL mode. In a read-only folder, a ledger whose WAL is empty is opened as immutable.
    Raises DatabaseError where the WAL still holds commits, and sqlite3.Error.
    """
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        harden(connection)
        if not immutable:
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if immutable or error.sqlite_errorcode & 0xFF not in _NOT_WRITABLE or not path.exists():
            raise
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            raise DatabaseError(
                f"{path.parent} cannot be written, and the newest commits of {path.name} are still in its write-ahead log, which "
                "SQLite cannot read there. Nothing was done. Copy the whole folder to where it can be written, and use the copy."
            ) from error
        return open_read_only(path, immutable=True)
    except sqlite3.DatabaseError:  # damaged, or no database: the next read raises it
        pass
    connection.row_factory = sqlite3.Row
    return connection


class ReadOnlyFile:
    """Read-only access to a ledger that no process has open."""

    def __init__(self, path: Path, statements: Mapping[str, str]) -> None:
        self._path = path
        self._statements = statements

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one snapshot."""
        with contextlib.closing(open_read_only(self._path)) as connection:
            connection.execute("BEGIN")
            return work(SqliteTx(connection, self._statements, None))


PROBLEMS_MAX: Final = 10  # reported per check


def damage(path: Path) -> list[str]:
    """Return the problems that SQLite finds in the file at `path`, at most ten; takes seconds for a million rows."""
    try:
        with closing(open_read_only(path)) as connection:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})")]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        return [str(error)]
    return [] if found == ["ok"] else found


async def check_integrity(path: Path) -> None:
    """Check the file in a thread. Raises DamagedError when it is damaged, sqlite3.Error when it cannot be read."""
    found = await asyncio.to_thread(damage, path)
    if found:
        raise DamagedError(
            f"The ledger {path} is damaged: {'; '.join(found)}. Writing on would make it worse: the bot ends, "
            "and everything waits. Keep a copy of the whole data folder, check the disk, and put the newest backup in its place."
        )
