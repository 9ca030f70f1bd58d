"""Ledgers of any engine for tests: where one is, how it is opened, and the connection of a second program to it."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from faults.harness.fresh import lay
from tests.ledger.parts import AUDIT, MIGRATIONS, START_MS, STATEMENTS, open_database, open_shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ledger.audit.events import Audit
    from ledger.clock import Clock
    from ledger.database import Database, Row
    from ledger.sqlite.engine import SqliteDatabase


class Refused(Exception):  # noqa: N818 -- named after the fact
    """The database refused the statement; the message names the rule that it breaks."""


class Shell(Protocol):
    """Connection of a second program. It writes SQL that every engine takes; each statement is committed unless BEGIN was one."""

    def execute(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = (), /) -> list[Row]:
        """Run a statement with `?` or `:name` parameters and return its rows. Raises Refused if the schema forbids it."""
        ...


class Place(Protocol):
    """A ledger of one engine, made for one test."""

    address: str  # with which another process finds it, see `place_at`
    statements: Mapping[str, str]  # named statements, as the engine's own connections take them

    async def open(self, clock: Clock, *, audit: Audit = AUDIT) -> Database:
        """Open the ledger, the second time as a second process would."""
        ...

    def shell(self) -> Shell:
        """Return the one shell of the ledger; it is connected at the first call."""
        ...

    def close(self) -> None:
        """Close the shell."""
        ...


class SqliteShell:
    """A shell on a ledger's file."""

    def __init__(self, path: Path) -> None:
        self._connection = open_shell(path)

    def execute(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = (), /) -> list[Row]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.IntegrityError as error:
            raise Refused(str(error)) from error

    def close(self) -> None:
        self._connection.close()


class SqlitePlace:
    """A ledger's file."""

    statements = STATEMENTS

    def __init__(self, path: Path) -> None:
        lay(path, MIGRATIONS, START_MS)
        self._path = path
        self._shell: SqliteShell | None = None
        self.address = str(path)

    async def open(self, clock: Clock, *, audit: Audit = AUDIT) -> SqliteDatabase:
        return await open_database(self._path, clock, audit=audit)

    def shell(self) -> SqliteShell:
        if self._shell is None:
            self._shell = SqliteShell(self._path)
        return self._shell

    def close(self) -> None:
        if self._shell is not None:
            self._shell.close()


def place_at(address: str) -> Place:
    """Return the ledger at an address: a file's path, or a database's URL."""
    if "://" not in address:
        return SqlitePlace(Path(address))
    from tests.ledger.postgres.places import PostgresPlace  # noqa: PLC0415 -- imports the driver

    return PostgresPlace(address)


@contextmanager
def temporary() -> Iterator[Place]:
    """Yield an empty ledger that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder, closing(SqlitePlace(Path(folder) / "ledger.db")) as place:
        yield place
