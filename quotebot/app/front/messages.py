"""Messages between the two processes of a bot: one JSON array per line, over a private socket pair.

A lost message loses no command, because commands are in the ledger. Messages start and stop the acknowledging process, wake the bot
for new commands, and carry its counters.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import socket


LINE_BYTES_MAX: Final = 64 * 1024  # the peer takes a longer line for the end of the connection


class IngressEndedError(Exception):
    """The process that holds the connection to Slack (process.py) has ended by itself."""


class Wire:
    """One end of the connection. Any error of the peer counts as its end, because neither process runs without the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsaid: list[bytes] = []

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Return a connection over one end of a connected socket pair; `close` closes that end."""
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX))

    def tell(self, word: str, value: Any = None) -> None:
        """Send a message to the peer, which may have ended. Never blocks; the messages of one turn of the loop are sent together.

        Raises ValueError for a message longer than LINE_BYTES_MAX, which the peer would not read.
        """
        line = json.dumps([word, value]).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"{word}: {len(line)} bytes are more than a line holds ({LINE_BYTES_MAX})")
        if not self._unsaid:
            asyncio.get_running_loop().call_soon(self._say)
        self._unsaid.append(line)

    async def receive(self) -> tuple[str, Any] | None:
        """Return the next message of the peer; None once it has ended."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        if not line.endswith(b"\n"):  # the end, or an incomplete line of a killed process
            return None
        word, value = json.loads(line)
        return word, value

    async def close(self) -> None:
        """Send the pending messages, then close the connection."""
        self._say()
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return

    def _say(self) -> None:
        if self._unsaid:
            self._writer.write(b"".join(self._unsaid))
            self._unsaid.clear()
