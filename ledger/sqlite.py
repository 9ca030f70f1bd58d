"""SQLite behind the Database protocol: one writer with group commit, readers apart. The only importer of aiosqlite.

Writers of the same moment share one BEGIN IMMEDIATE ... COMMIT, each in a savepoint of its own, so one fsync serves them all. A
file lock around every write transaction keeps the bot and the CLI fair to each other and commits and checkpoints apart (SQLite's
busy handler starves, and versions before 3.51.3 can corrupt the WAL when two connections race there).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiosqlite

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, Row, WritesRefused
from ledger.migrations import Migration, migrate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from ledger.clock import Clock

T = TypeVar("T")

APPLICATION_ID: Final = 0x51424F54  # "QBOT": `file` names it and a stranger's database is refused
MAX_BATCH: Final = 256
_DISK_TROUBLE: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM}
)
WAL_PAGES: Final = 4000
_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # NORMAL loses acknowledged commits in a power cut
    "PRAGMA foreign_keys = ON",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -16000",
    "PRAGMA journal_size_limit = 67108864",
)


class SqliteTx:
    """An open transaction on one connection."""

    __slots__ = ("_connection", "_statements")

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
        self._connection = connection
        self._statements = statements

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        if not self._connection.in_transaction:  # a full disk ended it: what follows would commit by itself, statement by statement
            raise DatabaseError(f"The transaction was rolled back before {name}; nothing of it is recorded.")
        return self._connection.execute(self._statements[name], parameters).fetchall()

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        rows = self.all(name, **parameters)  # fetched whole: a half-read RETURNING statement would keep the transaction open
        return rows[0] if rows else None


class _Member:
    """One waiting write. Its start and its abandonment exclude each other, so "not recorded" is never a guess."""

    __slots__ = ("_abandoned", "_lock", "_started", "deadline", "error", "future", "name", "result", "work")

    def __init__(self, name: str, work: Callable[[SqliteTx], Any], deadline: float | None, future: asyncio.Future[Any]) -> None:
        self.name = name
        self.work = work
        self.deadline = deadline
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._started = False
        self._abandoned = False

    def start(self) -> bool:
        """Tell the writer whether it may run this member. Running it again after a batch was rolled back is allowed."""
        with self._lock:
            self._started = not self._abandoned
            return self._started

    def abandon(self) -> bool:
        """Tell the caller whether it may give this member up: true means it will never run."""
        with self._lock:
            self._abandoned = not self._started
            return self._abandoned


class SqliteDatabase:
    """One ledger file. Open it with `await SqliteDatabase.open(...)`, close it with `close()`."""

    def __init__(
        self, writer: aiosqlite.Connection, reader: aiosqlite.Connection, gate: int, statements: Mapping[str, str], clock: Clock
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._gate = gate
        self._statements = statements
        self._clock = clock
        self._urgent: deque[_Member] = deque()
        self._waiting: deque[_Member] = deque()
        self._pump_task: asyncio.Task[None] | None = None
        self._broken: str | None = None
        self.commits = 0  # counted by the writer, for tests and metrics

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        statements: Mapping[str, str],
        migrations: Sequence[Migration],
        clock: Clock,
        checkpoints: bool = True,
    ) -> SqliteDatabase:
        """Open or create the ledger at `path` and bring its schema up to date.

        `checkpoints` is false for every process but the bot: a WAL has one checkpoint owner. Raises DatabaseError when the file
        is not ours, is newer than this build, or does not give the durability asked for.
        """
        path = Path(os.path.abspath(path))  # noqa: ASYNC240, PTH100 -- once, at start
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # created 0600 before SQLite sees it: the WAL inherits the mode
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        gate = os.open(path.with_name(path.name + ".gate"), os.O_CREAT | os.O_RDWR, 0o600)
        writer = await aiosqlite.connect(path, isolation_level=None)
        reader: aiosqlite.Connection | None = None
        try:
            await _on_its_thread(writer, _prepare, gate, migrations, clock.now_ms(), WAL_PAGES if checkpoints else 0)
            reader = await aiosqlite.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
            await _on_its_thread(reader, _prepare_reader)
        except BaseException:
            await writer.close()
            if reader is not None:
                await reader.close()
            os.close(gate)
            raise
        return cls(writer, reader, gate, statements, clock)

    async def write(self, name: str, work: Callable[[SqliteTx], T], *, urgent: bool = False, deadline: float | None = None) -> T:
        """Run `work` in one durable transaction (see Database.write)."""
        if self._broken is not None:
            raise self._refusal(name)
        member = _Member(name, work, deadline, asyncio.get_running_loop().create_future())
        (self._urgent if urgent else self._waiting).append(member)
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.create_task(self._pump())  # starts next tick: writes of this tick share its batch
        result: T = await self._wait_for(member)
        return result

    async def read(self, work: Callable[[SqliteTx], T]) -> T:
        """Run `work` on the read-only connection, in one snapshot."""

        def run(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(SqliteTx(connection, self._statements))
            finally:
                if connection.in_transaction:  # a disk error may have ended it
                    connection.execute("ROLLBACK")

        return await _on_its_thread(self._reader, run)

    async def close(self) -> None:
        """Finish what is queued and close the connections; the last one out checkpoints, inside the gate."""
        if self._pump_task is not None:
            await self._pump_task
        await self._reader.close()
        await _on_its_thread(self._writer, self._close_in_gate)
        await self._writer.close()
        os.close(self._gate)

    async def _wait_for(self, member: _Member) -> Any:
        if member.deadline is None:
            return await asyncio.shield(member.future)
        remaining = max(0.0, member.deadline - self._clock.monotonic())
        try:
            return await asyncio.wait_for(asyncio.shield(member.future), remaining)
        except TimeoutError:
            if member.abandon():
                raise NotRecorded(f"{member.name} did not start before its deadline; nothing was recorded.") from None
        # It has begun: its outcome is a matter of one commit. Waiting it out beats guessing.
        try:
            return await asyncio.wait_for(asyncio.shield(member.future), max(0.5, remaining))
        except TimeoutError:
            raise OutcomeUnknown(f"{member.name} had begun at its deadline; whether it was recorded is not known yet.") from None

    async def _pump(self) -> None:
        while self._urgent or self._waiting:
            batch = self._next_batch()
            if self._broken is not None:  # after a failed COMMIT nothing is written on this connection again
                for member in batch:
                    member.error = self._refusal(member.name)
                    _deliver(member)
                continue
            try:
                rerun = await _on_its_thread(self._writer, self._run_batch, batch)
            except Exception as error:  # noqa: BLE001 -- whatever the thread raised, every waiting caller must hear of it
                self._broken = f"the ledger's writer failed: {error}"
                rerun = []
                for member in batch:
                    member.error = OutcomeUnknown(self._broken)
            self._urgent.extendleft(reversed(rerun))
            for member in batch:
                if member not in rerun:
                    _deliver(member)

    def _next_batch(self) -> list[_Member]:
        batch: list[_Member] = []
        for queue in (self._urgent, self._waiting):
            while queue and len(batch) < MAX_BATCH:
                batch.append(queue.popleft())
        return batch

    def _refusal(self, name: str) -> WritesRefused:
        return WritesRefused(f"{name} was not recorded: the ledger takes no writes until a restart. The cause: {self._broken}")

    def _run_batch(self, connection: sqlite3.Connection, batch: list[_Member]) -> list[_Member]:
        """Run on the writer's thread. Returns the members to run again: another's disk error rolled them back."""
        with _locked(self._gate):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                for member in batch:
                    member.error = NotRecorded(f"the ledger could not be written ({error}); nothing was recorded.")
                return []
            ran: list[_Member] = []
            for member in batch:
                if member.deadline is not None and self._clock.monotonic() >= member.deadline and member.abandon():
                    member.error = NotRecorded(f"{member.name} waited past its deadline; nothing was recorded.")
                    continue
                if not member.start():
                    continue
                self._run_member(connection, member)
                if not connection.in_transaction:
                    # SQLITE_FULL and IOERR roll back everybody: the offender fails, the rest run again.
                    for other in ran:
                        other.result = other.error = None
                    return [*ran, *batch[batch.index(member) + 1 :]]
                ran.append(member)
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._broken = f"COMMIT failed ({error}); whether it was recorded is not known. Restart to re-read by key."
                for member in ran:
                    member.error = OutcomeUnknown(self._broken)
                return []
            self.commits += 1
            return []

    def _run_member(self, connection: sqlite3.Connection, member: _Member) -> None:
        connection.execute("SAVEPOINT member")
        try:
            member.result = member.work(SqliteTx(connection, self._statements))
        except Exception as error:  # noqa: BLE001 -- handed to the caller who awaits this member
            member.error = error if not _is_disk_trouble(error) else NotRecorded(f"{member.name} was not recorded ({error}).")
            if connection.in_transaction:
                connection.execute("ROLLBACK TO member")
        if connection.in_transaction:
            connection.execute("RELEASE member")
        elif member.error is None:  # it swallowed the error that rolled it back
            member.error = NotRecorded(f"{member.name} was rolled back by a full disk or an I/O error; nothing was recorded.")

    def _close_in_gate(self, connection: sqlite3.Connection) -> None:
        with _locked(self._gate):
            connection.close()


def _is_disk_trouble(error: Exception) -> bool:
    """Tell a full disk, an I/O error or a foreign lock, which pass, from a bug in the work, which does not."""
    code = getattr(error, "sqlite_errorcode", 0)  # the driver's own errors have none
    return isinstance(error, sqlite3.OperationalError) and (code & 0xFF) in _DISK_TROUBLE


def hold_instance_lock(path: Path) -> int | None:
    """Take the lock of the one active bot of the ledger at `path` and return its descriptor, or None when another holds it.

    The kernel frees it at death, never at a pause: a stopped process still holds it, so there is no split brain.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _prepare(connection: sqlite3.Connection, gate: int, migrations: Sequence[Migration], now_ms: int, wal_pages: int) -> None:
    with _locked(gate):
        connection.row_factory = sqlite3.Row
        try:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.DatabaseError as error:
            raise DatabaseError(f"This file cannot be read as a ledger ({error}); it is unchanged. Choose another path.") from error
        if application_id != APPLICATION_ID and (application_id or tables):
            raise DatabaseError("This SQLite file is not a Quotebot ledger; it is unchanged. Choose another path.")
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA wal_autocheckpoint = {wal_pages:d}")
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if journal != "wal" or synchronous != 2:  # noqa: PLR2004 -- FULL
            raise DatabaseError(
                f"The ledger's file system gives journal_mode={journal}, synchronous={synchronous} instead of WAL and FULL: "
                "commits would not survive a power cut. Put the ledger on a local disk."
            )
        if application_id != APPLICATION_ID:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        migrate(connection, migrations, now_ms)


def _prepare_reader(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA busy_timeout = 5000")


@contextlib.contextmanager
def _locked(gate: int) -> Iterator[None]:
    fcntl.flock(gate, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)


def _on_its_thread(connection: aiosqlite.Connection, work: Callable[..., T], *arguments: object) -> Awaitable[T]:
    # aiosqlite has no public way to run a function on its thread; a contract test pins these two private names.
    result: Awaitable[T] = connection._execute(work, connection._conn, *arguments)  # type: ignore[no-untyped-call] # noqa: SLF001 -- see above
    return result


def _deliver(member: _Member) -> None:
    if member.future.done():  # its caller is gone; the write stands all the same
        return
    if member.error is not None:
        member.future.set_exception(member.error)
    else:
        member.future.set_result(member.result)
