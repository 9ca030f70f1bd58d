"""Hardened connections to a ledger's file, whose schema and content are not trusted."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

from ledger.database import DamagedError, DatabaseError
from ledger.sqlite.batch import SqliteTx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ledger.database import Tx


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
