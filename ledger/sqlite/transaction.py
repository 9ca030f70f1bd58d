"""SQLite transaction passed to work, and the classification of SQLite's errors."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from ledger.database import DatabaseError, MissingRow, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
            return self._cursor.execute(self._statements[name], parameters).fetchall()
        except sqlite3.Error as error:
            self._note(error)
            raise

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:  # fetched completely: a half-read RETURNING statement would keep the transaction open
            rows = self._cursor.execute(self._statements[name], parameters).fetchall()
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

    def many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> None:
        """Run the named statement once for each row of parameters. It may not return rows."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:
            self._cursor.executemany(self._statements[name], rows)
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
