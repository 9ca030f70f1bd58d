"""The PDF renderer's child as a fork of a server that has loaded WeasyPrint: the same program, its own process, a faster start.

A bot that is killed and restarted a hundred times would load WeasyPrint a hundred times. If no fork server was left for this
process (`faults.harness.fork_server.leave_fork_servers`), the child is started as in production.
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
    """The part of an asyncio process that the adapter uses."""

    def __init__(
        self, spawned: Spawned, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], mother: AsyncExitStack
    ) -> None:
        self._spawned = spawned
        self._mother = mother
        self.stdout, self.stdin = streams

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the process: its id, its exit status, its signals."""
        return getattr(self._spawned, name)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        status = await self._spawned.wait()
        await self._mother.aclose()
        return status


async def start_worker(memory_bytes: int, timeout_seconds: float, environment: Mapping[str, str]) -> Any:
    """Start the child, with the signature of adapters.pdf.renderer.start_worker."""
    if not was_left(WARM):
        return await _as_production(memory_bytes, timeout_seconds, environment)
    async with AsyncExitStack() as stack:
        beside_it = os.environ[FOLDER_VARIABLE]  # removed with the fork servers: a bot killed at this point removes nothing
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
    """Load what the child loads before its first document, except the fonts: loading them starts threads."""
    adapters.pdf.worker.load_libraries()


def main() -> None:
    """Become the child: connect its stdin and stdout to the socket, then run the worker."""
    place, memory_bytes, timeout_seconds = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(place)
        os.dup2(end.fileno(), 0)
        os.dup2(end.fileno(), 1)
    sys.argv = ["adapters.pdf.worker", memory_bytes, timeout_seconds]
    adapters.pdf.worker.main()
