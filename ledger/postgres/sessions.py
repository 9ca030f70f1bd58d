"""Sessions with a PostgreSQL server: their settings, and a limit for every call, because a dead network gives no answer at all.

No call is canceled by a request to the server: a canceled COMMIT returns success for rows that no standby has. `Watchdog` shuts the
socket down instead; the call then fails as it does when the server is gone. A call may take seconds, so after a short silence the
watchdog connects to the same server: one that does not answer that either is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from ledger.database import DatabaseError
from ledger.postgres.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

CONNECT_SECONDS: Final = 2  # for each host of the address
COMMIT_SECONDS: Final = 1.5  # without an answer, a COMMIT is of unknown outcome
OVERRUN_SECONDS: Final = 1.0  # beyond the time at which the server itself ends a statement
WATCH_SECONDS: Final = 0.2
SILENT_SECONDS: Final = 0.4  # of a call; then the watchdog tries another connection
PROBE_SECONDS: Final = 1.0  # for that connection
ASK_SECONDS: Final = 0.5  # for the answers of the other hosts of a URL
SETUP_SECONDS: Final = 5.0  # for what a new session asks first; no watchdog sees it yet
SERVER_MIN: Final = 150000
PREPARED_MAX: Final = 1000
_POSITION: Final = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
)
PLAN_CHANGED: Final = "0A000"  # a prepared statement has other columns than before
# The session is of no use any more, though the server may be: it was demoted, or a migration changed a table.
STALE: Final = frozenset({"25006", PLAN_CHANGED})
# Dead peers are noticed within seconds; ignored on a socket of the machine itself.
_NETWORK: Final = {"keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 2, "tcp_user_timeout": 2000}
_SETTINGS: Final = {
    "jit": "off",  # compiling a plan took seconds of the processor
    "plan_cache_mode": "force_generic_plan",  # planning took as long as the statement
    "enable_seqscan": "off",  # a plan made while a table was empty stays in use when it is full
    "synchronous_commit": "on",
    "client_min_messages": "warning",
    "bytea_output": "hex",
    "timezone": "UTC",
}


class Limits(NamedTuple):
    """Milliseconds after which the server ends a session's wait, statement or idle transaction by itself."""

    lock: int = 2_000
    statement: int = 10_000
    idle: int = 1_000  # a stopped process keeps its row locks no longer


WRITER: Final = Limits()
FRONT: Final = Limits(lock=500, statement=2_000)  # of the process that acknowledges: a caller waits for it
READER: Final = Limits(lock=2_000, statement=60_000, idle=60_000)


