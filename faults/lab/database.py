"""The production database without its threads: batches run on the loop's own thread and pass a trap before each statement.

Queueing, group commit, savepoints, deadlines and the error policy are those of SqliteDatabase and BatchRunner. Open one with
`quotebot.app.installation.open_database(settings, audit, clock, bot=True, engine=InlineDatabase)` or `InlineDatabase.open(...)`.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from faults.lab.traps import Trap
from ledger.sqlite.batch import numbered
from ledger.sqlite.engine import SqliteDatabase
from ledger.sqlite.file import CACHED_STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ledger.sqlite.batch import SqliteTx

T = TypeVar("T")


class InlineConnection:
    """The part of aiosqlite's connection that SqliteDatabase uses, without the thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._conn = connection

    async def _execute(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return work(*arguments, **named)

    async def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class InlineDatabase(SqliteDatabase):
    """SqliteDatabase without threads. `engine(trap)` returns a subclass that passes `trap`."""

    trap = Trap()
    names: Mapping[str, str] = {}

    @classmethod
    async def open(cls, path: Path, **options: Any) -> InlineDatabase:
        """Open as SqliteDatabase does; the names of its statements become part of the crash points' names."""
        cls.names = {numbered(text)[0]: name for name, text in options["statements"].items()}
        _WRITING.clear()
        options["ballast_bytes"] = 0  # tests/ledger/engine covers the ballast, which is slow to create thousands of times
        return cast("InlineDatabase", await super().open(path, **options))

    @classmethod
    async def connect(cls, path: Path, *, read_only: bool = False) -> InlineConnection:  # type: ignore[override] # all that is used of it is there
        """Open one connection on this thread; the writer's passes the trap."""
        target = f"{path.as_uri()}?mode=ro" if read_only else str(path)
        factory = sqlite3.Connection if read_only else _watched_connection(cls)
        connection = sqlite3.connect(
            target, uri=read_only, isolation_level=None, cached_statements=CACHED_STATEMENTS, factory=factory
        )
        return InlineConnection(connection)

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
        """Write; the transaction's name becomes part of the names of its crash points."""

        def named(tx: SqliteTx) -> T:
            _WRITING.append(name)
            return work(tx)

        return await super().write(name, named, urgent=urgent, brief=brief, deadline=deadline, alone=alone)

    @property
    def looking(self) -> sqlite3.Connection:
        """The read-only connection, for use between two reads."""
        return self._reader._conn  # noqa: SLF001 -- only the reader's connection is used

    def crash(self) -> None:
        """Leave the file as a crash of the process would: nothing is committed, and the WAL is not checkpointed."""
        for connection in (self._runner._witness, self._writer._conn, self._reader._conn):  # noqa: SLF001 -- as in a crash
            if connection is not None:
                connection.close()
        self._runner._gate.close()  # noqa: SLF001 -- as above

    def _run_at_once(self) -> None:
        _WRITING.clear()
        super()._run_at_once()

    def _serve_if_needed(self) -> None:
        if self._inbox.empty():  # nothing to run; the thread would only copy the WAL
            return
        _WRITING.clear()
        self._loop.call_soon(self._do(self._inbox.get_nowait()))


def engine(trap: Trap) -> type[InlineDatabase]:
    """Return an engine whose writer passes this trap."""
    return type("TrappedDatabase", (InlineDatabase,), {"trap": trap})


_WRITING: list[str] = []  # the writes of the running batch, in order: one thread, one batch at a time


def _watched_connection(database: type[InlineDatabase]) -> type[sqlite3.Connection]:
    trap = database.trap
    if type(trap) is Trap:
        return sqlite3.Connection

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> Self:
            if sql == "COMMIT":
                point = f"commit:{'+'.join(dict.fromkeys(_WRITING))}"
                trap.passes(f"{point}:before")
                done = super().execute(sql, parameters)
                trap.passes(f"{point}:after")
                return done
            trap.passes(_statement(database, sql))
            return super().execute(sql, parameters)

        def executemany(self, sql: str, parameters: Any, /) -> Self:
            trap.passes(_statement(database, sql))
            return super().executemany(sql, parameters)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            done: sqlite3.Cursor = self.cursor().execute(sql, parameters)
            return done

        def executescript(self, sql: str, /) -> sqlite3.Cursor:
            trap.passes("sql:script")
            return super().executescript(sql)

    return Connection


def _statement(database: type[InlineDatabase], sql: str) -> str:
    name = database.names.get(sql) or " ".join(sql.split()[:2]).lower()
    return f"sql:{_WRITING[-1] if _WRITING else 'open'}/{name}"
