"""Process manager of the bot: runs it as a child process, restarts it when it exits by itself, kills and restarts it on request."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

STOP_SECONDS = 12.0  # longer than the bot drains
RESTART_PAUSE_SECONDS = 1.0
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
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
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
