"""The production engine for PostgreSQL without its thread: batches run in place and pass a trap before each statement.

Statements and COMMITs go to a real server. A crash closes the sessions, and the server rolls back what was not committed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from faults.lab.traps import Trap
from ledger.audit.events import Audit, Keyring
from ledger.postgres.connections import prepare
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.marks import ALONE_LOCK
from ledger.postgres.pipeline import NamedStatement, Pipeline
from ledger.postgres.sessions import Address, Limits, Session
from ledger.postgres.transactions import PostgresTx
from quotebot.app.postgres_storage import DocumentRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.database import Tx
    from ledger.migrations import Migration
    from ledger.postgres.pipeline import StatementResult
    from ledger.postgres.writer import QueuedWrite

IMPATIENT: Final = Limits(lock=30, statement=60_000, idle=0)  # a wait for the other process would not end: it is refused
SERIALIZABLE, READ_COMMITTED = "SERIALIZABLE", "READ COMMITTED"
KEPT: Final = {"schema_migrations", "operation_arrows", "effect_arrows", "meta"}  # tables that a new ledger comes with
# What a ledger looks like to those who use it: by keys, because ids depend on the order.
STATE: Final = {
    "operations": "operation_key, state, next_attempt_at, outcome, claims, attempts, category",
    "effects": "effect_key, state, next_attempt_at, supersede_key, after_id IS NULL, maybe_sent, claims, attempts, category",
    "deliveries": "source_request_id, seen",
    "gates": "name, state, cause, until_at, failures",
}
WAITING: Final = {"reserved", "failed_retryable", "pending", "uncertain"}
CLAIMED: Final = {"in_progress", "in_flight"}
START_MS: Final = 1_750_000_000_000
PATIENT: Final = Limits(lock=60_000, statement=60_000, idle=60_000)  # a trap may take long on a busy machine


class InlinePostgresDatabase(PostgresDatabase):
    """PostgresDatabase whose writer runs in place. `engine(trap)` returns a subclass that passes `trap`."""

    trap: ClassVar[Trap] = Trap()
    limits: ClassVar[Limits] = PATIENT

    @classmethod
    async def open(cls, url: str, **options: Any) -> Self:
        """Open as PostgresDatabase does; the names of its statements become part of the crash points' names."""
        _WRITING.clear()
        database = await super().open(url, **{**options, "limits": cls.limits})
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
        self._loop.call_soon(self._batch_ended, self._writer.run(batch))


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


def state_of(session: Session) -> set[tuple[Any, ...]]:
    """Return what the ledger of a session looks like."""
    return {
        (table, *row)
        for table, columns in STATE.items()
        for row in session.run(f"SELECT {columns} FROM {table}")  # noqa: S608 -- our own names
    }


def is_result_of(found: set[tuple[Any, ...]], ordered: set[tuple[Any, ...]]) -> bool:
    """Tell whether a state is the one that an order leaves, or one that the next claims turn into it.

    A claim passes over a row that is being changed: the row is still due, and within its limits the claim takes others in its
    place, or gives up some that are too old. Two updates of one target that are enqueued at the same time both wait: the claim of
    the older one drops it.
    """
    later = {row[:2]: row for row in ordered - found}
    here = found - ordered
    if {row[:2] for row in here} != later.keys():
        return False
    early = {row for row in here if not _comes_later(row, later[row[:2]], found)}
    return all(_is_taken(row) and _is_due(later[row[:2]]) for row in early) and (
        not early or any(_is_taken(later[row[:2]]) for row in here - early)
    )


def _is_due(row: tuple[Any, ...]) -> bool:
    return row[0] in {"operations", "effects"} and row[2] in WAITING and row[3] is not None


def _is_taken(row: tuple[Any, ...]) -> bool:
    """Tell whether a claim has taken a row, or given it up as too old."""
    return row[2] in CLAIMED or (row[2] == "failed" and row[-1] == "expired")


def _comes_later(row: tuple[Any, ...], then: tuple[Any, ...], found: set[tuple[Any, ...]]) -> bool:
    """Tell whether a row will come to be what it is in an order."""
    if row[0] not in {"operations", "effects"} or row[2] not in WAITING:
        return False
    if _is_taken(then):
        return row[3] is not None
    equals = (each for each in found if each[:1] == row[:1] and each != row and each[2] == "pending" and each[4] == row[4])
    return then[2] == "superseded" and row[4] is not None and any((each[3] is None) == (row[3] is None) for each in equals)


class RecordingTx(PostgresTx):
    """A transaction that notes the names of its statements."""

    __slots__ = ("names",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.names: list[str] = []

    def all(self, name: str, /, **parameters: object) -> list[Any]:
        """Run a statement."""
        self.names.append(name)
        return super().all(name, **parameters)

    def each(self, name: str, rows: Sequence[Any], /) -> Any:
        """Run a statement several times."""
        self.names.append(name)
        return super().each(name, rows)

    def many(self, name: str, rows: Sequence[Any], /) -> None:
        """Run a statement several times."""
        self.names.append(name)
        super().many(name, rows)


class HeldDatabase:
    """Database of one process, on one session, without a thread. A held write waits before its COMMIT."""

    def __init__(self, url: str, name: str, texts: Mapping[str, str]) -> None:
        self._session = Address(url).connect(name="isolation", limits=IMPATIENT, writes=True)
        self._statements = {name: NamedStatement(text) for name, text in texts.items()}
        self.level = SERIALIZABLE
        self.name = name
        self.audit = Audit(frozenset(), Keyring.of(b"k" * 32), system_chain=f"system/{name}")
        self.label = ""  # of the last write
        self.names: list[str] = []  # its statements
        self.holds = False
        self.held = asyncio.Event()
        self.released = asyncio.Event()

    async def write(self, name: str, work: Callable[[Tx], Any], *, alone: bool = False, **_: object) -> Any:
        """Run `work` in one transaction of the present level."""
        if name == "note_duplicate":  # written in the background, at a time that the test does not know
            return None
        self.label = name
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        session = self._session
        try:
            session.run(f"BEGIN ISOLATION LEVEL {self.level}; SELECT {lock}({ALONE_LOCK})")
            tx = RecordingTx(session, self._statements, [])
            self.names = tx.names
            result = work(tx)
            if self.holds:
                self.held.set()
                await self.released.wait()
            session.commit()
        except BaseException:
            session.run("ROLLBACK")
            raise
        return result

    async def read(self, work: Callable[[Tx], Any]) -> Any:
        """Run `work` in one snapshot."""
        self._session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return work(PostgresTx(self._session, self._statements, None))
        finally:
            self._session.run("ROLLBACK")

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class Place:
    """A ledger that is emptied before each run, and the two databases of its processes. `texts`: the named statements."""

    def __init__(self, url: str, migrations: Sequence[Migration], texts: Mapping[str, str]) -> None:
        prepare(url, migrations, START_MS, lambda: None)
        self._shell = Address(url).connect(name="isolation", limits=IMPATIENT, writes=True)
        self._shell.run("SET session_replication_role = replica")  # no guards
        found = self._shell.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        self._deletions = "; ".join(f"DELETE FROM {name}" for (name,) in found if name not in KEPT)  # noqa: S608 -- the schema's names
        self.databases = [HeldDatabase(url, name, texts) for name in ("one", "other")]

    def empty(self) -> None:
        """Delete every row."""
        self._shell.run(self._deletions)

    def state(self) -> set[tuple[Any, ...]]:
        """Return what the ledger looks like."""
        return state_of(self._shell)

    def close(self) -> None:
        """Close the connections."""
        self._shell.close()
        for database in self.databases:
            database.close()
