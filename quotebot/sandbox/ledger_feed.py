"""Feed of the bot's ledger for viewers: one `quotebot ops watch` for all of them, and none without a viewer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.console import ConsoleError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from quotebot.sandbox.console import Console

WATCH = ("ops", "watch", "--json", "--limit", "30")
LINGER_SECONDS = 3.0  # a reloaded page reconnects sooner than a process starts
RETRY_SECONDS = 1.0

Json = dict[str, Any]


class LedgerFeed:
    """The newest picture of the ledger while at least one viewer has it open."""

    def __init__(self, console: Console, *, linger_seconds: float = LINGER_SECONDS) -> None:
        self._console = console
        self._linger_seconds = linger_seconds
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self.latest: Json | None = None

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
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    async def close(self) -> None:
        """End the command."""
        task = self._end()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def _end(self) -> asyncio.Task[None] | None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.latest = None
        return task

    async def _follow(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._console.lines(*WATCH)) as lines:
                    async for line in lines:
                        self._show(json.loads(line))
            except (ConsoleError, ValueError) as error:
                self._show({"error": str(error)})
            await asyncio.sleep(RETRY_SECONDS)

    def _show(self, picture: Json) -> None:
        self.latest = picture
        self._news.set()
        self._news = asyncio.Event()
