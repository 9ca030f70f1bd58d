"""PostgreSQL server of its own: it belongs to one folder and one process, and listens on no network.

The server refuses to run as root. A process of root starts it as the user `postgres`, or `nobody` where there is none, and gives it
the folder. Clients reach it through a socket in a folder that no other user can enter. It ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OWNER: Final = "quotebot"  # the role that owns everything, and the name of the database
PORT: Final = 5432  # only part of the socket's name
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- likewise
_ROOM_BYTES: Final = 1 << 30
_SOCKET_MAX: Final = 107  # bytes of a socket's path
_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02
# The server ends when the process that holds the other end of this shell's input does, however it ended.
_BESIDE: Final = '"$@" </dev/null & read -r _; kill -s QUIT $! 2>/dev/null; wait $!'
_SETTINGS: Final = {
    "listen_addresses": "''",
    "max_connections": "60",
    "shared_buffers": "'16MB'",
    "min_wal_size": "'32MB'",
    "max_wal_size": "'256MB'",
    "autovacuum_naptime": "'10s'",
    "log_timezone": "'UTC'",
    "timezone": "'UTC'",
}
# Nothing survives a power cut. What a killed server had committed is still there: the kernel has it.
_QUICK: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_prepared_transactions": "2",
}


class ClusterError(Exception):
    """The server cannot be installed or started; the message says why."""


def find_programs() -> Path | None:
    """Return the folder with the newest installed server's programs, or None. Debian keeps them out of PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: float(each.parts[-3]))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def folder_for(name: str) -> Path:
    """Return a new folder that the server's user can reach, in memory where there is room. Its name ends in this process's id."""
    roomy = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES
    folder = Path(tempfile.mkdtemp(prefix=f"quotebot-tests.{name}.", suffix=f".{os.getpid()}", dir=_MEMORY if roomy else "/tmp"))  # noqa: S108 -- a folder of its own
    folder.chmod(0o711)
    return folder