class Session:
    """One connection, used by one thread at a time. Only `call`, `is_overdue` and both `shut` may be used from another thread."""

    def __init__(
        self, connection: psycopg.Connection[tuple[Any, ...]], limits: Limits, server: Mapping[str, Any], timeline: int
    ) -> None:
        self.connection = connection
        self.server = server
        self.timeline = timeline
        self.pipeline = Pipeline(connection)
        self._control = connection.cursor()
        self._seconds = limits.statement / 1000 + OVERRUN_SECONDS
        self.call: float | None = None  # time.monotonic at the begin of the running call
        self.round_trips = 0
        self._overdue_at = 0.0  # of that call
        self.notices: list[str] = []
        connection.add_notice_handler(lambda notice: self.notices.append(f"{notice.severity} {notice.sqlstate}"))

    @property
    def lost(self) -> bool:
        """True if the connection has ended."""
        return bool(self.connection.closed)

    @property
    def failed(self) -> bool:
        """True if an error ended the open transaction: the server then refuses every statement until it is rolled back."""
        return bool(self.connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.INTRANS)

    @property
    def refused(self) -> bool:
        """True if the transaction is open and can only be rolled back."""
        return bool(self.connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR)

    def send(self) -> None:
        """Send the waiting statements of the pipeline and wait for their results. Raises psycopg.Error."""
        self._begin(self._seconds)
        try:
            self.pipeline.send()
        finally:
            self.call = None

    def commit(self) -> str | None:
        """Send the statements that wait, and COMMIT. Returns what makes the outcome uncertain, or None.

        Raises psycopg.Error. The outcome is then unknown, unless one of the statements failed: then COMMIT was not executed. A
        warning says, for example, that the wait for a standby was canceled: the rows are visible and may still be lost.
        """
        self.notices.clear()
        self._begin(COMMIT_SECONDS)
        try:
            answer = self.pipeline.add_commit()
            self.pipeline.send()
        finally:
            self.call = None
        status = answer.result and answer.result.command_status
        if status != b"COMMIT":
            return f"the server answered {status!r}"
        return "; ".join(self.notices) or None

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run several statements without parameters in one round trip, after the waiting ones; return the rows of the last."""
        if self.pipeline:
            self.send()
        self._begin(self._seconds)
        try:
            cursor = self._control.execute(sql, prepare=False)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description is not None else []
        finally:
            self.call = None

    def useless_after(self, error: psycopg.Error) -> bool:
        """Tell whether the session cannot be used after this error."""
        return self.lost or error.sqlstate in STALE

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(psycopg.Error):
            self.connection.close()

    def is_overdue(self, now: float) -> bool:
        """Tell whether the running call has taken too long."""
        return self.call is not None and now >= self._overdue_at

    def shut_if_overdue(self) -> None:
        """Shut the socket down if the running call has taken too long."""
        if self.is_overdue(time.monotonic()):
            self.shut()

    def shut(self) -> None:
        """Shut the socket down: the running call fails."""
        _shut(self.connection)

    def _begin(self, seconds: float) -> None:
        now = time.monotonic()
        self._overdue_at = now + seconds
        self.call = now
        self.round_trips += 1


class TimelineLog:
    """File with the timelines of servers that were seen, for later starts: the system's identifier and the timeline, one a line.

    All copies of a database share the identifier; a database that is created anew has another one and begins at timeline 1.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def highest(self, system: str) -> int:
        """Return the highest timeline that was seen of a system, or 0. Raises DatabaseError for a file that cannot be read."""
        if self._path is None or not self._path.exists():
            return 0
        try:
            lines = [line.split() for line in self._path.read_text("ascii").splitlines()]
            return max((int(line[1]) for line in lines if len(line) == 2 and line[0] == system), default=0)  # noqa: PLR2004 -- a pair
        except (OSError, ValueError) as error:
            raise DatabaseError(f"The timelines of the database's servers cannot be read ({error}): {self._path}") from error

    def add(self, system: str, timeline: int) -> None:
        """Store a timeline. A full disk does not keep a bot from its server: this process knows the timeline anyway."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, f"{system} {timeline}\n".encode("ascii"))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class Address:
    """Hosts of a URL, one of which takes writes. Several sessions share it, on any thread.

    A new primary has a higher timeline than the one before. An old primary that is back without noticing the new one still takes
    writes, which are lost later, so a server on a lower timeline than the highest seen is refused, and an open session with it is
    not used any more. A process that was stopped or dead during a failover has not seen the new one: before it uses a server on the
    timeline that it knows, it asks the other hosts.
    """

    def __init__(self, url: str, timelines: Path | None = None) -> None:
        """Raises DatabaseError if the URL cannot be read; the message does not contain it, as it may hold a password.

        `timelines`: file that keeps the timelines seen for later starts.
        """
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise DatabaseError("The database's URL cannot be read. Write it as postgresql://user@host:port/name.") from error
        hosts, ports = str(given.get("host", "")).split(","), str(given.get("port", "")).split(",")
        if len(ports) == 1:
            ports *= len(hosts)
        if len(ports) != len(hosts):
            raise DatabaseError("The database's URL names several hosts; give one port for all of them, or one for each.")
        self._servers = [{**given, "host": host, "port": port} for host, port in zip(hosts, ports, strict=True)]
        self._lock = threading.Lock()
        self._first = 0
        self._log = TimelineLog(timelines)
        self._system = ""
        self.timeline = 0

    def connect(self, *, name: str, limits: Limits, writes: bool, setup: str | None = None) -> Session:
        """Open a session with the server that takes writes. Raises psycopg.Error, and DatabaseError for an unsuitable server.

        The search begins after the server of the last session, which may be gone. `name` is shown to the database's operator.
        `writes`: false for a session that only reads. `setup`: statements that it runs first.
        """
        failure: psycopg.Error | DatabaseError | None = None
        first, count = self._first, len(self._servers)
        for place in range(first, first + count):
            try:
                connection = _connect(self._servers[place % count], name, limits, writes=writes)
            except psycopg.Error as error:
                failure = error
                continue
            try:
                with answering(connection):
                    timeline = self._require_suitable(connection, self._servers[place % count])
                    session = Session(connection, limits, self._servers[place % count], timeline)
                    if setup is not None:
                        session.run(setup)
            except (psycopg.Error, DatabaseError) as error:
                connection.close()
                failure = error
                continue
            except BaseException:
                connection.close()
                raise
            self._first = (place + 1) % count
            return session
        assert failure is not None  # noqa: S101 -- there is a server, and it failed
        raise failure

    def is_former(self, session: Session) -> bool:
        """Tell whether a session is with a former primary: another server was seen on a higher timeline since."""
        return session.timeline < self.timeline

    def look_up(self) -> None:
        """Learn the highest timeline that other processes, or other addresses of this one, have stored since."""
        stored = self._log.highest(self._system)
        with self._lock:
            self.timeline = max(self.timeline, stored)

    def _require_suitable(self, connection: psycopg.Connection[tuple[Any, ...]], server: Mapping[str, Any]) -> int:
        """Return the server's timeline. Raises DatabaseError for a server or database that the ledger cannot use."""
        require_version(connection)
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise DatabaseError("The database's encoding is not UTF8. Create it with ENCODING 'UTF8' and LC_COLLATE 'C'.")
        system, timeline = read_position(connection)
        if not 0 < max(self.timeline, self._log.highest(system)) < timeline:
            self._ask_others(server, system)
        with self._lock:
            stored = self._log.highest(system)
            highest = max(self.timeline, stored)
            if timeline < highest:
                raise DatabaseError(
                    f"The server is on timeline {timeline}, and another was already on {highest}: it is a former primary, "
                    "and what it records is lost. Stop it."
                )
            if timeline > stored:
                self._log.add(system, timeline)
            self._system, self.timeline = system, timeline
        return timeline

    def _ask_others(self, server: Mapping[str, Any], system: str) -> None:
        """Ask the other hosts for a higher timeline, and wait a moment. A later answer ends the sessions with `server`."""
        others = [each for each in self._servers if each is not server]
        asking = [threading.Thread(target=self._ask, args=(each, system), name="ledger-hosts", daemon=True) for each in others]
        for thread in asking:
            thread.start()
        give_up_at = time.monotonic() + ASK_SECONDS
        for thread in asking:
            thread.join(max(0.0, give_up_at - time.monotonic()))

    def _ask(self, server: Mapping[str, Any], system: str) -> None:
        with contextlib.suppress(psycopg.Error), _connect(server, "quotebot host", WRITER, writes=True) as connection:
            with answering(connection):
                found, timeline = read_position(connection)
            with self._lock:
                if found == system and timeline > self.timeline:
                    self.timeline = timeline
                    self._log.add(system, timeline)


