"""Outgoing HTTP: deadlines, bounded answers without redirects, and the parser of Retry-After (RFC 9110, 10.2.3).

A redirect would carry a message or a token to a host that nobody configured; an endless answer, compressed or not, would exhaust
the memory. Retry-After holds seconds or a date. A date is measured against the answer's own Date header, so that clock differences
do not matter; our clock is used only if the answer has no Date.
"""

from __future__ import annotations

import re
import time
import zlib
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import SimpleNamespace

ANSWER_BYTES_MAX: Final = 1024 * 1024  # of an answer of Slack's Web API
CHUNK_BYTES: Final = 64 * 1024
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS

# Deadline (seconds) of each call of the effect under way: its class's line in the retry matrix. None outside of effects.
CALL_SECONDS: Final[ContextVar[float | None]] = ContextVar("call_seconds", default=None)

# Nine digits are 31 years. A longer number is not a plausible wait and would not fit the ledger's milliseconds.
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


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


async def bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer to a request made with `auto_decompress=False`. Raises AnswerTooLargeError."""
    body, content = Body(ANSWER_BYTES_MAX, response.headers.get("Content-Encoding")), bytearray()
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


def call_seconds(otherwise: float) -> float:
    """Return the deadline (seconds) of a call: that of the effect under way, or the client's own outside of effects."""
    seconds = CALL_SECONDS.get()
    return otherwise if seconds is None else seconds


def asked_wait_seconds(headers: Mapping[str, str], *, clock: Callable[[], float] = time.time) -> float | None:
    """Return the wait (seconds, uncapped) that the server asks for; None when it asks for none or the header is unreadable.

    `clock` (Unix seconds) replaces a missing or unreadable Date header: without this fallback such a wait would be dropped and the
    next attempt would come too early.
    """
    sent_at = _moment(headers.get("Date", ""))
    return read_retry_after(headers.get("Retry-After", ""), clock() if sent_at is None else sent_at)


def read_retry_after(value: str, now_seconds: float) -> float | None:
    """Return the seconds in a Retry-After value: a number as is, a date relative to `now_seconds` (Unix time), a past date as 0."""
    value = value.strip()
    if SECONDS.fullmatch(value):
        return float(value)
    moment = _moment(value)
    return None if moment is None else max(moment - now_seconds, 0.0)


def sent_at_ms(headers: Mapping[str, str]) -> int | None:
    """Return the answer's Date as Unix milliseconds; None if it is missing or unreadable."""
    sent_at = _moment(headers.get("Date", ""))
    return None if sent_at is None else round(sent_at * 1000)


def _moment(text: str) -> float | None:
    """Return the Unix seconds of an HTTP date in any of its three forms; a date without a zone is UTC."""
    try:
        moment: datetime = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
