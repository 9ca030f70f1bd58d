"""The Socket Mode connection: envelopes into Bolt, acknowledgements out through one door, and a client that recovers.

Two repairs of the SDK's client (research: it wedges for ever on one refused ticket): an attempt to connect is bounded, and a ticket
that failed is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import structlog
from slack_bolt.adapter.socket_mode.async_base_handler import AsyncBaseSocketModeHandler
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

if TYPE_CHECKING:
    from slack_bolt.async_app import AsyncApp
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient

PING_SECONDS: Final = 3.0
HANDSHAKE_SECONDS: Final = 2.5  # shorter than the client's own pause between tries on a ticket that is already dead
TICKET_PAUSE_SECONDS: Final = 1.0
REFUSED_TOKEN: Final = frozenset({"invalid_auth", "not_authed", "not_allowed_token_type", "account_inactive", "token_revoked"})
CLOSE_SECONDS: Final = 1.5  # a half-open connection does not answer its closing
OK: Final = 200

Ack = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
log = structlog.get_logger(__name__)


async def send_ack(envelope_id: str, send: Callable[[], Awaitable[None]]) -> None:
    """Let the acknowledgement out. Every ack passes here, so that fault tests can stand at this door."""
    del envelope_id
    await send()


class TokenRefusedError(Exception):
    """Slack refused the app-level token before the first connection. The text is Slack's code."""


class RecoveringClient(SocketModeClient):
    """Slack's own client, made to drop a refused ticket and to replace a connection once, not twice."""

    def __init__(self, *, app_token: str, web_client: AsyncWebClient, ping_interval: float) -> None:
        super().__init__(app_token=app_token, web_client=web_client, ping_interval=ping_interval)
        self._replacing = asyncio.Lock()

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


def _code_of(error: Exception) -> str | None:
    if not isinstance(error, SlackApiError):
        return None
    code = error.response.get("error") if hasattr(error.response, "get") else None
    return code if isinstance(code, str) else None


class SocketReceiver(AsyncBaseSocketModeHandler):
    """Hands every envelope to Bolt and sends its acknowledgement. `closing` refuses new envelopes: they are never acked."""

    def __init__(self, app: AsyncApp, app_token: str, web_client: AsyncWebClient, ack: Ack) -> None:
        self._bolt = app
        self.client = RecoveringClient(app_token=app_token, web_client=web_client, ping_interval=PING_SECONDS)
        self.client.socket_mode_request_listeners.append(self.receive)
        self._ack = ack
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def receive(self, client: Any, request: SocketModeRequest) -> None:
        """Process one envelope to its acknowledgement. The task is remembered, so that a shutdown can wait for it."""
        if self._closing:
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- called from the client's loop
        self._under_way.add(task)
        try:
            await self._process(client, request)
        finally:
            self._under_way.discard(task)

    async def connect(self) -> None:
        """Connect, and stay connected: the client reconnects by itself."""
        await self.client.connect()  # type: ignore[no-untyped-call] # the SDK has no types here

    async def close(self, seconds: float) -> None:
        """Take nothing more in, let what is under way be acknowledged, then disconnect."""
        self._closing = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.close_async(), CLOSE_SECONDS)  # type: ignore[no-untyped-call] # the SDK has no types here

    async def _process(self, client: Any, request: SocketModeRequest) -> None:
        bolt_request = AsyncBoltRequest(mode="socket_mode", body=request.payload, context={"envelope_id": request.envelope_id})
        answer = await self._bolt.async_dispatch(bolt_request)
        if answer.status != OK:
            log.warning("envelope.not_acknowledged", status=answer.status, type=request.type)
            return
        payload = json.loads(answer.body) if answer.body and answer.body.startswith("{") else None
        if answer.body and payload is None:
            payload = {"text": answer.body}
        response = SocketModeResponse(envelope_id=request.envelope_id, payload=payload)
        await self._ack(request.envelope_id, lambda: client.send_socket_mode_response(response))
