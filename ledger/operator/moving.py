"""Move of a ledger to another engine: every row is copied and compared, and at no time can both ledgers be written.

A move has an id. The steps, each of which a killed move repeats or passes over:
    1. The source is sealed: a row with the id and the target's place, after which the source refuses every write of any program.
    2. The rows are copied into a target that nobody can open yet, compared table by table and verified by their audit chains.
    3. One step opens the target, which holds the id. Taking the seal off again is possible only while no target holds it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from ledger.database import Tx

ARRIVED: Final = "arrived"  # name in `meta` of the id of the move that made this ledger
APART: Final = frozenset({"schema_migrations", "writers", "paces", "artefact_blobs"})  # not rows that both engines have
_DIGEST_BYTES: Final = 32


class MoveError(DatabaseError):
    """A move cannot be made as asked; the ledger is where it was."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of a ledger that was moved: the id of the move, the new place and the time in Unix milliseconds."""

    move: str
    place: str
    at: int


class Rows(Protocol):
    """The rows of a ledger in one snapshot."""

    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Return the columns of each table that moves, a table after those that it refers to."""

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, in any order: integers, texts, bytes and None."""


class LedgerCopy(Rows, Protocol):
    """The target of a move in its open transaction, without rows."""

    @property
    def tx(self) -> Tx:
        """The transaction."""

    def fill(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Insert the rows of a table."""


class Movable(Protocol):
    """A ledger, or the place of one, as either end of a move. Every method blocks."""

    @property
    def place(self) -> str:
        """The place for people, without a password."""

    def find_seal(self) -> Seal | None:
        """Return the seal of the ledger, or None."""

    def find_move(self) -> str | None:
        """Return the id of the move that made this ledger, or None. Waits for a move under way in another process."""

    def require_free(self) -> None:
        """Raise MoveError if there is a ledger that was not moved away."""

    def prepare(self, move: str) -> None:
        """Note durably that a move to this place begins."""

    def require_noted(self, move: str) -> None:
        """Raise MoveError unless this is the place at which `prepare` noted the move."""

    def seal(self, seal: Seal) -> None:
        """Refuse every further write, durably."""

    def unseal(self) -> None:
        """Allow writes again."""

    def reading(self) -> AbstractContextManager[Rows]:
        """Read the ledger in one snapshot."""

    def filling(self, move: str, now_ms: int) -> AbstractContextManager[LedgerCopy]:
        """Fill an empty target. At the end of the block the ledger is there, complete and durable; after an error nothing is."""


class Digest:
    """Digest of a table's rows that does not depend on their order: the sum of their SHA-256."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def over(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows and add each."""
        for row in rows:
            self._sum += int.from_bytes(hashlib.sha256(repr(row).encode()).digest())
            self.count += 1
            yield row

    @property
    def value(self) -> int:
        """The sum, of as many bytes as one hash."""
        return self._sum % (1 << 8 * _DIGEST_BYTES)


def copy_rows(source: Rows, target: LedgerCopy, progress: Callable[[str, int, int], None]) -> dict[str, int]:
    """Copy every row, read it back and compare; return the number of rows by table. Raises MoveError."""
    tables, expected = source.tables(), target.tables()
    if dict(tables) != dict(expected):
        differing = sorted(name for name in {*tables, *expected} if tables.get(name) != expected.get(name))
        raise MoveError(f"The two ledgers have other tables or columns: {', '.join(differing)}. Nothing was moved.")
    counts: dict[str, int] = {}
    for number, table in enumerate(expected):
        progress(f"Copying {table}", number, len(expected))
        read, written = Digest(), Digest()
        target.fill(table, read.over(source.rows(table)))
        for _ in written.over(target.rows(table)):
            pass
        if (read.count, read.value) != (written.count, written.value):
            raise MoveError(f"{table}: the target has other rows than the ledger. Nothing was moved. Try again.")
        counts[table] = read.count
    return counts
