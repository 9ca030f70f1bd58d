"""Numbered SQL migrations, forward only. Each file is applied once, in one transaction, and its checksum is stored."""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BOOKKEEPING = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  component TEXT NOT NULL,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (component, name)
) STRICT, WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of one component (`ledger` or the domain's)."""

    component: str
    name: str  # "0001_ledger.sql"
    sql: str

    @property
    def sha256(self) -> str:
        """The checksum stored with the name: an applied file must never change."""
        return _sha256(self.sql)


@functools.cache
def _sha256(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def pending(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations missing from the file, in order. Only reads.

    Raises DatabaseError when the file contains a migration unknown to this build (it is newer) or one whose text has changed.
    """
    done = {(migration.component, migration.name) for migration in recorded(connection, migrations)}
    return [migration for migration in migrations if (migration.component, migration.name) not in done]


def recorded(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations recorded in the file, in the order applied. Only reads. Raises DatabaseError as `pending` does."""
    known = {(migration.component, migration.name): migration for migration in migrations}
    place = {migration: number for number, migration in enumerate(migrations)}
    done: list[tuple[int, int, Migration]] = []
    for component, name, sha256, applied_at in _applied(connection):
        migration = known.get((component, name))
        if migration is None:
            raise DatabaseError(
                f"The ledger was written by a newer build (it has {component}/{name}). It is unchanged. Start the newer build."
            )
        if migration.sha256 != sha256:
            raise DatabaseError(f"Migration {component}/{name} was changed after it was applied. The ledger is unchanged.")
        done.append((applied_at, place[migration], migration))
    return [migration for *_, migration in sorted(done, key=lambda each: each[:2])]


def apply_all(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Apply these migrations to an empty database, in this order. Raises DatabaseError when one fails."""
    for migration in migrations:
        _apply(connection, migration, 0)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], now_ms: int) -> list[str]:
    """Apply the missing migrations in order, and return their names.

    Raises DatabaseError as `pending` does, and when a file cannot be applied: then nothing of that file is in the ledger.
    """
    applied = []
    for migration in pending(connection, migrations):
        _apply(connection, migration, now_ms)
        applied.append(f"{migration.component}/{migration.name}")
    return applied


def _applied(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    bookkeeping = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'").fetchall()
    if not bookkeeping:
        return []
    return connection.execute("SELECT component, name, sha256, applied_at FROM schema_migrations").fetchall()


def _apply(connection: sqlite3.Connection, migration: Migration, now_ms: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_BOOKKEEPING)
        for statement in _split(migration.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_migrations (component, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
            (migration.component, migration.name, migration.sha256, now_ms),
        )
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not isinstance(error, sqlite3.Error):
            raise
        raise DatabaseError(
            f"Migration {migration.component}/{migration.name} could not be applied ({error}). The ledger is as it was before it; "
            "go back to the build before this one, or free disk space if that is the cause, and start again."
        ) from error


@functools.cache
def _split(script: str) -> tuple[str, ...]:
    """Return the statements one by one: executescript would commit implicitly, and triggers contain semicolons."""
    return tuple(_statements(script))


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip() and not all(line.startswith("--") or not line.strip() for line in statement.splitlines()):
        raise ValueError(f"an unfinished statement ends the script: {statement.strip()[:60]}")
