"""One batch of writes on one connection: a savepoint each, one COMMIT for all, and what each is told when the disk fails.

Everything here runs on one thread at a time: the writer's, or the loop's while the writer's has nothing to do. Only the counters
are read, and `remake_ballast` and `flush` are called, at any time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ledger.database import NotRecorded, OutcomeUnknown, WritesRefused
from ledger.sqlite.file import BUSY_MS
from ledger.sqlite.members import Member, Prepared, Ran, tell
from ledger.sqlite.transaction import FATAL, SqliteTx, primary_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.audit.history import Binding
    from ledger.clock import Clock
    from ledger.sqlite.ballast import Ballast
    from ledger.sqlite.locks import WriteGate
    from ledger.sqlite.wal import Wal

COPY_AFTER: Final = 256  # rows changed by us. Who writes first after the WAL was copied flushes twice: SQLite starts the WAL over
COPY_EVERY: Final = 50  # times what the last checkpoint took: a fiftieth of the time at most is spent on them while others wait
BATCH_SECONDS: Final = 0.020  # then it commits: nobody who is in it waits longer for those behind them
SHARED_SECONDS: Final = 0.002  # the same where somebody urgent is in it, or waits for it to end


class BatchRunner:
    """The writer's side of group commit. The counters are written here and read anywhere."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        witness: sqlite3.Connection,
        gate: WriteGate,
        ballast: Ballast,
        statements: Mapping[str, str],
        clock: Clock,
        finish: Callable[[SqliteTx, Sequence[Any]], None] | None,
        copy_after: int = COPY_AFTER,
        binding: Binding | None = None,
    ) -> None:
        self._connection = connection
        self._control = connection.cursor()
        self._witness = witness
        self._gate = gate
        self.ballast = ballast
        self._statements = statements
        self._clock = clock
        self._finish = finish
        self._binding = binding
        self._copy_after = copy_after
        self._copied_changes = connection.total_changes  # how many there were at the last checkpoint
        self.wal: Wal | None = None  # where COMMIT does not flush: what `flush` does
        self._committing = False
        self._patient = True
        self.pressing: Callable[[], bool] = lambda: False  # whether somebody urgent waits for this batch to end
        self.let_by: Callable[[], object] = lambda: None  # waits a moment while somebody of another process goes first
        self.broken: str | None = None
        self.full_since: int | None = None
        self.commits = 0
        self.writes = 0
        self.commit_seconds = 0.0
        self.last_commit_seconds = 0.0
        self.flush_seconds = 0.0
        self.copy_due_at = 0.0  # monotonic seconds: before that others, who wait for it, are not made to wait again
        self.last_flush_seconds = 0.0

    def begin_at_once(self) -> bool:
        """Begin the transaction of the batch that is performed next, if nobody else holds the gate or, past it, the file."""
        if not self._gate.take_if_free():
            return False
        try:
            self._begin(patient=False)
        except sqlite3.Error:  # who begins patiently says what it means
            self._gate.let_go()
            return False
        return True

    def begin(self) -> bool:
        """Wait for the gate and begin, as above; false when that cannot be: who runs the batch then says why."""
        self._gate.take()
        try:
            with contextlib.suppress(sqlite3.Error):
                if not self._gate.leads_elsewhere():
                    self._begin(patient=True)
        finally:
            if not self._connection.in_transaction:
                self._gate.let_go()
        return self._connection.in_transaction

    def run(self, batch: Sequence[Member]) -> Ran:
        """Run the batch in one transaction, commit it and let the next one in. Nobody may be told anything before this returns.

        Where COMMIT does not flush, they may be told only after a `flush` that begins later than this returns.
        """
        try:
            if not self._connection.in_transaction:  # what was begun has the gate
                if not batch[0].urgent:
                    self.let_by()
                self._gate.take()
            if self._gate.leads_elsewhere():
                self._roll_back()
                self.broken = "another file was put in the ledger's place (a restore): this process is of the old generation."
                return Ran(tell(batch, NotRecorded, f"{self.broken} Nothing was recorded."), [])
            done = self._perform(batch)
            return done if isinstance(done, Ran) else self._commit(done)
        except BaseException as error:  # noqa: BLE001 -- whatever it was, every waiting caller must hear of it
            return self._failed(batch, error)
        finally:
            self._gate.let_go()

    def flush(self) -> str | None:
        """Return when all that was committed before would survive a power cut; say what is wrong where it might not."""
        assert self.wal is not None  # noqa: S101 -- it flushes itself
        started = self._clock.monotonic()
        try:
            self.wal.flush()
        except BaseException as error:  # noqa: BLE001 -- whatever it was, every waiting caller must hear of it
            self.broken = f"flushing the WAL failed ({error}); whether it was recorded is not known. Restart to re-read by key."
            return self.broken
        self.last_flush_seconds = self._clock.monotonic() - started
        self.flush_seconds += self.last_flush_seconds
        return None

    def refusal(self, name: str) -> WritesRefused:
        """Say why nothing is written any more."""
        return WritesRefused(f"{name} was not recorded: the ledger takes no writes until a restart. The cause: {self.broken}")

    @property
    def worth_copying(self) -> bool:
        """Whether so much was written since the last checkpoint that one is worth what it costs whoever writes after it."""
        return self._connection.total_changes - self._copied_changes >= self._copy_after

    def checkpoint(self, mode: str) -> None:
        """Copy the WAL into the file. `mode`: PASSIVE in between, TRUNCATE at the end. A full disk is no news here."""
        if self.broken is not None:
            return
        with self._gate:
            started, self._copied_changes = self._clock.monotonic(), self._connection.total_changes
            try:
                self._control.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            except sqlite3.Error as error:
                if primary_code(error) in FATAL:
                    self.broken = f"a checkpoint failed ({error}): the file may be damaged."
            now = self._clock.monotonic()
            self.copy_due_at = now + COPY_EVERY * (now - started)

    def remake_ballast(self) -> bool:
        """Keep room for a full disk again, if there is some. Called from any thread but one at a time."""
        there = self.ballast.make(self._clock.monotonic())
        if there:
            self.full_since = None
        return there

    def close(self, connection: sqlite3.Connection, *, checkpoint: bool) -> None:
        """Close the writer's connections and the gate; the last connection of all checkpoints, so it happens inside the gate."""
        self.close_witness(connection)
        if checkpoint:
            connection.execute("PRAGMA busy_timeout = 0")  # who still reads keeps the WAL; it is not waited for
            self.checkpoint("TRUNCATE")
        with self._gate:
            connection.close()
        self._gate.close()

    def close_witness(self, connection: sqlite3.Connection) -> None:
        """Close what was opened beside the writer's connection."""
        del connection
        self._witness.close()
        if self.wal is not None:
            self.wal.close()

    def _failed(self, batch: Sequence[Member], error: BaseException) -> Ran:
        self.broken = f"the ledger's writer failed ({error!r})."
        with contextlib.suppress(sqlite3.Error):
            self._roll_back()
        return Ran(tell(batch, OutcomeUnknown if self._committing else NotRecorded, self.broken), [])

    def _perform(self, batch: Sequence[Member]) -> Ran | Prepared:
        began = now = self._clock.monotonic()
        try:
            version = self._version()
            if not self._connection.in_transaction:
                self._begin(patient=True)
        except sqlite3.Error as error:
            return self._not_begun(batch, error)
        tx = SqliteTx(self._connection, self._statements, [])
        alone = len(batch) == 1
        shared = batch[0].urgent  # those come first; at least one of the others is taken along, so that none starves
        ran: list[Member] = []
        for index, member in enumerate(batch):
            if index:
                now = self._clock.monotonic()
                hurry = not member.urgent and not batch[index - 1].urgent and (shared or self.pressing())
                if now - began >= (SHARED_SECONDS if hurry else BATCH_SECONDS):
                    return self._prepared(tx, version, ran, batch[index:])
            if not member.start():
                continue
            if member.deadline is not None and now >= member.deadline:
                member.error = NotRecorded(f"{member.name} waited past its deadline; nothing was recorded.")
            else:
                self._run_member(tx, member, alone=alone)
                if tx.trouble is not None or not self._connection.in_transaction:
                    ended = self._trouble(tx, member, ran, batch[index + 1 :])
                    if ended is not None:
                        return ended
            ran.append(member)
        return self._prepared(tx, version, ran, ())

    def _run_member(self, tx: SqliteTx, member: Member, *, alone: bool) -> None:
        """Run one member in a savepoint of its own. One that is alone needs none: its failure ends the transaction."""
        events = tx.events
        assert events is not None  # noqa: S101 -- it is None only in a read and during finish
        emitted = len(events)
        if not alone:
            self._control.execute("SAVEPOINT member")
        try:
            member.result = member.work(tx)
        except Exception as error:  # noqa: BLE001 -- handed to the caller who awaits this member
            member.error = error
            del events[emitted:]
            if not alone and self._connection.in_transaction:
                self._control.execute("ROLLBACK TO member")
        if not alone and self._connection.in_transaction:
            self._control.execute("RELEASE member")

    def _trouble(self, tx: SqliteTx, member: Member, ran: list[Member], rest: Sequence[Member]) -> Ran | None:
        """Decide what a member's bad disk means for the batch; None: it goes on without what the member did."""
        trouble, tx.trouble = tx.trouble, None
        alive = self._connection.in_transaction
        if primary_code(trouble) in FATAL:
            member.error = None  # what it raised of it; it is told as the others are
            return self._fatal([*ran, member], rest, member.name, trouble)
        if self._makes_room_after(trouble):
            return self._again([*ran, member], rest)
        if member.error is None and alive:
            return None  # it swallowed the error of one statement: that is its own decision
        if member.error is None or trouble is not None:
            cause = member.error or trouble or "its transaction was rolled back"
            member.error = NotRecorded(f"{member.name} was not recorded ({cause}).")
        if alive:
            return None
        return Ran([member], self._again(ran, rest).again)  # SQLite rolled back everybody; the others run again without it

    def _prepared(self, tx: SqliteTx, version: int, ran: list[Member], rest: Sequence[Member]) -> Ran | Prepared:
        """Finish a batch, if there is anything in it to commit."""
        if all(member.error is not None for member in ran):
            self._roll_back()
            return Ran(ran, list(rest))
        if self._finish is not None and (tx.events or self._binding):
            stopped = self._finish_batch(self._finish, tx, ran, rest)
            if stopped is not None:
                return stopped
        return Prepared(ran, rest, version)

    def _commit(self, prepared: Prepared) -> Ran:
        ran, rest, version = prepared
        started = self._clock.monotonic()
        self._committing = True
        try:
            self._control.execute("COMMIT")
        except sqlite3.Error as error:
            ended = self._commit_failed(error, version, ran, rest)
            self._committing = False
            return ended
        self._committing = False
        self.last_commit_seconds = self._clock.monotonic() - started
        self.commit_seconds += self.last_commit_seconds
        self.commits += 1
        self.writes += sum(member.error is None for member in ran)
        if not self.ballast.wanted:
            self.full_since = None
        return Ran(ran, list(rest))

    def _finish_batch(
        self, finish: Callable[[SqliteTx, Sequence[Any]], None], tx: SqliteTx, ran: list[Member], rest: Sequence[Member]
    ) -> Ran | None:
        events, tx.events = tx.events or [], None
        failure: Exception | None = None
        try:
            finish(tx, events)
        except Exception as error:  # noqa: BLE001 -- told to every member: none of them is recorded without it
            failure = error
        trouble = tx.trouble
        if failure is None and trouble is None and self._connection.in_transaction:
            return None
        if primary_code(trouble) in FATAL:
            return self._fatal(ran, rest, "what ends a batch", trouble)
        if self._makes_room_after(trouble):
            return self._again(ran, rest)
        self._roll_back()
        cause = trouble or repr(failure)
        return Ran(tell(ran, NotRecorded, f"what ends every batch failed ({cause}); nothing was recorded."), list(rest))

    def _commit_failed(self, error: sqlite3.Error, version: int, ran: list[Member], rest: Sequence[Member]) -> Ran:
        self._roll_back()
        if primary_code(error) != sqlite3.SQLITE_FULL or not self._provably_not_recorded(version):
            self.broken = f"COMMIT failed ({error}); whether it was recorded is not known. Restart to re-read by key."
            return Ran(tell(ran, OutcomeUnknown, self.broken), list(rest))
        if self._makes_room_after(error):
            return self._again(ran, rest)
        return Ran(tell(ran, NotRecorded, f"the disk is full ({error}); nothing was recorded."), list(rest))

    def _provably_not_recorded(self, version: int) -> bool:
        """Tell whether a COMMIT that met a full disk left nothing behind, now or after a crash.

        A WAL transaction exists once its last frame, which carries the commit mark and a checksum over all before it, is whole.
        SQLite writes the frames in order, then syncs, then publishes them in the WAL index. SQLITE_FULL comes from writing a frame:
        the one that failed is not whole, so the commit mark is not there (it is in the last frame) or its checksum is wrong. Both a
        running reader, which goes by the index, and a recovery, which goes by marks, salts and checksums, ignore such frames, and
        the next transaction writes over them. Only on storage without powersafe overwrite would frames of padding follow a whole
        commit frame and could fail in its stead; and a failed sync or index is an I/O error, not a full disk. That is what the code
        says; the witness, a second connection, makes sure of what happened. We are inside the gate and hence the only ones who can
        commit: when its data_version is the one from before, nothing was published. The version also changes when the batch was
        the first to write after a complete checkpoint, which starts the WAL over; then the WAL holds no committed frame at all.
        """
        try:
            if self._version() == version:
                return True
            ((busy, frames, _),) = self._witness.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:
            return False
        return bool(busy == 0 and frames == 0)

    def _begin(self, *, patient: bool) -> None:
        if patient is not self._patient:
            self._control.execute(f"PRAGMA busy_timeout = {BUSY_MS if patient else 0:d}")
            self._patient = patient
        self._control.execute("BEGIN IMMEDIATE")

    def _not_begun(self, batch: Sequence[Member], error: sqlite3.Error) -> Ran:
        self._roll_back()
        if primary_code(error) in FATAL:
            self.broken = f"the file cannot be read ({error}): it may be damaged."
        elif self._makes_room_after(error):
            return Ran([], list(batch))
        return Ran(tell(batch, NotRecorded, f"the ledger could not be written ({error}); nothing was recorded."), [])

    def _fatal(self, ran: Sequence[Member], rest: Sequence[Member], whose: str, trouble: sqlite3.Error | None) -> Ran:
        self._roll_back()
        self.broken = f"{whose} met an error of the disk ({trouble}): the file may be damaged."
        return Ran(tell(ran, NotRecorded, f"{self.broken} Nothing was recorded. Restart to look at it."), list(rest))

    def _again(self, ran: Sequence[Member], rest: Sequence[Member]) -> Ran:
        self._roll_back()
        for member in ran:
            member.reset()
        return Ran([], [*ran, *rest])

    def _makes_room_after(self, trouble: sqlite3.Error | None) -> bool:
        """Note a full disk and give up the ballast; false when it was not that, or there is nothing left to give up."""
        if primary_code(trouble) != sqlite3.SQLITE_FULL:
            return False
        if self.full_since is None:
            self.full_since = self._clock.now_ms()
        return self.ballast.free(self._clock.monotonic())

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._control.execute("ROLLBACK")

    def _version(self) -> int:
        ((version,),) = self._witness.execute("PRAGMA data_version").fetchall()
        return int(version)
