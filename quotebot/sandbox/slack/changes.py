"""A version number that grows with every visible change, and a way to wait for the next one."""

from __future__ import annotations

import asyncio


class Changes:
    """Version counter that the event stream watches."""

    def __init__(self) -> None:
        self.version = 0
        self.closed = False
        self._changed: asyncio.Event | None = None  # created on demand: most changes have no watcher

    def bump(self) -> None:
        """Count one change and wake every watcher."""
        self.version += 1
        self._wake()

    def close(self) -> None:
        """Wake every watcher for the last time: the world is stopping."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def after(self, version: int, timeout_seconds: float) -> bool:
        """Wait until the version differs from `version` (True), or until the timeout or the end of the world (False)."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.version == version and not self.closed:
                    if self._changed is None:
                        self._changed = asyncio.Event()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return not self.closed
