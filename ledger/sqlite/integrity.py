"""Integrity check of the ledger's file: SQLite's check of every page, on a separate read-only connection."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ledger.database import DamagedError
from ledger.sqlite.connections import open_read_only

if TYPE_CHECKING:
    from pathlib import Path

PROBLEMS_MAX: Final = 10  # reported per check


def problems(path: Path) -> list[str]:
    """Return the problems that SQLite finds in the file at `path`, at most ten; takes seconds for a million rows."""
    try:
        with closing(open_read_only(path)) as connection:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})")]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        return [str(error)]
    return [] if found == ["ok"] else found


async def check(path: Path) -> None:
    """Check the file in a thread. Raises DamagedError when it is damaged, sqlite3.Error when it cannot be read."""
    found = await asyncio.to_thread(problems, path)
    if found:
        raise DamagedError(
            f"The ledger {path} is damaged: {'; '.join(found)}. Writing on would make it worse: the bot ends, "
            "and everything waits. Keep a copy of the whole data folder, check the disk, and put the newest backup in its place."
        )
