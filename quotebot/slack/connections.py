"""Socket Mode connections to Slack. Each starts with a new ticket, is monitored, and is replaced when it ends for any reason.

    ticket ──▶ handshake ──▶ hello ──▶ open ──▶ ended: cut, silent, or closed by Slack
      ▲           │ refused, or too late │                 │
      └─ pause ◀──┴──────────────────────┴─────────────────┘   longer after each failure in a row

Slack's own client is not used: it requests no new ticket after a refused one, and detects a dead connection late. An
acknowledgement may use any connection, so if its own has ended it uses another. Nothing depends on the order of envelopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import structlog
from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType
from slack_sdk.errors import SlackApiError

from adapters.http import asked_wait_seconds
from quotebot.domain.catalogue.reader import is_deeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from slack_sdk.web.async_client import AsyncWebClient

    from ledger.clock import Clock

PING_SECONDS: Final = 0.75
SILENCE_SECONDS: Final = 2.0  # no frame arrived, not even a pong: the peer counts as gone
HANDSHAKE_SECONDS: Final = 2.0  # until Slack's hello
TICKET_SECONDS: Final = 2.5  # doubled on each attempt: a pooled HTTP connection may be dead too
TICKET_SECONDS_MAX: Final = 10.0
STEADY_SECONDS: Final = 5.0  # a connection that lasted less counts as a failure
PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 2.0
CROWDED_SECONDS: Final = 0.5  # all ten connections of the app are in use; frequent attempts would keep them in use
CROWDED_SECONDS_MAX: Final = 30.0
RETIRE_SECONDS: Final = 15.0  # Slack closes a connection about 10 s after its warning
CLOSE_SECONDS: Final = 1.0  # a half-open connection does not answer a close frame
SEND_SECONDS: Final = 3.0  # afterwards Slack no longer waits for an acknowledgement
FRAME_BYTES_MAX: Final = 1024 * 1024  # a larger frame is not parsed
LEVELS_MAX: Final = 100  # a frame that is nested deeper is not processed
LARGE_CHARACTERS: Final = 16 * 1024  # commands and clicks need less; parsing a larger frame delays acknowledgements
HELD_MAX: Final = 16  # large frames held back at the same time; further ones are read immediately
HELD_SECONDS: Final = 0.025  # the longest delay of each
POLL_SECONDS: Final = 0.0025  # poll interval while a large frame yields
WIRE_BYTES_MAX: Final = 16 * 1024 * 1024  # a larger frame is not received: the connection is closed

REFUSED_TOKEN: Final = frozenset({"invalid_auth", "not_authed", "not_allowed_token_type", "account_inactive", "token_revoked"})
LINK_DISABLED: Final = "link_disabled"
TOO_MANY: Final = "too_many_websockets"

log = structlog.get_logger(__name__)


class TokenRefusedError(Exception):
    """Slack refused the app-level token before the first connection. The text is Slack's error code."""


class LinkDisabledError(Exception):
    """Socket Mode is switched off for this app, so Slack grants no further connection."""


class _NoLinkError(Exception):
    """A connection attempt failed. `wait_seconds` is the delay that Slack requested, if any."""

    def __init__(self, why: str, wait_seconds: float | None = None) -> None:
        super().__init__(why)
        self.wait_seconds = wait_seconds


class Inbox(Protocol):
    """Receiver of incoming messages. Its methods are called on the event loop and must not block."""

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        """Accept one Slack message that is not about the connection itself."""

    def take_oversized(self, frame: str, size: int, link: Link) -> None:
        """Accept an unprocessed frame of `size` bytes that is too large or too deeply nested to come from Slack."""


@dataclass(slots=True, eq=False)
class Link:
    """One connection. `ended` holds the reason as soon as it is known; frames may still arrive until `socket` is closed."""

    socket: ClientWebSocketResponse
    ended: asyncio.Future[str]
    heard_at: float = 0.0  # time of the last frame, in seconds of the loop's clock
    greeted: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, reason: str) -> None:
        """Record why the connection ends; only the first reason is kept."""
        if not self.ended.done():
            self.ended.set_result(reason)

    @property
    def open(self) -> bool:
        """True after Slack's first message, until a reason to end is known."""
        return self.greeted.is_set() and not self.ended.done()


def pause_seconds(failures: int, reason: str, draw: Callable[[float, float], float]) -> float:
    """Return the pause before the next attempt after `failures` failures in a row; 0 after none, unless Slack replied TOO_MANY."""
    if reason == TOO_MANY:
        return draw(0.5, 1.0) * min(CROWDED_SECONDS_MAX, CROWDED_SECONDS * 2.0 ** min(max(0, failures - 1), 16))
    if failures == 0:
        return 0.0
    return draw(0.5, 1.0) * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2.0 ** min(failures, 16))


