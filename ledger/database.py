"""What the ledger asks of a database: whole transactions, run as plain functions. An engine is a driver behind this Protocol.

What an engine has to provide (tests/ledger/engine/test_conformance.py holds every engine to it):

* `write` is atomic and isolated: nobody sees a part of it, and two writes never read the same state and both build on it. SQLite
  has one writer at a time; PostgreSQL would run SERIALIZABLE, or take one advisory lock per ledger, and run the work again on a
  serialization failure. Work may therefore run twice, and must not remember anything between the runs.
* A result is returned only when the commit would survive a power cut (WAL and synchronous=FULL, or a flush
  of its own after the COMMIT; synchronous_commit=on).
* Every ending is one of three: recorded, provably not recorded (NotRecorded), or unknown (OutcomeUnknown). When it cannot be proven
  that nothing was recorded, it is unknown. A lost connection during COMMIT is unknown; before it, it is not recorded.
* After an unknown outcome or a sign of damage the database refuses every later write (WritesRefused) until a restart.
* Members of one commit fail alone: an exception of one is rolled back to its own savepoint and raised to its own caller only.
* A deadline drops work that has not begun; a cancelled caller stops nothing that was asked for.
* What work emits reaches `finish` once per commit, in the order of the members that are being committed, inside their transaction.
* `read` is one snapshot on a connection that cannot write and never waits for a writer.
* Statements are the named texts of queries.sql with `:name` parameters. Guards that differ between engines (triggers) live in their
  own schema file.
* Queued writes are bounded; what does not fit is refused at once as not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")


class Row(Protocol):
    """One result row, read by column name."""

    def __getitem__(self, key: str, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def keys(self) -> list[str]:
        """Return the column names, in order."""
        ...


class Tx(Protocol):
    """An open transaction. Statements are named; their text lives in a queries.sql."""

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        ...

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        ...

    def many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> None:
        """Run the named statement once for each row of parameters. It may not return rows."""
        ...

    def emit(self, event: object, /) -> None:
        """Hand an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """How an open database is doing, for readiness and metrics. Counters count since it was opened."""

    broken: str | None  # why it takes no more writes until a restart
    full_since: int | None  # Unix milliseconds of the first full disk; None when there is room again
    waiting: int  # writes queued behind the running batch
    commits: int
    writes: int  # that were committed; divided by commits it is the mean batch
    commit_seconds: float  # total time inside COMMIT
    last_commit_seconds: float
    wal_bytes: int
    ballast: bool  # whether room is kept for the day the disk is full


class Database(Protocol):
    """Transactions in, results out. `work` is synchronous and may run twice: it takes time, ids and chance as values."""

    async def write(self, name: str, work: Callable[[Tx], T], *, urgent: bool = False, deadline: float | None = None) -> T:
        """Run `work` in one durable transaction and return its result after the commit reached the disk.

        `name` labels the transaction for logs, metrics and crash windows. `urgent` work goes first. `deadline` is monotonic
        seconds: expired work is dropped before it starts. Raises NotRecorded when provably nothing was written,
        OutcomeUnknown when the commit had begun, or whatever `work` raised (its changes are rolled back).
        """
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on a separate read-only connection, in one snapshot."""
        ...

    @property
    def health(self) -> Health:
        """How it is doing now."""
        ...

    async def tend(self) -> None:
        """Do what the engine needs done every minute or so, such as keeping room for a full disk again."""
        ...

    async def close(self) -> None:
        """Finish the running transaction and close the connections."""
        ...


class DatabaseError(Exception):
    """The ledger's file cannot be used as asked; the message says what to do."""


class DamagedError(DatabaseError):
    """The ledger's file is not whole any more: whoever writes on makes it worse."""


class NotRecorded(DatabaseError):  # noqa: N818 -- the fact, not the mishap: provably nothing was written
    """The write was dropped before it began, or rolled back whole: provably nothing was recorded."""


class WritesRefused(NotRecorded):
    """The file takes no writes until a restart: provably nothing was recorded, and waiting does not help."""


class OutcomeUnknown(DatabaseError):  # noqa: N818 -- the fact: it cannot be said whether it was recorded
    """COMMIT had begun and failed: it may or may not be recorded. Re-read by key in a fresh process."""
