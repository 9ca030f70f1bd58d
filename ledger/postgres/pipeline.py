"""Statements of one session that are sent together and awaited once: each wait for the server costs a round trip.

The driver's own cursors cost several times the processor time of the protocol's messages, so this uses its libpq interface. A
statement is prepared by its session when it is first sent. Parameters are sent as texts, which the server reads as the types that
it infers; bytes are sent as they are.
"""

from __future__ import annotations

import re
import select
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.pq.abc import PGresult

# A string literal, a comment and a cast contain no parameter.
_PARTS: Final = re.compile(r"('(?:[^']|'')*')|(--[^\n]*)|(::)|:([a-z_0-9]+)")
_WITHOUT_ROWS: Final = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b")


class NamedStatement:
    """A named statement as the server takes it: `$1` in place of the first `:name`. `names` is in order of first appearance."""

    __slots__ = ("has_rows", "names", "sql")

    def __init__(self, text: str) -> None:
        names: dict[str, int] = {}

        def convert(found: re.Match[str]) -> str:
            literal, comment, cast, name = found.groups()
            if name is not None:
                return f"${names.setdefault(name, len(names) + 1)}"
            return "" if comment is not None else literal or cast

        self.sql = _PARTS.sub(convert, text)
        self.names = tuple(names)
        self.has_rows = _WITHOUT_ROWS.match(self.sql) is None or "RETURNING" in self.sql

    def ordered(self, row: Mapping[str, object] | tuple[object, ...]) -> Sequence[object]:
        """Return the values of the parameters in the order of their names. A tuple is in this order."""
        return row if isinstance(row, tuple) else [row[name] for name in self.names]


class StatementResult:
    """The result of one statement. It is None until the statement was sent."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: PGresult | None = None


class _Queued(NamedTuple):
    statement: NamedStatement | None  # None: COMMIT
    values: list[bytes | None]
    formats: list[int]
    owner: object
    answer: StatementResult


class Pipeline:
    """Statements that wait to be sent on one connection. `owner` is noted with each; `culprit` is that of one that failed."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._queue: list[_Queued] = []
        self._prepared: dict[NamedStatement, bytes] = {}
        self._columns: dict[NamedStatement, dict[str, int]] = {}  # a later session may find more columns
        self._transformer = Transformer(connection)
        self.owner: object = None
        self.culprit: object = None

    def __bool__(self) -> bool:
        """Tell whether statements wait."""
        return bool(self._queue)

    def add(self, statement: NamedStatement, values: Sequence[object]) -> StatementResult:
        """Add a statement with the values of its parameters, in the order of their names."""
        sent: list[bytes | None] = []
        formats = []
        for value in values:
            sent.append(_encoded(value))
            formats.append(int(isinstance(value, bytes)))
        queued = _Queued(statement, sent, formats, self.owner, StatementResult())
        self._queue.append(queued)
        return queued.answer

    def add_commit(self) -> StatementResult:
        """Add COMMIT. It is not executed if a statement before it fails."""
        queued = _Queued(None, [], [], None, StatementResult())
        self._queue.append(queued)
        return queued.answer

    def drop(self) -> None:
        """Forget the statements that wait, and what failed."""
        self._queue = []
        self.culprit = None

    def send(self) -> None:
        """Send the waiting statements and take their results. Raises the error of the first one that failed; no later one ran."""
        queue, self._queue = self._queue, []
        self.culprit = None
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        sent: list[tuple[_Queued, bool]] = []  # true: its preparation
        fresh: dict[NamedStatement, bytes] = {}
        for queued in queue:
            statement = queued.statement
            if statement is None:
                pgconn.send_query_params(b"COMMIT", None)
            else:
                name = self._prepared.get(statement) or fresh.get(statement)
                if name is None:
                    name = fresh[statement] = b"s%d" % (len(self._prepared) + len(fresh))
                    pgconn.send_prepare(name, statement.sql.encode())
                    sent.append((queued, True))
                pgconn.send_query_prepared(name, queued.values, queued.formats, result_format=pq.Format.BINARY)
            sent.append((queued, False))
        pgconn.pipeline_sync()
        failure: psycopg.Error | None = None
        for (queued, prepares), result in zip(sent, self._results(), strict=False):
            if result.status == pq.ExecStatus.FATAL_ERROR:
                failure, self.culprit = error_from_result(result), queued.owner
                break
            if prepares and queued.statement is not None:
                self._prepared[queued.statement] = fresh[queued.statement]
            else:
                queued.answer.result = result
        if pgconn.status != pq.ConnStatus.BAD:
            pgconn.exit_pipeline_mode()
        if failure is not None:
            raise failure

    def columns(self, statement: NamedStatement, result: PGresult) -> dict[str, int]:
        """Return the places of the columns of a statement by name, given one of its results."""
        columns = self._columns.get(statement)
        if columns is None:
            names = [result.fname(place) or b"" for place in range(result.nfields)]
            columns = self._columns[statement] = {name.decode(): place for place, name in enumerate(names)}
        return columns

    def rows(self, result: PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of a result."""
        self._transformer.set_pgresult(result)
        rows: list[tuple[Any, ...]] = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows

    def _results(self) -> list[PGresult]:
        """Return the results of what was sent, in its order, up to the end of the pipeline or of the session."""
        pgconn = self._connection.pgconn
        socket = select.poll()
        socket.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        while pgconn.flush():
            if socket.poll()[0][1] & ~select.POLLOUT:  # it may wait until its answers are read
                pgconn.consume_input()
        socket.modify(pgconn.socket, select.POLLIN)
        results: list[PGresult] = []
        while True:
            try:
                while pgconn.is_busy():
                    socket.poll()
                    pgconn.consume_input()
            except psycopg.Error:
                if any(result.status == pq.ExecStatus.FATAL_ERROR for result in results):
                    return results  # the server has said why it ends the session
                raise
            result = pgconn.get_result()
            if result is None:
                if pgconn.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            else:
                results.append(result)


def _encoded(value: object) -> bytes | None:
    if isinstance(value, str):
        if "\0" in value:
            raise psycopg.DataError("a text contains the character NUL, which PostgreSQL does not store")
        return value.encode()
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    raise TypeError(f"a parameter is a {type(value).__name__}")
