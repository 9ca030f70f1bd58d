"""Notifications to the service manager (systemd's notify protocol): ready, alive, stopping.

Silent unless the manager sets NOTIFY_SOCKET in the environment. A notification that is not delivered does not affect the bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

SIGNS_PER_PATIENCE: Final = 3  # two may be late before the manager's time-out

log = structlog.get_logger(__name__)


class Supervisor:
    """The service manager, if there is one. `patience_seconds` is its watchdog time-out; None if it expects no keep-alive."""

    def __init__(self, address: str | None = None, patience_seconds: float | None = None) -> None:
        self._address = address
        self.patience_seconds = None if address is None else patience_seconds

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Supervisor:
        """Return the supervisor of a process with this environment; a WATCHDOG_PID of another process is ignored."""
        microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
        ours = microseconds.isdecimal() and int(microseconds) > 0 and pid in (None, str(os.getpid()))
        return cls(environment.get("NOTIFY_SOCKET") or None, int(microseconds) / 1_000_000 if ours else None)

    def tell(self, **facts: str | int) -> None:
        """Send a notification, e.g. READY=1, STATUS="...". Never blocks and never raises."""
        if self._address is None:
            return
        message = "\n".join(f"{name}={value}" for name, value in facts.items())
        place = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address  # @: Linux's abstract names
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
                way.setblocking(False)  # noqa: FBT003 -- the library's signature
                way.sendto(message.encode(), place)
        except OSError as error:
            log.warning("supervisor.unreachable", error=error.strerror or type(error).__name__)

    @contextlib.asynccontextmanager
    async def notifying(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Send keep-alive messages during the block, and a stopping message when `stop` is set.

        The event loop sends the keep-alive messages: if the loop hangs, they stop.
        """
        tasks = [
            asyncio.create_task(self._signs(), name="signs of life"),
            asyncio.create_task(self._stopping(stop), name="stopping"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _signs(self) -> None:
        while self.patience_seconds is not None:
            self.tell(WATCHDOG=1)
            await asyncio.sleep(self.patience_seconds / SIGNS_PER_PATIENCE)

    async def _stopping(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.tell(STOPPING=1, STATUS="Finishing what is under way")
