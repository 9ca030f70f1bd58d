"""Fork server: a small process that has imported everything and forks real `quotebot` processes, in a tenth of the start time.

`python -m faults.harness.fork_server SOCKET WARM` listens on a Unix socket, and calls the function WARM before its first fork. A
caller writes one order per line (JSON, see `Order`) and reads one line for each start and each end. The fork server has one thread
and no event loop, so a fork is a clean process: it has its own pid and session, the ordered environment and log, and runs the
program's own main as if it had been started by hand. When a caller disconnects, its processes are killed; when stdin ends, all are.

`fork_server()` runs one for the length of a block. `shared_fork_server()` connects to one that this process keeps until it ends, or
that its parent left for it (`leave_fork_servers()`), so that several workers do not repeat the same imports.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import functools
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping
    from typing import IO

QUOTEBOT: Final = "quotebot.__main__:main"
BOTS: Final = "faults.harness.fork_server:import_bots"
# Everything that a start imports, lazy imports included, so that a fork imports nothing.
WARM: Final = (
    "quotebot.__main__",
    "quotebot.cli.root",
    "quotebot.cli.children",
    "quotebot.app.bot",
    "quotebot.app.front",
    "slack_sdk.web.async_client",
    "adapters.slack.api",
    "adapters.salesforce.api",
    "simple_salesforce",
    "slack_bolt.listener_matcher.async_builtins",
    "prometheus_client",
    "babel.numbers",
    "encodings.idna",
    "aiosqlite",
    "faults.harness.bot",
)
FOLDER_VARIABLE: Final = "QUOTEBOT_ZYGOTES"  # folder of the fork servers for the processes that this one starts
SHORT: Final = "/tmp"  # noqa: S108 -- not TMPDIR: a socket name may have only about a hundred characters. mkdtemp is private
_PR_SET_PDEATHSIG: Final = 1
_OVER: Final = frozenset("ZX")  # dead, but not yet waited for
_SECONDS_TO_FORK: Final = 30.0
_LINE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """One process to start: `main` is "module:function", `log` gets stdout and stderr, `environment` is its whole environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: str
    main: str = QUOTEBOT


@dataclass(slots=True, eq=False)
class Spawned:
    """A process of the fork server. `started_at` is Unix seconds, at the fork; `returncode` is None until its end (-9: SIGKILL)."""

    pid: int
    started_at: float
    log: Path
    returncode: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 -- set before the event
        return self.returncode

    def ended(self, status: int) -> None:
        """Record the end of the process."""
        self.returncode = status
        self._ended.set()


