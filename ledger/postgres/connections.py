"""Access to a ledger's database beside an open ledger: by a bot that starts, and by the command line. Every function blocks."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from ledger.database import DatabaseError, Holder
from ledger.migrations import OlderBuildError, SchemaChangedError
from ledger.postgres.migrations import migrate, pending, require_order, require_schema, schema_differences
from ledger.postgres.sessions import CONNECT_SECONDS, READER, Address, require_version
from ledger.postgres.transactions import NamedStatement, PostgresTx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.migrations import Migration

T = TypeVar("T")
BOT_LOCK: Final = 0x626F74  # advisory lock of the one active bot; "bot" in ASCII
LOCK_CHECK_SECONDS: Final = 1.0
LOCK_NETWORK_MS: Final = 2_000  # without an answer for so long, the session is lost
FREE_SECONDS: Final = 2.0  # a living bot takes its lost lock again sooner
SETTLED_SECONDS: Final = 15.0  # and its new session with a server that started or was promoted, which ended every session
# The server releases the lock of a machine that is gone within seconds, and that of an idle bot never.
_LOCK_SETTINGS: Final = {
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "idle_session_timeout": 0,
}
_NAME: Final = "quotebot bot"  # application name of the lock's session, followed by the process id
_HOLDER: Final = """
SELECT a.application_name FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = %s AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""
_LAST: Final = "SELECT pid FROM epochs WHERE role = 'bot' ORDER BY epoch DESC LIMIT 1"
_LIVE_BOT: Final = "SELECT max(epoch) FROM epochs WHERE role = 'bot' AND ended_at IS NULL AND seen_at > %s"
# The server's timeline, and whether it has taken writes on it for some seconds: a promotion or a recovery makes a checkpoint.
_SERVER: Final = """
SELECT timeline, timeline = lpad(upper(to_hex(timeline_id)), 8, '0')
  AND greatest(pg_postmaster_start_time(), checkpoint_time) < clock_timestamp() - make_interval(secs => %s)
FROM pg_control_checkpoint(), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS timeline
"""
_THERE: Final = "SELECT to_regclass('schema_migrations') IS NOT NULL AND to_regclass('epochs') IS NOT NULL"


