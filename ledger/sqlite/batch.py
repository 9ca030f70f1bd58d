"""Batches of writes on one connection: a savepoint per member, one COMMIT for all, and the result of each on a disk failure.

All of it runs on one thread at a time: the writer's, or the loop's while the writer's thread is idle. Reading the
counters and calling `remake_ballast` or `flush` is allowed at any time. COMMIT flushes, except in the acknowledging process
(flushing.py).
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.database import DatabaseError, MissingRow, NotRecorded, OutcomeUnknown, Row, WritesRefused
from ledger.writes import BATCH_SECONDS, SHARED_SECONDS, Ran, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.audit.events import Binding
    from ledger.clock import Clock
    from ledger.sqlite.ballast import Ballast
    from ledger.sqlite.locks import WriteGate
    from ledger.sqlite.wal import Wal
    from ledger.writes import Member


# Rows changed by this process. The first write after a complete checkpoint flushes twice, because SQLite restarts the WAL.
COPY_AFTER: Final = 256
COPY_OVERDUE: Final = 4 * COPY_AFTER  # changed rows after which a checkpoint no longer waits for an idle pause
BUSY_MS: Final = 5000  # how long a statement waits for another program's lock

# The file may be damaged: it is not written again until a restart has checked it.
FATAL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# Errors of the disk, the machine or another program, as opposed to a bug in the work: they do not concern the command.
TROUBLE: Final = FATAL | {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}


_PARAMETER: Final = re.compile(r":([a-z_0-9]+)")


@functools.cache
def numbered(text: str) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Return a statement with `?1` in place of its first `:name`, and a function that orders parameters by name accordingly.

    For each name the driver would release and take back the interpreter's lock once per execution.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"?{names.index(found[1]) + 1}"

    sql = _PARAMETER.sub(number, "\n".join(line.partition("--")[0] for line in text.split("\n")))
    if len(names) > 1:
        return sql, itemgetter(*names)
    return sql, lambda given: tuple([given[name] for name in names])


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's primary result code; 0 when the error is not SQLite's (the driver's own errors carry none)."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


class SqliteTx:
    """An open transaction on one connection. One cursor serves every statement: results are always fetched completely."""

    __slots__ = ("_connection", "_cursor", "_statements", "events", "trouble")

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str], events: list[object] | None) -> None:
        """`events` collects emitted items; None forbids emitting."""
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self.events = events
        self.trouble: sqlite3.Error | None = None  # of the disk or the machine; kept even when the work handles it

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:
            sql, ordered = numbered(self._statements[name])
            return self._cursor.execute(sql, ordered(parameters)).fetchall()
        except sqlite3.Error as error:
            self._note(error)
            raise

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:  # fetched completely: a half-read RETURNING statement would keep the transaction open
            sql, ordered = numbered(self._statements[name])
            rows = self._cursor.execute(sql, ordered(parameters)).fetchall()
        except sqlite3.Error as error:
            self._note(error)
            raise
        return rows[0] if rows else None

    def required(self, name: str, /, **parameters: object) -> Row:
        """Run the named statement and return its first row. Raises MissingRow if there is none."""
        row = self.one(name, **parameters)
        if row is None:
            raise MissingRow(name)
        return row

    def each(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> list[Row | None]:
        """Run the named statement once for each row of parameters and return the first row of each, or None."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        found: list[Row | None] = []
        try:
            sql, ordered = numbered(self._statements[name])
            for row in rows:
                first = self._cursor.execute(sql, row if isinstance(row, tuple) else ordered(row)).fetchall()
                found.append(first[0] if first else None)
        except sqlite3.Error as error:
            self._note(error)
            raise
        return found

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run the named statement once for each row of parameters (see Tx.many). It may not return rows."""
        if not self._connection.in_transaction:
            raise self._gone(name)
        try:
            sql, ordered = numbered(self._statements[name])
            self._cursor.executemany(sql, [row if isinstance(row, tuple) else ordered(row) for row in rows])
        except sqlite3.Error as error:
            self._note(error)
            raise

    def emit(self, event: object, /) -> None:
        """Pass an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        if self.events is None:
            raise DatabaseError("Nothing can be emitted here: only a write hands events over, before its batch is finished.")
        self.events.append(event)

    def _note(self, error: sqlite3.Error) -> None:
        if self.trouble is None and primary_code(error) in TROUBLE:
            self.trouble = error

    def _gone(self, name: str) -> DatabaseError:
        # A full disk ended the transaction: a later statement would commit by itself.
        return DatabaseError(f"The transaction was rolled back before {name}; nothing of it is recorded.")