class ForkServer:
    """Client of a running fork server: one connection to its socket at `place`, on the loop that made it."""

    def __init__(self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.place = place
        self._reader = reader
        self._writer = writer
        self._alive: dict[int, Spawned] = {}
        self._starting: list[tuple[Path, asyncio.Future[Spawned]]] = []
        self._listening = asyncio.create_task(self._listen())

    async def spawn(self, order: Order) -> Spawned:
        """Start a process and return it. Raises RuntimeError if the fork server has ended."""
        if self._listening.done():
            raise RuntimeError("the zygote has ended; nothing was started")
        started: asyncio.Future[Spawned] = asyncio.get_running_loop().create_future()
        self._starting.append((Path(order.log), started))
        self._writer.write(json.dumps(asdict(order)).encode() + b"\n")
        await self._writer.drain()
        return await asyncio.wait_for(started, _SECONDS_TO_FORK)

    async def close(self) -> None:
        """Disconnect, which kills all processes started over this connection, and wait for their ends."""
        self._writer.write_eof()
        await self._listening
        self._writer.close()

    async def _listen(self) -> None:
        async for line in self._reader:
            told = json.loads(line)
            if "status" in told:
                self._alive.pop(told["pid"]).ended(told["status"])
                continue
            log, started = self._starting.pop(0)  # replies arrive in the order of the orders
            spawned = Spawned(told["pid"], told["at"], log)
            self._alive[spawned.pid] = spawned
            if not started.done():
                started.set_result(spawned)
        for _, started in self._starting:
            if not started.done():
                started.set_exception(RuntimeError("the zygote ended before it started this"))


@asynccontextmanager
async def fork_server(log: Path) -> AsyncIterator[ForkServer]:
    """Run a fork server for the length of the block; `log` gets its own stderr. All its processes end with the block."""
    with log.open("ab") as said, tempfile.TemporaryDirectory(prefix="zygote-", dir=SHORT) as folder:
        running = await asyncio.to_thread(_Running, said, str(Path(folder, "calls")))
        try:
            async with _caller(running.place) as caller:
                yield caller
        finally:
            await asyncio.to_thread(running.end)


@asynccontextmanager
async def shared_fork_server(warm: str = BOTS, hash_seed: str | None = None) -> AsyncIterator[ForkServer]:
    """Connect to the fork server that this process keeps or was left. Processes started in the block end with it.

    There is one for each warm-up function ("module:function") and each PYTHONHASHSEED (None: that of this process).
    """
    async with _caller(await asyncio.to_thread(_kept, warm, hash_seed)) as caller:
        yield caller


def leave_fork_servers(*kinds: tuple[str, str | None]) -> None:
    """Run, until this process ends, a fork server of each kind (`warm`, `hash_seed`) for the processes that it will start."""
    os.environ[FOLDER_VARIABLE] = _keep(*kinds)


def _keep(*kinds: tuple[str, str | None]) -> str:
    """Run a fork server of each kind until this process ends, and return the folder of their sockets."""
    folder = tempfile.mkdtemp(prefix="zygotes-", dir=SHORT)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for warm, hash_seed in kinds:
        atexit.register(_Running(None, _place(folder, warm, hash_seed), warm, hash_seed).end)
    return folder


@asynccontextmanager
async def _caller(place: str) -> AsyncIterator[ForkServer]:
    caller = ForkServer(place, *await asyncio.open_unix_connection(place, limit=_LINE_BYTES_MAX))
    try:
        yield caller
    finally:
        await caller.close()


def was_left(warm: str, hash_seed: str | None = None) -> bool:
    """Tell whether the parent left a fork server of this kind for this process."""
    return Path(_place(os.environ.get(FOLDER_VARIABLE, os.devnull), warm, hash_seed)).is_socket()


@functools.cache
def _kept(warm: str, hash_seed: str | None) -> str:
    folder = os.environ[FOLDER_VARIABLE] if was_left(warm, hash_seed) else _keep((warm, hash_seed))
    return _place(folder, warm, hash_seed)


def _place(folder: str, warm: str, hash_seed: str | None) -> str:
    return str(Path(folder, warm if hash_seed is None else f"{warm}-{hash_seed}"))


class _Running:
    """Process of a fork server, and the place of its socket. It ends when its stdin does, so with this process at the latest."""

    def __init__(self, said: IO[bytes] | None, place: str, warm: str = BOTS, hash_seed: str | None = None) -> None:
        self.place = place
        command = [sys.executable, "-m", "faults.harness.fork_server", place, warm]
        sees = os.environ if hash_seed is None else {**os.environ, "PYTHONHASHSEED": hash_seed}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=sees, stdin=pipe, stdout=pipe, stderr=said)  # noqa: S603 -- our own
        assert self._process.stdout is not None  # noqa: S101 -- asked for
        if not self._process.stdout.readline():  # it prints one line once it listens
            raise RuntimeError(f"the zygote did not start: it ended with {self._process.wait()}")

    def end(self) -> None:
        """End the fork server and all processes that it started."""
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Living:
    """A process as Linux shows it: `session` is the pid of its session leader."""

    pid: int
    session: int
    name: str


