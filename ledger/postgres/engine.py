"""PostgreSQL engine of the Database protocol: one writer with group commit, a separate reader, both on threads of their own.

Transactions are READ COMMITTED: the statements lock the rows on which a decision depends, or the work asks to run alone (see
Database.write). Several processes write at the same time; each has its own mark (marks.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from ledger.database import DatabaseError, Health, NotRecorded, OutcomeUnknown
from ledger.postgres.clock import SERVER_TIME, DatabaseClock
from ledger.postgres.marks import WriterMark
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import PLAN_CHANGED, READER, WRITER, Address, Limits, Session, Watchdog
from ledger.postgres.transactions import PostgresTx
from ledger.postgres.writer import BOUND_ROWS, BatchWriter, QueuedWrite
from ledger.writes import MAX_BATCH, MAX_WAITING, Deadlines, Ran, deliver, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ledger.audit.events import Binding
    from ledger.clock import Clock

T = TypeVar("T")

READ_SECONDS: Final = 5.0  # a read waits this long for a server
RETRY_SECONDS: Final = 0.1


class PostgresDatabase:
    """One ledger on a server. Open it with `await PostgresDatabase.open(...)`, close it with `close()`.

    The loop queues writes and passes one batch at a time to the writer's thread, which runs it and returns all results together.
    Writes that arrive in the meantime form the next batch. The loop owns every attribute here; the writer holds the thread's state.
    """

    def __init__(self, writer: BatchWriter, reader: SnapshotReader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._watchdog = Watchdog(self._sessions_in_use)
        self._urgent: deque[QueuedWrite] = deque()
        self._waiting: deque[QueuedWrite] = deque()
        self._inbox: queue.SimpleQueue[list[QueuedWrite] | None] = queue.SimpleQueue()
        self._under_way: list[QueuedWrite] = []  # the batch on the thread
        self._passed_over = False  # a write that runs apart waited for the batch on the thread
        self._kicked = False
        self._drained: asyncio.Future[None] | None = None  # awaited by close()
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        writer.urgent_waits = lambda: bool(self._urgent)  # members of the running batch have left the queue
        self._thread.start()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        statements: Mapping[str, str],
        clock: Clock,
        writer: str,
        limits: Limits = WRITER,
        finish: Callable[[PostgresTx, Sequence[Any]], None] | None = None,
        binding: Binding | None = None,
        timelines: Path | None = None,
        mark_file: Path | None = None,
    ) -> PostgresDatabase:
        """Open the ledger at `url`, whose schema is there. `statements` are those of this engine. `url` may name several hosts.

        `writer` is the name under which this process writes. An earlier process of the same name cannot write any more. `finish` is
        called once per commit, inside its transaction, with the items its members emitted, if there are any. `binding` records the
        changed rows of the audited tables; `finish` is then called even if nothing was emitted. `timelines` is that of Address,
        `mark_file` that of WriterMark.

        Raises DatabaseError when no server answers or it is unsuitable.
        """
        address = Address(url, timelines)
        prepared = {name: NamedStatement(text) for name, text in statements.items()}
        setup = None if binding is None else BOUND_ROWS
        connect = partial(address.connect, name=f"quotebot {writer}", limits=limits, writes=True, setup=setup)
        runner = BatchWriter(connect, address.is_former, WriterMark(writer, mark_file), prepared, clock, finish, binding)
        reader = SnapshotReader(address, f"quotebot {writer} reads", prepared, clock)
        try:
            await asyncio.to_thread(runner.open)
            await reader.open()
            await reader.read(lambda _: None)
        except (psycopg.Error, DatabaseError) as error:
            runner.close()
            await reader.close()
            if isinstance(error, DatabaseError):
                raise
            raise DatabaseError(f"The database cannot be opened: {' '.join(str(error).split())}") from error
        return cls(runner, reader, clock)

    @property
    def commits(self) -> int:
        """The number of committed transactions."""
        return self._writer.commits

    @property
    def unknown(self) -> int:
        """The number of COMMITs without a clear answer."""
        return self._writer.unknown

    @property
    def round_trips(self) -> int:
        """The number of times that the writer's session has waited for the server."""
        return 0 if self._writer.session is None else self._writer.session.round_trips

    @property
    def health(self) -> Health:
        """The current state of the database."""
        writer = self._writer
        return Health(
            broken=writer.broken,
            full_since=None,
            waiting=len(self._urgent) + len(self._waiting),
            commits=writer.commits,
            writes=writer.writes,
            commit_seconds=writer.commit_seconds,
            last_commit_seconds=writer.last_commit_seconds,
            wal_bytes=0,
            ballast=False,
        )

    async def write(
        self,
        name: str,
        work: Callable[[PostgresTx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        """Run `work` in one durable transaction (see Database.write). Cancelling the caller does not cancel the write."""
        if self._writer.broken is not None:
            raise self._writer.refusal(name)
        if self._drained is not None:
            raise NotRecorded(f"{name} was not recorded: the ledger is closed.")
        if len(self._urgent) + len(self._waiting) >= MAX_WAITING:
            raise NotRecorded(f"The ledger is busy: {MAX_WAITING:,} writes are waiting. {name} was not recorded; try again.")
        # Awaited without a shield: cancelling the caller cancels only this future; the member still runs.
        future: asyncio.Future[T] = self._loop.create_future()
        member = QueuedWrite(name, work, future, urgent=urgent, brief=brief, deadline=deadline, exclusive=alone)
        (self._urgent if urgent else self._waiting).append(member)
        self._kick_soon()
        if deadline is None:
            return await future
        self._deadlines.watch(member, max(0.0, deadline - self._clock.monotonic()))
        try:
            return await future
        finally:
            self._deadlines.forget(member)

    async def read(self, work: Callable[[PostgresTx], T]) -> T:
        """Run `work` in one snapshot, on the session that only reads. It runs again if the session became useless."""
        self._watchdog.start()
        return await self._reader.read(work)

    async def tend(self) -> None:
        """Read, so that a process that seldom does has the server's time."""
        with contextlib.suppress(NotRecorded):
            await self.read(lambda _: None)

    async def close(self) -> None:
        """Finish the queued writes and close the sessions."""
        if self._drained is not None:
            return
        self._drained = self._loop.create_future()
        if self._under_way or self._urgent or self._waiting:
            await self._drained
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        self._writer.close()
        await self._reader.close()
        self._watchdog.stop()

    # ---------------------------------------------------------------------------------------------------- on the loop

    def _kick_soon(self) -> None:
        """Start the next batch in the next turn of the loop: the writes of this turn, and those they wake, share it."""
        if not self._kicked and not self._under_way:
            self._kicked = True
            self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        self._kicked = False
        if self._under_way:
            return
        if self._writer.broken is not None:
            for member in (*self._urgent, *self._waiting):
                member.error = self._writer.refusal(member.name)
                deliver(member)
            self._urgent.clear()
            self._waiting.clear()
        if self._urgent or self._waiting:
            self._under_way = self._next_batch()
            self._watchdog.start()
            self._hand_over(self._under_way)
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _hand_over(self, batch: list[QueuedWrite]) -> None:
        """Give a batch to the writer; its end is passed to `_batch_ended`."""
        self._inbox.put(batch)

    def _next_batch(self) -> list[QueuedWrite]:
        """Return the next members, urgent ones first; one that runs apart is a batch of its own and waits for one other."""
        batch: list[QueuedWrite] = []
        passed_over, self._passed_over = self._passed_over, False
        if passed_over and self._waiting and self._waiting[0].apart:
            return [self._waiting.popleft()]
        for waiting in (self._urgent, self._waiting):
            while waiting and len(batch) < MAX_BATCH:
                if waiting[0].apart:
                    self._passed_over = bool(batch)
                    return batch or [waiting.popleft()]
                batch.append(waiting.popleft())
        return batch

    def _batch_ended(self, ran: Ran) -> None:
        """Deliver the results of a batch in one turn of the loop; members to run again return to the head of the queue."""
        self._under_way = []
        for member in reversed(ran.again):
            assert isinstance(member, QueuedWrite)  # noqa: S101 -- only such members are queued
            (self._urgent if member.urgent else self._waiting).appendleft(member)
        for member in ran.done:
            deliver(member)
        if self._urgent or self._waiting or self._drained is not None:
            self._kick_soon()

    def _sessions_in_use(self) -> list[Session]:
        sessions = (self._writer.session if self._under_way else None, self._reader.session if self._reader.busy else None)
        return [session for session in sessions if session is not None]

    # -------------------------------------------------------------------------------------------- on the writer's thread

    def _serve(self) -> None:
        while (batch := self._inbox.get()) is not None:
            try:
                ran = self._writer.run(batch)
            except BaseException as error:  # noqa: BLE001 -- every waiting caller must get the error
                self._writer.broken = f"the ledger's writer failed ({error!r})"
                ran = Ran(tell(batch, OutcomeUnknown, f"{self._writer.broken}."), [])
            with contextlib.suppress(RuntimeError):  # the loop was closed: no caller is left
                self._loop.call_soon_threadsafe(self._batch_ended, ran)


class SnapshotReader:
    """The session for reads, on a thread of its own. It leaves a former primary as soon as another session knows the new one.

    Each read compares the clock with the server, if it is a DatabaseClock.
    """

    def __init__(self, address: Address, name: str, statements: Mapping[str, NamedStatement], clock: Clock) -> None:
        self._address = address
        self._connect = partial(address.connect, name=name, limits=READER, writes=False)
        self._statements = statements
        self._clock = clock if isinstance(clock, DatabaseClock) else None
        self._beside = ThreadPoolExecutor(1, "ledger-reader")
        self.session: Session | None = None
        self._asked = 0  # reads whose callers wait
        self._reading = False  # on the thread, which goes on when a caller was cancelled

    @property
    def busy(self) -> bool:
        """True while a read is wanted or under way."""
        return self._asked > 0 or self._reading

    async def open(self) -> None:
        """Connect. Raises psycopg.Error and DatabaseError."""
        self.session = await asyncio.get_running_loop().run_in_executor(self._beside, self._connect)

    async def read(self, work: Callable[[PostgresTx], T]) -> T:
        """Run `work` in one snapshot. Raises NotRecorded when no server answers for `READ_SECONDS`."""
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._beside, self._read, work)
        finally:
            self._asked -= 1

    async def close(self) -> None:
        """Close the session after the running read."""
        await asyncio.to_thread(self._beside.shutdown)
        if self.session is not None:
            self.session.close()

    def _current(self) -> Session:
        """Return the session, or a new one in place of one with a former primary."""
        if self.session is not None and self._address.is_former(self.session):
            self.session.close()
            self.session = None
        if self.session is None:
            self.session = self._connect()
        return self.session

    def _read(self, work: Callable[[PostgresTx], T]) -> T:
        self._reading = True
        try:
            return self._read_until_known(work)
        finally:
            self._reading = False

    def _read_until_known(self, work: Callable[[PostgresTx], T]) -> T:
        give_up_at = time.monotonic() + READ_SECONDS
        while True:
            session: Session | None = None
            try:
                session = self._current()
                begin = partial(_begin, session)
                self._clock.compare(begin) if self._clock is not None else begin()
                tx = PostgresTx(session, self._statements, None)
                try:
                    found = work(tx)
                finally:
                    session.pipeline.drop()  # asked for and never read
                    if not session.lost:
                        session.run("ROLLBACK")
                tx.require_session()
            except (psycopg.Error, DatabaseError) as error:
                stale = isinstance(error, psycopg.Error) and error.sqlstate == PLAN_CHANGED
                if session is not None and not (session.lost or stale):
                    raise
                if self.session is not None:
                    self.session.close()
                    self.session = None
                if time.monotonic() >= give_up_at:
                    # As a write that was not recorded: the bot's loops try again later, and no work fails for it.
                    raise NotRecorded(f"The database cannot be read: {' '.join(str(error).split())}") from error
                time.sleep(RETRY_SECONDS)
            else:
                return found


def _begin(session: Session) -> float:
    """Begin a snapshot; return the server's time."""
    ((now_ms,),) = session.run(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {SERVER_TIME}")
    return float(now_ms)
