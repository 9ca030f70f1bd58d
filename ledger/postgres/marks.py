"""Marks: one row for each writer with the number of its last batch, by which a COMMIT without an answer is resolved.

Each batch adds one to its writer's mark in its own transaction. After a COMMIT of unknown outcome the writer connects again and
adds `STRIDE`. This update waits for the row lock of a COMMIT that is still in progress, so the answer cannot change later, and its
own commit proves that a standby has what it read. The remainder says whether the batch was recorded, however many such updates were
lost on the way. A process that takes the mark over adds `TAKEN`, and its batches are not mistaken for those of the one before.
Transaction ids would not do: a new primary issues those of a lost transaction again.

The number is also kept in a file, for the next start of that writer: a database with a smaller one was put back to an earlier time,
or a failover lost what it had acknowledged. Such a start is refused until a new generation of the ledger begins (recovery.py).
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg

from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.postgres.sessions import Session

STRIDE: Final = 1_000_000
TAKEN: Final = 1_000_000_000_000  # more than one process ever adds before its next batch
RESOLVE_SECONDS: Final = 30.0  # then the process must end: it cannot say what was recorded
RETRY_SECONDS: Final = 0.05
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
NOTES: Final = "postgres-mark-"  # prefix of the files
NOTE_SECONDS: Final = 5.0  # between two changes of the file
# Advisory lock that every write shares and a write that runs alone takes for itself; "quote" in ASCII.
ALONE_LOCK: Final = 0x71756F7465


class MarkError(DatabaseError):
    """The mark is not what this writer wrote: another process writes under its name, or the database lost commits."""


class LostCommitsError(MarkError):
    """The database has fewer commits of a writer than it acknowledged."""

    def __init__(self, writer: str, found: int, noted: int) -> None:
        super().__init__(
            f"the database lost commits that were acknowledged: the mark of the writer {writer} is {found:,} and was {noted:,}. "
            "It was put back to an earlier time, or a failover went to a server without them. If another server has them, stop "
            "this one and promote that. Otherwise: `quotebot ledger begin-generation` (docs/backup.md), so that no call made since "
            "is repeated unseen, and no quote number assigned twice"
        )


class MarkNote(NamedTuple):
    """Content of the file of a writer: the ledger's id with that of its move here, its generation, and the last number."""

    writer: str
    ledger: str
    generation: int
    n: int

    @classmethod
    def read(cls, path: Path) -> MarkNote | None:
        """Return the content of a file; None if there is none or it is torn."""
        try:
            writer, ledger, generation, n = path.read_text("utf-8").split()
            return cls(writer, ledger, int(generation), int(n))
        except (OSError, ValueError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file. A full disk does not keep a bot from its ledger."""
        fresh = path.with_name(f"{path.name}.new")
        with contextlib.suppress(OSError):
            fresh.touch(mode=0o600)
            fresh.write_text(" ".join(map(str, self)), "utf-8")
            fresh.replace(path)

    def require_kept(self, found: MarkNote) -> None:
        """Raise LostCommitsError if the database has less than this in the same generation."""
        if (self.ledger, self.generation) == (found.ledger, found.generation) and found.n < self.n:
            raise LostCommitsError(self.writer, found.n, self.n)


def note_name(writer: str) -> str:
    """Return the name of a writer's file."""
    return f"{NOTES}{writer.replace('/', '-')}"


def marked(writer: str) -> str:
    """Return the statement that reads what the database has of a writer's note."""
    literal = "'" + writer.replace("'", "''") + "'"
    return (
        "SELECT (SELECT string_agg(value, '/' ORDER BY name DESC) FROM meta WHERE name IN ('ledger_id', 'arrived')), "  # noqa: S608 -- quoted
        "(SELECT coalesce(max(generation), 1) FROM generations), "
        f"coalesce((SELECT n FROM writers WHERE writer = {literal}), -1)"
    )


class WriterMark:
    """The mark of one writer. `take` makes it this process's own: an earlier process of that name cannot commit any more."""

    def __init__(self, writer: str, file: Path | None = None) -> None:
        """`file` keeps the number for the next start."""
        self.writer = writer
        self._literal = "'" + writer.replace("'", "''") + "'"
        self._n = 0
        self._file = file
        self._note: MarkNote | None = None
        self._noted_at = 0.0

    def take(self, session: Session) -> None:
        """Create the row, or take it over from an earlier process. Raises LostCommitsError."""
        if self._file is not None:
            ((ledger, generation, n),) = session.run(marked(self.writer))
            found, noted = MarkNote(self.writer, str(ledger), int(generation), int(n)), MarkNote.read(self._file)
            if noted is not None:
                noted.require_kept(found)
            self._note = found
        rows = session.run(
            f"INSERT INTO writers (writer, n, taken_at) VALUES ({self._literal}, 0, {_NOW}) "  # noqa: S608 -- quoted above; no parameters, as below
            f"ON CONFLICT (writer) DO UPDATE SET n = writers.n + {TAKEN}, taken_at = excluded.taken_at RETURNING n"
        )
        self._n = int(rows[0][0])
        self.note()

    def note(self) -> None:
        """Store the number of the last batch that is recorded."""
        self._noted_at = time.monotonic()
        if self._file is not None and self._note is not None:
            self._note._replace(n=self._n).write(self._file)

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
        if time.monotonic() - self._noted_at >= NOTE_SECONDS:
            self.note()

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
            return LostCommitsError(self.writer, n, self._n)
        return MarkError(f"another process writes under the name {self.writer}")
