"""The bot as the sandbox runs it: its process, its operator's command line and the feed of its ledger.

The world knows nothing of ledgers. It starts `quotebot ...` as an operator would, bounded in number and time, and passes on the
output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from quotebot.sandbox.chance import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence

STOP_SECONDS = 12.0  # longer than the bot drains
RESTART_PAUSE_SECONDS = 1.0
COMMAND_SECONDS = 30.0
LINE_BYTES_MAX = 8 * 2**20  # a picture of 200 commands with a dozen effects each is about 1 MB
END_SECONDS = 2.0
TIMED_OUT = 124  # exit status of timeout(1)
WATCH = ("ops", "watch", "--json", "--limit", "30")
LINGER_SECONDS = 3.0  # a reloaded page reconnects sooner than a process starts
RETRY_SECONDS = 1.0
State = Literal["starting", "running", "stopping", "dead"]


@dataclass(frozen=True, slots=True)
class Standing:
    """State of the bot's process. `starts` counts its starts; `exit_status` is that of the last end, -9 for a SIGKILL."""

    state: State
    pid: int | None
    starts: int
    exit_status: int | None


class BotProcess:
    """Process manager of one bot.

    `command` and `environment` (the whole of it) start the bot, `is_connected` tells whether the world sees it, `changed` is called
    at every change of its state. A bot that exits by itself is restarted after a pause, as a supervisor would; one that was killed
    here stays dead until it is started, so that its pending effects can be inspected.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_connected: Callable[[], bool],
        changed: Callable[[], None],
        complain: Callable[[str], object],
        pause_seconds: float = RESTART_PAUSE_SECONDS,
    ) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._is_connected = is_connected
        self._changed = changed
        self._complain = complain
        self._pause_seconds = pause_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0
        self._stopping = False
        self._wanted = True  # false: it was killed on purpose
        self._moved = asyncio.Event()  # set when it is started or killed

    @property
    def standing(self) -> Standing:
        """Return the present state of the process."""
        process = self._process
        if process is None or process.returncode is not None:
            return Standing("dead", None, self._starts, None if process is None else process.returncode)
        if self._stopping:
            return Standing("stopping", process.pid, self._starts, None)
        return Standing("running" if self._is_connected() else "starting", process.pid, self._starts, None)

    @property
    def exit_status(self) -> int | None:
        """Return its exit status; None while it runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the bot unless it runs."""
        if self._process is not None and self._process.returncode is None:
            return
        self._wanted = True
        self._starts += 1
        self._process = await asyncio.create_subprocess_exec(*self._command, env=self._environment)
        self._move()

    async def kill(self) -> None:
        """SIGKILL the bot; it stays dead until `start` or `restart`."""
        self._wanted = False
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        self._move()

    async def restart(self) -> None:
        """Stop the bot in order if it runs, and start it."""
        self._wanted = False
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """SIGTERM the bot and wait; it is killed if it does not exit in time."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._stopping = True
        self._move()
        try:
            await _end(process, STOP_SECONDS)
        finally:
            self._stopping = False
            self._move()

    async def keep(self, stop: asyncio.Event) -> None:
        """Restart the bot whenever it exits by itself, until `stop` is set."""
        while not stop.is_set():
            self._moved.clear()
            process = self._process
            ended = [process.wait()] if process is not None and self._wanted else []
            await _first_of(stop.wait(), self._moved.wait(), *ended)
            if stop.is_set() or not self._wanted or process is None or process is not self._process or self.exit_status is None:
                continue
            self._changed()
            self._complain(f"The bot (process {process.pid}) ended with status {self.exit_status}; starting it again.")
            await _first_of(stop.wait(), asyncio.sleep(self._pause_seconds))
            await self._revive(stop)

    async def _revive(self, stop: asyncio.Event) -> None:
        """Start the bot unless it was killed or the world stopped during the pause."""
        if self._wanted and not stop.is_set():
            await self.start()

    def _move(self) -> None:
        self._moved.set()
        self._changed()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of `waits` and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of one command: its exit status, its stdout and its stderr."""

    status: int
    data: str
    words: str


class Console:
    """Runs `quotebot` commands while the bot runs: at most one that changes something at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._one_at_a_time = asyncio.Lock()

    async def run(self, *arguments: str) -> Ran:
        """Run one command to its end."""
        async with self._one_at_a_time:
            process = await self._start(*arguments)
            try:
                data, words = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
            except TimeoutError:
                return Ran(TIMED_OUT, "", f"`quotebot {' '.join(arguments)}` took longer than {COMMAND_SECONDS:g} s and was ended.")
            finally:
                await _end(process, END_SECONDS)
        return Ran(process.returncode or 0, data.decode(errors="replace"), words.decode(errors="replace").strip())

    async def lines(self, *arguments: str) -> AsyncGenerator[str, None]:
        """Yield a command's output, line by line, until it ends. Raises ConsoleError with its stderr if it fails.

        Closing the iterator ends the command.
        """
        process = await self._start(*arguments)
        assert process.stdout is not None  # noqa: S101 -- a pipe was requested
        assert process.stderr is not None  # noqa: S101 -- as above
        try:
            while line := await process.stdout.readline():
                yield line.decode(errors="replace")
            words = (await process.stderr.read()).decode(errors="replace").strip()
            if await process.wait():
                raise ConsoleError(words or f"`quotebot {' '.join(arguments)}` ended with status {process.returncode}.")
        finally:
            await _end(process, END_SECONDS)

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )


class ConsoleError(Exception):
    """A command failed; the message is its stderr."""


async def _end(process: asyncio.subprocess.Process, seconds: float) -> None:
    """SIGTERM a process and wait; it is killed if it does not exit in time."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


class LedgerFeed:
    """The newest picture of the ledger while at least one viewer has it open."""

    def __init__(self, console: Console, *, linger_seconds: float = LINGER_SECONDS) -> None:
        self._console = console
        self._linger_seconds = linger_seconds
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._news = Signal()
        self.latest: dict[str, Any] | None = None

    @property
    def is_watching(self) -> bool:
        """True while the command is running."""
        return self._task is not None

    @asynccontextmanager
    async def viewer(self) -> AsyncIterator[None]:
        """Count one viewer for the length of the block."""
        self._viewers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._ending = asyncio.get_running_loop().call_later(self._linger_seconds, self._end)

    async def changed(self, seconds: float) -> None:
        """Wait for a new picture, at most `seconds`."""
        await self._news.wait(seconds)

    async def close(self) -> None:
        """End the command."""
        await asyncio.gather(*self._end(), return_exceptions=True)

    def _end(self) -> list[asyncio.Task[None]]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        ended = [] if self._task is None else [self._task]
        for task in ended:
            task.cancel()
        self._task = self.latest = None
        return ended

    async def _follow(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._console.lines(*WATCH)) as lines:
                    async for line in lines:
                        self._show(json.loads(line))
            except (ConsoleError, ValueError) as error:
                self._show({"error": str(error)})
            await asyncio.sleep(RETRY_SECONDS)

    def _show(self, picture: dict[str, Any]) -> None:
        self.latest = picture
        self._news.fire()