def require_version(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Raise DatabaseError for a server that is too old."""
    version = connection.info.server_version
    if version < SERVER_MIN:
        raise DatabaseError(f"The server is PostgreSQL {version // 10000}; the ledger needs {SERVER_MIN // 10000} or newer.")


def read_position(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[str, int]:
    """Return the identifier that all copies of a database share, and the server's timeline."""
    row = connection.execute(_POSITION).fetchone()
    return ("", 0) if row is None else (str(row[0]), int(row[1], 16))


def _connect(server: Mapping[str, Any], name: str, limits: Limits, *, writes: bool) -> psycopg.Connection[tuple[Any, ...]]:
    settings = {
        **_SETTINGS,
        "lock_timeout": str(limits.lock),
        "statement_timeout": str(limits.statement),
        "idle_in_transaction_session_timeout": str(limits.idle),
    }
    connection = psycopg.connect(
        **{
            **_NETWORK,
            **server,
            "autocommit": True,  # BEGIN and COMMIT are statements of ours
            "application_name": name,
            "connect_timeout": CONNECT_SECONDS,
            "target_session_attrs": "read-write" if writes else "primary",
            "options": " ".join(f"-c {key}={value}" for key, value in settings.items()),
        }
    )
    connection.prepared_max = PREPARED_MAX
    for kind in (int, bool):  # one type for every integer, so that a statement is prepared once
        connection.adapters.register_dumper(kind, Int8BinaryDumper)
    return connection


@contextlib.contextmanager
def answering(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[None]:
    """Shut the socket down if what is asked here has no answer within SETUP_SECONDS: the running call fails."""
    limit = threading.Timer(SETUP_SECONDS, _shut, (connection,))
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _shut(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    with contextlib.suppress(OSError, psycopg.Error):
        descriptor = os.dup(connection.fileno())
        with socket.socket(fileno=descriptor) as held:
            held.shutdown(socket.SHUT_RDWR)


def does_answer(server: Mapping[str, Any]) -> bool:
    """Tell whether a server accepts a connection, or says why it does not: it may have too many."""
    try:
        psycopg.connect(**{**server, "connect_timeout": CONNECT_SECONDS}).close()
    except psycopg.Error as error:
        return "FATAL:" in str(error)
    return True


class Watchdog:
    """Check of the sessions that `watching` returns, several times per second while there are any. Belongs to the loop."""

    def __init__(self, watching: Callable[[], Sequence[Session]]) -> None:
        self._watching = watching
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._probes: dict[Session, asyncio.Task[None]] = {}
        self._beside = ThreadPoolExecutor(2, "ledger-probe")  # the loop's own threads may all wait for this server

    def start(self) -> None:
        """Check from now on, until no session has a call under way."""
        if self._timer is None:
            self._timer = self._loop.call_later(WATCH_SECONDS, self._check)

    def stop(self) -> None:
        """Stop checking."""
        for probe in self._probes.values():
            probe.cancel()
        self._beside.shutdown(wait=False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        sessions, now = self._watching(), time.monotonic()
        for session in sessions:
            call = session.call
            if session.is_overdue(now):
                session.shut()
            elif call is not None and now - call >= SILENT_SECONDS and session not in self._probes:
                self._probes[session] = probe = self._loop.create_task(self._probe(session, call))
                probe.add_done_callback(lambda _, session=session: self._probes.pop(session, None))  # type: ignore[misc] # bound
        if sessions:
            self.start()

    async def _probe(self, session: Session, call: float) -> None:
        """Shut a session whose server does not answer another connection either, if the same call is still under way."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                alive = await self._loop.run_in_executor(self._beside, does_answer, session.server)
        except TimeoutError:
            alive = False
        if not alive and session.call == call:
            session.shut()
