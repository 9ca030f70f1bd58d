"""Migrations of a SQLite file, and the comparison of its schema with the one that they create.

Each file is applied once, in one transaction, and its checksum is stored. The guards of the ledger are triggers, so a removed or
added trigger changes what the file allows and does. A ledger whose schema differs in any way is refused before it is used, backed
up, restored, verified or exported.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Final

from ledger.database import DatabaseError
from ledger.migrations import Migration, SchemaChangedError, SchemaObject, differences, known
from ledger.sqlite.connections import harden

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOOKKEEPING = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  component TEXT NOT NULL,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (component, name)
) STRICT, WITHOUT ROWID
"""


def pending(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations missing from the file, in order. Only reads.

    Raises DatabaseError when the file contains a migration unknown to this build (it is newer) or one whose text has changed.
    """
    done = {(migration.component, migration.name) for migration in recorded(connection, migrations)}
    return [migration for migration in migrations if (migration.component, migration.name) not in done]


def recorded(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations recorded in the file, in the order applied. Only reads. Raises DatabaseError as `pending` does."""
    bookkeeping = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'").fetchall()
    if not bookkeeping:
        return []
    return known(connection.execute("SELECT component, name, sha256, applied_at FROM schema_migrations").fetchall(), migrations)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], now_ms: int) -> list[str]:
    """Apply the missing migrations in order, and return their names.

    Raises DatabaseError as `pending` does, and when a file cannot be applied: then nothing of that file is in the ledger.
    """
    applied = []
    for migration in pending(connection, migrations):
        _apply(connection, migration, now_ms)
        applied.append(f"{migration.component}/{migration.name}")
    return applied


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
    statements, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    if statement.strip() and not all(line.startswith("--") or not line.strip() for line in statement.splitlines()):
        raise ValueError(f"an unfinished statement ends the script: {statement.strip()[:60]}")
    return tuple(statements)


_OBJECTS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"

_expected: dict[tuple[tuple[str, str], ...], Counter[SchemaObject]] = {}  # by applied migrations, with their checksums


def require_schema(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Compare an open ledger with its recorded migrations. Raises SchemaChangedError, or DatabaseError as `pending`."""
    found = schema_differences(connection, migrations)
    if found:
        raise SchemaChangedError(found)


def schema_differences(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[str]:
    """Return one sentence for each object that is missing, foreign or changed. Raises DatabaseError for a newer build's ledger."""
    applied = recorded(connection, migrations)
    actual = Counter((str(row[0]), str(row[1]), str(row[2]), row[3]) for row in connection.execute(_OBJECTS))
    names = {(migration.component, migration.name) for migration in applied}
    in_build_order = [migration for migration in migrations if (migration.component, migration.name) in names]
    if actual == schema_of(in_build_order):
        return []
    # A ledger that went through several releases may have applied its migrations in another order than a new one does.
    expected = schema_of(in_build_order if applied == in_build_order else applied)
    return differences(expected, actual)


def schema_of(migrations: Sequence[Migration]) -> Counter[SchemaObject]:
    """Return the schema that these migrations create; computed once, because it takes as long as a first start."""
    key = tuple((f"{migration.component}/{migration.name}", migration.sha256) for migration in migrations)
    if key not in _expected:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
            harden(model)
            for migration in migrations:
                _apply(model, migration, 0)
            _expected[key] = Counter((row[0], row[1], row[2], row[3]) for row in model.execute(_OBJECTS))
    return _expected[key]
