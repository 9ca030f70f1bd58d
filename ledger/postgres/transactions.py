"""Transactions of one session: named statements, rows by column name, and the classes of the server's errors.

A statement without rows may wait until the next one that has some, and several whose rows are read later are sent together. An
error of a statement that waited ends the transaction as any other does; the session's pipeline tells whose statement it was.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from ledger.database import DatabaseError, MissingRow
from ledger.postgres.sessions import PLAN_CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.database import Row, Tx
    from ledger.postgres.pipeline import NamedStatement, StatementResult
    from ledger.postgres.sessions import Session

T = TypeVar("T")
# SQLSTATE codes (https://www.postgresql.org/docs/15/errcodes-appendix.html).
# Another transaction was in the way: the same work may succeed when it runs again.
CONFLICTS: Final = frozenset({"40001", "40P01", "55P03", "23505"})  # serialization, deadlock, lock timeout, unique key
UNIQUE: Final = "23505"
# Resources and the operator, as opposed to a bug in the work: they do not concern the command.
TROUBLE: Final = ("40", "53", "55", "57", "58", "08")


class Record:
    """One result row, read by column name; iterates over its values, as `sqlite3.Row` does."""

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: dict[str, int], values: tuple[Any, ...]) -> None:
        self._columns = columns
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[self._columns[key]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def keys(self) -> list[str]:
        """Return the column names, in order."""
        return list(self._columns)


class Firsts:
    """The first row of each of several answers, or None. Reading the first of them sends the waiting statements."""

    __slots__ = ("_answers", "_read")

    def __init__(self, read: Callable[[StatementResult], list[Row]], answers: Sequence[StatementResult]) -> None:
        self._read = read
        self._answers = answers

    def __iter__(self) -> Iterator[Row | None]:
        for answer in self._answers:
            rows = self._read(answer)
            yield rows[0] if rows else None


class PostgresTx:
    """An open transaction of one session. Results are always fetched completely."""

    __slots__ = ("_session", "_waits", "events", "statements", "trouble")

    def __init__(
        self, session: Session, statements: Mapping[str, NamedStatement], events: list[object] | None, *, waits: bool = False
    ) -> None:
        """`events` collects emitted items; None forbids emitting. `waits`: statements without rows wait for the next with rows."""
        self._session = session
        self.statements = statements
        self._waits = waits
        self.events = events
        self.trouble: psycopg.Error | None = None  # the first error; it ends the transaction even if the work handles it

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        statement = self.statements[name]
        answer = self._asked(statement, statement.ordered(parameters))
        if statement.has_rows:
            return self._rows(statement, answer)
        if not self._waits:
            self.send()
        return []

    def one(self, name: str, /, **parameters: object) -> Row | None:
        """Run the named statement and return its first row, or None."""
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    def required(self, name: str, /, **parameters: object) -> Row:
        """Run the named statement and return its first row. Raises MissingRow if there is none."""
        row = self.one(name, **parameters)
        if row is None:
            raise MissingRow(name)
        return row

    def each(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> Firsts:
        """Run the named statement once for each row of parameters (see Tx.each), all of them at once when a row is read."""
        statement = self.statements[name]
        return Firsts(partial(self._rows, statement), [self._asked(statement, statement.ordered(row)) for row in rows])

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run the named statement once for each row of parameters (see Tx.many), without waiting in between."""
        statement = self.statements[name]
        for row in rows:
            self._asked(statement, statement.ordered(row))
        if not self._waits:
            self.send()

    def ask(self, statement: NamedStatement) -> list[tuple[Any, ...]]:
        """Run a statement of the engine's own and return its rows."""
        answer = self._session.pipeline.add(statement, ())
        self.send()
        return [] if answer.result is None else self._session.pipeline.rows(answer.result)

    def send(self) -> None:
        """Send the statements that wait. Raises psycopg.Error."""
        if not self._session.pipeline:
            return
        try:
            self._session.send()
        except psycopg.Error as error:
            if self.trouble is None:
                self.trouble = error
            raise

    def _asked(self, statement: NamedStatement, values: Sequence[object]) -> StatementResult:
        return self._session.pipeline.add(statement, values)

    def _rows(self, statement: NamedStatement, answer: StatementResult) -> list[Row]:
        if answer.result is None:
            self.send()
        result = answer.result
        assert result is not None  # noqa: S101 -- sent
        pipeline = self._session.pipeline
        columns = pipeline.columns(statement, result)
        return [Record(columns, row) for row in pipeline.rows(result)]

    def emit(self, event: object, /) -> None:
        """Pass an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        if self.events is None:
            raise DatabaseError("Nothing can be emitted here: only a write hands events over, before its batch is finished.")
        self.events.append(event)

    def require_session(self) -> None:
        """Raise the error that ended the session if the work handled it, as a verification does with rows that cannot be read."""
        if self.trouble is not None and (self._session.lost or self.trouble.sqlstate == PLAN_CHANGED):
            raise self.trouble


class AnswerNeeded(BaseException):
    """The work of a member cannot go on before the next answer. Not an Exception, so that work does not handle it."""


class StepwiseTx(PostgresTx):
    """The part of one member in a transaction whose members run side by side. Its work runs again for each answer it needs."""

    __slots__ = ("_answers", "_place", "emitted", "first")

    def __init__(self, tx: PostgresTx, session: Session) -> None:
        super().__init__(session, tx.statements, None, waits=True)
        self.emitted: list[object] = []
        self.first: object = None  # the first statement, with its values
        self._answers: list[StatementResult] = []
        self._place = 0

    def run(self, work: Callable[[Tx], T]) -> T:
        """Run the work from its begin. Raises AnswerNeeded at its first statement that has rows and was not sent yet."""
        self._place = 0
        self.events = self.emitted = []
        return work(self)

    def _asked(self, statement: NamedStatement, values: Sequence[object]) -> StatementResult:
        place, self._place = self._place, self._place + 1
        if not self._answers:
            self.first = (statement, tuple(values))
        if place == len(self._answers):
            self._answers.append(super()._asked(statement, values))
        return self._answers[place]

    def send(self) -> None:
        """Wait until the statements of all members of this step are sent."""
        raise AnswerNeeded
