"""Receiver of Slack's envelopes: from the socket to Bolt's listeners, and back to the socket with their acknowledgements.

connections.py maintains the connections. This module decides which envelopes are processed, which are too late, and how those are
refused; a shutdown loses neither envelopes nor acknowledgements. A frame larger than anything Slack sends is acknowledged by its
envelope_id without being parsed, so that Slack does not deliver it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from ledger.database import DatabaseError
from quotebot.domain.access import Refusal
from quotebot.domain.language import _
from quotebot.slack.form_input import last_block
from quotebot.slack.gate import ADMISSION, CLICKS, TurnedAwayError
from quotebot.slack.listeners import COMMAND, QuoteListeners, register
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.slack.api import Identity
    from ledger.clock import Clock
    from quotebot.slack.connections import Inbox, Link, Links
    from quotebot.slack.gate import AccessGate
    from quotebot.slack.surface import Surface
    from quotebot.worker_loop import AckPriority

OK: Final = 200
NOT_FOUND: Final = 404  # no listener acknowledged it
FAILED: Final = 500

Ack = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
AT_ONCE: Final = 32  # envelopes started in one turn of the event loop, which then reads its sockets again
WAITING_MAX: Final = 1_024  # further envelopes are refused at once
ENVELOPE_EDGE_CHARACTERS: Final = 4_096  # length at either end of a large frame that is searched for its envelope_id
_SCALAR = r'"[a-z_]+"\s*:\s*(?:"[^"\\]*"|[a-z0-9.-]+)'  # one member of the envelope that is neither object nor array
_ID = r'"envelope_id"\s*:\s*"([^"\\]{1,200})"'
_AT_HEAD = re.compile(rf"\s*\{{\s*(?:{_SCALAR}\s*,\s*)*?{_ID}")  # only scalars before it, so it belongs to the envelope itself
_AT_TAIL = re.compile(rf"{_ID}(?:\s*,\s*{_SCALAR})*\s*\}}\s*$")  # only scalars after it, and one brace
Dropped = Callable[[str | None, int], Awaitable[None]]
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
        return {"text": _(messages.NOTHING_RECORDED)}
    if request.type == "interactive" and request.payload.get("type") == "view_submission":
        return {"response_action": "errors", "errors": {last_block(request.payload["view"]): _(messages.NOTHING_RECORDED)}}
    return None


class Envelopes:
    """Dispatcher of envelopes to Bolt. It sends each answer through `ack`."""

    def __init__(self, app: PromptApp, ack: Ack = send_ack) -> None:
        self._bolt = app
        self.ack = ack

    async def answer(self, client: Any, request: SocketModeRequest) -> bool:
        """Answer one envelope over `client`, which has `send_socket_mode_response`; return true if it was acknowledged."""
        context: dict[str, Any] = {"envelope_id": request.envelope_id}
        if request.retry_attempt:
            context |= {"retry_attempt": request.retry_attempt, "retry_reason": request.retry_reason}
        answer = await self._bolt.answer(request.payload, context)
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
        if not isinstance(admission.known, Refusal) and admission.approach.entry in CLICKS and body["type"] != "view_closed":
            try:
                recognized = await self.gate.recognized(body)
            except DatabaseError:
                log.exception("click.not_checked")
                return EnvelopeAnswer(FAILED)
            if recognized is None:
                admission.known = Refusal("foreign_click", "unknown" if admission.known is None else admission.known.kind)
            else:
                body = recognized
        if not isinstance(admission.known, Refusal):
            answer = await self._listened(body, {**context, ADMISSION: admission})
            self.gate.learn_later(admission)
        if isinstance(admission.known, Refusal):  # before the listener ran, or when it needed a viewer
            return EnvelopeAnswer(OK, await self.gate.turn_away(body, admission))
        return answer

    async def _listened(self, body: dict[str, Any], context: dict[str, Any]) -> EnvelopeAnswer:
        if body.get("command") != COMMAND:
            response = await self.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body, context=context))
            said: str = response.body  # JSON, plain text or nothing
            return EnvelopeAnswer(response.status, json.loads(said) if said.startswith("{") else {"text": said} if said else None)
        ack = EnvelopeAnswer(NOT_FOUND)
        try:
            await self.typed(ack, body, context)
        except TurnedAwayError:
            return EnvelopeAnswer(FAILED)
        except Exception:
            log.exception("command.failed")
            return EnvelopeAnswer(FAILED)
        if ack.payload is not None and "blocks" in ack.payload:
            ack.payload["blocks"] = self.gate.seals.blocks(body["user_id"], ack.payload["blocks"])
        return ack


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


def envelope_id_of(frame: str) -> str | None:
    """Return the envelope_id of a frame without parsing the rest, or None if it is at neither end.

    A quotation mark inside a string is escaped, so text typed by a person never matches as a member of the envelope.
    """
    found = _AT_HEAD.match(frame[:ENVELOPE_EDGE_CHARACTERS]) or _AT_TAIL.search(frame[-ENVELOPE_EDGE_CHARACTERS:])
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class _Arrival:
    request: SocketModeRequest
    link: Link
    at: float  # monotonic seconds


@dataclass(frozen=True, slots=True)
class _Way:
    """Return route for the acknowledgement of one envelope."""

    links: Links
    link: Link

    async def send_socket_mode_response(self, response: SocketModeResponse) -> None:
        await self.links.send(json.dumps(response.to_dict()), self.link)


class SocketReceiver:
    """Receiver that passes every envelope to Bolt and sends its acknowledgement. After `close`, new envelopes are never acked.

    `dropped` is called for an envelope that is too large to be read, before it is acknowledged; `acked` for each acknowledgement,
    with the type of its envelope and the seconds since it arrived. `arrivals` holds the arrival time of each envelope in progress:
    all time before the ledger write counts towards `ack_budget_seconds`. `ack_priority` makes the workers yield.
    """

    def __init__(
        self,
        envelopes: Envelopes,
        links: Callable[[Inbox], Links],
        dropped: Dropped,
        *,
        clock: Clock,
        ack_budget_seconds: float,
        arrivals: MutableMapping[str, float],
        ack_priority: AckPriority,
        acked: Callable[[str, float], object] = lambda _, __: None,
    ) -> None:
        self._envelopes = envelopes
        self._links = links(self)
        self._dropped = dropped
        self._clock = clock
        self._budget = ack_budget_seconds
        self._arrivals = arrivals
        self._ack_priority = ack_priority
        self._acked = acked
        self._waiting: deque[_Arrival] = deque()
        self._room = AT_ONCE
        self._turning = False  # whether `_turn` is scheduled
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def run(self) -> None:
        """Maintain the connections until cancelled. Raises the errors of Links.run."""
        await self._links.run()

    async def is_alive(self) -> bool:
        """Return whether a connection to Slack is open and not silent."""
        return self._links.alive

    async def close(self, seconds: float) -> None:
        """Accept no more envelopes, wait up to `seconds` for those in progress, then disconnect. Queued ones are discarded."""
        self._closing = True
        while self._waiting:
            self._waiting.pop()
            self._ack_priority.end()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        await self._links.close()

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        """Accept an envelope. Only a few start in each turn of the event loop, so that overload does not block reading."""
        request = None if self._closing else SocketModeRequest.from_dict(envelope)
        if request is None:
            return
        arrival = _Arrival(request, link, self._clock.monotonic())
        self._ack_priority.begin()
        if len(self._waiting) >= WAITING_MAX:
            self._begin(self._refuse(arrival))
            return
        self._waiting.append(arrival)
        self._pump()

    def take_oversized(self, frame: str, size: int, link: Link) -> None:
        """Accept a frame that is too large to be read."""
        if not self._closing:
            self._ack_priority.begin()
            self._begin(self._drop(envelope_id_of(frame), size, link))

    def _pump(self) -> None:
        """Start as many envelopes as this turn of the event loop has room for; the next turn starts more."""
        while self._waiting and self._room:
            arrival = self._waiting.popleft()
            late = self._clock.monotonic() - arrival.at >= self._budget
            self._begin(self._refuse(arrival) if late else self._answer(arrival))
            self._room -= 1
        if self._room < AT_ONCE and not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self._room = AT_ONCE
        self._pump()

    def _begin(self, work: Any) -> None:
        """Run the handling of an envelope as a task that a shutdown waits for."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        self._ack_priority.end()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("envelope.failed", error=repr(error))

    async def _answer(self, arrival: _Arrival) -> None:
        request = arrival.request
        self._arrivals[request.envelope_id] = arrival.at
        try:
            if await self._envelopes.answer(_Way(self._links, arrival.link), request):
                self._acked(request.type, self._clock.monotonic() - arrival.at)
        finally:
            self._arrivals.pop(request.envelope_id, None)

    async def _refuse(self, arrival: _Arrival) -> None:
        """Refuse an unprocessed envelope: reply that nothing was recorded, if its acknowledgement can carry text."""
        payload = refusal(arrival.request)
        log.warning("envelope.refused", type=arrival.request.type, answered=payload is not None)
        if payload is not None:
            await self._ack(arrival.request.envelope_id, arrival.link, payload)

    async def _drop(self, envelope_id: str | None, size: int, link: Link) -> None:
        await self._dropped(envelope_id, size)
        if envelope_id is not None:
            await self._ack(envelope_id, link)

    async def _ack(self, envelope_id: str, link: Link, payload: dict[str, Any] | None = None) -> None:
        response = SocketModeResponse(envelope_id=envelope_id, payload=payload)
        await self._envelopes.ack(envelope_id, lambda: _Way(self._links, link).send_socket_mode_response(response))
