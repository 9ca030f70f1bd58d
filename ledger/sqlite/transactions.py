"""Transactions on one connection: the statements of a member of a batch, the members, their results and their deadlines."""

from __future__ import annotations

import functools
import re
import sqlite3
import threading
from dataclasses import dataclass
from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.database import DatabaseError, MissingRow, NotRecorded, OutcomeUnknown, Row

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

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


MAX_BATCH: Final = 256  # members per commit, and members that wait for a flush before commits stop


class Member:
    """One waiting write. Its start and its abandonment exclude each other, so "not recorded" is never a guess."""

    __slots__ = ("_taken", "brief", "deadline", "error", "future", "name", "result", "urgent", "work")

    def __init__(
        self,
        name: str,
        work: Callable[[SqliteTx], Any],
        future: asyncio.Future[Any],
        *,
        urgent: bool,
        brief: bool,
        deadline: float | None,
    ) -> None:
        self.name = name
        self.work = work
        self.future = future
        self.urgent = urgent
        self.brief = brief
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        # The first to acquire it, the writer (to start) or the loop (to abandon), owns the member; the other fails to acquire it.
        # Without a deadline the loop never abandons, so there is no lock.
        self._taken = None if deadline is None else threading.Lock()

    def start(self) -> bool:
        """Take the member for running; false when it was abandoned."""
        return self._taken is None or self._taken.acquire(blocking=False)

    def abandon(self) -> bool:
        """Abandon the member; true means it will never run."""
        return self._taken is not None and self._taken.acquire(blocking=False)

    def reset(self) -> None:
        """Reset a member whose run was rolled back: it waits again and may be abandoned again."""
        self.result = self.error = None
        if self._taken is not None:
            self._taken.release()


class Ran(NamedTuple):
    """Result of a batch. A member in neither list was abandoned before it began."""

    done: list[Member]  # have a result to deliver
    again: list[Member]  # not recorded, no result: return to the head of the queue, in this order


class Prepared(NamedTuple):
    """A batch that ran and is to be committed."""

    ran: list[Member]
    rest: Sequence[Member]  # not begun: return to the head of the queue
    version: int  # the file's data_version before the batch


class QueuedCall(Enum):
    """Requests to the writer's thread other than batches."""

    BEGIN = auto()  # wait until a batch can begin, which the loop then runs
    LEAVE = auto()


def tell(members: Sequence[Member], kind: type[DatabaseError], words: str) -> list[Member]:
    """Set a separate error on each member that has none (a shared one would collect every caller's traceback)."""
    for member in members:
        if member.error is None:
            member.error = kind(words)
    return list(members)


LONG_AFTER_SECONDS: Final = 0.5  # minimum further wait for a write that had begun at its deadline


class Deadlines:
    """Deadlines of the waiting writes. Belongs to the loop, as the database does. `deliver` returns a result to one caller.

    A caller learns at once of a deadline that passed before its write began, and after a delay once it had. One timer serves all
    waiting writes: a timer for each would cost as much as a statement for every command.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Member], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._due: dict[Member, _Due] = {}  # until `forget`
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, member: Member, remaining: float) -> None:
        """Check the member after `remaining` seconds, unless it was forgotten."""
        self._due[member] = due = _Due(self._loop.time() + remaining, max(LONG_AFTER_SECONDS, remaining))
        self._look_at(due.at)

    def forget(self, member: Member) -> None:
        """Stop watching the member: its caller already has its result or was cancelled. The timer stays for the others."""
        del self._due[member]

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for member, due in self._due.items():
            if due.at <= now:
                if due.begun:
                    self._give_up(member)
                else:
                    self._expire(member, due, now)
        if left := [due.at for due in self._due.values() if due.at > now]:
            self._look_at(min(left))

    def _expire(self, member: Member, due: _Due, now: float) -> None:
        if member.abandon():
            member.error = NotRecorded(f"{member.name} did not start before its deadline; nothing was recorded.")
            self._deliver(member)
        else:  # it has begun, so its outcome is one commit away: wait for the fact
            due.begun, due.at = True, now + due.patience

    def _give_up(self, member: Member) -> None:
        if member.future.done():
            return
        if member.abandon():  # its batch was rolled back, and it waits to run again
            words = f"{member.name} was rolled back and did not start again before its deadline; nothing was recorded."
            member.future.set_exception(NotRecorded(words))
        else:
            words = f"{member.name} had begun at its deadline; whether it was recorded is not known yet."
            member.future.set_exception(OutcomeUnknown(words))


@dataclass(slots=True)
class _Due:
    """Next check of a member (seconds of the loop's clock) and the further wait once it has begun."""

    at: float
    patience: float
    begun: bool = False
