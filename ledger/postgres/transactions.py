"""Transactions of one session: named statements, rows by column name, and the classes of the server's errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import psycopg

from ledger.database import DatabaseError, MissingRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ledger.database import Row
    from ledger.postgres.sessions import Session

# SQLSTATE codes (https://www.postgresql.org/docs/15/errcodes-appendix.html).
# Another transaction was in the way: the same work may succeed when it runs again.
CONFLICTS: Final = frozenset({"40001", "40P01", "55P03", "23505"})  # serialization, deadlock, lock timeout, unique key
UNIQUE: Final = "23505"
# Resources and the operator, as opposed to a bug in the work: they do not concern the command.
TROUBLE: Final = ("40", "53", "55", "57", "58", "08")

# A string literal, a comment and a cast contain no parameter.
_PARTS: Final = re.compile(r"('(?:[^']|'')*')|(--[^\n]*)|(::)|:([a-z_0-9]+)|(%)")


class NamedStatement:
    """A named statement as psycopg takes it: `%(name)s` in place of `:name`. `names` is in order of first appearance."""

    __slots__ = ("columns", "names", "sql")

    def __init__(self, text: str) -> None:
        names: dict[str, None] = {}

        def convert(found: re.Match[str]) -> str:
            literal, comment, cast, name, percent = found.groups()
            if name is not None:
                names[name] = None
                return f"%({name})s"
            if comment is not None:
                return ""
            return (literal or cast or percent).replace("%", "%%")

        self.sql = _PARTS.sub(convert, text)
        self.names = tuple(names)
        self.columns: dict[str, int] | None = None  # known after its first run


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


class PostgresTx:
    """An open transaction of one session. Results are always fetched completely."""

    __slots__ = ("_session", "_statements", "events", "trouble")

    def __init__(self, session: Session, statements: Mapping[str, NamedStatement], events: list[object] | None) -> None:
        """`events` collects emitted items; None forbids emitting."""
        self._session = session
        self._statements = statements
        self.events = events
        self.trouble: psycopg.Error | None = None  # the first error; it ends the transaction even if the work handles it

    def all(self, name: str, /, **parameters: object) -> list[Row]:
        """Run the named statement and return every row."""
        statement = self._statements[name]
        try:
            cursor = self._session.execute(statement.sql, parameters)
            values = cursor.fetchall() if cursor.description is not None else ()
        except psycopg.Error as error:
            self._note(error)
            raise
        columns = statement.columns
        if columns is None:
            columns = statement.columns = {column.name: place for place, column in enumerate(cursor.description or ())}
        return [Record(columns, row) for row in values]

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

    def many(self, name: str, rows: Sequence[Mapping[str, object] | tuple[object, ...]], /) -> None:
        """Run the named statement once for each row of parameters (see Tx.many), without waiting in between."""
        if not rows:
            return
        statement = self._statements[name]
        named = [dict(zip(statement.names, row, strict=True)) if isinstance(row, tuple) else row for row in rows]
        try:
            self._session.execute_many(statement.sql, named)
        except psycopg.Error as error:
            self._note(error)
            raise

    def emit(self, event: object, /) -> None:
        """Pass an item to the database's `finish`; it is dropped when this work is rolled back. Raises DatabaseError in a read."""
        if self.events is None:
            raise DatabaseError("Nothing can be emitted here: only a write hands events over, before its batch is finished.")
        self.events.append(event)

    def require_session(self) -> None:
        """Raise the error that ended the session if the work handled it, as a verification does with rows that cannot be read."""
        if self.trouble is not None and self._session.lost:
            raise self.trouble

    def _note(self, error: psycopg.Error) -> None:
        if self.trouble is None:
            self.trouble = error
