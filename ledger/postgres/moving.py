"""A database as either end of a move (ledger/operator/moving.py)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import psycopg

from ledger.database import DatabaseError
from ledger.migrations import MOVED
from ledger.operator.moving import APART, ARRIVED, MoveError, Seal
from ledger.postgres.connections import THERE, connected, driver_errors, value
from ledger.postgres.marks import ALONE_LOCK
from ledger.postgres.migrations import LOCK, migrate, require_schema
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import Address, Limits, Session
from ledger.postgres.transactions import PostgresTx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.migrations import Migration

LOCK_SECONDS: Final = 30  # for a copy under way in another process
_UNLIMITED: Final = Limits(lock=LOCK_SECONDS * 1000, statement=0, idle=0)
_LIFT: Final[tuple[tuple[str, tuple[object, ...]], ...]] = (
    ("DROP TRIGGER IF EXISTS moved ON writers", ()),
    ("DELETE FROM schema_migrations WHERE component = %s", (MOVED,)),
)
_TABLES: Final = """
SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum),
  array_agg(pg_catalog.format_type(a.atttypid, NULL) ORDER BY a.attnum),
  ARRAY(SELECT k.confrelid::regclass::text FROM pg_catalog.pg_constraint AS k
    WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid <> c.oid),
  (array_agg(a.attname::text) FILTER (WHERE a.attidentity <> ''))[1]
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind = 'r' AND c.relnamespace = (
  SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = 'schema_migrations'::regclass)
