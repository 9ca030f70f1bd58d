"""Dispatch of envelopes to Bolt, and their acknowledgements. receiver.py takes envelopes from the socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from quotebot.domain.access import Refusal
from quotebot.slack.admission import ADMISSION, TurnedAwayError
from quotebot.slack.form_input import last_block
from quotebot.slack.listeners import COMMAND, QuoteListeners, register
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.slack.api import Identity
    from quotebot.slack.gate import AccessGate
    from quotebot.slack.surface import Surface

OK: Final = 200
NOT_FOUND: Final = 404  # no listener acknowledged it
FAILED: Final = 500

Ack = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
log = structlog.get_logger(__name__)


async def send_ack(envelope_id: str, send: Callable[[], Awaitable[None]]) -> None:
    """Send an acknowledgement. Every acknowledgement passes this function, so that fault tests can intercept it."""
    del envelope_id
    await send()


def refusal(request: SocketModeRequest) -> dict[str, Any] | None:
    """Return the acknowledgement's payload for an envelope that was not processed; None if its acknowledgement carries no text.

    Slack marks an unacknowledged click as failed and delivers an unacknowledged event again.
    """
    if request.type == "slash_commands":
        return {"text": messages.NOTHING_RECORDED}
    if request.type == "interactive" and request.payload.get("type") == "view_submission":
        return {"response_action": "errors", "errors": {last_block(request.payload["view"]): messages.NOTHING_RECORDED}}
    return None


class Envelopes:
    """Dispatcher of envelopes to Bolt. It sends each answer through `ack`."""

    def __init__(self, app: PromptApp, ack: Ack = send_ack) -> None:
        self._bolt = app
        self.ack = ack

    async def answer(self, client: Any, request: SocketModeRequest) -> bool:
        """Answer one envelope over `client`, which has `send_socket_mode_response`; return true if it was acknowledged."""
        answer = await self._bolt.answer(request.payload, {"envelope_id": request.envelope_id})
        if answer.status != OK:
            log.warning("envelope.not_acknowledged", status=answer.status, type=request.type)
            return False
        response = SocketModeResponse(envelope_id=request.envelope_id, payload=answer.payload)
        await self.ack(request.envelope_id, lambda: client.send_socket_mode_response(response))
        return True


@dataclass(slots=True)
class EnvelopeAnswer:
    """Result of an envelope: status 200 is an acknowledgement, which carries `payload` if there is one.

    As `ack` of a typed command's listener it accepts those arguments of Bolt's `ack` that commands use: text and blocks.
    """

    status: int
    payload: dict[str, Any] | None = None

    async def __call__(self, text: str = "", blocks: Sequence[dict[str, Any]] | None = None) -> None:
        """Acknowledge."""
        self.status = OK
        if blocks:
            self.payload = {"text": text, "blocks": list(blocks)}
        elif text:
            self.payload = {"text": text}


class PromptApp(AsyncApp):
    """Bolt app that passes typed commands directly to their listener.

    Bolt offers a request to every middleware and listener in turn, and builds new arguments for each. A typed command has exactly
    one listener, and a person waits for its acknowledgement, so it skips that search.
    """

    typed: Callable[[Any, dict[str, Any], Any], Awaitable[None]]
    gate: AccessGate

    async def answer(self, body: dict[str, Any], context: dict[str, Any]) -> EnvelopeAnswer:
        """Answer the request in an envelope; if the access gate refuses the sender, answer with the refusal."""
        admission = self.gate.approached(body)
        if admission is None:  # not a person's request
            return await self._listened(body, context)
        if not isinstance(admission.known, Refusal):
            answer = await self._listened(body, {**context, ADMISSION: admission})
            self.gate.learn_later(admission)
        if isinstance(admission.known, Refusal):  # before the listener ran, or when it needed a viewer
            return EnvelopeAnswer(OK, await self.gate.turn_away(body, admission))
        return answer

    async def _listened(self, body: dict[str, Any], context: dict[str, Any]) -> EnvelopeAnswer:
        if body.get("command") != COMMAND:
            response = await self.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body, context=context))
            return EnvelopeAnswer(response.status, _said(response.body))
        ack = EnvelopeAnswer(NOT_FOUND)
        try:
            await self.typed(ack, body, context)
        except TurnedAwayError:
            return EnvelopeAnswer(FAILED)
        except Exception:
            log.exception("command.failed")
            return EnvelopeAnswer(FAILED)
        return ack


def _said(body: str) -> dict[str, Any] | None:
    """Return Bolt's response body, JSON or plain text, as the payload of an acknowledgement."""
    if not body:
        return None
    said: dict[str, Any] = json.loads(body) if body.startswith("{") else {"text": body}
    return said


def bolt_app(client: AsyncWebClient, identity: Identity, surface: Surface) -> PromptApp:
    """Return the Bolt app with our listeners. It acknowledges only when they do, and its authorization makes no network call."""

    async def authorize(**_: Any) -> AuthorizeResult:
        """Return the identity fetched at start, so that no network call delays an acknowledgement."""
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team_id,
            bot_token=client.token,
            bot_id=identity.bot_id,
            bot_user_id=identity.bot_user_id,
        )

    bolt_log = logging.getLogger("slack_bolt")  # its child loggers take its level only if it is passed to the app
    # Without a name Bolt uses its caller's file name, and reads the source of the whole call stack to find it. Bolt also names
    # its loggers after the app: with the name of one of our packages, our own loggers would take Bolt's level.
    app = PromptApp(name="bolt", client=client, authorize=authorize, process_before_response=True, logger=bolt_log)
    app.typed = QuoteListeners(surface).on_command
    app.gate = surface.gate

    async def failed(error: Exception) -> None:
        """Log an error of a listener. A refusal by the gate is not an error."""
        if not isinstance(error, TurnedAwayError):
            bolt_log.error("Failed to run listener function (error: %s)", error, exc_info=error)

    app.error(failed)
    register(app, surface)
    return app
