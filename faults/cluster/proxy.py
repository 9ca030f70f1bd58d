"""Proxy on loopback in front of a PostgreSQL server. It breaks connections on demand, and at a COMMIT to the byte.

It runs on a thread of its own, so its methods may be called from any thread, and no blocked event loop stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Coroutine

_SECONDS: Final = 20.0
_LENGTH: Final = struct.Struct("!i")
_ENCRYPTION_REQUESTS: Final = {80877103, 80877104}  # the server answers these with a single byte
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST


class CommitFault(Enum):
    """Fault of the next COMMIT."""

    LOST = auto()  # the COMMIT does not reach the server; the connection breaks
    SENT = auto()  # the COMMIT reaches the server; the connection breaks at once
    UNANSWERED = auto()  # the server commits; the connection breaks instead of its answer
    SILENT = auto()  # the server commits; no answer arrives, and the connection stays open
    LATE = auto()  # the client's connection breaks; the COMMIT reaches the server at `release`


class _Connection:
    """One client's connection and its own connection to the server."""

    def __init__(self, client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.client_reader, self.client_writer = client
        self.server_reader: asyncio.StreamReader
        self.server_writer: asyncio.StreamWriter | None = None
        self.silent = False  # everything is received and nothing is passed on
        self.fault: CommitFault | None = None
        self.held: list[bytes] = []
        self._started = False
        self._single_bytes = 0
        self._commits: set[bytes] = set()  # names of prepared COMMITs

    async def client_message(self) -> bytes:
        """Return the client's next message. Raises IncompleteReadError at the end."""
        kind = await self.client_reader.readexactly(1) if self._started else b""
        length = await self.client_reader.readexactly(4)
        body = await self.client_reader.readexactly(_LENGTH.unpack(length)[0] - 4)
        if not self._started:
            if _LENGTH.unpack(body[:4])[0] in _ENCRYPTION_REQUESTS:
                self._single_bytes += 1
            else:
                self._started = True
        return kind + length + body

    async def server_message(self) -> bytes:
        """Return the server's next message. Raises IncompleteReadError at the end."""
        kind = await self.server_reader.readexactly(1)
        if self._single_bytes:
            self._single_bytes -= 1
            return kind
        length = await self.server_reader.readexactly(4)
        return kind + length + await self.server_reader.readexactly(_LENGTH.unpack(length)[0] - 4)

    def commits(self, message: bytes) -> bool:
        """Return whether this message of the client runs COMMIT, as a simple query or as a bound statement."""
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            return _is_commit(body)
        if kind == b"P":  # Parse: name, statement, ...
            name, text, _ = body.split(b"\0", 2)
            (self._commits.add if _is_commit(text) else self._commits.discard)(name)
        return kind == b"B" and body.split(b"\0", 2)[1] in self._commits  # Bind: portal, name, ...

    def cut(self, *, reset: bool = False, client_only: bool = False, server_only: bool = False) -> None:
        """Break the connection, by FIN or by RST."""
        if reset:
            self.client_writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for writer in (None if server_only else self.client_writer, None if client_only else self.server_writer):
            if writer is not None:
                writer.close()


class Proxy:
    """Passes connections on until it is told to do harm: `with Proxy(address of a database) as proxy: connect(proxy.url)`."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self._server: Path | tuple[str, int]
        if "host" in query:
            self._server = Path(query["host"]) / f".s.PGSQL.{query.get('port', 5432)}"
        else:
            self._server = (address.hostname or "127.0.0.1", address.port or 5432)
        self._user, self._database = address.username, address.path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server
        self._port = 0
        self._fault: CommitFault | None = None
        self._struck = threading.Event()
        self._away = self._silent = self._vanished = False
        self._delay = 0.0
        self.accepted = 0  # connections of clients so far

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    @property
    def url(self) -> str:
        """Address of the same database through the proxy."""
        return f"postgresql://{self._user}@127.0.0.1:{self._port}{self._database}?sslmode=disable&gssencmode=disable"

    def cut(self, *, reset: bool = False) -> None:
        """Break all connections."""
        self._run(self._cut(reset=reset))

    def go_away(self, *, reset: bool = False) -> None:
        """Break all connections and each new one at once, until `come_back`."""
        self._away = True
        self.cut(reset=reset)

    def swallow(self) -> None:
        """Go on receiving on all connections, also on new ones until `come_back`, but pass nothing on in either direction."""
        self._silent = True
        for connection in list(self._connections):
            connection.silent = True

    def vanish(self) -> None:
        """Swallow everything as `swallow` does, and do not tell the server either which connections the client closes."""
        self._vanished = True
        self.swallow()

    def end_at_server(self) -> None:
        """End the server's side of all connections, as the server does in the end when its client's machine has vanished."""
        self._run(self._end_at_server())

    def come_back(self) -> None:
        """Accept and serve new connections again. Connections that lost bytes stay silent."""
        self._away = self._silent = self._vanished = False

    def delay(self, seconds: float) -> None:
        """Hold each message in each direction for so long."""
        self._delay = seconds

    def at_next_commit(self, fault: CommitFault) -> None:
        """Arm a fault of the next COMMIT of any connection."""
        self._struck.clear()
        self._fault = fault

    def wait_until_struck(self) -> None:
        """Wait until the armed fault has happened."""
        if not self._struck.wait(_SECONDS):
            raise TimeoutError("no COMMIT passed the proxy")

    def release(self) -> None:
        """Send the COMMITs held by LATE to the server."""
        self._run(self._release())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._listener.close()
        await self._cut(reset=False)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self, *, reset: bool) -> None:
        for connection in list(self._connections):
            connection.cut(reset=reset)

    async def _end_at_server(self) -> None:
        for connection in list(self._connections):
            connection.cut(server_only=True)

    async def _release(self) -> None:
        for connection in [each for each in self._connections if each.held and each.server_writer is not None]:
            assert connection.server_writer is not None  # noqa: S101 -- filtered above
            connection.server_writer.write(b"".join(connection.held))
            connection.held.clear()
            await connection.server_writer.drain()
            connection.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = _Connection((reader, writer))
        connection.silent = self._silent
        if self._away:
            connection.cut()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- inside a coroutine
        self._tasks.add(task)
        self._connections.add(connection)
        try:
            if isinstance(self._server, Path):
                connection.server_reader, connection.server_writer = await asyncio.open_unix_connection(str(self._server))
            else:
                connection.server_reader, connection.server_writer = await asyncio.open_connection(*self._server)
            await asyncio.gather(self._to_server(connection), self._to_client(connection))
        except OSError:
            connection.cut()  # the server is not there
        finally:
            connection.cut()
            self._connections.discard(connection)
            self._tasks.discard(task)

    async def _to_server(self, connection: _Connection) -> None:
        """Pass on what the client sends, up to its end or to the fault."""
        assert connection.server_writer is not None  # noqa: S101 -- connected by the caller
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                message = await connection.client_message()
                if connection.silent:
                    continue
                await asyncio.sleep(self._delay)
                if self._fault is not None and connection.commits(message):
                    connection.fault, self._fault = self._fault, None
                ends = connection.fault is not None and message[:1] in {b"Q", b"S"}
                if connection.fault is CommitFault.LOST:
                    break
                if connection.fault is CommitFault.LATE:
                    connection.held.append(message)
                else:
                    connection.server_writer.write(message)
                    await connection.server_writer.drain()
                if ends and connection.fault in {CommitFault.SENT, CommitFault.LATE}:
                    break
        connection.cut(client_only=connection.fault is CommitFault.LATE or (connection.silent and self._vanished))
        if connection.fault is not None:
            self._struck.set()

    async def _to_client(self, connection: _Connection) -> None:
        """Pass on what the server sends, up to its end or to the fault."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                message = await connection.server_message()
                if connection.silent or connection.fault is CommitFault.LATE:
                    continue
                await asyncio.sleep(self._delay)
                if connection.fault in {CommitFault.UNANSWERED, CommitFault.SILENT}:
                    if not _is_answer_to_commit(message):
                        continue
                    if connection.fault is CommitFault.UNANSWERED:
                        break
                    connection.silent = True
                    self._struck.set()
                    continue
                connection.client_writer.write(message)
                await connection.client_writer.drain()
        connection.cut(server_only=connection.silent)


def _is_commit(text: bytes) -> bool:
    return text.strip(b"\0 ;\n").upper() == b"COMMIT"


def _is_answer_to_commit(message: bytes) -> bool:
    return message[:1] == b"C" and message[5:] in {b"COMMIT\0", b"ROLLBACK\0"}