class BotLock:
    """The held lock of the one active bot. The server releases it when the session ends.

    A session that is lost, as at a failover, is replaced from a thread of its own. Another bot may be faster: it writes under the
    same names, which ends the writes of this process (marks.py).
    """

    def __init__(self, url: str, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._url = url
        self._connection = connection
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="ledger-bot-lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release the lock."""
        self._closing.set()
        self._thread.join()
        self._connection.close()

    def _keep(self) -> None:
        while not self._closing.wait(LOCK_CHECK_SECONDS):
            with contextlib.suppress(psycopg.Error):
                if self._connection.closed:
                    self._connection = _try_bot_lock(self._url) or self._connection
                else:
                    self._connection.execute("SELECT 1")


def with_password(address: str, password: str | None) -> str:
    """Return the address with a password, for the driver alone."""
    return address if password is None else make_conninfo(address, password=password)


def is_there(url: str) -> bool:
    """Return true if the database holds a ledger."""
    with connected(url) as connection:
        return bool(value(connection, _THERE))


class BotLockSearch:
    """The attempts of one process to take the lock of the one active bot.

    A free lock does not prove that its bot has ended: a failover ends every session at once, and a living bot takes its lock again
    within seconds. So while the ledger shows a bot that was alive within the lease, the lock must be seen free for FREE_SECONDS,
    or for SETTLED_SECONDS unless the server has run for so long.
    """

    def __init__(self, url: str, lease_ms: int, clock: Clock) -> None:
        self._url = url
        self._lease_ms = lease_ms
        self._clock = clock
        self._seen: tuple[int, str] | None = None  # the bot without its lock, and the server's timeline
        self._free_since = 0.0
        self.is_uncertain = False  # the lock is free, and its bot may be alive

    def hold(self) -> BotLock | None:
        """Take the lock, or return None when another process holds it or may take it again."""
        with _errors():
            connection = _try_bot_lock(self._url, self._may_take)
        return None if connection is None else BotLock(self._url, connection)

    def _may_take(self, connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
        alive_after = self._clock.now_ms() - self._lease_ms
        bot = value(connection, _LIVE_BOT, alive_after) if value(connection, _THERE) else None
        if bot is None or value(connection, _HOLDER, BOT_LOCK) is not None:
            self._seen, self.is_uncertain = None, False
            return bot is None
        ((timeline, is_settled),) = connection.execute(_SERVER, (SETTLED_SECONDS,)).fetchall()
        seen, now = (bot, timeline), self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._free_since = seen, now
        self.is_uncertain = now - self._free_since < (FREE_SECONDS if is_settled else SETTLED_SECONDS)
        return not self.is_uncertain


def _try_bot_lock(
    url: str, may_take: Callable[[psycopg.Connection[tuple[Any, ...]]], bool] = lambda _: True
) -> psycopg.Connection[tuple[Any, ...]] | None:
    connection = psycopg.connect(
        url,
        autocommit=True,
        application_name=f"{_NAME} {os.getpid()}",
        target_session_attrs="read-write",
        connect_timeout=CONNECT_SECONDS,
        tcp_user_timeout=LOCK_NETWORK_MS,
        options=" ".join(f"-c {name}={value}" for name, value in _LOCK_SETTINGS.items()),
    )
    if may_take(connection) and value(connection, "SELECT pg_try_advisory_lock(%s)", BOT_LOCK):
        return connection
    connection.close()
    return None


def bot_lock_holder(url: str) -> Holder | None:
    """Return the process that holds the bot's lock, or else the last that did. It never tries the lock."""
    with connected(url) as connection:
        name = value(connection, _HOLDER, BOT_LOCK)
        if name is not None:
            return Holder(int(str(name).removeprefix(_NAME)), alive=True)
        pid = value(connection, _LAST) if value(connection, _THERE) else None
        return None if pid is None else Holder(int(pid), alive=False)


def prepare(url: str, migrations: Sequence[Migration], now_ms: int, on_migrating: Callable[[], object] | None) -> None:
    """Check the schema and bring it up to date; `on_migrating` is called before a used ledger is changed.

    Without `on_migrating`, an older ledger raises OlderBuildError. Raises DatabaseError as the migrations do.
    """
    with connected(url) as connection:
        require_order(connection)
        require_schema(connection, migrations)
        missing = pending(connection, migrations)
        if missing and on_migrating is None:
            raise OlderBuildError("The ledger's schema is older than this build, and a bot is running on it; it is unchanged.")
        if missing and on_migrating is not None:
            if value(connection, _THERE):
                on_migrating()
            migrate(connection, migrations, now_ms)


def check_schema(url: str, migrations: Sequence[Migration]) -> None:
    """Raise DatabaseError with the difference unless the schema is the one of this build."""
    with connected(url) as connection:
        require_order(connection)
        missing = pending(connection, migrations)
        changed = schema_differences(connection, migrations)
    if changed:
        raise DatabaseError(SchemaChangedError(changed).named)
    if missing:
        raise OlderBuildError(f"{len(missing)} changes of this build are not in it yet; the next start of the bot makes them")


def read_snapshot(url: str, statements: Mapping[str, str], work: Callable[[Tx], T]) -> T:
    """Run `work` in one snapshot, on a session of its own."""
    with _errors():
        session = Address(url).connect(name="quotebot cli", limits=READER, writes=False)
        try:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tx = PostgresTx(session, {name: NamedStatement(text) for name, text in statements.items()}, None)
            found = work(tx)
            tx.require_session()
            return found
        finally:
            session.close()


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
    with _errors(), connect(url) as connection:
        yield connection


@contextlib.contextmanager
def _errors() -> Iterator[None]:
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
