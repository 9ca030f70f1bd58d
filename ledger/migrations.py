"""Numbered SQL migrations of any engine, forward only, and the errors of a ledger whose schema does not fit this build."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.database import DatabaseError, MovedError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

_OF_A_FILE: Final = (
    "somebody wrote to the file with another program. Nothing was done, and the file is unchanged. Keep a copy of the whole data "
    'folder, then restore a backup from before the change (docs/runbook.md, "The schema was changed").'
)
NAMED: Final = 3  # objects named in a message; the others are counted
MOVED: Final = "moved"  # component of the row that seals a ledger; its name is the ledger's new place, its checksum the move's id
EXPAND: Final = "-- expand:"  # header of a file that only adds what an older build does not need to know

SchemaObject = tuple[str, str, str, str | None]  # type, name, the table it belongs to, its text


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

    @property
    def expands(self) -> bool:
        """True if builds that do not know this file go on working."""
        return self.sql.startswith(EXPAND)


@functools.cache
def _sha256(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


class SchemaChangedError(DatabaseError):
    """The schema of a ledger differs from the one its migrations create. `found` names each difference."""

    def __init__(self, found: Sequence[str], remedy: str = _OF_A_FILE) -> None:
        self.found = list(found)
        super().__init__(f"The ledger's schema was changed: {self.named}. The bot did not do that: {remedy}")

    @property
    def named(self) -> str:
        """The first differences, and the number of the others."""
        more = len(self.found) - NAMED
        return "; ".join(self.found[:NAMED]) + (f"; and {more:,} more" if more > 0 else "")


class OlderBuildError(DatabaseError):
    """The ledger was not migrated to this build yet."""


def known(rows: Iterable[tuple[str, str, str, int]], migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations of the rows of `schema_migrations` (component, name, sha256, applied_at), in the order applied.

    Raises DatabaseError when one is unknown to this build (the ledger is newer) or its text has changed, MovedError when a row
    seals the ledger.
    """
    by_name = {(migration.component, migration.name): migration for migration in migrations}
    place = {migration: number for number, migration in enumerate(migrations)}
    done: list[tuple[int, int, Migration]] = []
    for component, name, sha256, applied_at in rows:
        if component == MOVED:
            raise MovedError(name, applied_at)
        migration = by_name.get((component, name))
        if migration is None:
            raise DatabaseError(
                f"The ledger was written by a newer build (it has {component}/{name}). It is unchanged. Start the newer build."
            )
        if migration.sha256 != sha256:
            raise DatabaseError(f"Migration {component}/{name} was changed after it was applied. The ledger is unchanged.")
        done.append((applied_at, place[migration], migration))
    return [migration for *_, migration in sorted(done, key=lambda each: each[:2])]


def differences(expected: Counter[SchemaObject], actual: Counter[SchemaObject]) -> list[str]:
    """Return one sentence for each object that is missing, foreign or changed."""
    missing, foreign = expected - actual, actual - expected
    wanted, there = {each[:2] for each in missing}, {each[:2] for each in foreign}
    changed = {f"{kind} {name} was changed" for kind, name in wanted & there}
    gone = {f"{kind} {name} is missing" for kind, name in wanted - there}
    added = {f"{kind} {name} is not one of Quotebot's" for kind, name in there - wanted}
    return [*sorted(added), *sorted(changed), *sorted(gone)]
