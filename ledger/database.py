"""Database protocol of the ledger: whole transactions, run as plain functions. An engine is a driver behind this Protocol.

Requirements for an engine (tests/ledger/engine/test_conformance.py checks every engine against them):

* `write` is atomic: no reader sees a part of it. Two `alone` writes never both build on the same state. SQLite has one writer at a
  time; PostgreSQL has several, whose statements lock the rows on which a decision depends. Work may run twice, after a conflict or
  on a new connection, and must keep no state between the runs.
* Ids grow from one transaction to the next that builds on it, but transactions may commit out of the order of their ids where
  several write at a time. A cursor over ids (`id > :after`) therefore takes its upper end inside an `alone` write. SQLite has one
  writer at a time, so every write of it is alone.
* A result is returned only when the commit would survive a power cut (WAL and synchronous=FULL, or an explicit flush after the
  COMMIT; synchronous_commit=on).
* Every write ends in one of three ways: recorded, provably not recorded (NotRecorded), or unknown (OutcomeUnknown). When it cannot
  be proven that nothing was recorded, the outcome is unknown. A connection lost before COMMIT is not recorded. One lost during
  COMMIT is unknown, unless the engine finds out on a new connection what became of it.
* After an outcome that stays unknown or a sign of damage the database refuses every later write (WritesRefused) until a restart.
* Members of one commit fail separately: an exception of one member rolls back its own changes and is raised to its own caller
  only.
* A deadline drops work that has not begun; cancelling a caller does not stop work that was already requested.
* Items that work emits reach `finish` once per commit, in the order of the members being committed, inside their transaction.
* `read` is one snapshot on a connection that cannot write and never waits for a writer.
* Statements are the named texts of queries.sql with `:name` parameters. Guards that differ between engines (triggers) live in their
  own schema file.
* Queued writes are bounded; a write beyond the bound is refused at once as not recorded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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

    def required(self, name: str, /, **parameters: object) -> Row:
        """Run the named statement and return its first row. Raises MissingRow if there is none."""
        ...

    def each(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> Iterable[Row | None]:
        """Run the named statement once for each row of parameters and return the first row of each, or None.

        A tuple is as in `many`. An engine may run them when the first row is read, together with later statements, in their order.
        """
        ...

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run the named statement once for each row of parameters. It may not return rows.

        A tuple holds the values in the order in which the statement first names its parameters.
        """
        ...

    def emit(self, event: object, /) -> None:
        """Pass an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """State of an open database, for readiness and metrics. Counters start when it is opened."""

    broken: str | None  # why it refuses writes until a restart
    full_since: int | None  # Unix milliseconds of the first disk-full error; None when there is space again
    waiting: int  # writes queued behind the running batch
    commits: int
    writes: int  # committed writes; divided by commits, the mean batch size
    commit_seconds: float  # total time inside COMMIT
    last_commit_seconds: float
    wal_bytes: int
    ballast: bool  # whether disk space is reserved for when the disk is full


class ReadAccess(Protocol):
    """Access to a ledger for reading."""

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on a separate read-only connection, in one snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that last took the lock of the one active bot."""

    pid: int
    alive: bool


class Database(ReadAccess, Protocol):
    """Asynchronous transactions. `work` is synchronous and may run twice: it takes time, ids and random values as arguments."""

    async def write(
        self,
        name: str,
        work: Callable[[Tx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        """Run `work` in one durable transaction and return its result after the commit reached the disk.

        `name` labels the transaction for logs, metrics and crash points. `urgent` work goes first; an engine may run the statements
        of several such writes in turns, so it must not depend on rows that others of its kind write. `brief` work takes
        less than a millisecond, so an engine may run it where it would hold up other callers. `deadline` is monotonic seconds:
        expired work is dropped before it starts. While `alone` work runs, no other write of any process is under way: each
        earlier one is visible, and the ids of each later one are greater.

        Raises NotRecorded when provably nothing was written, OutcomeUnknown when the commit had begun, or any exception of `work`
        (its changes are rolled back).
        """
        ...

    @property
    def health(self) -> Health:
        """The current state of the database."""
        ...

    async def tend(self) -> None:
        """Do the periodic work of the engine, about once a minute, such as recreating the reserved disk space."""
        ...

    async def close(self) -> None:
        """Finish the running transaction and close the connections."""
        ...


class MissingRow(LookupError):  # noqa: N818 -- named after the fact: no row, where the caller relies on one
    """No row where one must exist: a bug of ours, or a row that was deleted by hand. The transaction is rolled back."""

    def __init__(self, statement: str) -> None:
        super().__init__(f"The statement {statement} found no row where one must exist. Nothing was changed.")
        self.statement = statement


class DatabaseError(Exception):
    """The ledger's file cannot be used as requested; the message names the remedy."""


class MovedError(DatabaseError):
    """The ledger was moved to another place, and this one is sealed."""

    def __init__(self, place: str, at_ms: int) -> None:
        super().__init__(
            f"The ledger was moved to {place} ({datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC), and this one "
            "is sealed. Nothing was done. Use it there: QUOTEBOT_LEDGER_URL names a database, and without it the ledger is a file. "
            "An interrupted move: `quotebot ledger move --to` the same place finishes it, `quotebot ledger move --undo` takes it "
            "back."
        )


class DamagedError(DatabaseError):
    """The ledger's file is damaged: further writes would make the damage worse."""


class NotRecorded(DatabaseError):  # noqa: N818 -- named after the fact: provably nothing was written
    """The write was dropped before it began, or rolled back completely: provably nothing was recorded."""


class WritesRefused(NotRecorded):
    """The database refuses writes until a restart: provably nothing was recorded, and waiting does not help."""


class OutcomeUnknown(DatabaseError):  # noqa: N818 -- named after the fact: the outcome is unknown
    """COMMIT had begun and failed: the write may or may not be recorded. Read it again by key in a new process."""


_NAME = re.compile(r"^-- name: (\w+)\s*$")


def load_statements(texts: Iterable[str]) -> Mapping[str, str]:
    """Return statement text by name over all files: `-- name: reserve` stands above the statement that is called `reserve`.

    Raises ValueError on a name used twice or a statement without one.
    """
    statements: dict[str, str] = {}
    for text in texts:
        name: str | None = None
        for line in text.splitlines():
            if match := _NAME.match(line):
                name = match.group(1)
                if name in statements:
                    raise ValueError(f"two statements are named {name}")
                statements[name] = ""
            elif name is not None and not line.startswith("--"):
                statements[name] += line + "\n"
            elif name is None and line.strip() and not line.startswith("--"):
                raise ValueError(f"a statement without a name: {line.strip()[:60]}")
    return {name: sql.strip().removesuffix(";") for name, sql in statements.items()}


def replace_statements(statements: Mapping[str, str], replacements: Mapping[str, str]) -> Mapping[str, str]:
    """Return the statements with an engine's own texts in place of those of the same names.

    Raises ValueError for a text that replaces none.
    """
    unknown = sorted(set(replacements) - set(statements))
    if unknown:
        raise ValueError(f"no statement is named {unknown[0]}, so nothing is replaced")
    return {**statements, **replacements}
