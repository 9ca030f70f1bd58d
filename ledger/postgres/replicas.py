"""Locks of the replicas, which are several bots on one ledger, and the proof that one of them is dead.

A session of each replica holds a lock under its name, exclusively, and the bots' lock, which they share. A process that works while
no bot runs holds the bots' lock exclusively. The server releases a lock when its session ends. That alone does not prove a replica
dead: a failover ends every session at once, and a living replica takes its lock again within seconds. So the lock must be seen free
for FREE_SECONDS, or for SETTLED_SECONDS if the server has just started or was promoted and the lock was not seen held since.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

from ledger.database import DatabaseError, Holder
from ledger.ownership import MAIN, LockHolder
from ledger.postgres.connections import THERE, connected, driver_errors, value
from ledger.postgres.sessions import CONNECT_SECONDS, Address, Limits, answering

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from ledger.clock import Clock
    from ledger.postgres.sessions import Session

BOT_LOCK: Final = 0x626F74  # "bot" in ASCII: the key of the bots' lock, and the first of the two keys of each replica's lock
LEAD_LOCK: Final = 0x6C656164  # "lead"
BUILD_LOCK: Final = 0x626C64  # "bld": the first of the two keys of the lock that the replicas of one build share
POLL_SECONDS: Final = 0.5
FREE_SECONDS: Final = 2.0  # a living replica takes its lost lock again sooner
SETTLED_SECONDS: Final = 15.0  # and its new session with a server that started or was promoted, which ended every session
HELD_SECONDS: Final = FREE_SECONDS  # without an answer for so long, the lock may be lost and seen free by others
_LIMITS: Final = Limits(lock=500, statement=1_000, idle=0)
# The server releases the lock of a machine that is gone within seconds, and that of an idle replica never.
_SETTINGS: Final = (
    "SET tcp_keepalives_idle = 4; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET idle_session_timeout = 0"
)
_APPLICATION: Final = "quotebot replica"  # name of the session, followed by the replica's name and the process id
_NO_TABLE: Final = "42P01"  # nobody has begun a ledger yet
_HERE: Final = "database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"
# The second key of a replica's lock is a hash of its name; pg_locks shows it without a sign.
_HELD: Final = (
    "SELECT objid::bigint FROM pg_catalog.pg_locks "  # noqa: S608 -- a number
    f"WHERE locktype = 'advisory' AND granted AND classid = {BOT_LOCK} AND objsubid = 2 AND {_HERE}"
)
_ONE_BUILD: Final = f"""
SELECT bool_and(is_ours) FROM (
  SELECT bool_or(classid = {BUILD_LOCK} AND objid::bigint = %s & 4294967295) AS is_ours FROM pg_catalog.pg_locks
  WHERE locktype = 'advisory' AND granted AND classid IN ({BOT_LOCK}, {BUILD_LOCK}) AND objsubid = 2 AND {_HERE}
  GROUP BY pid HAVING bool_or(classid = {BOT_LOCK})) AS replica
"""  # noqa: S608 -- numbers
_OPEN: Final = """
SELECT epoch, hashtext(replica)::bigint & 4294967295, replica, extract(epoch FROM clock_timestamp()) * 1000 - seen_at
FROM epochs WHERE role = 'bot' AND ended_at IS NULL
"""
# For how long the server has surely taken writes: a promotion or a recovery makes a checkpoint, which is of the new timeline.
_SETTLED: Final = """
SELECT CASE WHEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) = lpad(upper(to_hex(timeline_id)), 8, '0')
  THEN extract(epoch FROM clock_timestamp() - greatest(pg_postmaster_start_time(), checkpoint_time))::float ELSE 0 END
FROM pg_control_checkpoint()
"""
_HOLDER: Final = f"""
SELECT a.application_name FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = {BOT_LOCK} AND l.objsubid = 1 AND l.{_HERE}
ORDER BY a.application_name LIKE %s DESC, a.backend_start LIMIT 1
"""  # noqa: S608 -- a number
_HOLDERS: Final = f"""
SELECT a.application_name, EXISTS (
  SELECT 1 FROM pg_catalog.pg_locks AS leader
  WHERE leader.pid = l.pid AND leader.locktype = 'advisory' AND leader.granted AND leader.classid = 0 AND leader.objid = {LEAD_LOCK}
    AND leader.objsubid = 1)
FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = {BOT_LOCK} AND l.objsubid = 2 AND l.{_HERE}
"""  # noqa: S608 -- numbers
_LAST: Final = "SELECT pid FROM epochs WHERE role = 'bot' ORDER BY replica = %s DESC, epoch DESC LIMIT 1"


class OpenEpoch(NamedTuple):
    """An epoch of a bot that has no end in the ledger, and the second key of its replica's lock."""

    epoch: int
    key: int
    replica: str
    silent_ms: float  # since its last sign of life


class FreeLocks:
    """The locks of open epochs that one session sees free, since when, and which of them it has seen held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeline = 0
        self._since: dict[int, float] = {}
        self._was_held: set[int] = set()

    def forget(self) -> None:
        """Begin anew, with another session or when it is not known what happened since the last look."""
        self._since, self._was_held = {}, set()

    def dead(self, free: Collection[int], held: Collection[int], timeline: int, *, settled: bool) -> list[int]:
        """Return the dead among the open epochs, whose locks are `free` or `held`.

        `settled`: the server has taken writes for long enough.
        """
        now = self._clock.monotonic()
        if timeline != self._timeline:
            self.forget()
            self._timeline = timeline
        self._was_held = {epoch for epoch in free if epoch in self._was_held} | set(held)
        self._since = {epoch: self._since.get(epoch, now) for epoch in free}
        return [
            epoch
            for epoch, since in self._since.items()
            if now - since >= (FREE_SECONDS if settled or epoch in self._was_held else SETTLED_SECONDS)
        ]


class LockSearch:
    """The attempts of one process to take the lock of a replica, or without a name the one that excludes every replica."""

    def __init__(
        self, url: str, name: str | None, lease_ms: int, clock: Clock, timelines: Path | None = None, *, build: int = 0
    ) -> None:
        """`timelines` is that of Address. `build`: the number of the replica's build (see `is_one_build`)."""
        self._address = Address(url, timelines)
        self._name = name
        self._build = build
        self._lease_ms = lease_ms
        self._clock = clock
        self._free = FreeLocks(clock)
        self.is_uncertain = False  # the lock is free, and a replica may be alive that has lost it

    def hold(self) -> ReplicaLock | None:
        """Take the lock, or return None when another process holds it or may take it again."""
        with driver_errors():
            session = self.take(self._may_take)
        return None if session is None else ReplicaLock(self._name or MAIN, session, self, self._clock)

    def take(self, may_take: Callable[[Session], bool] = lambda _: True) -> Session | None:
        """Return a session that holds the lock, or None. Raises psycopg.Error, DatabaseError."""
        owner = "of no replica" if self._name is None else self._name
        name = f"{_APPLICATION} {owner} {os.getpid()}"
        session = self._address.connect(name=name, limits=_LIMITS, writes=True, setup=_SETTINGS)
        try:
            with answering(session.connection):
                if may_take(session) and session.run(self._taking()) == [(True,)]:
                    return session
        except BaseException:
            session.close()
            raise
        session.close()
        return None

    def is_former(self, session: Session) -> bool:
        """Tell whether a session is with a former primary, by what any process with this data folder has seen."""
        self._address.look_up()
        return self._address.is_former(session)

    def _taking(self) -> str:
        if self._name is None:
            return f"SELECT pg_try_advisory_lock({BOT_LOCK})"
        name = self._name.replace("'", "''")
        return (
            f"SELECT pg_try_advisory_lock_shared({BOT_LOCK}) AND pg_try_advisory_lock_shared({BUILD_LOCK}, {self._build}) "
            f"AND pg_try_advisory_lock({BOT_LOCK}, hashtext('{name}'))"
        )

    def _may_take(self, session: Session) -> bool:
        mine = [each for each in open_epochs(session) if self._name in (None, each.replica)]
        alive = [each for each in mine if each.silent_ms < self._lease_ms]
        held = held_keys(session)
        if not alive or any(each.key in held for each in alive):
            self._free.forget()
            self.is_uncertain = False
            return not alive
        dead = self._free.dead([each.epoch for each in alive], (), session.timeline, settled=is_settled(session))
        self.is_uncertain = len(dead) < len(alive)
        return not self.is_uncertain


