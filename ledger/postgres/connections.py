"""Access to a ledger's database beside an open ledger: by a bot that starts, and by the command line. Every function blocks."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from ledger.database import DatabaseError, NotRecorded
from ledger.migrations import OlderBuildError, SchemaChangedError
from ledger.postgres.migrations import (
    migrate,
    newer,
    pending,
    require_order,
    require_schema,
    schema_differences,
    wait_for_migrations,
)
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import CONNECT_SECONDS, READER, WRITER, Address, require_version
from ledger.postgres.transactions import PostgresTx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ledger.database import Tx
    from ledger.migrations import Migration

T = TypeVar("T")
BRIEF_SECONDS: Final = 12.0  # longer than the server lets a statement run
THERE: Final = "SELECT to_regclass('schema_migrations') IS NOT NULL AND to_regclass('epochs') IS NOT NULL"


def with_password(address: str, password: str | None) -> str:
    """Return the address with a password, for the driver alone."""
    return address if password is None else make_conninfo(address, password=password)


def is_there(url: str) -> bool:
    """Return true if the database holds a ledger."""
    with connected(url) as connection:
        return bool(value(connection, THERE))


def prepare(
    url: str,
    migrations: Sequence[Migration],
    now_ms: int,
    on_migrating: Callable[[], object],
    alone: Callable[[psycopg.Connection[tuple[Any, ...]]], bool] = lambda _: False,
) -> None:
    """Check the schema and bring it up to date; `on_migrating` is called before a used ledger is changed.

    `alone` tells whether no bot of another build runs. Raises DatabaseError as the migrations do.
    """
    with connected(url) as connection:
        wait_for_migrations(connection)
        require_order(connection)
        require_schema(connection, migrations)
        if pending(connection, migrations):
            if value(connection, THERE):
                on_migrating()
            migrate(connection, migrations, now_ms, lambda: not _is_used(connection) or alone(connection))


def _is_used(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Tell whether a bot has begun to work on the ledger. Those that start it together may all create it."""
    return bool(value(connection, THERE)) and value(connection, "SELECT max(epoch) FROM epochs") is not None


def check_schema(url: str, migrations: Sequence[Migration]) -> list[str]:
    """Return what a newer build has added. Raises DatabaseError with the difference unless the rest is the schema of this build."""
    with connected(url) as connection:
        require_order(connection)
        missing = pending(connection, migrations)
        changed = schema_differences(connection, migrations)
        added = newer(connection, migrations)
    if changed:
        raise DatabaseError(SchemaChangedError(changed).named)
    if missing:
        raise OlderBuildError(f"{len(missing)} changes of this build are not in it yet; the next start of the bot makes them")
    return added


def read_snapshot(url: str, statements: Mapping[str, str], work: Callable[[Tx], T]) -> T:
    """Run `work` in one snapshot, on a session of its own."""
    with driver_errors():
        session = Address(url).connect(name="quotebot cli", limits=READER, writes=False)
        try:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tx = PostgresTx(session, {name: NamedStatement(text) for name, text in statements.items()}, None)
            found = work(tx)
            tx.require_session()
            return found
        finally:
            session.close()


@contextlib.contextmanager
def brief_transaction(url: str, statements: Mapping[str, str], *, writes: bool, timelines: Path | None) -> Iterator[Tx]:
    """Yield a durable transaction on a session of its own, beside the ledger's writer, for work that may be repeated.

    Raises NotRecorded when it failed, or when it is not certain that it is recorded.
    """
    try:
        session = Address(url, timelines).connect(name="quotebot documents", limits=WRITER, writes=writes)
        limit = threading.Timer(BRIEF_SECONDS, session.shut)  # of a server that does not answer
        limit.start()
        try:
            session.run("BEGIN")
            yield PostgresTx(session, {name: NamedStatement(text) for name, text in statements.items()}, None)
            uncertain = session.commit()
        finally:
            limit.cancel()
            session.close()
    except (psycopg.Error, DatabaseError) as error:
        raise NotRecorded(f"The database does not answer ({' '.join(str(error).split())}). Another try is safe.") from error
    if uncertain is not None:
        raise NotRecorded(f"It is not certain that the database has recorded it ({uncertain}). Another try is safe.")


def require_current(url: str, migrations: Sequence[Migration]) -> None:
    """Raise OlderBuildError unless every migration of this build was applied."""
    with connected(url) as connection:
        if pending(connection, migrations):
            raise OlderBuildError("the ledger is of an older build")


def count_rows(url: str) -> dict[str, int]:
    """Return the number of rows by table."""
    with connected(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema() ORDER BY 1")
        return {str(name): int(value(connection, f'SELECT count(*) FROM "{name}"')) for (name,) in names.fetchall()}  # noqa: S608 -- a table's own name


def begun_at_ms(url: str) -> int:
    """Return the time of the ledger's first migration."""
    with connected(url) as connection:
        return int(value(connection, "SELECT min(applied_at) FROM schema_migrations") or 0)


def server_version(url: str) -> str:
    """Return the version of the server. Raises DatabaseError if it is too old."""
    with connected(url) as connection:
        require_version(connection)
        return connection.info.parameter_status("server_version") or "unknown"


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect to the server that takes writes, without settings of our own. Raises psycopg.Error."""
    return psycopg.connect(
        url,
        autocommit=True,
        application_name="quotebot cli",
        target_session_attrs="read-write",
        connect_timeout=CONNECT_SECONDS,
        prepare_threshold=None,  # behind a pooler, a prepared statement may be another session's
    )


@contextlib.contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Connect for a while. Errors of the driver become a DatabaseError."""
    with driver_errors(), connect(url) as connection:
        yield connection


@contextlib.contextmanager
def driver_errors() -> Iterator[None]:
    """Raise errors of the driver as a DatabaseError."""
    try:
        yield
    except psycopg.Error as error:
        raise DatabaseError(
            f"The ledger's database cannot be used ({' '.join(str(error).split())}). No command was touched. Does the server run, "
            "and may this user log in?"
        ) from error


def value(connection: psycopg.Connection[tuple[Any, ...]], sql: str, *parameters: object) -> Any:
    """Return the only value of the first row, or None without a row."""
    row = connection.execute(sql, parameters).fetchone()
    return None if row is None else row[0]