class Cluster:
    """One server with its files in `folder`. `quick` gives up durability, for tests. Raises ClusterError without a server."""

    def __init__(self, folder: Path, *, quick: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: further lines of postgresql.conf, values as it wants them."""
        programs = find_programs()
        if programs is None:
            raise ClusterError("No PostgreSQL server is installed. Install it (Debian: apt-get install postgresql).")
        self._programs = programs
        self.folder = folder.absolute()
        self._settings = {**_SETTINGS, **(_QUICK if quick else {}), **(settings or {})}
        self._quick = quick
        self._as_user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = self.folder / "socket"
        if len(os.fsencode(self.socket / f".s.PGSQL.{PORT}")) > _SOCKET_MAX:
            self.socket = Path("/tmp") / f"quotebot-postgres-{secrets.token_hex(8)}"  # noqa: S108 -- a private folder of its own

    @property
    def data(self) -> Path:
        """The server's own folder."""
        return self.folder / "data"

    @property
    def engine(self) -> str:
        """The name of the server's program, with the main version of its files."""
        try:
            return f"PostgreSQL {(self.data / 'PG_VERSION').read_text('ascii').strip()}"
        except OSError:
            return "PostgreSQL"

    @property
    def pid(self) -> int | None:
        """The process id of the server while it runs."""
        try:
            pid = int((self.data / "postmaster.pid").read_text("ascii").split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        return None if _has_ended(pid) else pid

    def processes(self) -> list[int]:
        """Return the process ids of the server and of those that it started."""
        found = []
        for folder in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if folder.readlink() == self.data.resolve():
                    found.append(int(folder.parent.name))
        return found

    def url(self, database: str = OWNER) -> str:
        """Return the address of a database."""
        return f"postgresql://{OWNER}@/{quote(database, safe='')}?host={quote(str(self.socket), safe='')}&port={PORT}"

    def start(self) -> None:
        """Start the server, and create its files and its database the first time. Blocks until it answers. Raises ClusterError."""
        if self._process is not None and self.pid is None:
            self._end(signal.SIGKILL)  # somebody else killed it; its shell is left, and for a moment other processes
        self._own(self.folder)
        self._own(self.socket)
        new = not (self.data / "PG_VERSION").exists()
        if new:
            self._create()
        lines = [f"{name} = {value}\n" for name, value in {**self._settings, "unix_socket_directories": f"'{self.socket}'"}.items()]
        (self.data / "postgresql.conf").write_text("".join(lines), "utf-8")
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- an installed server's programs
                ["/bin/sh", "-c", _BESIDE, "sh", self._programs / "postgres", "-D", self.data, "-p", str(PORT)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # an interrupt at the terminal is for the process, which then stops the server
                **self._as_user,
            )
        self._wait_until_it_answers()
        if new:
            self._run("createdb", "--host", str(self.socket), "--port", str(PORT), "--username", OWNER, OWNER)

    def follow(self, primary: Cluster) -> None:
        """Copy a running server, and start as its standby. Both need the setting `wal_level` = replica."""
        self.copy(primary, "--write-recovery-conf")
        self.start()

    def copy(self, primary: Cluster, *options: str) -> None:
        """Make this server's files a base backup of a running server."""
        self._own(self.folder)
        source = f"host={primary.socket} port={PORT} user={OWNER} application_name={self.folder.name}"
        self._run("pg_basebackup", f"--pgdata={self.data}", f"--dbname={source}", "--checkpoint=fast", *options)

    def promote(self) -> None:
        """Make a standby the primary, on a new timeline."""
        self._run("pg_ctl", "promote", f"--pgdata={self.data}", "--wait")

    def wait_for_standbys(self, names: str) -> None:
        """Make each COMMIT of the running primary wait for standbys: a value of synchronous_standby_names, "" for none."""
        for command in (f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()"):
            self._run("psql", "-X", "-q", "-h", str(self.socket), "-p", str(PORT), "-U", OWNER, "-d", OWNER, "-c", command)

    def stop(self) -> None:
        """Stop the server: open transactions are rolled back, and everything is written to its files."""
        self._end(signal.SIGINT)
        if self.socket.parent != self.folder:
            shutil.rmtree(self.socket, ignore_errors=True)

    def kill(self) -> None:
        """Kill every process of the server at once, as the end of its machine would."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Kill the server and delete its files."""
        self.kill()
        for folder in (self.folder, self.socket):
            shutil.rmtree(folder, ignore_errors=True)

    def _create(self) -> None:
        options = ["--encoding=UTF8", "--locale=C", f"--username={OWNER}", "--auth-local=trust", "--auth-host=reject"]
        self._run("initdb", f"--pgdata={self.data}", *options, *(["--no-sync"] if self._quick else []))

    def _end(self, how: signal.Signals) -> None:
        pid = self.pid
        each = [] if pid is None else [pid]
        if how is signal.SIGKILL:
            for first in each:
                _send(first, signal.SIGSTOP)  # it starts no further process
            each = self.processes()
        for process in each:
            _send(process, how)
        if self._process is not None:
            deadline = time.monotonic() + _SECONDS
            while not all(_has_ended(process) for process in each) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            assert self._process.stdin is not None  # noqa: S101 -- a pipe, above
            self._process.stdin.close()  # the shell ends; first a server that was not started completely
            self._process.wait(timeout=_SECONDS)
            self._process = None

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _SECONDS
        place = ("--host", str(self.socket), "--port", str(PORT), "--username", OWNER)
        asked = ("pg_isready", "--quiet", *place, "--dbname", "postgres")
        while self._call(*asked).returncode != 0:
            assert self._process is not None  # noqa: S101 -- started by the caller
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise ClusterError(f"The PostgreSQL server in {self.folder} did not start; {self.folder / 'server.log'} says why.")
            time.sleep(_POLL_SECONDS)

    def _own(self, folder: Path) -> None:
        """Create a private folder that the server's user owns and can reach."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        if not self._as_user:
            return
        os.chown(folder, self._as_user["user"], self._as_user["group"])
        closed = [str(each) for each in folder.parents if each != self.folder and not each.stat().st_mode & 0o001]
        if closed:
            name = pwd.getpwuid(self._as_user["user"]).pw_name
            raise ClusterError(f"The PostgreSQL server runs as the user {name}, who may not enter {closed[0]}. Use another folder.")

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs / program), *arguments]
        return subprocess.run(  # noqa: S603 -- as above
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=_SECONDS, **self._as_user
        )

    def _run(self, program: str, *arguments: str) -> None:
        done = self._call(program, *arguments)
        if done.returncode != 0:
            raise ClusterError(f"{program} failed: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class DatabaseStanding:
    """State of a sandbox's database server; `elsewhere` is a server of somebody else."""

    engine: str
    state: Literal["starting", "running", "stopping", "dead", "elsewhere"]
    pid: int | None


class DatabaseServer:
    """The database server of a sandbox, for its page. Without a cluster, it is the server of somebody else at `url`.

    `changed` is called at every change of its state.
    """

    def __init__(self, cluster: Cluster | None, url: str, changed: Callable[[], None]) -> None:
        self.url = url
        self._cluster = cluster
        self._changed = changed
        self._busy: Literal["starting", "stopping"] | None = None
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    def own(cls, folder: Path, changed: Callable[[], None]) -> DatabaseServer:
        """Return a server with its files in `folder`, which survives a power cut. Raises ClusterError."""
        cluster = Cluster(folder)
        return cls(cluster, cluster.url(), changed)

    @property
    def is_own(self) -> bool:
        """True if it can be killed and started here."""
        return self._cluster is not None

    @property
    def standing(self) -> DatabaseStanding:
        """Return the present state of the server."""
        if self._cluster is None:
            return DatabaseStanding("PostgreSQL", "elsewhere", None)
        pid = self._cluster.pid
        return DatabaseStanding(self._cluster.engine, self._busy or ("dead" if pid is None else "running"), pid)

    async def start(self) -> None:
        """Start the server unless it runs; return when it answers. Raises ClusterError."""
        async with self._one_at_a_time:
            if self._cluster is not None and self._cluster.pid is None:
                await self._do("starting", self._cluster.start)

    async def kill(self) -> None:
        """Kill every process of the server."""
        async with self._one_at_a_time:
            if self._cluster is not None:
                await self._do("stopping", self._cluster.kill)

    async def stop(self) -> None:
        """Stop the server in order."""
        async with self._one_at_a_time:
            if self._cluster is not None:
                await self._do("stopping", self._cluster.stop)

    async def _do(self, state: Literal["starting", "stopping"], work: Callable[[], None]) -> None:
        self._busy = state
        self._changed()
        try:
            await asyncio.to_thread(work)
        finally:
            self._busy = None
            self._changed()


def _unprivileged() -> dict[str, Any]:
    """Return how a process is started as a user who is not root; nothing where this process is not root's."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ClusterError("The PostgreSQL server refuses to run as root, and there is no user postgres or nobody.")


def _send(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)


def _has_ended(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
