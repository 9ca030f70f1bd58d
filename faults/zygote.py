"""Starts real `quotebot` processes in a tenth of the time: a small process that has imported everything and forks on request.

`python -m faults.zygote` reads one order a line on stdin (JSON, see `Order`) and writes one line for each start and each end on
stdout. It has one thread and no event loop, so that a fork is a clean process: an own pid, an own session, the environment and the
log that were ordered, and then the program's own main, as if it had been started by hand. When stdin ends, all of it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

QUOTEBOT: Final = "quotebot.__main__:main"
# What a start imports, late ones included: a fork then only runs.
WARM: Final = (
    "quotebot.__main__",
    "quotebot.cli.root",
    "quotebot.cli.signals",
    "quotebot.app",
    "slack_sdk.web.async_client",
    "adapters.slack",
    "adapters.salesforce",
    "simple_salesforce",
    "slack_bolt.listener_matcher.async_builtins",
    "prometheus_client",
    "babel.numbers",
    "encodings.idna",
    "aiosqlite",
)
_PR_SET_PDEATHSIG: Final = 1
_SECONDS_TO_FORK: Final = 30.0
_LINE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """One process to start: `main` is "module:function", `log` gets its stdout and stderr, `environment` is all it sees."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: str
    main: str = QUOTEBOT


@dataclass(slots=True, eq=False)
class Spawned:
    """A process the zygote forked. `started_at` is Unix seconds, at the fork; `status` is None until its end (-9: SIGKILL)."""

    pid: int
    started_at: float
    log: Path
    status: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it has ended."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Return its exit status, once it has ended."""
        await self._ended.wait()
        assert self.status is not None  # noqa: S101 -- set before the event
        return self.status

    def ended(self, status: int) -> None:
        """Note its end."""
        self.status = status
        self._ended.set()


class Zygote:
    """The orders' side of one running zygote."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._alive: dict[int, Spawned] = {}
        self._starting: list[tuple[Path, asyncio.Future[Spawned]]] = []
        self._listening = asyncio.create_task(self._listen())

    async def spawn(self, order: Order) -> Spawned:
        """Start a process and return it. Raises RuntimeError when the zygote is gone."""
        if self._listening.done() or self._process.stdin is None:
            raise RuntimeError("the zygote has ended; nothing was started")
        started: asyncio.Future[Spawned] = asyncio.get_running_loop().create_future()
        self._starting.append((Path(order.log), started))
        self._process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        await self._process.stdin.drain()
        return await asyncio.wait_for(started, _SECONDS_TO_FORK)

    async def close(self) -> None:
        """End it, and with it all that it started and that still lives."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 -- asked for at the start
        async for line in self._process.stdout:
            told = json.loads(line)
            if "status" in told:
                self._alive.pop(told["pid"]).ended(told["status"])
                continue
            log, started = self._starting.pop(0)  # answers come in the order of the orders
            spawned = Spawned(told["pid"], told["at"], log)
            self._alive[spawned.pid] = spawned
            if not started.done():
                started.set_result(spawned)
        for _, started in self._starting:
            if not started.done():
                started.set_exception(RuntimeError("the zygote ended before it started this"))


@asynccontextmanager
async def zygote(log: Path) -> AsyncIterator[Zygote]:
    """Run a zygote for the length of the block; `log` gets what it says itself. All its processes end with the block."""
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "faults.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            limit=_LINE_BYTES_MAX,
        )
    mother = Zygote(process)
    try:
        yield mother
    finally:
        await mother.close()


class _Mother:
    """The zygote itself."""

    def __init__(self) -> None:
        self._children: set[int] = set()
        self._wake, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(self._wake, False)
        self._waker = waker
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever holds our stdin

    def serve(self) -> None:
        """Fork and reap until stdin ends."""
        rest = b""
        while True:
            readable, _, _ = select.select([0, self._wake], [], [])
            if self._wake in readable:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._reap()
            if 0 in readable:
                read = os.read(0, 1 << 16)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._fork(Order(**json.loads(line)))
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            _say({"pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _fork(self, order: Order) -> None:
        at = time.time()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(self._wake)
            os.close(self._waker)
            _become(order)
        self._children.add(pid)
        _say({"pid": pid, "at": at})


def _say(told: Mapping[str, Any]) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


def _become(order: Order) -> NoReturn:
    """Turn this fork into the process ordered; never returns."""
    status = 1
    try:
        _leave_the_family(order)
        module, _, function = order.main.partition(":")
        getattr(import_module(module), function)()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:  # noqa: BLE001 -- this process ends here, with its traceback in its log
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _leave_the_family(order: Order) -> None:
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # nothing outlives a zygote that was killed
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number is signal.SIGCHLD else signal.default_int_handler)
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, end in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, end)
    os.close(log)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv = ["quotebot", *order.arguments]


def main() -> None:
    """Import what every start imports, then serve."""
    for module in WARM:
        import_module(module)
    gc.collect()
    gc.freeze()  # the forks share these pages instead of copying them at their first collection
    _Mother().serve()


if __name__ == "__main__":
    main()
