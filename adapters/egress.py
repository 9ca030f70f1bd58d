"""Rules for every outgoing HTTP request: no redirect is followed, and no answer is read beyond a limit, compressed or not.

A redirect would carry a message or a token to a host that nobody configured; an endless answer would exhaust the memory.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import aiohttp

if TYPE_CHECKING:
    from types import SimpleNamespace

ANSWER_BYTES_MAX: Final = 1024 * 1024  # of an answer of Slack's Web API
CHUNK_BYTES: Final = 64 * 1024
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class AnswerTooLargeError(OSError):
    """The answer is larger than the limit or uses a content encoding we did not offer; it was not read to its end."""


class RedirectRefusedError(OSError):
    """The server answered with a redirect; nothing was sent to the new address."""


class Body:
    """Streaming decoder of an answer body that yields at most `limit` decompressed bytes."""

    def __init__(self, limit: int, encoding: str | None) -> None:
        packing = (encoding or "identity").strip().lower()
        if packing not in ("identity", "gzip", "deflate"):
            raise AnswerTooLargeError(f"an answer packed as {packing[:20]!r} is not read")
        self._limit = limit
        self._unpack = None if packing == "identity" else zlib.decompressobj(_GZIP_OR_ZLIB)
        self._taken = 0

    def take(self, chunk: bytes) -> bytes:
        """Return the decompressed content of a chunk. Raises AnswerTooLargeError as soon as the limit is exceeded."""
        room = self._limit + 1 - self._taken
        try:
            plain = chunk[:room] if self._unpack is None else self._unpack.decompress(chunk, room)
        except zlib.error as error:
            raise AnswerTooLargeError("the answer cannot be unpacked") from error
        self._taken += len(plain)
        if self._taken > self._limit:
            raise AnswerTooLargeError(f"the answer is larger than {self._limit // 1024} KiB")
        return plain


async def bounded_body(response: aiohttp.ClientResponse, limit: int = ANSWER_BYTES_MAX) -> bytes:
    """Return the body of an answer to a request made with `auto_decompress=False`. Raises AnswerTooLargeError."""
    body, content = Body(limit, response.headers.get("Content-Encoding")), bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        content += body.take(chunk)
    return bytes(content)


def closed_session(**options: Any) -> aiohttp.ClientSession:
    """Return a session that follows no redirect, not even in a WebSocket handshake; a redirect raises RedirectRefusedError."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(trace_configs=[trace], **options)


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    del session, context, redirect
    raise RedirectRefusedError("a redirect is not followed")