class ReplicaLock:
    """The held lock of a replica, and what its session sees of the others.

    A session that is lost, as at a failover, is replaced from a thread of its own. Another process of that name may be faster: it
    writes under the same names, which ends the writes of this one (marks.py).
    """

    def __init__(self, name: str, session: Session, search: LockSearch, clock: Clock) -> None:
        self.name = name
        self.alone = False
        self.term = 0  # grows with each new session
        self._search = search
        self._clock = clock
        self._session = session
        self._connected_at = self._held_at = clock.monotonic()
        self._free = FreeLocks(clock)
        self._dead: list[int] = []
        self._count = 1
        self._leads = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="ledger-replica-lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release the lock."""
        self._closing.set()
        self._thread.join(CONNECT_SECONDS)
        if self._thread.is_alive():  # a call gets no answer
            self._session.shut()
            self._thread.join()
        self._session.close()

    def is_held(self) -> bool:
        """Return true while the server has shown within HELD_SECONDS that the lock is held."""
        self._session.shut_if_overdue()
        return self._clock.monotonic() - self._held_at < HELD_SECONDS

    async def dead_epochs(self) -> list[int]:
        """Return the open epochs whose locks were seen free for long enough."""
        return list(self._dead) if self.is_held() else []

    async def count(self) -> int:
        """Return the number of replicas that hold their locks, or have not ended and are not proven dead."""
        return self._count

    async def leads(self) -> bool:
        """Return true while this session holds the leader's lock."""
        return self._leads and self.is_held()

    # ------------------------------------------------------------------------------------------- on the lock's thread

    def _keep(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            for _ in range(2):  # a lost session is replaced at once
                with contextlib.suppress(psycopg.Error, DatabaseError):
                    self._look()
                    break

    def _look(self) -> None:
        session = self._current()
        if session is None:
            return
        asked = self._clock.monotonic()
        if asked - self._held_at >= HELD_SECONDS:
            self._free.forget()
        epochs = open_epochs(session)
        held = held_keys(session)  # after the epochs: a replica takes its lock first
        self._leads = self._leads or session.run(f"SELECT pg_try_advisory_lock({LEAD_LOCK})") == [(True,)]
        taken = [each.epoch for each in epochs if each.key in held]
        free = [each.epoch for each in epochs if each.key not in held]
        # A session does not outlive a restart or a demotion of its server.
        settled = asked - self._connected_at >= SETTLED_SECONDS or (bool(free) and is_settled(session))
        self._dead = self._free.dead(free, taken, session.timeline, settled=settled)
        # One whose lock is free is not dead yet: after a failover the others take theirs again at other moments.
        self._count = max(1, len(held | {each.key for each in epochs if each.epoch not in self._dead}))
        self._held_at = asked

    def _current(self) -> Session | None:
        """Return the session, or a new one that holds the lock again, or None while another process holds it."""
        if not self._session.lost and not self._search.is_former(self._session):
            return self._session
        self._session.close()
        self._leads, self._dead = False, []
        self._free.forget()
        session = self._search.take()
        if session is not None:
            self._session, self._connected_at = session, self._clock.monotonic()
            self.term += 1
        return session


def open_epochs(session: Session) -> list[OpenEpoch]:
    """Return the epochs of bots that have no end in the ledger. Raises psycopg.Error."""
    try:
        return [OpenEpoch(*row) for row in session.run(_OPEN)]
    except psycopg.Error as error:
        if error.sqlstate == _NO_TABLE:
            return []
        raise


def held_keys(session: Session) -> set[int]:
    """Return the second keys of the locks that replicas hold. Raises psycopg.Error."""
    return {int(key) for (key,) in session.run(_HELD)}


def is_settled(session: Session) -> bool:
    """Tell whether the server has taken writes for SETTLED_SECONDS. Raises psycopg.Error."""
    return bool(session.run(_SETTLED)[0][0] >= SETTLED_SECONDS)


def lock_holder(url: str, name: str) -> Holder | None:
    """Return a process that holds the bots' lock, that replica's before others, or else the last bot. It never tries the lock."""
    with connected(url) as connection:
        holder = value(connection, _HOLDER, f"{_APPLICATION} {name} %")
        if holder is not None:
            return Holder(int(str(holder).rpartition(" ")[2]), alive=True)
        pid = value(connection, _LAST, name) if value(connection, THERE) else None
        return None if pid is None else Holder(int(pid), alive=False)


def is_one_build(connection: psycopg.Connection[tuple[Any, ...]], build: int) -> bool:
    """Tell whether every replica that holds its lock is of the build with this number. Raises psycopg.Error.

    One of the same build has not begun to work while a migration of that build is missing: it waits for it.
    """
    return value(connection, _ONE_BUILD, build) is not False


def lock_holders(url: str) -> dict[str, LockHolder]:
    """Return the processes that hold the locks of replicas, by the names of these."""
    found = {}
    with connected(url) as connection:
        for application, leads in connection.execute(_HOLDERS).fetchall():
            name, pid = str(application).removeprefix(_APPLICATION).split()
            found[name] = LockHolder(int(pid), bool(leads))
    return found
