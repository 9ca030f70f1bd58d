"""Connections to a ledger's file that trust nothing the file says of itself."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_DEFENSIVE: Final = "SQLITE_DBCONFIG_DEFENSIVE"  # Python 3.12 and newer
_JSON_CHECK: Final = "CREATE TABLE t (a CHECK (json_valid(a)))"  # as the ledger's tables have


def harden(connection: sqlite3.Connection) -> None:
    """Set what protects a connection from a hostile file; before anything is read over it."""
    if _can_distrust():
        connection.execute("PRAGMA trusted_schema = OFF")  # triggers, views and indexes may call harmless functions only
    connection.execute("PRAGMA cell_size_check = ON")  # a page whose cells overlap is reported, not followed
    if hasattr(sqlite3, _DEFENSIVE):
        connection.setconfig(getattr(sqlite3, _DEFENSIVE), True)  # type: ignore[attr-defined] # noqa: FBT003 -- positional only


@functools.cache
def _can_distrust() -> bool:
    """Tell whether this SQLite counts its JSON functions among the harmless ones. Versions before 3.41 do not.

    There every trigger is still one of ours: a file whose schema differs is refused (schema_comparison.py).
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
    """Open a ledger that is only read, with rows by name. `immutable`: nothing writes to it. Raises sqlite3.Error."""
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        harden(connection)
    except BaseException:
        connection.close()
        raise
    connection.row_factory = sqlite3.Row
    return connection
