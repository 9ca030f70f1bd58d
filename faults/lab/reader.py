"""Looks at one ledger after another through one connection.

To open one for each is to read the whole schema and to compile every question anew, which took longer than to answer them.
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

# Of a SQLite file's first page (sqlite.org/fileformat.html): whether it has a WAL, and the counter by which a connection sees that
# what it has kept of the file is of no use any more, twice.
_WAL_MARK: Final = slice(18, 20)
_COUNTERS: Final = (slice(24, 28), slice(92, 96))
_SCHEMA: Final = "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema"


def looking_at(ledger: Path) -> sqlite3.Connection:
    """Return a connection that reads what is in the ledger now, good until the next call in this process. Do not close it.

    The ledger's file is copied; where a part of it is in a WAL still, it is opened itself. Raises OSError and sqlite3.Error.
    """
    if ledger.with_name(f"{ledger.name}-wal").exists():
        return read_only(ledger)
    return _reader(os.getpid()).over(ledger.read_bytes())


def read_only(path: Path) -> sqlite3.Connection:
    """Open a ledger to look at it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


@functools.cache
def _reader(process: int) -> _Reader:
    del process  # a fork makes its own: SQLite's connections do not survive one
    return _Reader()


class _Reader:
    """A file without a name that holds one ledger after another, and a connection to it."""

    def __init__(self) -> None:
        self._file = -1
        self._connection: sqlite3.Connection | None = None
        self._schema: list[tuple[Any, ...]] = []  # as the connection has it compiled
        self._count = 0

    def over(self, content: bytes) -> sqlite3.Connection:
        """Put this content there."""
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
            os.unlink(name)  # noqa: PTH108 -- both ends have it open: whatever ends this process, nothing is left
        connection.row_factory = sqlite3.Row
        self._connection = connection
        return connection


def _schema_of(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(_SCHEMA)]
