"""What the ledger asks of a database: whole transactions, run as plain functions. An engine is a driver behind this Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Row(Protocol):
    """One result row, read by column name."""

    def __getitem__(self, key: str, /) -> Any: ...

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

    async def close(self) -> None:
        """Finish the running transaction and close the connections."""
        ...


class DatabaseError(Exception):
    """The ledger's file cannot be used as asked; the message says what to do."""


class NotRecorded(DatabaseError):  # noqa: N818 -- the fact, not the mishap: provably nothing was written
    """The write was dropped before it began: provably nothing was recorded."""


class WritesRefused(NotRecorded):
    """The file takes no writes until a restart: provably nothing was recorded, and waiting does not help."""


class OutcomeUnknown(DatabaseError):  # noqa: N818 -- the fact: it cannot be said whether it was recorded
    """COMMIT had begun and failed: it may or may not be recorded. Re-read by key in a fresh process."""