class Prepared(NamedTuple):
    """A batch that ran and is to be committed."""

    ran: list[Member]
    rest: Sequence[Member]  # not begun: return to the head of the queue
    version: int  # the file's data_version before the batch


class BatchRunner:
    """Writer side of group commit. Only the writer changes the counters; any thread may read them."""

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
        self._copied_changes = connection.total_changes  # the value at the last checkpoint
        self.wal: Wal | None = None  # set where COMMIT does not flush and `flush` does
        self._committing = False
        self._patient = True
        self.urgent_waits: Callable[[], bool] = lambda: False
        self.broken: str | None = None
        self.full_since: int | None = None
        self.commits = 0
        self.writes = 0
        self.commit_seconds = 0.0
        self.last_commit_seconds = 0.0
        self.flush_seconds = 0.0
        self.last_flush_seconds = 0.0

    def begin_at_once(self) -> bool:
        """Begin the transaction of the next batch, unless another process holds the gate or a file lock."""
        if not self._gate.take_if_free():
            return False
        try:
            self._begin(patient=False)
        except sqlite3.Error:  # `begin` waits, and `run` reports the error
            self._gate.let_go()
            return False
        return True

    def begin(self) -> bool:
        """Wait for the gate and begin; false when that fails: `run` then reports the reason."""
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
        """Run the batch in one transaction, commit it and release the gate. Callers get no result before this returns.

        Where COMMIT does not flush, callers get their results only after a `flush` that begins after this returned.
        """
        held = self._connection.in_transaction  # a begun transaction already holds the gate
        try:
            if not held:
                self._gate.take()
                held = True
            if self._gate.leads_elsewhere():
                self._roll_back()
                self.broken = "another file was put in the ledger's place (a restore): this process is of the old generation."
                return Ran(tell(batch, NotRecorded, f"{self.broken} Nothing was recorded."), [])
            done = self._perform(batch)
            return done if isinstance(done, Ran) else self._commit(done)
        except BaseException as error:  # noqa: BLE001 -- every waiting caller must get the error
            return self._failed(batch, error)
        finally:
            if held:
                self._gate.let_go()

    def flush(self) -> str | None:
        """Flush the WAL, so that every earlier commit survives a power cut. Returns the error, or None."""
        assert self.wal is not None  # noqa: S101 -- without `wal`, COMMIT flushes
        started = self._clock.monotonic()
        try:
            self.wal.flush()
        except BaseException as error:  # noqa: BLE001 -- every waiting caller must get the error
            self.broken = f"flushing the WAL failed ({error}); whether it was recorded is not known. Restart to re-read by key."
            return self.broken
        self.last_flush_seconds = self._clock.monotonic() - started
        self.flush_seconds += self.last_flush_seconds
        return None

    def refusal(self, name: str) -> WritesRefused:
        """Return the error for writes after the ledger stopped accepting them."""
        return WritesRefused(f"{name} was not recorded: the ledger takes no writes until a restart. The cause: {self.broken}")

    @property
    def worth_copying(self) -> bool:
        """True if enough rows changed since the last checkpoint to justify the cost that a checkpoint adds to the next write."""
        return self._connection.total_changes - self._copied_changes >= self._copy_after

    @property
    def copy_overdue(self) -> bool:
        """True if so many rows changed since the last checkpoint that soon a commit itself would copy the WAL."""
        return self._connection.total_changes - self._copied_changes >= COPY_OVERDUE

    def checkpoint(self, mode: str) -> None:
        """Copy the WAL into the file. `mode`: PASSIVE between batches, TRUNCATE at close. Ignores a full disk."""
        if self.broken is not None:
            return
        with self._gate:
            self._copied_changes = self._connection.total_changes
            try:
                self._control.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            except sqlite3.Error as error:
                if primary_code(error) in FATAL:
                    self.broken = f"a checkpoint failed ({error}): the file may be damaged."

    def remake_ballast(self) -> bool:
        """Recreate the ballast if there is space; true when it exists. Called from any thread, but one at a time."""
        there = self.ballast.make(self._clock.monotonic())
        if there:
            self.full_since = None
        return there

    def close(self, connection: sqlite3.Connection, *, checkpoint: bool) -> None:
        """Close the writer's connections and the gate.

        The last connection checkpoints when it closes, so it closes inside the gate.
        """
        self.close_witness()
        if checkpoint:
            connection.execute("PRAGMA busy_timeout = 0")  # open readers keep the WAL; do not wait for them
            self.checkpoint("TRUNCATE")
        with self._gate:
            connection.close()
        self._gate.close()

    def close_witness(self) -> None:
        """Close the witness connection and the WAL file."""
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
        shared = batch[0].urgent  # urgent members come first; at least one of the others is included, so that none starves
        ran: list[Member] = []
        for index, member in enumerate(batch):
            if index:
                now = self._clock.monotonic()
                hurry = not member.urgent and not batch[index - 1].urgent and (shared or self.urgent_waits())
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
        """Run one member in its own savepoint. A single member needs none: its failure ends the transaction."""
        events = tx.events
        assert events is not None  # noqa: S101 -- None only in a read and during finish
        emitted = len(events)
        if not alone:
            self._control.execute("SAVEPOINT member")
        try:
            member.result = member.work(tx)
        except Exception as error:  # noqa: BLE001 -- passed to the caller who awaits this member
            member.error = error
            del events[emitted:]
            if not alone and self._connection.in_transaction:
                self._control.execute("ROLLBACK TO member")
        if not alone and self._connection.in_transaction:
            self._control.execute("RELEASE member")

    def _trouble(self, tx: SqliteTx, member: Member, ran: list[Member], rest: Sequence[Member]) -> Ran | None:
        """Decide what a member's disk error means for the batch; None: the batch continues without the member's changes."""
        trouble, tx.trouble = tx.trouble, None
        alive = self._connection.in_transaction
        if primary_code(trouble) in FATAL:
            member.error = None  # drop its own error: it gets the same one as the others
            return self._fatal([*ran, member], rest, member.name, trouble)
        if self._makes_room_after(trouble):
            return self._again([*ran, member], rest)
        if member.error is None and alive:
            return None  # the work handled the error of one statement itself
        if member.error is None or trouble is not None:
            cause = member.error or trouble or "its transaction was rolled back"
            member.error = NotRecorded(f"{member.name} was not recorded ({cause}).")
        if alive:
            return None
        return Ran([member], self._again(ran, rest).again)  # SQLite rolled back the batch; the others run again without it

    def _prepared(self, tx: SqliteTx, version: int, ran: list[Member], rest: Sequence[Member]) -> Ran | Prepared:
        """Run `finish` on a batch that has something to commit; otherwise end it."""
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
        except Exception as error:  # noqa: BLE001 -- reported to every member: none is recorded without it
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

        A WAL transaction exists once its last frame is complete: that frame carries the commit mark and a checksum over all frames
        before it. SQLite writes the frames in order, then syncs, then publishes them in the WAL index. SQLITE_FULL comes from
        writing a frame. The failed frame is incomplete, so the commit mark is missing (it is in the last frame) or its checksum is
        wrong. A running reader uses the index, and a recovery uses marks, salts and checksums; both ignore such frames, and the
        next transaction overwrites them.

        Only on storage without powersafe overwrite do padding frames follow a complete commit frame; one of those could fail
        instead. A failed sync or index update is an I/O error, not a full disk.

        The witness, a second connection, confirms what the error code implies. This process is inside the gate and therefore the
        only one that can commit: an unchanged data_version proves that nothing was published. The version also changes when the
        batch was the first to write after a complete checkpoint, which restarts the WAL; then the WAL contains no committed frame
        at all.
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
        """Record a full disk and free the ballast; false for any other error, or when there is no ballast left."""
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
