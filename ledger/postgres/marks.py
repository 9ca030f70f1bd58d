"""Marks: one row for each writer with the number of its last batch, by which a COMMIT without an answer is resolved.

Each batch adds one to its writer's mark in its own transaction. After a COMMIT of unknown outcome the writer connects again and
adds `STRIDE`. This update waits for the row lock of a COMMIT that is still in progress, so the answer cannot change later, and its
own commit proves that a standby has what it read. The remainder says whether the batch was recorded, however many such updates were
lost on the way. A process that takes the mark over adds `TAKEN`, and its batches are not mistaken for those of the one before.
Transaction ids would not do: a new primary issues those of a lost transaction again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import psycopg

from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.postgres.sessions import Session

STRIDE: Final = 1_000_000
TAKEN: Final = 1_000_000_000_000  # more than one process ever adds before its next batch
RESOLVE_SECONDS: Final = 30.0  # then the process must end: it cannot say what was recorded
RETRY_SECONDS: Final = 0.05
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# Advisory lock that every write shares and a write that runs alone takes for itself; "quote" in ASCII.
ALONE_LOCK: Final = 0x71756F7465


class MarkError(DatabaseError):
    """The mark is not what this writer wrote: another process writes under its name, or the database lost commits."""


class WriterMark:
    """The mark of one writer. `take` makes it this process's own: an earlier process of that name cannot commit any more."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._literal = "'" + writer.replace("'", "''") + "'"
        self._n = 0

    def take(self, session: Session) -> None:
        """Create the row, or take it over from an earlier process."""
        rows = session.run(
            f"INSERT INTO writers (writer, n, taken_at) VALUES ({self._literal}, 0, {_NOW}) "  # noqa: S608 -- quoted above; no parameters, as below
            f"ON CONFLICT (writer) DO UPDATE SET n = writers.n + {TAKEN}, taken_at = excluded.taken_at RETURNING n"
        )
        self._n = int(rows[0][0])

    def begin(self, session: Session, *, alone: bool) -> None:
        """Begin a batch in one round trip: the transaction, the lock and the mark. Raises psycopg.Error, MarkError."""
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        marked = session.run(
            f"BEGIN; SELECT {lock}({ALONE_LOCK}); "  # noqa: S608 -- numbers, and a name quoted above
            f"UPDATE writers SET n = {self._n + 1} WHERE writer = {self._literal} AND n = {self._n} RETURNING n"
        )
        if not marked:
            raise self._mistaken(session)

    def recorded(self) -> None:
        """Count a batch that is recorded."""
        self._n += 1

    def resolve(self, connect: Callable[[], Session]) -> tuple[bool, Session]:
        """Return whether the last batch is recorded, and a new session.

        Raises MarkError, and DatabaseError when it is still unknown after 30 s.
        """
        give_up_at = time.monotonic() + RESOLVE_SECONDS
        while True:
            session: Session | None = None
            try:
                session = connect()
                found = self._bump(session)
            except (psycopg.Error, DatabaseError) as error:
                if session is not None:
                    session.close()
                if isinstance(error, MarkError):
                    raise
                if time.monotonic() >= give_up_at:
                    raise DatabaseError(f"it is not known after {RESOLVE_SECONDS:.0f} s whether a COMMIT was recorded") from error
                time.sleep(RETRY_SECONDS)
            else:
                return found, session

    def _bump(self, session: Session) -> bool:
        session.notices.clear()
        rows = session.run(  # unless another process has taken the mark over: this one must not end its writes
            f"UPDATE writers SET n = n + {STRIDE} WHERE writer = {self._literal} AND n < {self._n + TAKEN} RETURNING n"  # noqa: S608 -- as above
        )
        if session.notices:
            raise DatabaseError("; ".join(session.notices))  # committed here, and perhaps on no standby
        strides, recorded = divmod(int(rows[0][0]) - self._n, STRIDE) if rows else (0, 0)
        if strides < 1 or recorded not in {0, 1}:
            raise self._mistaken(session)
        self._n = int(rows[0][0])
        return bool(recorded)

    def _mistaken(self, session: Session) -> MarkError:
        rows = session.run(f"SELECT n FROM writers WHERE writer = {self._literal}")  # noqa: S608 -- as above
        n = int(rows[0][0]) if rows else -1
        if n < self._n:
            return MarkError(
                f"the database lost commits that were acknowledged: the mark of the writer {self.writer} is {n} and was {self._n}"
            )
        return MarkError(f"another process writes under the name {self.writer}")
