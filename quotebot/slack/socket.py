"""The Socket Mode connection: envelopes into Bolt, acknowledgements out through one door, and a client that recovers.

Two repairs of the SDK's client (research: it wedges for ever on one refused ticket): an attempt to connect is bounded, and a ticket
that failed is thrown away. And one limit: a frame that is larger than anything Slack sends is not parsed, but acknowledged by its
envelope_id, so that it does not come again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog
from slack_bolt.adapter.socket_mode.async_base_handler import AsyncBaseSocketModeHandler
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient

    from ledger.clock import Clock
    from quotebot.slack.envelopes import Envelopes

PING_SECONDS: Final = 3.0
HANDSHAKE_SECONDS: Final = 2.5  # shorter than the client's own pause between tries on a ticket that is already dead
TICKET_PAUSE_SECONDS: Final = 1.0
REFUSED_TOKEN: Final = frozenset({"invalid_auth", "not_authed", "not_allowed_token_type", "account_inactive", "token_revoked"})
CLOSE_SECONDS: Final = 1.5  # a half-open connection does not answer its closing
FRAME_BYTES_MAX: Final = 1024 * 1024  # a larger one is dropped
WIRE_BYTES_MAX: Final = 16 * 1024 * 1024  # a larger one is not even received: the connection is closed
ENVELOPE_EDGE_CHARACTERS: Final = 4_096  # how far from either end of a large frame its envelope_id is looked for

_SCALAR = r'"[a-z_]+"\s*:\s*(?:"[^"\\]*"|[a-z0-9.-]+)'  # one member of the envelope that is neither object nor array
_ID = r'"envelope_id"\s*:\s*"([^"\\]{1,200})"'
_AT_HEAD = re.compile(rf"\s*\{{\s*(?:{_SCALAR}\s*,\s*)*?{_ID}")  # only scalars before it: it is the envelope's own
_AT_TAIL = re.compile(rf"{_ID}(?:\s*,\s*{_SCALAR})*\s*\}}\s*$")  # only scalars after it, and one brace

Dropped = Callable[[str | None, int], Awaitable[None]]
log = structlog.get_logger(__name__)


def envelope_id_of(frame: str) -> str | None:
    """Return the envelope_id of a frame without parsing the rest, or None when it stands at neither end.

    A quotation mark inside a string is escaped, so nothing that a person typed looks like a member of the envelope.
    """
    found = _AT_HEAD.match(frame[:ENVELOPE_EDGE_CHARACTERS]) or _AT_TAIL.search(frame[-ENVELOPE_EDGE_CHARACTERS:])
    return None if found is None else found[1]


class TokenRefusedError(Exception):
    """Slack refused the app-level token before the first connection. The text is Slack's code."""


