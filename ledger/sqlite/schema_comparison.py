"""Schema comparison: the tables, indexes, triggers and views of a ledger's file against those its migrations create.

The guards of the ledger are triggers, so a removed or added trigger changes what the file allows and does. A ledger whose schema
differs in any way is refused before it is used, backed up, restored, verified or exported.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Final

from ledger.database import DatabaseError
from ledger.sqlite.connections import harden
from ledger.sqlite.migrations import apply_all, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.sqlite.migrations import Migration

NAMED: Final = 3  # objects named in a message; the others are counted
_OBJECTS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"

SchemaObject = tuple[str, str, str, str | None]  # type, name, the table it belongs to, its SQL text

_expected: dict[tuple[tuple[str, str], ...], Counter[SchemaObject]] = {}  # by applied migrations, with their checksums


class SchemaChangedError(DatabaseError):
    """The schema of a ledger differs from the one its migrations create. `found` names each difference."""

    def __init__(self, found: Sequence[str]) -> None:
        self.found = list(found)
        super().__init__(
            f"The ledger's schema was changed: {self.named}. The bot did not do that: somebody wrote to the file with another "
            "program. Nothing was done, and the file is unchanged. Keep a copy of the whole data folder, then restore a backup "
            'from before the change (docs/runbook.md, "The schema was changed").'
        )

    @property
    def named(self) -> str:
        """The first differences, and the number of the others."""
        more = len(self.found) - NAMED
        return "; ".join(self.found[:NAMED]) + (f"; and {more:,} more" if more > 0 else "")


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
    if actual == _schema_of(in_build_order):
        return []
    # A ledger that went through several releases may have applied its migrations in another order than a new one does.
    expected = _schema_of(in_build_order if applied == in_build_order else applied)
    return _sentences(expected, actual)


def _schema_of(migrations: Sequence[Migration]) -> Counter[SchemaObject]:
    key = tuple((f"{migration.component}/{migration.name}", migration.sha256) for migration in migrations)
    if key not in _expected:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
            harden(model)
            apply_all(model, migrations)
            _expected[key] = Counter((row[0], row[1], row[2], row[3]) for row in model.execute(_OBJECTS))
    return _expected[key]


def _sentences(expected: Counter[SchemaObject], actual: Counter[SchemaObject]) -> list[str]:
    missing, foreign = expected - actual, actual - expected
    wanted, there = {each[:2] for each in missing}, {each[:2] for each in foreign}
    changed = {f"{kind} {name} was changed" for kind, name in wanted & there}
    gone = {f"{kind} {name} is missing" for kind, name in wanted - there}
    added = {f"{kind} {name} is not one of Quotebot's" for kind, name in there - wanted}
    return [*sorted(added), *sorted(changed), *sorted(gone)]