GROUP BY c.oid, c.relname ORDER BY c.relname
"""


class MovableDatabase:
    """The database at `url`, with the ledger in it or without one."""

    def __init__(
        self, url: str, place: str, migrations: Sequence[Migration], statements: Mapping[str, str], timelines: Path
    ) -> None:
        """`place` is the address without a password."""
        self.place = place
        self._url = url
        self._migrations = migrations
        self._statements = statements
        self._timelines = timelines

    def find_seal(self) -> Seal | None:
        """Return the seal of the ledger, or None."""
        with connected(self._url) as connection:
            if not value(connection, THERE):
                return None
            found = connection.execute(
                "SELECT sha256, name, applied_at FROM schema_migrations WHERE component = %s", (MOVED,)
            ).fetchone()
            return None if found is None else Seal(*found)

    def find_move(self) -> str | None:
        """Return the id of the move that made this ledger, or None; waits for a copy of another process to end."""
        with connected(self._url) as connection, connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            return value(connection, "SELECT value FROM meta WHERE name = %s", ARRIVED) if value(connection, THERE) else None

    def require_free(self) -> None:
        """Raise MoveError if the database holds a ledger."""
        with connected(self._url) as connection:
            if value(connection, THERE):
                raise MoveError(f"The database {self.place} holds a ledger already. Nothing was moved. Move to an empty database.")

    def prepare(self, move: str) -> None:
        """Do nothing: the copy is one transaction, which leaves nothing or all."""

    def require_noted(self, move: str) -> None:
        """Do nothing: an address means one database."""

    def seal(self, seal: Seal) -> None:
        """Store the seal, with a trigger that refuses every write: each begins with its writer's mark. A stored one is replaced."""
        self._durably(
            *_LIFT,
            (
                "INSERT INTO schema_migrations (component, name, sha256, applied_at) VALUES (%s, %s, %s, %s)",
                (MOVED, seal.place, seal.move, seal.at),
            ),
            ("CREATE TRIGGER moved BEFORE INSERT OR UPDATE ON writers EXECUTE FUNCTION refuse('the ledger was moved')", ()),
        )

    def unseal(self) -> None:
        """Remove the seal and its trigger."""
        self._durably(*_LIFT)

    @contextlib.contextmanager
    def reading(self) -> Iterator[DatabaseRows]:
        """Read the database in one snapshot."""
        with self._session() as session:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield DatabaseRows(session)

    @contextlib.contextmanager
    def filling(self, move: str, now_ms: int) -> Iterator[DatabaseCopy]:
        """Create the schema, fill it and commit, in one transaction."""
        with self._session() as session:
            connection = session.connection
            session.notices.clear()
            with connection.transaction():
                connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                if value(connection, THERE):
                    raise MoveError(f"The database {self.place} holds a ledger already. Nothing was moved.")
                migrate(connection, self._migrations, now_ms)
                copy = DatabaseCopy(session, self._statements)
                copy.empty()
                yield copy
                copy.finish(move)
                require_schema(connection, self._migrations)
            _require_durable(session.notices)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Session]:
        with driver_errors():
            session = Address(self._url, self._timelines).connect(name="quotebot move", limits=_UNLIMITED, writes=True)
            try:
                yield session
            finally:
                session.close()

    def _durably(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        """Run statements in a transaction of their own, which no other write runs beside and a standby has."""
        notices: list[str] = []
        with connected(self._url) as connection:
            connection.add_notice_handler(lambda notice: notices.append(f"{notice.severity} {notice.sqlstate}"))
            try:
                with connection.transaction():
                    connection.execute("SET LOCAL synchronous_commit = on")
                    connection.execute("SET LOCAL client_min_messages = warning")
                    connection.execute(f"SELECT pg_advisory_xact_lock({ALONE_LOCK})")
                    for sql, parameters in statements:
                        connection.execute(sql, parameters)
            except psycopg.errors.InsufficientPrivilege as error:
                raise MoveError(
                    f"This role may not seal the ledger in {self.place}. Nothing was done. Move as the role that owns the tables."
                ) from error
        _require_durable(notices)


class DatabaseRows:
    """The rows of a database, on a session with an open transaction."""

    def __init__(self, session: Session) -> None:
        self._connection = session.connection
        self._found = {
            name: (tuple(columns), list(types), set(parents), identity)
            for name, columns, types, parents, identity in self._connection.execute(_TABLES).fetchall()
            if name not in APART
        }

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each table, a table after those that it refers to."""
        ordered: dict[str, tuple[str, ...]] = {}
        while waiting := [name for name in self._found if name not in ordered]:
            ready = [name for name in waiting if self._found[name][2] <= set(ordered)]
            ordered |= {name: self._found[name][0] for name in ready or waiting}
        return ordered

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table."""
        with self._connection.cursor() as cursor, cursor.copy(f'COPY "{table}" TO STDOUT (FORMAT BINARY)') as copy:
            copy.set_types(self._found[table][1])
            yield from copy.rows()


class DatabaseCopy(DatabaseRows):
    """A new ledger in its open transaction."""

    def __init__(self, session: Session, statements: Mapping[str, str]) -> None:
        super().__init__(session)
        self._session = session
        self._statements = statements

    @property
    def tx(self) -> PostgresTx:
        """The transaction."""
        return PostgresTx(self._session, {name: NamedStatement(text) for name, text in self._statements.items()}, None)

    def empty(self) -> None:
        """Switch the guards off, and remove the rows that the schema comes with."""
        self._guards("DISABLE")
        names = ", ".join(f'"{table}"' for table in self._found)
        self._connection.execute(f"TRUNCATE {names}")

    def fill(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Insert the rows of a table."""
        columns, types, *_ = self._found[table]
        names = ", ".join(f'"{name}"' for name in columns)
        with self._connection.cursor() as cursor, cursor.copy(f'COPY "{table}" ({names}) FROM STDIN (FORMAT BINARY)') as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def finish(self, move: str) -> None:
        """Let ids go on above the greatest, store the move's id and switch the guards on."""
        for table, (_, _, _, identity) in self._found.items():
            if identity is not None:
                self._connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{identity}'), "  # noqa: S608 -- a table's own names
                    f'coalesce(max("{identity}"), 0) + 1, false) FROM "{table}"'
                )
        self._connection.execute(
            "INSERT INTO meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (ARRIVED, move),
        )
        self._guards("ENABLE")

    def _guards(self, word: str) -> None:
        for table in self._found:
            self._connection.execute(f'ALTER TABLE "{table}" {word} TRIGGER USER')


def _require_durable(notices: Sequence[str]) -> None:
    """Raise DatabaseError if a COMMIT came with a warning: it is visible, and perhaps on no standby."""
    if notices:
        raise DatabaseError(f"The database confirmed a COMMIT only in part ({'; '.join(notices)}). Repeat the command.")
