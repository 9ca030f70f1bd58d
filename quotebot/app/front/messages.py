"""What the two processes of a bot say to each other: one JSON object a line, over a socket that only they have.

Nothing that must not be lost goes this way. What is said here makes the other quick, or counts; the ledger is what both rely on.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import socket


LINE_BYTES_MAX: Final = 64 * 1024  # a longer one would read as the other's end


class IngressEndedError(Exception):
    """The process that holds the connection to Slack (ingress.py) has ended by itself."""


class Wire:
    """One end. Whatever is wrong with the other end reads as its end: a bot does not go on with half of itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsaid: list[bytes] = []

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Speak over one end of a connected pair; it is closed with this."""
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX))

    def tell(self, word: str, value: Any = None) -> None:
        """Say something to the other, who may be gone. Never waits; what is said in one turn of the loop leaves together.

        Raises ValueError for more than the other would listen to.
        """
        line = json.dumps([word, value]).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"{word}: {len(line)} bytes are more than a line holds ({LINE_BYTES_MAX})")
        if not self._unsaid:
            asyncio.get_running_loop().call_soon(self._say)
        self._unsaid.append(line)

    async def receive(self) -> tuple[str, Any] | None:
        """Return what the other says next; None when it has ended."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        if not line.endswith(b"\n"):  # nothing, or the half line of somebody who was killed
            return None
        word, value = json.loads(line)
        return word, value

    async def close(self) -> None:
        """Hang up, once what was said has left."""
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
