"""The production engine for PostgreSQL without its thread: batches run in place and pass a trap before each statement.

Statements and COMMITs go to a real server. A crash closes the sessions, and the server rolls back what was not committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from faults.lab.traps import Trap
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.pipeline import Pipeline
from ledger.postgres.sessions import Limits, Session
from ledger.postgres.transactions import NamedStatement
from quotebot.app.postgres_storage import DocumentRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.postgres.pipeline import StatementResult
    from ledger.postgres.transactions import PostgresTx
    from ledger.postgres.writer import QueuedWrite

PATIENT: Final = Limits(lock=60_000, statement=60_000, idle=60_000)  # a trap may take long on a busy machine


class InlinePostgresDatabase(PostgresDatabase):
    """PostgresDatabase whose writer runs in place. `engine(trap)` returns a subclass that passes `trap`."""

    trap: ClassVar[Trap] = Trap()

    @classmethod
    async def open(cls, url: str, **options: Any) -> Self:
        """Open as PostgresDatabase does; the names of its statements become part of the crash points' names."""
        _WRITING.clear()
        database = await super().open(url, **{**options, "limits": PATIENT})
        session = database._writer.session  # noqa: SLF001 -- only the writer's session passes the trap
        assert isinstance(database, cls)  # noqa: S101 -- this class was opened
        assert session is not None  # noqa: S101 -- it is open
        session.__class__ = _watched_session(cls.trap)
        session.pipeline.__class__ = _watched_pipeline(
            cls.trap, {NamedStatement(text).sql: name for name, text in options["statements"].items()}
        )
        return database

    async def write(self, name: str, work: Callable[[PostgresTx], Any], **options: Any) -> Any:
        """Write; the transaction's name becomes part of the names of its crash points."""

        def named(tx: PostgresTx) -> Any:
            _WRITING.append(name)
            return work(tx)

        return await super().write(name, named, **options)

    @property
    def looking(self) -> Any:
        """The reader's connection, for use between two reads."""
        session = self._reader.session
        assert session is not None  # noqa: S101 -- it is open
        return session.connection

    def crash(self) -> None:
        """Close the sessions without another word, and end the unused thread."""
        for session in (self._writer.session, self._reader.session):
            if session is not None:
                session.close()
        self._watchdog.stop()
        self._inbox.put(None)

    def _hand_over(self, batch: list[QueuedWrite]) -> None:
        _WRITING.clear()
        self._loop.call_soon(self._notified, self._writer.run(batch))


class TrappedDocuments(DocumentRows):
    """The production's documents as rows; `trap` is passed before and after every change."""

    def __init__(self, url: str, trap: Trap) -> None:
        super().__init__(url)
        self._trap = trap

    def put(self, content: bytes) -> str:
        """Store a document."""
        self._trap.passes("document:put:before")
        sha256 = super().put(content)
        self._changed("put")
        return sha256

    def remove(self, sha256: str) -> None:
        """Remove a document."""
        self._trap.passes("document:remove:before")
        super().remove(sha256)
        self._changed("remove")

    def _changed(self, what: str) -> None:
        self._trap.commits += 1
        self._trap.passes(f"document:{what}:after")


def engine(trap: Trap) -> type[InlinePostgresDatabase]:
    """Return an engine whose writer passes this trap."""
    return type("TrappedPostgresDatabase", (InlinePostgresDatabase,), {"trap": trap})


_WRITING: list[str] = []  # the writes of the running batch, in order: one thread, one batch at a time


def _watched_pipeline(trap: Trap, names: Mapping[str, str]) -> type[Pipeline]:
    class WatchedPipeline(Pipeline):
        last: NamedStatement | None = None

        def add(self, statement: NamedStatement, values: Sequence[object]) -> StatementResult:
            if (
                statement.has_rows or statement is not self.last
            ) and statement.sql in names:  # the rows of one `many` are one point
                trap.passes(f"sql:{_WRITING[-1] if _WRITING else 'open'}/{names[statement.sql]}")
            self.last = statement
            return super().add(statement, values)

    return WatchedPipeline


def _watched_session(trap: Trap) -> type[Session]:
    class WatchedSession(Session):
        def commit(self) -> str | None:
            point = f"commit:{'+'.join(dict.fromkeys(_WRITING))}"
            trap.passes(f"{point}:before")
            uncertain = super().commit()
            trap.commits += 1
            trap.passes(f"{point}:after")
            return uncertain

    return WatchedSession
