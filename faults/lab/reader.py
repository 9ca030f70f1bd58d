"""Reads one ledger after another through one connection.

A new connection for each ledger would read the whole schema and compile every query again, which took longer than the queries.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Final

from faults.lab.setting import ram
from ledger.sqlite.file import CACHED_STATEMENTS

# Parts of a SQLite file's first page (sqlite.org/fileformat.html): the WAL mark, and the two copies of the change counter, by which
# a connection detects that its page cache is outdated.
_WAL_MARK: Final = slice(18, 20)
_COUNTERS: Final = (slice(24, 28), slice(92, 96))
_SCHEMA: Final = "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema"


def looking_at(ledger: Path) -> sqlite3.Connection:
    """Return a connection that reads the ledger's present content, valid until the next call in this process. Do not close it.

    The ledger's file is copied; if a part of it is still in a WAL, the file itself is opened. Raises OSError and sqlite3.Error.
    """
    if ledger.with_name(f"{ledger.name}-wal").exists():
        return read_only(ledger)
    return _reader(os.getpid()).over(ledger.read_bytes())


def read_only(path: Path) -> sqlite3.Connection:
    """Open a ledger read-only."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


@functools.cache
def _reader(process: int) -> _Reader:
    del process  # a fork makes its own: SQLite's connections do not survive one
    return _Reader()


class _Reader:
    """A nameless file that holds one ledger after another, and a connection to it."""

    def __init__(self) -> None:
        self._file = -1
        self._connection: sqlite3.Connection | None = None
        self._schema: list[tuple[Any, ...]] = []  # as the connection has compiled it
        self._count = 0

    def over(self, content: bytes) -> sqlite3.Connection:
        """Replace the file's content and return the connection."""
        self._count += 1
        begin = bytearray(content[:100])
        begin[_WAL_MARK] = b"\1\1"
        for place in _COUNTERS:
            begin[place] = self._count.to_bytes(4, "big")
        content = bytes(begin) + content[100:]
        if self._connection is not None:
            os.pwrite(self._file, content, 0)
            os.truncate(self._file, len(content))
            if _schema_of(self._connection) == self._schema:
                return self._connection
            self._connection.close()
            os.close(self._file)
        return self._opened(content)

    def _opened(self, content: bytes) -> sqlite3.Connection:
        self._file, name = tempfile.mkstemp(prefix="quotebot-glass-", dir=ram())
        try:
            os.pwrite(self._file, content, 0)
            connection = sqlite3.connect(f"{Path(name).as_uri()}?mode=ro", uri=True, cached_statements=CACHED_STATEMENTS)
            self._schema = _schema_of(connection)
        finally:
            os.unlink(name)  # noqa: PTH108 -- both ends have it open: however this process ends, nothing is left
        connection.row_factory = sqlite3.Row
        self._connection = connection
        return connection


def _schema_of(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(_SCHEMA)]
