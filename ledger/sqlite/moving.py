"""The file of a ledger as either end of a move (ledger/operator/moving.py)."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ledger.migrations import MOVED
from ledger.operator import switch
from ledger.operator.moving import APART, ARRIVED, MoveError, Seal
from ledger.sqlite.batch import BUSY_MS, SqliteTx
from ledger.sqlite.connections import harden, open_read_only
from ledger.sqlite.file import APPLICATION_ID
from ledger.sqlite.locks import WriteGate
from ledger.sqlite.migrations import migrate, require_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.migrations import Migration
    from ledger.sqlite.disk import Disk

_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
_EVENTS: Final = ("INSERT", "UPDATE", "DELETE")
_GUARD: Final = "moved"  # prefix of the triggers of a seal


class MovableFile:
    """The file at `path`, or the place for one."""

    def __init__(self, path: Path, migrations: Sequence[Migration], statements: Mapping[str, str], disk: Disk) -> None:
        self._path = path
        self._migrations = migrations
        self._statements = statements
        self._disk = disk
        self._note = path.with_name(f"{path.name}.moving")

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path.absolute())

    def find_seal(self) -> Seal | None:
        """Return the seal of the file, or None."""
        found = self._value("SELECT sha256, name, applied_at FROM schema_migrations WHERE component = ?", MOVED)
        return None if found is None else Seal(*found)

    def find_move(self) -> str | None:
        """Return the id of the move that made the file, or None."""
        switch.finish(self._path, self._disk)
        found = self._value("SELECT value FROM meta WHERE name = ?", ARRIVED)
        return None if found is None else str(found[0])

    def require_free(self) -> None:
        """Raise MoveError if there is a ledger that was not moved away."""
        if self._path.exists() and self._path.stat().st_size and self.find_seal() is None:
            raise MoveError(f"There is a ledger at {self.place} already. Nothing was moved. Put its file away first.")

    def prepare(self, move: str) -> None:
        """Write the move's id into a file beside the ledger."""
        self._disk.make_folder(self._path.parent)
        self._disk.write(self._note, move.encode())
        self._disk.sync(self._note)
        self._disk.sync_folder(self._path.parent)

    def require_noted(self, move: str) -> None:
        """Raise MoveError unless the file beside the ledger has the move's id."""
        if not self._note.exists() or self._note.read_text("utf-8") != move:
            raise MoveError(
                f"This data folder has no note ({self._note.name}) of that move, so the ledger may be in use elsewhere. Nothing "
                "was done. Run this with the data folder that the ledger was moved to."
            )

    def seal(self, seal: Seal) -> None:
        """Store the seal, with triggers that refuse every write, in one transaction. A file that has it already is flushed."""
        with self._writing() as connection:
            _lift(connection)
            connection.execute(
                "INSERT INTO schema_migrations (component, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
                (MOVED, seal.place, seal.move, seal.at),
            )
            for table in _names(connection):
                for event in _EVENTS:
                    connection.execute(
                        f'CREATE TRIGGER "{_GUARD}_{table}_{event}" BEFORE {event} ON "{table}" '
                        "BEGIN SELECT RAISE(ABORT, 'the ledger was moved'); END"
                    )

    def unseal(self) -> None:
        """Remove the seal and its triggers."""
        with self._writing() as connection:
            _lift(connection)
        self._disk.remove(self._note)

    @contextlib.contextmanager
    def reading(self) -> Iterator[FileRows]:
        """Read the file in one snapshot."""
        with contextlib.closing(open_read_only(self._path)) as connection:
            connection.execute("BEGIN")
            yield FileRows(connection)

    @contextlib.contextmanager
    def filling(self, move: str, now_ms: int) -> Iterator[FileCopy]:
        """Fill a new file, and put it in the place of the sealed one by one rename."""
        switch.clear(self._path, self._disk)
        staged = switch.staged(self._path)
        self._disk.make_folder(self._path.parent)
        self._disk.create(staged)
        with contextlib.closing(sqlite3.connect(staged, isolation_level=None)) as connection:
            harden(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            migrate(connection, self._migrations, now_ms)
            guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid").fetchall()
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN IMMEDIATE")
            for name, _ in guards:
                connection.execute(f'DROP TRIGGER "{name}"')
            for table in _names(connection):
                if table not in APART:
                    connection.execute(f'DELETE FROM "{table}"')  # noqa: S608 -- a table's own name, as below
            yield FileCopy(connection, self._statements)
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (ARRIVED, move))
            for _, sql in guards:
                connection.execute(sql)
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise MoveError("The copy has rows that refer to nothing. Nothing was moved.")
            connection.execute("COMMIT")
            require_schema(connection, self._migrations)
        switch.decide(self._path, self._disk)
        switch.finish(self._path, self._disk)
        self._disk.remove(self._note)

    def _value(self, sql: str, parameter: str) -> tuple[Any, ...] | None:
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        with contextlib.closing(open_read_only(self._path)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is None:
                return None
            row = connection.execute(sql, (parameter,)).fetchone()
            return None if row is None else tuple(row)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        gate = WriteGate(self._path, "move")
        try:
            with gate, contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                harden(connection)
                connection.execute(f"PRAGMA busy_timeout = {BUSY_MS:d}")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        finally:
            gate.close()


class FileRows:
    """The rows of a file, on a connection with an open transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each table, by name."""
        return {
            table: tuple(name for _, name, *_ in self._connection.execute(f'PRAGMA table_info("{table}")'))
            for table in _names(self._connection)
            if table not in APART
        }

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        yield from cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 -- a table's own name


class FileCopy(FileRows):
    """A new file in its open transaction."""

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
        super().__init__(connection)
        self._statements = statements

    @property
    def tx(self) -> SqliteTx:
        """The transaction."""
        return SqliteTx(self._connection, self._statements, None)

    def fill(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Insert the rows of a table."""
        places = ", ".join("?" * len(self.tables()[table]))
        self._connection.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)  # noqa: S608 -- a table's own name


def _names(connection: sqlite3.Connection) -> list[str]:
    return [str(name) for (name,) in connection.execute(_TABLES).fetchall()]


def _lift(connection: sqlite3.Connection) -> None:
    """Remove the triggers of a seal, then its row."""
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE ? || '\\_%' ESCAPE '\\'", (_GUARD,)
    ).fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute("DELETE FROM schema_migrations WHERE component = ?", (MOVED,))