class RecoveringClient(SocketModeClient):
    """Slack's own client, made to drop a refused ticket and to replace a connection once, not twice.

    A frame over FRAME_BYTES_MAX goes to `oversized` (with its size in bytes) instead of being parsed.
    """

    def __init__(
        self, *, app_token: str, web_client: AsyncWebClient, ping_interval: float, oversized: Callable[[str, int], None]
    ) -> None:
        super().__init__(app_token=app_token, web_client=web_client, ping_interval=ping_interval)
        self._replacing = asyncio.Lock()
        self._oversized = oversized
        self.aiohttp_client_session = _RoomySession(self.aiohttp_client_session)  # type: ignore[assignment] # all it calls is there

    async def enqueue_message(self, message: str) -> None:
        """Take a frame in, unless it is too large to be one of Slack's."""
        size = len(message.encode())
        if size > FRAME_BYTES_MAX:
            self._oversized(message, size)
            return
        await super().enqueue_message(message)

    async def connect(self) -> None:
        """Connect, however often it takes. Asking for a ticket takes as long as Slack wants; the handshake alone is bounded.

        Raises TokenRefusedError before the first connection only: later a token may be mended while the bot waits.
        """
        while not self.closed:
            try:
                self.wss_uri = self.wss_uri or await self.issue_new_wss_url()
                await asyncio.wait_for(super().connect(), HANDSHAKE_SECONDS)  # type: ignore[no-untyped-call] # the SDK has no types here
            except TimeoutError:
                self.wss_uri = None
            except Exception as error:
                code = _code_of(error)
                if code in REFUSED_TOKEN and self.current_session is None:
                    raise TokenRefusedError(code) from error
                log.warning("socket.no_ticket", error=type(error).__name__, code=code)
                self.wss_uri = None
                await asyncio.sleep(TICKET_PAUSE_SECONDS)
            else:
                return

    async def connect_to_new_endpoint(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 -- the SDK's signature
        """Replace the connection once: Slack's disconnect frame and the closing that follows it both ask for that."""
        replaced = self.current_session
        async with self._replacing:
            if self.current_session is replaced or not await self.is_connected():
                await super().connect_to_new_endpoint(force)


class _RoomySession:
    """The connections of the SDK's client, made to receive what has to be acknowledged although it is too large.

    By default aiohttp closes the connection on a frame over 4 MiB, and Slack would deliver it again over the next one.
    """

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def ws_connect(self, url: str, **options: Any) -> Any:
        return await self._session.ws_connect(url, max_msg_size=WIRE_BYTES_MAX, **options)

    async def close(self) -> None:
        await self._session.close()


def _code_of(error: Exception) -> str | None:
    if not isinstance(error, SlackApiError):
        return None
    code = error.response.get("error") if hasattr(error.response, "get") else None
    return code if isinstance(code, str) else None


class SocketReceiver(AsyncBaseSocketModeHandler):
    """Hands every envelope to Bolt and sends its acknowledgement. `closing` refuses new envelopes: they are never acked.

    `dropped` is told of an envelope that is too large to be read, before it is acknowledged; `acked` of each acknowledgement: the
    kind of its envelope, and the seconds since it arrived.
    """

    def __init__(
        self,
        envelopes: Envelopes,
        app_token: str,
        web_client: AsyncWebClient,
        dropped: Dropped,
        *,
        clock: Clock,
        acked: Callable[[str, float], object] = lambda _, __: None,
    ) -> None:
        self._envelopes = envelopes
        self._clock = clock
        self._acked = acked
        self.client = RecoveringClient(
            app_token=app_token, web_client=web_client, ping_interval=PING_SECONDS, oversized=self._receive_oversized
        )
        self._dropped = dropped
        self.client.socket_mode_request_listeners.append(self.receive)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def receive(self, client: Any, request: SocketModeRequest) -> None:
        """Process one envelope to its acknowledgement. The task is remembered, so that a shutdown can wait for it."""
        if self._closing:
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- called from the client's loop
        self._under_way.add(task)
        began = self._clock.monotonic()
        try:
            if await self._envelopes.answer(client, request):
                self._acked(request.type, self._clock.monotonic() - began)
        finally:
            self._under_way.discard(task)

    def _receive_oversized(self, frame: str, size: int) -> None:
        if self._closing:
            return
        task = asyncio.create_task(self._drop(envelope_id_of(frame), size))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _drop(self, envelope_id: str | None, size: int) -> None:
        await self._dropped(envelope_id, size)
        if envelope_id is not None:
            response = SocketModeResponse(envelope_id=envelope_id)
            await self._envelopes.ack(envelope_id, lambda: self.client.send_socket_mode_response(response))

    async def connect(self) -> None:
        """Connect, and stay connected: the client reconnects by itself."""
        await self.client.connect()  # type: ignore[no-untyped-call] # the SDK has no types here

    async def is_alive(self) -> bool:
        """Tell whether the connection is there and Slack answered a ping lately."""
        return bool(await self.client.is_connected())

    async def close(self, seconds: float) -> None:
        """Take nothing more in, let what is under way be acknowledged, then disconnect."""
        self._closing = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.close_async(), CLOSE_SECONDS)  # type: ignore[no-untyped-call] # the SDK has no types here
