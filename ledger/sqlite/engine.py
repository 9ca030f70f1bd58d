"""SQLite behind the Database protocol: one writer with group commit, readers apart. The only importer of aiosqlite.

Writers of the same moment share one BEGIN IMMEDIATE ... COMMIT, each in a savepoint of its own, so one fsync serves them all (see
batch.py). A file lock around every write transaction keeps the bot and the CLI fair to each other and commits and checkpoints apart
(SQLite's busy handler starves, and versions before 3.51.3 can corrupt the WAL when two connections race there).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiosqlite

from ledger.database import Health, NotRecorded, OutcomeUnknown
from ledger.sqlite.ballast import Ballast
from ledger.sqlite.batch import COPY_AFTER, BatchRunner
from ledger.sqlite.deadlines import Deadlines
from ledger.sqlite.file import (
    APPLICATION_ID,
    CACHED_STATEMENTS,
    Opening,
    cannot_be_opened,
    open_wal,
    prepare_reader,
    prepare_writer,
)
from ledger.sqlite.flushing import Flushing
from ledger.sqlite.locks import WriteGate, hold_instance_lock
from ledger.sqlite.members import MAX_BATCH, Errand, Member, Ran, tell
from ledger.sqlite.transaction import SqliteTx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ledger.audit.history import Binding
    from ledger.clock import Clock
    from ledger.sqlite.migrations import Migration

__all__ = ["APPLICATION_ID", "MAX_BATCH", "MAX_WAITING", "SqliteDatabase", "hold_instance_lock"]

T = TypeVar("T")

MAX_WAITING: Final = 4096
IDLE_SECONDS: Final = 0.030  # nobody wrote for so long: a good moment for a checkpoint
SOON_SECONDS: Final = 0.005  # whoever writes so soon after the loop stood still for a batch is not alone...
GATHERING_TURNS: Final = 3  # ...and lets those join who have reached a socket: it is read, heard by its task, handed to another


class SqliteDatabase:
    """One ledger file. Open it with `await SqliteDatabase.open(...)`, close it with `close()`.

    The loop queues writes and hands over one batch at a time; the writer's thread runs it and gives all results back at once. Every
    attribute here belongs to the loop; what the thread knows is in the runner. Where batches run `at_once`, the loop runs them
    itself, for two threads of Python wait for each other at every statement, and threads only wait in its place: for the gate, for
    another program's lock, for a disk that takes its time. What arrives meanwhile is the next batch.
    """

    def __init__(
        self,
        writer: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        runner: BatchRunner,
        opening: Opening,
        statements: Mapping[str, str],
        pressing: Callable[[], bool],
        let_by: Callable[[], object],
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
        self._deadlines = Deadlines(self._loop, _deliver)
        self._flushing = Flushing(runner, _deliver, self._kick_soon) if at_once else None
        self._urgent: deque[Member] = deque()
        self._waiting: deque[Member] = deque()
        self._inbox: queue.SimpleQueue[list[Member] | Errand] = queue.SimpleQueue()
        self._serving: asyncio.Task[None] | None = None
        self._under_way: list[Member] = []  # the batch that is on the thread
        self._beginning = False  # whether the thread waits until the next batch can begin
        self._kicked = False
        self._stood_still_at = float("-inf")  # monotonic seconds: when the last batch that was committed on the loop had ended
        self._drained: asyncio.Future[None] | None = None  # awaited by close()
        runner.pressing = lambda: bool(self._urgent) or pressing()  # those of the running batch have left the queue
        runner.let_by = let_by

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
        pressing: Callable[[], bool] = lambda: False,
        let_by: Callable[[], object] = lambda: None,
        at_once: bool = False,
        copy_after: int = COPY_AFTER,
        binding: Binding | None = None,
    ) -> SqliteDatabase:
        """Open or create the ledger at `path` and bring its schema up to date.

        `checkpoints` is false for every process but the bot: a WAL has one checkpoint owner. `may_migrate` is false beside a
        running bot: a ledger older than this build is then refused instead of changed. `ballast_bytes` of room are kept for a full
        disk. `finish` is called once per commit, inside its transaction, with what its members emitted, if they did.
        `before_migrating` is called once before the schema of a ledger that was used is changed; what it raises prevents that.
        `pressing` tells, on the writer's thread, whether somebody urgent of another process waits for a batch to end; `let_by`
        waits there, for a moment at most, until such a one has written. `at_once` is for a process that has nothing better to do
        than to write: its loop stands still while it does, and flushes are its own (see flushing.py). It means nothing for the bot,
        whose thread also checkpoints: in a pause, once it changed `copy_after` rows. `binding` notes the rows of the audit's tables
        that change; then `finish` is called even if nothing was emitted.

        Raises DatabaseError when the file is not ours, is newer than this build, or does not give the durability asked for.
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
                await _on_its_thread(writer, runner.close_witness)
            if writer is not None:
                await writer.close()
            gate.close()
            if isinstance(error, sqlite3.Error):
                raise cannot_be_opened(error) from error
            raise
        return cls(writer, reader, runner, opening, statements, pressing, let_by, at_once=at_once)

    @classmethod
    async def connect(cls, path: Path, *, read_only: bool = False) -> aiosqlite.Connection:
        """Open one connection, with a thread of its own. Another may use it while that one has nothing to do (see `_kick`)."""
        if read_only:
            target, uri = f"{path.as_uri()}?mode=ro", True
        else:
            target, uri = str(path), False
        return await aiosqlite.connect(
            target, uri=uri, isolation_level=None, cached_statements=CACHED_STATEMENTS, check_same_thread=False
        )

    @property
    def commits(self) -> int:
        """How many transactions were committed."""
        return self._runner.commits

    @property
    def health(self) -> Health:
        """How this database is doing right now."""
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

    async def write(self, name: str, work: Callable[[SqliteTx], T], *, urgent: bool = False, deadline: float | None = None) -> T:
        """Run `work` in one durable transaction (see Database.write). It stands even when its caller is cancelled."""
        if self._runner.broken is not None:
            raise self._runner.refusal(name)
        if self._drained is not None:
            raise NotRecorded(f"{name} was not recorded: the ledger is closed.")
        if len(self._urgent) + len(self._waiting) >= MAX_WAITING:
            raise NotRecorded(f"The ledger is busy: {MAX_WAITING:,} writes are waiting. {name} was not recorded; try again.")
        # Awaited as it is, no shield: when the caller is cancelled only this future is; the member runs, and nobody is told.
        future: asyncio.Future[T] = self._loop.create_future()
        member = Member(name, work, future, urgent=urgent, deadline=deadline)
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

    async def remake_ballast(self) -> bool:
        """Keep room for a full disk again, if a minute has passed and there is some; true when it is there. For housekeeping."""
        return await asyncio.to_thread(self._runner.remake_ballast)

    async def tend(self) -> None:
        """Keep room for a full disk again, if it was given up and there is some."""
        await self.remake_ballast()

    async def close(self) -> None:
        """Finish what is queued and close the connections. The bot copies the WAL into the file, inside the gate."""
        if self._drained is not None:
            return
        self._drained = self._loop.create_future()
        if self._under_way or self._urgent or self._waiting:
            await self._drained
        if self._flushing is not None:
            await self._flushing.close()
        self._inbox.put(Errand.LEAVE)
        await self._reader.close()
        await _on_its_thread(self._writer, self._runner.close, checkpoint=self._opening.checkpoints)
        await self._writer.close()

    # ---------------------------------------------------------------------------------------------------- on the loop

    def _kick_soon(self) -> None:
        """Hand the next batch over in the next turn of the loop: the writes of this turn, and those they wake, share it."""
        if not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._gather if self._at_once else self._kick)

    def _gather(self, turns: int = GATHERING_TURNS) -> None:
        """Let what arrived while the loop stood still for the last batch join this one: a batch costs as much as its members do."""
        waited_for = (self._urgent or self._waiting) and self._clock.monotonic() - self._stood_still_at < SOON_SECONDS
        if turns and waited_for:
            self._loop.call_soon(self._gather, turns - 1)
        else:
            self._kick()

    def _kick(self) -> None:
        self._kicked = False
        if self._under_way or self._beginning or (self._flushing is not None and self._flushing.full):
            return
        if self._runner.broken is not None:  # nothing is written on this connection again
            for member in (*self._urgent, *self._waiting):
                member.error = self._runner.refusal(member.name)
                _deliver(member)
            self._urgent.clear()
            self._waiting.clear()
        if self._urgent or self._waiting:
            if not self._at_once:
                self._under_way = self._next_batch()
                self._hand_over(self._under_way)
            elif self._runner.begin_at_once():
                self._run_at_once()
            else:
                self._beginning = True
                self._hand_over(Errand.BEGIN)
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _hand_over(self, errand: list[Member] | Errand) -> None:
        self._inbox.put(errand)
        self._serve_if_needed()

    def _begun(self, *, begun: bool) -> None:
        """Go on where the thread has waited; with what cannot begin it finds out, and says, what is wrong."""
        self._beginning = False
        if begun:
            self._run_at_once()
        else:
            self._under_way = self._next_batch()
            self._hand_over(self._under_way)

    def _run_at_once(self) -> None:
        """Run the next batch, which was begun, here; a disk that takes its time is waited for beside the loop."""
        ran = self._runner.run(self._next_batch())
        self._stood_still_at = self._clock.monotonic()
        self._told(ran)

    def _next_batch(self) -> list[Member]:
        batch: list[Member] = []
        for waiting in (self._urgent, self._waiting):
            while waiting and len(batch) < MAX_BATCH:
                batch.append(waiting.popleft())
        return batch

    def _told(self, ran: Ran) -> None:
        """Give every caller of a batch its result, in one turn of the loop; what has to run again goes back to the head."""
        self._under_way = []
        for member in reversed(ran.again):
            (self._urgent if member.urgent else self._waiting).appendleft(member)
        if self._flushing is not None:
            self._flushing.tell(ran.done)
        else:
            for member in ran.done:
                _deliver(member)
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
            self._told(Ran(tell(self._under_way, OutcomeUnknown, self._runner.broken), []))
        elif self._under_way or self._beginning:  # it came while the thread was leaving
            self._serve_if_needed()

    def _do(self, errand: list[Member] | Errand) -> Callable[[], None]:
        """Do what was handed over; return what the loop has to do then."""
        if isinstance(errand, Errand):
            return partial(self._begun, begun=self._runner.begin())
        return partial(self._told, self._runner.run(errand))

    def _serve(self, connection: sqlite3.Connection) -> None:
        """Run batch after batch until nobody has written for a while: one trip to the thread per burst, not per batch.

        Every pause is a moment for a checkpoint, if one is worth it or others keep writing: a small one now and then, apart from a
        batch of ours, keeps them waiting for less than a large one behind it.
        """
        del connection
        unchecked = False
        while True:
            try:
                errand = self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if not unchecked or not self._opening.checkpoints:
                    return
                if not self._runner.pressing():
                    if self._runner.worth_copying:
                        self._runner.checkpoint("PASSIVE")
                    return
                if self._clock.monotonic() >= self._runner.copy_due_at:
                    self._runner.let_by()
                    self._runner.checkpoint("PASSIVE")
                continue
            if errand is Errand.LEAVE:
                return
            told = self._do(errand)
            unchecked = True
            with contextlib.suppress(RuntimeError):  # the loop was closed under us: nobody is left to be told
                self._loop.call_soon_threadsafe(told)


def _on_its_thread(connection: aiosqlite.Connection, work: Callable[..., T], *arguments: object, **named: object) -> Awaitable[T]:
    # aiosqlite has no public way to run a function on its thread; a contract test pins these two private names.
    result: Awaitable[T] = connection._execute(work, connection._conn, *arguments, **named)  # type: ignore[no-untyped-call] # noqa: SLF001 -- see above
    return result


def _deliver(member: Member) -> None:
    if member.future.done():  # its caller is gone; the write stands all the same
        return
    if member.error is not None:
        member.future.set_exception(member.error)
    else:
        member.future.set_result(member.result)
