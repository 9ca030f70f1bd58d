"""HTTP proxy that leads every Salesforce address to the stand-in, for clients that only accept the host *.salesforce.com.

Such a client gets this proxy (HTTPS_PROXY) and the stand-in's authority (REQUESTS_CA_BUNDLE), and uses the address
https://quotebot-sandbox.my.salesforce.com. Only CONNECT to a Salesforce host is served, on the loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

_LOOPBACK = "127.0.0.1"
_HEAD_SECONDS = 5.0
_CHUNK_BYTES = 64 * 1024
_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Tunnel:
    """Copies bytes between a client and the stand-in's TLS port."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._target = 0
        self._running: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self, target_port: int) -> None:
        """Serve on a free port."""
        self._target = target_port
        self._server = await asyncio.start_server(self._accept, _LOOPBACK, 0)
        self.url = f"http://{_LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Close the port and cut the open connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            verb, _, rest = head.decode("latin-1").partition(" ")
            host = urlsplit(f"//{rest.partition(' ')[0]}").hostname or ""
            if verb != "CONNECT" or not host.endswith(".salesforce.com"):
                writer.write(_REFUSED)
                await writer.drain()
                return
            back, inner = await asyncio.open_connection(_LOOPBACK, self._target)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, inner))
                both.create_task(_pump(back, writer))
        except* (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a broken connection is cut on both sides
        finally:
            for end in (writer, inner):
                if end is not None:
                    end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, then close the other side."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