def living(sessions: Collection[int]) -> list[Living]:
    """Return every live process of these sessions (proc(5)); none on a system without /proc.

    Every fork of a bot stays in the session of its start, even after a crash of the bot.
    """
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            pid, _, rest = stat.read_text(errors="replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, _parent, _group, session = fields.split()[:4]
            if int(session) in sessions and state not in _OVER:
                found.append(Living(int(pid), int(session), name))
    return found


class _Mother:
    """The fork server itself."""

    def __init__(self, place: str, warm: str) -> None:
        self._cold: str | None = warm  # function to call before the first fork
        self._children: dict[int, socket.socket] = {}  # by pid: the caller that ordered it
        self._rests: dict[socket.socket, bytes] = {}  # by caller: the incomplete last line
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(place)
        self._door.listen()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent closes our stdin

    def serve(self) -> None:
        """Fork and reap until stdin ends."""
        while True:
            ends: list[int | socket.socket] = [0, self._wake, self._door, *self._rests]
            readable, _, _ = select.select(ends, [], [])
            if 0 in readable:
                break
            if self._wake in readable:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._reap()
            if self._door in readable:
                self._rests[self._door.accept()[0]] = b""
            for caller in [each for each in self._rests if each in readable]:
                self._receive(caller)
        self._end_all(list(self._children))

    def _receive(self, caller: socket.socket) -> None:
        try:
            read = caller.recv(1 << 16)
        except ConnectionError:  # the caller was killed before it had read our reply
            read = b""
        if not read:
            self._end_all([pid for pid, orderer in self._children.items() if orderer is caller])
            del self._rests[caller]
            caller.close()
            return
        *lines, self._rests[caller] = (self._rests[caller] + read).split(b"\n")
        for line in lines:
            self._fork(Order(**json.loads(line)), caller)

    def _end_all(self, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            self._ended(pid, os.waitpid(pid, 0)[1])

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        _tell(self._children.pop(pid), {"pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _fork(self, order: Order, caller: socket.socket) -> None:
        if self._cold is not None:
            gc.disable()  # imported objects stay for good
            _call(self._cold)
            gc.collect()
            gc.freeze()  # the forks share these pages instead of copying them at their first collection
            gc.enable()
            self._cold = None
        at = time.time()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(self._wake)
            os.close(self._waker)
            self._door.close()
            for each in self._rests:
                each.close()
            _become(order)
        self._children[pid] = caller
        _tell(caller, {"pid": pid, "at": at})


def _tell(caller: socket.socket, told: Mapping[str, Any]) -> None:
    with suppress(ConnectionError):  # the caller left without waiting for the end of its processes
        caller.sendall(json.dumps(told).encode() + b"\n")


def _become(order: Order) -> NoReturn:
    """Turn this fork into the ordered process; never returns."""
    status = 1
    try:
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # no process outlives a killed fork server
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, end in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, end)
        os.close(log)
        os.close(nothing)
        os.environ.clear()
        os.environ.update(order.environment)
        sys.argv = ["quotebot", *order.arguments]
        _call(order.main)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:  # noqa: BLE001 -- this process ends here, with its traceback in its log
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _call(function: str) -> None:
    module, _, name = function.partition(":")
    getattr(import_module(module), name)()


def import_bots() -> None:
    """Import everything that a start of a bot imports, and do once what each start would do again.

    That is to read the one large file of Babel, and to compute the schema with which every ledger is compared.
    """
    for module in (*WARM, *dict.fromkeys(path.partition(":")[0] for path in import_module("quotebot.cli.root").COMMANDS)):
        import_module(module)
    import_module("babel.core").get_global("all_currencies")
    migrations, _ = import_module("quotebot.app.installation").schema_and_statements()
    import_module("ledger.sqlite.migrations").schema_of(migrations)
    start_worker = import_module("faults.harness.printers").start_worker
    import_module("adapters.pdf.renderer").start_worker = start_worker  # type: ignore[attr-defined] # of the forks alone


def main() -> None:
    """Listen, then serve."""
    mother = _Mother(sys.argv[1], sys.argv[2])
    os.write(1, b"listening\n")
    mother.serve()


if __name__ == "__main__":
    main()
