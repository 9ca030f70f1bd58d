"""SQLite engine of the Database protocol: one writer with group commit, separate readers. The only importer of aiosqlite.

Concurrent writers share one BEGIN IMMEDIATE ... COMMIT, each in its own savepoint, so one fsync serves them all (see batch.py). A
file lock around every write transaction keeps the bot and the CLI fair to each other and separates commits from checkpoints
(SQLite's busy handler starves, and versions before 3.51.3 can corrupt the WAL when two connections race there).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
from collections import deque
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiosqlite

from ledger.database import Health, NotRecorded, OutcomeUnknown
from ledger.sqlite.ballast import Ballast
from ledger.sqlite.batch import COPY_AFTER, BatchRunner, SqliteTx
from ledger.sqlite.file import CACHED_STATEMENTS, Opening, cannot_be_opened, open_wal, prepare_reader, prepare_writer
from ledger.sqlite.flushing import QUICK_SECONDS, Flushing
from ledger.sqlite.locks import WriteGate
from ledger.writes import MAX_BATCH, MAX_WAITING, Deadlines, Member, Ran, deliver, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ledger.audit.events import Binding
    from ledger.clock import Clock
    from ledger.migrations import Migration

T = TypeVar("T")

IDLE_SECONDS: Final = 0.030  # idle time of the writer before a checkpoint
LONE_AFTER: Final = 2  # batches of one write, after which the next write counts as alone


class QueuedCall(Enum):
    """Requests to the writer's thread other than batches."""

    BEGIN = auto()  # wait until a batch can begin, which the loop then runs
    LEAVE = auto()


