"""Writer side of group commit: batches of writes on one session, one COMMIT for all, and the result of each when one fails.

All of it runs on the writer's thread. There are no savepoints: they cost more than the batch. An exception of one member rolls the
batch back; the others run again together, and that member runs again alone, where its result counts. A session that is lost before
COMMIT was sent has recorded nothing: the batch runs again on a new one. A COMMIT without a clear answer is resolved by the writer's
mark (marks.py), never by asking the server to cancel it and never by a second COMMIT.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, WritesRefused
from ledger.postgres.marks import MarkError
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.transactions import CONFLICTS, TROUBLE, UNIQUE, AnswerNeeded, PostgresTx, StepwiseTx
from ledger.writes import BATCH_SECONDS, SHARED_SECONDS, Member, Ran, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ledger.audit.events import Binding
    from ledger.clock import Clock
    from ledger.postgres.marks import WriterMark
    from ledger.postgres.sessions import Session

TRIES_MAX: Final = 5  # runs of a member that met a conflict or ended its session, and of a batch that could not be finished
AWAY_SECONDS: Final = 30.0  # without a server; then its writes are refused as not recorded
RETRY_SECONDS: Final = (0.01, 0.05, 0.1, 0.25)
# Rows that the triggers of the audited tables report; a session without this table reports none.
BOUND_ROWS: Final = (
    "CREATE TEMPORARY TABLE bound_rows (name TEXT NOT NULL, aggregate_id TEXT, deleted BIGINT NOT NULL, key TEXT NOT NULL) "
    "ON COMMIT DELETE ROWS"
)
_REPORTED: Final = NamedStatement("SELECT name, aggregate_id, deleted, key FROM bound_rows")


class QueuedWrite(Member):
    """A waiting write of this engine. `exclusive`: no other write commits while it runs."""

    __slots__ = ("apart", "exclusive", "failed", "tries")

    def __init__(self, *arguments: Any, exclusive: bool, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.exclusive = exclusive
        self.apart = exclusive  # runs in a batch of its own
        self.failed = False  # its last run raised an error or ended the transaction
        self.tries = 0


class BatchWriter:
    """Runs batches. Only its thread changes the counters; any thread may read them and `session`."""

    def __init__(
        self,
        connect: Callable[[], Session],
        is_former: Callable[[Session], bool],
        mark: WriterMark,
        statements: Mapping[str, NamedStatement],
        clock: Clock,
        finish: Callable[[PostgresTx, Sequence[Any]], None] | None,
        binding: Binding | None,
    ) -> None:
        self._connect = connect
        self._is_former = is_former
        self._mark = mark
        self._statements = statements
        self._clock = clock
        self._finish = finish
        self._binding = binding
        self._committing = False
        self._away_since: float | None = None  # seconds of time.monotonic
        self._setbacks = 0  # batches in succession that could not begin or be finished
        self.session: Session | None = None
        self.urgent_waits: Callable[[], bool] = lambda: False
        self.broken: str | None = None
        self.commits = 0
        self.writes = 0
        self.unknown = 0  # COMMITs without a clear answer; each was resolved, or `broken` says that it was not
        self.commit_seconds = 0.0
        self.last_commit_seconds = 0.0

    def open(self) -> None:
        """Connect, and take over the mark. Raises psycopg.Error and DatabaseError."""
        self.session = self._connect()
        self._mark.take(self.session)

    def close(self) -> None:
        """Close the session."""
        if self.session is not None:
            self._mark.note()
            self.session.close()
            self.session = None

    def run(self, batch: Sequence[QueuedWrite]) -> Ran:
        """Run the batch in one transaction and commit it. Returns when the result of each member is known or it is to run again."""
        try:
            return self._run(batch)
        except BaseException as error:  # noqa: BLE001 -- every waiting caller must get the error
            self.broken = str(error) if isinstance(error, MarkError) else f"the ledger's writer failed ({error!r})"
            self.close()
            return Ran(tell(batch, OutcomeUnknown if self._committing else NotRecorded, f"{self.broken}."), [])

    def refusal(self, name: str) -> WritesRefused:
        """Return the error for writes after the ledger stopped accepting them."""
        return WritesRefused(f"{name} was not recorded: the ledger takes no writes until a restart. The cause: {self.broken}.")

    def _run(self, batch: Sequence[QueuedWrite]) -> Ran:
        try:
            session = self._connected()
            self._mark.begin(session, alone=batch[0].exclusive)
        except (psycopg.Error, DatabaseError) as error:
            if isinstance(error, MarkError):
                raise
            return self._not_begun(batch, error)
        tx = PostgresTx(session, self._statements, [], waits=True)
        ran, rest = self._run_members(tx, session, batch)
        if failed := next((member for member in ran if member.failed), None):
            return self._failed(session, tx, failed, [member for member in ran if member is not failed], rest)
        if all(member.error is not None for member in ran):
            self._roll_back(session)
            return Ran(list(ran), list(rest))
        return self._finished(session, tx, ran, rest) or self._commit(session, ran, rest)

    # ----------------------------------------------------------------------------------------------- before COMMIT

    def _connected(self) -> Session:
        """Return the session, or open a new one. Waits for a server that takes writes, at most `AWAY_SECONDS` in all."""
        tries = 0
        if self.session is not None and self._is_former(self.session):  # what it records is lost
            self.close()
        while (session := self.session) is None:
            try:
                self._reconnect()
            except (psycopg.Error, DatabaseError):
                now = time.monotonic()
                if self._away_since is None:
                    self._away_since = now
                if now - self._away_since >= AWAY_SECONDS:
                    raise
                time.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
                tries += 1
        self._away_since = None
        return session

    def _reconnect(self) -> Session:
        self.session = session = self._connect()
        return session

    def _not_begun(self, batch: Sequence[QueuedWrite], error: psycopg.Error | DatabaseError) -> Ran:
        """Run the batch again, unless no server answers or it could not begin several times in succession."""
        away = self.session is None
        if self.session is not None:
            self._roll_back(self.session, error if isinstance(error, psycopg.Error) else None)
        self._setbacks += 1
        if away or self._setbacks > TRIES_MAX:
            self._setbacks = 0
            started = [member for member in batch if member.start()]
            return Ran(
                tell(started, NotRecorded, f"the database does not take writes ({_words(error)}); nothing was recorded."), []
            )
        return Ran([], list(batch))

    def _run_members(
        self, tx: PostgresTx, session: Session, batch: Sequence[QueuedWrite]
    ) -> tuple[list[QueuedWrite], Sequence[QueuedWrite]]:
        """Run members until one fails or the batch has taken long enough. Return those that ran, and those that did not begin.

        The urgent ones come first and run side by side.
        """
        began = self._clock.monotonic()
        urgent = next((place for place, member in enumerate(batch) if not member.urgent), len(batch))
        ran: list[QueuedWrite] = []
        if urgent > 1:
            ran, alike = self._run_side_by_side(tx, session, batch[:urgent])
            batch = [*alike, *batch[urgent:]]
            if any(member.failed for member in ran):
                return ran, batch
        shared = urgent > 0  # at least one of the others is included, so that none starves
        for index, member in enumerate(batch):
            if index:
                now = self._clock.monotonic()
                hurry = not member.urgent and not batch[index - 1].urgent and (shared or self.urgent_waits())
                if now - began >= (SHARED_SECONDS if hurry else BATCH_SECONDS):
                    return ran, batch[index:]
            if not member.start():
                continue
            ran.append(member)
            member.failed = False
            if self._expired(member, self._clock.monotonic()):
                continue
            session.pipeline.owner = member
            try:
                member.result = member.work(tx)
            except Exception as error:  # noqa: BLE001 -- passed to the caller who awaits this member
                member.error = error
            if member.error is not None or session.failed:
                self._note_failed(session, member)
                return ran, batch[index + 1 :]
        return ran, ()

    def _run_side_by_side(
        self, tx: PostgresTx, session: Session, members: Sequence[QueuedWrite]
    ) -> tuple[list[QueuedWrite], list[QueuedWrite]]:
        """Run members step by step until one fails: the statements of one step of all of them are sent together.

        Work is run again from its begin with the answers so far, up to the first statement without one. Returns those that ran, and
        those that asked first what an earlier one did: they are about the same row, and run after it.
        """
        now = self._clock.monotonic()
        ran = [member for member in members if member.start()]
        for member in ran:
            member.failed = False
        runs = {member: StepwiseTx(tx, session) for member in ran if not self._expired(member, now)}
        waiting = self._step(session, runs, runs)
        alike, asked = [], set[object]()
        for member in waiting:
            if runs[member].first in asked:
                alike.append(member)
            asked.add(runs[member].first)
        for member in alike:
            ran.remove(member)
            waiting.remove(member)
            del runs[member]
            member.reset()
        while waiting and not any(member.failed for member in ran):
            try:
                tx.send()
            except psycopg.Error as error:
                waiting[0].error = error
                self._note_failed(session, waiting[0])
            else:
                waiting = self._step(session, runs, waiting)
        for steps in runs.values():
            for event in steps.emitted:
                tx.emit(event)
        return ran, alike

    @staticmethod
    def _step(session: Session, runs: Mapping[QueuedWrite, StepwiseTx], members: Iterable[QueuedWrite]) -> list[QueuedWrite]:
        """Run the work of each member up to its next statement without an answer. Return those that wait for one."""
        waiting = []
        for member in members:
            session.pipeline.owner = member
            try:
                member.result = runs[member].run(member.work)
            except AnswerNeeded:
                waiting.append(member)
            except Exception as error:  # noqa: BLE001 -- passed to the caller who awaits this member
                member.error, member.failed = error, True
                break
        return waiting

    @staticmethod
    def _note_failed(session: Session, member: QueuedWrite) -> None:
        """Mark the member that failed: `member`, or the one whose statement had waited until now."""
        culprit = session.pipeline.culprit
        if isinstance(culprit, QueuedWrite) and culprit is not member:
            culprit.error, member.error = member.error, None
            member = culprit
        member.failed = True

    @staticmethod
    def _expired(member: QueuedWrite, now: float) -> bool:
        if member.deadline is None or now < member.deadline:
            return False
        member.error = NotRecorded(f"{member.name} waited past its deadline; nothing was recorded.")
        return True

    def _failed(
        self,
        session: Session,
        tx: PostgresTx,
        member: QueuedWrite,
        before: Sequence[QueuedWrite],
        after: Sequence[QueuedWrite],
    ) -> Ran:
        """Roll back for a member that failed. In company it runs again alone; alone its error counts, or it runs again."""
        error = tx.trouble or member.error or DatabaseError("its transaction was rolled back")
        lost = not self._roll_back(session, tx.trouble)
        conflict = lost or (tx.trouble is not None and tx.trouble.sqlstate in CONFLICTS)
        again = [each for each in before if each.error is None]
        expired = [each for each in before if each.error is not None]
        for each in again:
            each.reset()
        alone = not again and not after
        if not alone or conflict:
            member.tries += 1
        if not alone or (conflict and member.tries < TRIES_MAX):
            member.apart = True
            member.reset()
            return Ran(list(expired), [*again, *after, member])
        if lost or (tx.trouble is not None and _is_trouble(tx.trouble)) or member.error is None:
            member.error = NotRecorded(f"{member.name} was not recorded ({_words(error)}).")
        return Ran([*expired, member], [])

    def _finished(self, session: Session, tx: PostgresTx, ran: list[QueuedWrite], rest: Sequence[QueuedWrite]) -> Ran | None:
        """Run the last step of the batch, for the items that its members emitted and the bound rows that they changed."""
        events, tx.events = tx.events or [], None
        session.pipeline.owner = None
        failure: Exception
        try:
            if self._binding is not None:
                for table, aggregate_id, deleted, key in tx.ask(_REPORTED):
                    self._binding.report(table, aggregate_id, deleted, *json.loads(key))
            if self._finish is not None and (events or self._binding):
                self._finish(tx, events)
            else:
                tx.send()
            if not session.failed:
                return None
            failure = tx.trouble or DatabaseError("its transaction was rolled back")
        except Exception as error:  # noqa: BLE001 -- reported to every member: none is recorded without it
            failure = tx.trouble or error
        if isinstance(culprit := session.pipeline.culprit, QueuedWrite):  # its statement had waited until now
            culprit.error, culprit.failed = failure, True
            return self._failed(session, tx, culprit, [member for member in ran if member is not culprit], rest)
        trouble = failure if isinstance(failure, psycopg.Error) else None
        lost = not self._roll_back(session, trouble)
        if lost or (trouble is not None and trouble.sqlstate in CONFLICTS):
            self._setbacks += 1
            if self._setbacks <= TRIES_MAX:
                return self._again(ran, rest)
            self._setbacks = 0
        cause = repr(failure) if trouble is None else _words(trouble)
        return Ran(tell(ran, NotRecorded, f"what ends every batch failed ({cause}); nothing was recorded."), list(rest))

    def _again(self, ran: Sequence[QueuedWrite], rest: Sequence[QueuedWrite]) -> Ran:
        again = [member for member in ran if member.error is None]
        for member in again:
            member.reset()
        return Ran([member for member in ran if member.error is not None], [*again, *rest])

    def _roll_back(self, session: Session, trouble: psycopg.Error | None = None) -> bool:
        """Roll back. False when the session is lost, which rolls back too."""
        session.pipeline.drop()
        if trouble is None or not session.useless_after(trouble):
            try:
                session.run("ROLLBACK")
            except psycopg.Error:
                pass
            else:
                return True
        self.close()
        return False

    # ------------------------------------------------------------------------------------------------------- COMMIT

    def _commit(self, session: Session, ran: list[QueuedWrite], rest: Sequence[QueuedWrite]) -> Ran:
        started = time.monotonic()
        self._committing = True
        uncertain: str | None
        try:
            uncertain = session.commit()
        except psycopg.Error as error:
            if session.refused or (not session.lost and error.sqlstate is not None and error.sqlstate[:2] in {"23", "40"}):
                self._committing = False  # the server has not executed it, or says that it rolled back
                return self._conflict_at_commit(session, error, ran, rest)
            uncertain = _words(error)
        if uncertain is not None:
            recorded = self._resolved(uncertain)
            if recorded is None:
                self._committing = False
                words = (
                    f"COMMIT had no clear answer ({uncertain}); whether it was recorded is not known. Restart to re-read by key."
                )
                return Ran(tell(ran, OutcomeUnknown, words), list(rest))
            if not recorded:
                self._committing = False
                return self._again(ran, rest)
        else:
            self._mark.recorded()
        self._committing = False
        self._setbacks = 0
        self.last_commit_seconds = time.monotonic() - started
        self.commit_seconds += self.last_commit_seconds
        self.commits += 1
        self.writes += sum(member.error is None for member in ran)
        return Ran(list(ran), list(rest))

    def _conflict_at_commit(
        self, session: Session, error: psycopg.Error, ran: list[QueuedWrite], rest: Sequence[QueuedWrite]
    ) -> Ran:
        self._roll_back(session, error)
        self._setbacks += 1
        if error.sqlstate in CONFLICTS and self._setbacks <= TRIES_MAX:
            return self._again(ran, rest)
        self._setbacks = 0
        return Ran(tell(ran, NotRecorded, f"COMMIT was refused ({_words(error)}); nothing was recorded."), list(rest))

    def _resolved(self, uncertain: str) -> bool | None:
        """Tell whether the last batch is recorded; None, and `broken`, when that cannot be decided."""
        self.unknown += 1
        self.close()
        try:
            recorded, self.session = self._mark.resolve(self._reconnect)
        except DatabaseError as error:
            self.broken = f"COMMIT had no clear answer ({uncertain}), and {error}"
            return None
        return recorded


def _is_trouble(error: psycopg.Error) -> bool:
    """Tell whether an error concerns the server, the machine or the operator rather than the work."""
    return error.sqlstate is None or (error.sqlstate != UNIQUE and error.sqlstate.startswith(TROUBLE))


def _words(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split()) or repr(error)
