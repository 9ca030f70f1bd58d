"""Ledgers in databases of one PostgreSQL server, for suites that otherwise use files.

A database is copied by the server (TEMPLATE), which takes the place of copying a file. The checks read a copy in a SQLite ledger,
so they check the same with the same code, strict types and references included.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any, Final
from unittest import mock
from urllib.parse import urlsplit

from ledger.clock import SystemClock
from ledger.postgres import connections
from ledger.postgres import migrations as postgres_migrations
from ledger.postgres.marks import ALONE_LOCK
from ledger.postgres.migrations import build_number
from ledger.postgres.replicas import LockSearch, is_one_build
from ledger.sqlite.migrations import migrate
from quotebot.app.installation import schema_and_statements
from quotebot.app.postgres_storage import migrations
from quotebot.sandbox.cluster import Cluster, folder_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.database import Tx
    from ledger.migrations import Migration

_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_TRIGGERS: Final = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
BOOKKEEPING: Final = frozenset({"schema_migrations"})
_numbers = itertools.count(1)


class LedgerServer:
    """One server. Each ledger is a database of its own."""

    def __init__(self) -> None:
        self._folder = folder_for("ledgers")
        self._cluster = Cluster(self._folder, quick=True)

    def start(self) -> None:
        """Start it, with an unused ledger to copy. Raises ClusterError without a server."""
        self._cluster.start()
        connections.prepare(self._cluster.url(), migrations(), 0, lambda: None)

    def remove(self) -> None:
        """Kill it and delete its files."""
        self._cluster.remove()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self) -> str:
        """Create an unused ledger and return its address."""
        return copy_of(self._cluster.url())

    def create_empty(self) -> str:
        """Create a database without a ledger and return its address."""
        return copy_of(self._cluster.url("template0"))


@contextlib.contextmanager
def ledger_server() -> Iterator[LedgerServer]:
    """Yield a running server. Raises ClusterError without one."""
    server = LedgerServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def copy_of(url: str) -> str:
    """Copy a database to which nobody is connected; return the address of the copy."""
    name, copy = _name_of(url), f"ledger_{os.getpid()}_{next(_numbers)}"
    _administer(url, f'CREATE DATABASE "{copy}" TEMPLATE "{name}" STRATEGY FILE_COPY')
    return url.replace(f"/{name}?", f"/{copy}?")


def drop(url: str) -> None:
    """Delete a database; connections to it are closed."""
    _administer(url, f'DROP DATABASE IF EXISTS "{_name_of(url)}" WITH (FORCE)')


def _administer(url: str, statement: str) -> None:
    with connections.connected(url.replace(f"/{_name_of(url)}?", "/postgres?")) as connection:
        connection.execute(statement)


def _name_of(url: str) -> str:
    return urlsplit(url).path[1:]


def in_sqlite(url: str) -> sqlite3.Connection:
    """Return a SQLite ledger in memory with the present rows of a database, read in one snapshot."""
    ledger = sqlite3.connect(":memory:", isolation_level=None)
    ledger.deserialize(_empty())
    ledger.row_factory = sqlite3.Row
    for table, rows in connections.read_snapshot(url, _selections(), _rows).items():
        if rows:
            ledger.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(rows[0]))})', rows)  # noqa: S608 -- own names
    ledger.execute("PRAGMA query_only = on")
    return ledger


def read_database(url: str, sql: str) -> list[dict[str, Any]]:
    """Run one read-only statement, as people at a terminal do, and return its rows."""
    rows = connections.read_snapshot(url, {"asked": sql}, lambda tx: tx.all("asked"))
    return [dict(zip(row.keys(), row, strict=True)) for row in rows]


def read_document(url: str, sha256: str) -> bytes | None:
    """Return a stored document, or None."""
    rows = read_database(url, f"SELECT bytes FROM artefact_blobs WHERE sha256 = '{sha256}'")  # noqa: S608 -- hexadecimal
    return rows[0]["bytes"] if rows else None


def execute(url: str, sql: str) -> None:
    """Run statements without parameters."""
    with connections.connected(url) as connection:
        connection.execute(sql)


def count_rows(url: str) -> dict[str, int]:
    """Return the number of rows by table."""
    return connections.count_rows(url)


def start_in_steps(url: str, files: Sequence[Migration], step: Callable[[int], None]) -> None:
    """Do what the start of a bot does with the schema; `step` gets the number of the session before each exchange with the server.

    `step` may take long, so another process that starts waits as long for locks on tables.
    """
    connect = connections.connect

    def connected(address: str) -> Any:
        connection = connect(address)
        kind = type(connection)

        def wait(self: Any, *arguments: Any, **options: Any) -> Any:
            step(self.info.backend_pid)
            return kind.wait(self, *arguments, **options)

        connection.__class__ = type("SteppingConnection", (kind,), {"wait": wait})
        return connection

    patient = mock.patch.object(postgres_migrations, "LOCK_SECONDS", postgres_migrations.UNDER_WAY_SECONDS)
    with mock.patch.object(connections, "connect", connected), patient:
        build = build_number(files)
        lock = LockSearch(url, f"pid-{os.getpid()}", 0, SystemClock(), build=build).take()
        connections.prepare(url, files, 1, lambda: None, lambda connection: is_one_build(connection, build))
        if lock is not None:
            lock.close()


def migrates(url: str, files: Sequence[Migration]) -> bool:
    """Tell whether a start on a used ledger applied a file. Raises DatabaseError unless it then has the schema of these files."""
    applied: list[str] = []
    connections.prepare(url, files, 1, lambda: applied.append("once more"), lambda _: True)
    connections.check_schema(url, files)
    return bool(applied)


@contextlib.contextmanager
def waits_of(url: str) -> Iterator[Callable[[int], bool]]:
    """Yield a function that tells whether a session waits for a lock."""
    with connections.connected(url) as connection:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = %s"
        yield lambda session: bool(connections.value(connection, waiting, session))


@contextlib.contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold locks on the tables of every command, as a maintenance tool or a person could."""
    with connections.connected(url) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE operations, deliveries IN ACCESS EXCLUSIVE MODE")
        yield
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def written_alone(url: str) -> Iterator[None]:
    """Hold the lock of a write that runs alone, as another process could that does not finish it."""
    with connections.connected(url) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (ALONE_LOCK,))
        yield
        connection.execute("ROLLBACK")


def _rows(tx: Tx) -> dict[str, list[tuple[Any, ...]]]:
    return {table: [tuple(row) for row in tx.all(table)] for table in _selections()}


@functools.cache
def _empty() -> bytes:
    """Return a ledger file with the tables of this build, without rows and triggers."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as ledger:
        migrate(ledger, schema_and_statements()[0], 0)
        for (name,) in ledger.execute(_TRIGGERS).fetchall():
            ledger.execute(f'DROP TRIGGER "{name}"')
        for (name,) in ledger.execute(_TABLES).fetchall():
            ledger.execute(f'DELETE FROM "{name}"')  # noqa: S608 -- as above
        return ledger.serialize()


@functools.cache
def _selections() -> Mapping[str, str]:
    """Return one statement for each table, which reads the columns in SQLite's order."""
    with contextlib.closing(sqlite3.connect(":memory:")) as ledger:
        ledger.deserialize(_empty())
        names = [name for (name,) in ledger.execute(_TABLES) if name not in BOOKKEEPING]
        columns = {name: [row[1] for row in ledger.execute(f'PRAGMA table_info("{name}")')] for name in names}
    return {name: f"SELECT {', '.join(found)} FROM {name}" for name, found in columns.items()}  # noqa: S608 -- as above