class SqliteDatabase:
    """One ledger file. Open it with `await SqliteDatabase.open(...)`, close it with `close()`.

    The loop queues writes and passes one batch at a time to the writer's thread, which runs it and returns all results together.
    The loop owns every attribute here; the runner holds the thread's state. A single brief write runs on the loop, because two
    Python threads wait for each other at every statement. With `at_once` the loop runs all batches itself; threads then only wait
    for the gate, for another program's lock and for slow flushes. Writes that arrive in the meantime form the next batch.
    """

    def __init__(
        self,
        writer: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        runner: BatchRunner,
        opening: Opening,
        statements: Mapping[str, str],
        *,
        at_once: bool,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._runner = runner
        self._opening = opening
        self._statements = statements
        self._clock = opening.clock
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._flushing = Flushing(runner, deliver, self._kick_soon) if at_once else None
        self._urgent: deque[Member] = deque()
        self._waiting: deque[Member] = deque()
        self._inbox: queue.SimpleQueue[list[Member] | QueuedCall] = queue.SimpleQueue()
        self._serving: asyncio.Task[None] | None = None
        self._under_way: list[Member] = []  # the batch on the thread
        self._beginning = False  # whether the thread waits until the next batch can begin
        self._kicked = False
        self._single_batches = LONE_AFTER  # since the last batch of several writes
        self._drained: asyncio.Future[None] | None = None  # awaited by close()
        runner.urgent_waits = lambda: bool(self._urgent)  # members of the running batch have left the queue

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        statements: Mapping[str, str],
        migrations: Sequence[Migration],
        clock: Clock,
        checkpoints: bool = True,
        may_migrate: bool = True,
        ballast_bytes: int = 0,
        finish: Callable[[SqliteTx, Sequence[Any]], None] | None = None,
        before_migrating: Callable[[], None] | None = None,
        at_once: bool = False,
        copy_after: int = COPY_AFTER,
        binding: Binding | None = None,
    ) -> SqliteDatabase:
        """Open or create the ledger at `path` and bring its schema up to date.

        `checkpoints` is false for every process but the bot: the others checkpoint only a WAL that has become large. `may_migrate`
        is false beside a running bot: a ledger older than this build is then refused instead of changed. `ballast_bytes` of disk
        space are reserved for a full disk. `finish` is called once per commit, inside its transaction, with the items its members
        emitted, if there are any. `before_migrating` is called once before the schema of a used ledger is changed; an exception
        from it prevents the change.

        `at_once` is for a process whose main work is writing: its loop blocks during a batch, and flushing.py flushes. The bot
        ignores it: its thread also checkpoints, in an idle pause once it changed `copy_after` rows. `binding` records the changed
        rows of the audited tables; `finish` is then called even if nothing was emitted.

        Raises DatabaseError when the file is not a ledger, is newer than this build, or cannot give the required durability.
        """
        path = Path(os.path.abspath(path))  # noqa: ASYNC240, PTH100 -- once, at start
        opening = Opening(
            path, migrations, clock, checkpoints=checkpoints, may_migrate=may_migrate, before_migrating=before_migrating
        )
        at_once = at_once and not checkpoints
        try:
            opening.create_file()
            gate = WriteGate(path, "bot" if checkpoints else "cli")
        except OSError as error:
            raise cannot_be_opened(error) from error
        ballast = Ballast(path, ballast_bytes)
        writer: aiosqlite.Connection | None = None
        reader: aiosqlite.Connection | None = None
        runner: BatchRunner | None = None
        try:
            writer = await cls.connect(path)
            witness = await _on_its_thread(writer, prepare_writer, opening, gate, ballast)
            runner = await _on_its_thread(
                writer, BatchRunner, witness, gate, ballast, statements, clock, finish, copy_after, binding
            )
            if binding is not None:
                await _on_its_thread(writer, binding.prepare)
            if at_once:
                runner.wal = await _on_its_thread(writer, open_wal, opening)
            reader = await cls.connect(path, read_only=True)
            await _on_its_thread(reader, prepare_reader)
        except BaseException as error:
            if reader is not None:
                await reader.close()
            if writer is not None and runner is not None:
                await _on_its_thread(writer, lambda _: runner.close_witness())
            if writer is not None:
                await writer.close()
            gate.close()
            if isinstance(error, sqlite3.Error):
                raise cannot_be_opened(error) from error
            raise
        return cls(writer, reader, runner, opening, statements, at_once=at_once)

    @classmethod
    async def connect(cls, path: Path, *, read_only: bool = False) -> aiosqlite.Connection:
        """Open one connection with its own thread. Another thread may use it while that one is idle (see `_kick`)."""
        if read_only:
            target, uri = f"{path.as_uri()}?mode=ro", True
        else:
            target, uri = str(path), False
        return await aiosqlite.connect(
            target, uri=uri, isolation_level=None, cached_statements=CACHED_STATEMENTS, check_same_thread=False
        )

    @property
    def commits(self) -> int:
        """The number of committed transactions."""
        return self._runner.commits

    @property
    def health(self) -> Health:
        """The current state of the database."""
        runner = self._runner
        try:
            wal_bytes = self._opening.wal.stat().st_size
        except FileNotFoundError:
            wal_bytes = 0
        return Health(
            broken=runner.broken,
            full_since=runner.full_since,
            waiting=len(self._urgent) + len(self._waiting),
            commits=runner.commits,
            writes=runner.writes,
            commit_seconds=runner.commit_seconds + runner.flush_seconds,
            last_commit_seconds=runner.last_commit_seconds,
            wal_bytes=wal_bytes,
            ballast=runner.ballast.is_there(),
        )

    async def write(
        self,
        name: str,
        work: Callable[[SqliteTx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        """Run `work` in one durable transaction (see Database.write). Cancelling the caller does not cancel the write."""
        del alone  # every write is: the file has one writer at a time
        if self._runner.broken is not None:
            raise self._runner.refusal(name)
        if self._drained is not None:
            raise NotRecorded(f"{name} was not recorded: the ledger is closed.")
        if len(self._urgent) + len(self._waiting) >= MAX_WAITING:
            raise NotRecorded(f"The ledger is busy: {MAX_WAITING:,} writes are waiting. {name} was not recorded; try again.")
        # Awaited without a shield: cancelling the caller cancels only this future; the member still runs, and its result is
        # dropped.
        future: asyncio.Future[T] = self._loop.create_future()
        member = Member(name, work, future, urgent=urgent, brief=brief, deadline=deadline)
        (self._urgent if urgent else self._waiting).append(member)
        if not self._under_way:
            self._kick_soon()
        if deadline is None:
            return await future
        self._deadlines.watch(member, max(0.0, deadline - self._clock.monotonic()))
        try:
            return await future
        finally:
            self._deadlines.forget(member)

    async def read(self, work: Callable[[SqliteTx], T]) -> T:
        """Run `work` on the read-only connection, in one snapshot."""

        def run(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(SqliteTx(connection, self._statements, None))
            finally:
                if connection.in_transaction:  # a disk error may have ended it
                    connection.execute("ROLLBACK")

        return await _on_its_thread(self._reader, run)

    async def tend(self) -> None:
        """Recreate a freed ballast if a minute has passed and there is space."""
        await asyncio.to_thread(self._runner.remake_ballast)

    async def close(self) -> None:
        """Finish the queued writes and close the connections. The bot copies the WAL into the file, inside the gate."""
        if self._drained is not None:
            return
        self._drained = self._loop.create_future()
        if self._under_way or self._urgent or self._waiting:
            await self._drained
        if self._flushing is not None:
            await self._flushing.close()
        self._inbox.put(QueuedCall.LEAVE)
        await self._reader.close()
        await _on_its_thread(self._writer, self._runner.close, checkpoint=self._opening.checkpoints)
        await self._writer.close()

    # ---------------------------------------------------------------------------------------------------- on the loop

    def _kick_soon(self) -> None:
        """Start the next batch in the next turn of the loop: the writes of this turn, and those they wake, share it."""
        if not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        self._kicked = False
        if self._under_way or self._beginning or (self._flushing is not None and self._flushing.full):
            return
        if self._runner.broken is not None:  # nothing is written on this connection again
            for member in (*self._urgent, *self._waiting):
                member.error = self._runner.refusal(member.name)
                deliver(member)
            self._urgent.clear()
            self._waiting.clear()
        if self._urgent or self._waiting:
            if (self._at_once or self._alone_and_brief()) and self._runner.begin_at_once():
                self._run_at_once()
            elif self._at_once:
                self._beginning = True
                self._hand_over(QueuedCall.BEGIN)
            else:
                self._under_way = self._next_batch()
                self._hand_over(self._under_way)
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _alone_and_brief(self) -> bool:
        """Tell whether a single brief write waits: on the loop it takes less time than its way to the thread and back.

        The loop then blocks for one commit. The thread runs the writes that come together, those soon after such a batch (one claim
        takes all that was reserved together), and those after a slow commit.
        """
        alone = self._single_batches >= LONE_AFTER and len(self._urgent) + len(self._waiting) == 1
        if not alone or self._runner.last_commit_seconds >= QUICK_SECONDS:
            return False
        return (self._urgent or self._waiting)[0].brief

    def _hand_over(self, item: list[Member] | QueuedCall) -> None:
        self._inbox.put(item)
        self._serve_if_needed()

    def _begun(self, *, begun: bool) -> None:
        """Continue after the thread has waited; if it could not begin, running the batch on the thread reports the reason."""
        self._beginning = False
        if begun:
            self._run_at_once()
        else:
            self._under_way = self._next_batch()
            self._hand_over(self._under_way)

    def _run_at_once(self) -> None:
        """Run the begun batch on the loop; with `at_once`, slow flushes run on another thread."""
        ran = self._runner.run(self._next_batch())
        self._batch_ended(ran)
        if self._opening.checkpoints and self._runner.worth_copying:
            self._serve_if_needed()

    def _next_batch(self) -> list[Member]:
        batch: list[Member] = []
        for waiting in (self._urgent, self._waiting):
            while waiting and len(batch) < MAX_BATCH:
                batch.append(waiting.popleft())
        self._single_batches = self._single_batches + 1 if len(batch) == 1 else 0
        return batch

    def _batch_ended(self, ran: Ran) -> None:
        """Deliver the results of a batch in one turn of the loop; members to run again return to the head of the queue."""
        self._under_way = []
        for member in reversed(ran.again):
            (self._urgent if member.urgent else self._waiting).appendleft(member)
        if self._flushing is not None:
            self._flushing.tell(ran.done)
        else:
            for member in ran.done:
                deliver(member)
        if self._urgent or self._waiting or self._drained is not None:
            self._kick_soon()

    # -------------------------------------------------------------------------------------------- on the writer's thread

    def _serve_if_needed(self) -> None:
        if self._serving is None:
            self._serving = self._loop.create_task(_on_its_thread(self._writer, self._serve))  # type: ignore[arg-type] # a coroutine
            self._serving.add_done_callback(self._served)

    def _served(self, serving: asyncio.Task[None]) -> None:
        self._serving = None
        error = None if serving.cancelled() else serving.exception()
        if error is not None:
            self._runner.broken = f"the ledger's writer failed ({error!r})."
            self._beginning = False
            self._batch_ended(Ran(tell(self._under_way, OutcomeUnknown, self._runner.broken), []))
        elif self._under_way or self._beginning:  # it arrived while the thread was leaving
            self._serve_if_needed()

    def _do(self, item: list[Member] | QueuedCall) -> Callable[[], None]:
        """Run one item of the inbox on the thread; return the callback for the loop."""
        if isinstance(item, QueuedCall):
            return partial(self._begun, begun=self._runner.begin())
        return partial(self._batch_ended, self._runner.run(item))

    def _serve(self, connection: sqlite3.Connection) -> None:
        """Run batches until the inbox is idle: one call to the thread per burst, not per batch.

        An idle pause allows a checkpoint if enough rows changed. A pause in which the loop ran a batch is not idle.
        """
        del connection
        runner, commits = self._runner, self._runner.commits
        while True:
            try:
                item = self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                idle, commits = runner.commits == commits, runner.commits
                if not self._opening.checkpoints:
                    return
                if runner.copy_overdue or (idle and runner.worth_copying):
                    runner.checkpoint("PASSIVE")
                elif idle:
                    return
                continue
            if item is QueuedCall.LEAVE:
                return
            callback = self._do(item)
            commits = runner.commits
            with contextlib.suppress(RuntimeError):  # the loop was closed: no caller is left
                self._loop.call_soon_threadsafe(callback)


def _on_its_thread(connection: aiosqlite.Connection, work: Callable[..., T], *arguments: object, **named: object) -> Awaitable[T]:
    # aiosqlite has no public way to run a function on its thread; a contract test pins these two private names.
    result: Awaitable[T] = connection._execute(work, connection._conn, *arguments, **named)  # type: ignore[no-untyped-call] # noqa: SLF001 -- see above
    return result
