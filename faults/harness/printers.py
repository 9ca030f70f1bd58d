"""The PDF renderer's child as a fork of a zygote that has loaded WeasyPrint: the same program, in a process of its own, at once.

A bot that is killed and started again a hundred times would load it a hundred times. Where no zygote was left for this process
(`faults.harness.fork_server.leave_zygotes`), the child is started as production starts it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import adapters.pdf.renderer
import adapters.pdf.worker
from faults.harness.fork_server import FOLDER_VARIABLE, Order, Spawned, shared_fork_server, was_left

if TYPE_CHECKING:
    from collections.abc import Mapping

WARM: Final = "faults.harness.printers:get_warm"
_as_production: Final = adapters.pdf.renderer.start_worker


class Printer:
    """What the adapter uses of an asyncio process."""

    def __init__(
        self, spawned: Spawned, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], mother: AsyncExitStack
    ) -> None:
        self._spawned = spawned
        self._mother = mother
        self.stdout, self.stdin = streams

    @property
    def pid(self) -> int:
        """The process id."""
        return self._spawned.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, None until its end."""
        return self._spawned.returncode

    def kill(self) -> None:
        """SIGKILL it."""
        self._spawned.kill()

    async def wait(self) -> int:
        """Return its exit status, once it has ended."""
        status = await self._spawned.wait()
        await self._mother.aclose()
        return status


async def start_worker(memory_bytes: int, timeout_seconds: float, environment: Mapping[str, str]) -> Any:
    """Start the child: as adapters.pdf.renderer.start_worker."""
    if not was_left(WARM):
        return await _as_production(memory_bytes, timeout_seconds, environment)
    async with AsyncExitStack() as stack:
        beside_it = os.environ[FOLDER_VARIABLE]  # removed with the zygotes: a bot that is killed right here removes nothing
        with TemporaryDirectory(prefix="printer-", dir=beside_it) as folder, socket.socket(socket.AF_UNIX) as door:
            place = str(Path(folder, "printer"))
            door.bind(place)
            door.listen()
            door.settimeout(0.0)
            mother = await stack.enter_async_context(shared_fork_server(WARM))
            order = Order(
                (place, str(memory_bytes), str(timeout_seconds)), dict(environment), os.devnull, "faults.harness.printers:main"
            )
            spawned = await mother.spawn(order)
            end, _ = await asyncio.get_running_loop().sock_accept(door)
        return Printer(spawned, await asyncio.open_unix_connection(sock=end), stack.pop_all())


def get_warm() -> None:
    """Load what the child loads before its first document, but for the fonts: they come with threads."""
    adapters.pdf.worker.load_libraries()


def main() -> None:
    """Become the child."""
    place, memory_bytes, timeout_seconds = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(place)
        os.dup2(end.fileno(), 0)
        os.dup2(end.fileno(), 1)
    sys.argv = ["adapters.pdf.worker", memory_bytes, timeout_seconds]
    adapters.pdf.worker.main()