class Links:
    """Pool of `count` connections to Slack. `opened` is called for each new one; `draw(low, high)` is the source of jitter."""

    def __init__(
        self,
        client: AsyncWebClient,
        app_token: str,
        inbox: Inbox,
        *,
        clock: Clock,
        draw: Callable[[float, float], float],
        count: int = 1,
        opened: Callable[[], object] = lambda: None,
        contended: Callable[[], bool] | None = None,
    ) -> None:
        """`client` needs its own session: the connections share it.

        While `contended()` is true, large frames are held back for a short time; without `contended` they are read immediately.
        """
        self._client = client
        self._app_token = app_token
        self._inbox = inbox
        self._clock = clock
        self._draw = draw
        self._count = count
        self._opened = opened
        self._contended = contended
        self._held: deque[tuple[Link, str]] = deque()
        self._holding: asyncio.Task[None] | None = None
        self._links: dict[Link, asyncio.Task[None]] = {}  # each with its reader task, the oldest first
        self._changed = asyncio.Condition()
        self._ever_open = False

    @property
    def alive(self) -> bool:
        """True if any connection is open. A connection without frames for SILENCE_SECONDS is ended, so it does not count."""
        return any(link.open for link in self._links)

    async def run(self) -> None:
        """Maintain the connections until cancelled; `close` closes them.

        Raises LinkDisabledError and, before the first connection only, TokenRefusedError: later the bot keeps trying, because
        the token may be repaired meanwhile.
        """
        keepers = [asyncio.create_task(self._keep()) for _ in range(self._count)]
        try:
            await asyncio.gather(*keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def send(self, text: str, link: Link) -> None:
        """Send over `link` or, if it is closed, any other connection. Raises ConnectionError if none opens within SEND_SECONDS."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                while True:
                    for each in (link, *reversed(self._links)):
                        if not each.socket.closed and await _sent(each.socket, text):
                            return
                        each.end("cut")  # its reader may not have run yet, and `alive` below must not count it
                    async with self._changed:
                        await self._changed.wait_for(lambda: self.alive)
        except TimeoutError:
            raise ConnectionError("there is no connection to Slack") from None

    async def close(self) -> None:
        """Close every connection, after `run` was cancelled. Held frames stay unacknowledged: Slack delivers them again."""
        if self._holding is not None:
            self._holding.cancel()
        readers = list(self._links.values())
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    async def _keep(self) -> None:
        failures = 0
        while True:
            reason, asked_seconds = "no connection", None
            began = self._clock.monotonic()
            try:
                link = await self._open(failures)
            except _NoLinkError as error:
                log.warning("socket.no_connection", why=str(error), failures=failures + 1)
                failures, asked_seconds = failures + 1, error.wait_seconds
            else:
                reason = await asyncio.shield(link.ended)
                steady = self._clock.monotonic() - began >= STEADY_SECONDS
                failures = 0 if steady else failures + 1
                log.info("socket.ended", reason=reason, connections=sum(each.open for each in self._links))
                if reason == LINK_DISABLED:
                    raise LinkDisabledError
            await asyncio.sleep(pause_seconds(failures, reason, self._draw) if asked_seconds is None else asked_seconds)

    async def _open(self, failures: int) -> Link:
        """Return a connection over which Slack sent hello. Raises _NoLinkError or TokenRefusedError."""
        url = await self._ticket(min(TICKET_SECONDS_MAX, TICKET_SECONDS * 2.0 ** min(failures, 8)))
        link: Link | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                socket = await self._client.session.ws_connect(  # type: ignore[union-attr] # it has one: see __init__
                    url,
                    autoping=False,
                    max_msg_size=WIRE_BYTES_MAX,
                    timeout=ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    proxy=self._client.proxy,
                    ssl=True if self._client.ssl is None else self._client.ssl,
                )
                link = Link(socket, asyncio.get_running_loop().create_future())
                self._links[link] = asyncio.create_task(self._read(link))
                await link.greeted.wait()
        except (ClientError, OSError, TimeoutError) as error:  # TimeoutError is an OSError; it is named as the usual case
            if link is not None:
                link.end("no hello")
                self._links[link].cancel()
            raise _NoLinkError(f"the connection was refused or not greeted ({type(error).__name__})") from error
        self._ever_open = True
        if link.open:
            self._opened()
        async with self._changed:
            self._changed.notify_all()
        return link

    async def _ticket(self, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.apps_connections_open(app_token=self._app_token)
            return self._checked(str(answer["url"]))
        except SlackApiError as error:
            code, headers = _code_of(error), getattr(error.response, "headers", None)
            if code in REFUSED_TOKEN and not self._ever_open:
                raise TokenRefusedError(code) from error
            wait_seconds = asked_wait_seconds(headers, clock=lambda: self._clock.now_ms() / 1000) if headers else None
            raise _NoLinkError(f"Slack gave no ticket ({code})", wait_seconds) from error
        except _NoLinkError:
            raise
        except Exception as error:
            raise _NoLinkError(f"Slack gave no ticket ({type(error).__name__})") from error

    def _checked(self, address: str) -> str:
        """Return the address if it has no user name and is wss, or ws on the host of an http API; else raise _NoLinkError."""
        home, target = urlsplit(self._client.base_url), urlsplit(address)
        local = target.scheme == "ws" and home.scheme == "http" and target.hostname == home.hostname
        if (target.scheme != "wss" and not local) or target.username is not None:
            raise _NoLinkError("Slack gave an address that is not wss")
        return address

    async def _read(self, link: Link) -> None:
        """Process incoming frames until the connection ends, then close it."""
        helpers = [asyncio.create_task(_ping(link.socket))]
        loop, reason = asyncio.get_running_loop(), "cut"
        link.heard_at = loop.time()
        try:
            async with asyncio.timeout(None) as reading:
                helpers.append(asyncio.create_task(_watch(link, reading)))
                while await self._take(link):
                    link.heard_at = loop.time()
                    if link.ended.done() and reading.when() is None:
                        reading.reschedule(loop.time() + RETIRE_SECONDS)
        except TimeoutError:
            reason = "silent"
        except (ClientError, OSError) as error:
            log.info("socket.broken", error=type(error).__name__)
        finally:
            link.end(reason)
            link.greeted.set()  # releases `_open`, which waits for the hello
            for helper in helpers:
                helper.cancel()
            with contextlib.suppress(ClientError, OSError):
                await link.socket.close()
            self._links.pop(link, None)

    async def _take(self, link: Link) -> bool:
        """Receive one frame; return false if it was the last."""
        frame = await link.socket.receive()  # without its own timeout, which would double the cost of each frame
        if frame.type is WSMsgType.TEXT:
            return self._take_text(link, frame.data)
        if frame.type is WSMsgType.PING:
            await link.socket.pong(frame.data)
        return frame.type in (WSMsgType.PING, WSMsgType.PONG, WSMsgType.BINARY)

    def _take_text(self, link: Link, text: str) -> bool:
        """Process a text frame, or queue a large one; return false if it was the last."""
        if self._contended is None or len(text) <= LARGE_CHARACTERS or len(self._held) >= HELD_MAX:
            return self._read_text(link, text)
        self._held.append((link, text))
        if self._holding is None or self._holding.done():
            self._holding = asyncio.create_task(self._read_held(self._contended))
        return True

    async def _read_held(self, contended: Callable[[], bool]) -> None:
        """Process the held frames one by one, each when no envelope waits for its acknowledgement or after HELD_SECONDS.

        Parsing a large frame blocks the event loop and the ledger's writer thread for about as long as a commit takes.
        """
        while self._held:
            for _ in range(round(HELD_SECONDS / POLL_SECONDS)):
                if not contended():
                    break
                await asyncio.sleep(POLL_SECONDS)
            self._read_text(*self._held.popleft())
            await asyncio.sleep(0)

    def _read_text(self, link: Link, text: str) -> bool:
        size = len(text) if text.isascii() else len(text.encode())
        try:
            message = None if size > FRAME_BYTES_MAX else json.loads(text)
            unread = size > FRAME_BYTES_MAX or _is_too_deep(text, message)
        except json.JSONDecodeError:
            message, unread = None, False
        except (ValueError, RecursionError):  # a number of thousands of digits, or nested beyond the parser's limit
            unread = True
        if unread:
            link.greeted.set()
            self._inbox.take_oversized(text, size, link)
            return True
        if not isinstance(message, dict):
            log.warning("socket.unreadable", characters=len(text))
            return True
        link.greeted.set()
        if message.get("type") == "disconnect":
            reason = str(message.get("reason"))
            link.end(reason)
            return reason not in (TOO_MANY, LINK_DISABLED)
        if message.get("type") == "hello":
            log.info("socket.opened", connections_of_app=message.get("num_connections"))
        else:
            self._inbox.take(message, link)
        return True


def _is_too_deep(text: str, message: object) -> bool:
    """Return whether a frame is nested deeper than anything Slack sends. Few frames have enough brackets for the full check."""
    return _has_more_brackets(text, LEVELS_MAX) and is_deeper(message, LEVELS_MAX)


def _has_more_brackets(text: str, count: int) -> bool:
    """Return whether a text has more than `count` opening brackets. `find` with an early exit is much faster than counting all."""
    for bracket in "[{":
        found = text.find(bracket)
        while found >= 0:
            if not count:
                return True
            count -= 1
            found = text.find(bracket, found + 1)
    return False


async def _ping(socket: ClientWebSocketResponse) -> None:
    """Send a ping every PING_SECONDS until the socket is closed."""
    with contextlib.suppress(ClientError, OSError):
        while not socket.closed:
            await socket.ping(b"quotebot")
            await asyncio.sleep(PING_SECONDS)


async def _watch(link: Link, reading: asyncio.Timeout) -> None:
    """End the reader when no frame arrived for SILENCE_SECONDS."""
    loop = asyncio.get_running_loop()
    while (left := link.heard_at + SILENCE_SECONDS - loop.time()) > 0:  # noqa: ASYNC110 -- frames arrive too often to signal each
        await asyncio.sleep(left)
    reading.reschedule(loop.time())


async def _sent(socket: ClientWebSocketResponse, text: str) -> bool:
    try:
        await socket.send_str(text)
    except (ClientError, OSError):
        return False
    return True


def _code_of(error: SlackApiError) -> str | None:
    data = getattr(error.response, "data", error.response)  # text, if a failing server answered without JSON
    code = data.get("error") if isinstance(data, dict) else None
    return code if isinstance(code, str) else None
