"""The local world as one object: Slack, Salesforce and an LLM on loopback, with their faults and request log, and its control API.

The control API takes people's gestures and faults, and shows the real state: JSON, loopback only.
"""

from __future__ import annotations

import ipaddress
import json
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import web

from quotebot.observability.loopback import only_local
from quotebot.sandbox import web as page
from quotebot.sandbox.backstage import Backstage
from quotebot.sandbox.chance import Tokens, VirtualClock
from quotebot.sandbox.faults import SOCKET_EFFECTS, ArmedFaults
from quotebot.sandbox.llm import LlmService
from quotebot.sandbox.request_log import LoggedRequest, Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.serving import Body, answered, posted
from quotebot.sandbox.slack.courier import REDELIVERIES_MAX, Courier, Line
from quotebot.sandbox.slack.directory import APP_TOKEN, APPROVERS, BOT_TOKEN, OPERATORS
from quotebot.sandbox.slack.errors import GestureError, Json
from quotebot.sandbox.slack.gestures import Gestures
from quotebot.sandbox.slack.listing import listing
from quotebot.sandbox.slack.socket_mode import SocketMode
from quotebot.sandbox.slack.web_api import Rates, WebApi
from quotebot.sandbox.slack.workspace import Workspace, describe, shown_files, shown_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from quotebot.sandbox.wire import Answer, Received, StandIn

HEARTBEAT_SECONDS = 10.0
REQUEST_BYTES_MAX = 40 * 2**20
ACK_SECONDS = 3.0
STOP_SECONDS = 1.0
UNPACED = 100_000  # messages at once, and commands of one person: without rate limits no pacing is needed
# Addresses that are never served, for a world that is called in its own process.
_UNSERVED_SLACK = "http://127.0.0.1:1"
_UNSERVED_SALESFORCE = "https://127.0.0.1:2"


class Control:
    """The /_sandbox routes."""

    def __init__(
        self,
        workspace: Workspace,
        gestures: Gestures,
        courier: Courier,
        socket: SocketMode,
        weather: ArmedFaults,
        witness: Witness,
        salesforce: SalesforceService,
        backstage: Backstage,
    ) -> None:
        self._workspace = workspace
        self._gestures = gestures
        self._courier = courier
        self._socket = socket
        self._weather = weather
        self._witness = witness
        self._salesforce = salesforce
        self._backstage = backstage

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        posts: dict[str, Callable[[Body], Awaitable[Json]]] = {
            "slash": self._slash,
            "action": self._action,
            "submit": self._submit,
            "message": self._message,
            "redeliver": self._redeliver,
            "faults": self._arm,
            "clock": self._move_clock,
            "home": self._home,
            "channel": self._channel,
            "shortcut": self._shortcut,
            "close": self._close,
            "suggest": self._suggest,
        }
        gets: dict[str, Callable[[web.Request], Awaitable[Json | list[Any]]]] = {
            "state": self._state,
            "faults": self._faults,
            "witness": self._sightings,
            "salesforce/{sobject}": self._records,
            "clock": self._read_clock,
        }
        return [
            *(web.post(f"/_sandbox/{name}", posted(work)) for name, work in posts.items()),
            *(web.get(f"/_sandbox/{name}", answered(work)) for name, work in gets.items()),
            web.delete("/_sandbox/faults", answered(self._clear_faults)),
            web.get("/_sandbox/events", self._events),
            *self._backstage.routes(),
        ]

    async def _slash(self, body: Body) -> Json:
        return await self._gestures.slash(
            body.text("user"), body.text("channel"), body.text("command"), body.optional("text", str) or ""
        )

    async def _action(self, body: Body) -> Json:
        user, action_id = body.text("user"), body.text("action_id")
        block_id, value, values = body.optional("block_id", str), body.anything("value"), body.optional("values", dict) or {}
        view_id = body.optional("view_id", str)
        if view_id is not None:
            return await self._gestures.click_view(user, view_id, action_id, block_id=block_id, value=value, values=values)
        if body.optional("message_ts", str) is None:
            raise GestureError(400, "field 'message_ts' (with 'channel') or 'view_id' is missing: where the click happens")
        channel, ts = body.text("channel"), body.text("message_ts")
        return await self._gestures.click_message(
            user, channel, ts, action_id, block_id=block_id, value=value, values=values, stale=bool(body.optional("stale", bool))
        )

    async def _submit(self, body: Body) -> Json:
        return await self._gestures.submit(body.text("user"), body.text("view_id"), body.optional("values", dict) or {})

    async def _message(self, body: Body) -> Json:
        with_teams = body.optional("with_teams", bool) is not False
        return await self._gestures.write(
            body.text("user"), body.text("channel"), body.text("text"), body.optional("thread_ts", str), with_teams=with_teams
        )

    async def _home(self, body: Body) -> Json:
        return await self._gestures.open_home(body.text("user"))

    async def _channel(self, body: Body) -> Json:
        flags = {name: body.optional(name, bool) for name in ("archived", "restricted", "with_bot", "private", "shared", "pending")}
        return self._gestures.change_channel(body.text("channel"), members=body.texts("members"), **flags)

    async def _shortcut(self, body: Body) -> Json:
        return await self._gestures.shortcut(
            body.text("user"), body.text("callback_id"), body.optional("channel", str), body.optional("message_ts", str)
        )

    async def _close(self, body: Body) -> Json:
        return await self._gestures.close_view(body.text("user"), body.text("view_id"))

    async def _suggest(self, body: Body) -> Json:
        place = {name: body.optional(name, str) for name in ("view_id", "channel", "message_ts")}
        return await self._gestures.suggest(body.text("user"), place, body.text("action_id"), body.optional("value", str) or "")

    async def _redeliver(self, body: Body) -> Json:
        request_id, kind, times = body.text("request_id"), body.optional("kind", str), body.count("times")
        times = 1 if times is None else times
        if not 1 <= times <= REDELIVERIES_MAX:
            raise GestureError(400, f"field 'times' must be from 1 to {REDELIVERIES_MAX}, not {times}")
        if kind not in (None, "resend", "retry"):
            raise GestureError(400, f"field 'kind' must be 'resend' or 'retry', not {kind!r}")
        acks = await self._courier.redeliver(request_id, "retry" if kind == "retry" else "resend", times)
        return {"acks": [ack.body() for ack in acks]}

    async def _arm(self, body: Body) -> Json:
        target, effect = body.text("target"), body.text("effect")
        if (target == "socket") != (effect in SOCKET_EFFECTS):
            fitting = ", ".join(sorted(SOCKET_EFFECTS))
            raise GestureError(400, f"effect {effect!r} does not fit target {target!r}: the socket's are {fitting}, and only its")
        delay, probability = body.optional("delay", float), body.optional("probability", float)
        try:
            fault = self._weather.arm(
                target,
                effect,
                method=body.optional("method", str),
                times=body.count("times"),
                seconds=body.optional("seconds", float),
                retry_after=body.count("retry_after"),
                delay=5.0 if delay is None else delay,
                code=body.optional("code", str),
                probability=1.0 if probability is None else probability,
            )
        except ValueError as error:
            raise GestureError(400, str(error)) from None
        return asdict(fault)

    async def _clear_faults(self, _request: web.Request) -> Json:
        self._weather.clear()
        return {"faults": []}

    async def _faults(self, _request: web.Request) -> list[Any]:
        return list(self._weather.describe())

    async def _state(self, _request: web.Request) -> Json:
        seen = describe(self._workspace, self._socket.connections)
        return {**seen, "app": listing(), **self._backstage.standing(), "salesforce_url": self._salesforce.url}

    async def _sightings(self, request: web.Request) -> list[Any]:
        since = request.query.get("since", "0")
        if not since.isdecimal():
            raise GestureError(400, f"query 'since' must be a whole number, not {since!r}")
        return [asdict(sighting) for sighting in self._witness.since(int(since))]

    async def _records(self, request: web.Request) -> list[Any]:
        sobject = request.match_info["sobject"]
        try:
            return list(self._salesforce.records(sobject))
        except KeyError:
            raise GestureError(404, f"no Salesforce object {sobject!r}") from None

    async def _read_clock(self, _request: web.Request) -> Json:
        clock = self._workspace.clock
        return {"offset_seconds": clock.offset_seconds, "now": clock.now()}

    async def _move_clock(self, body: Body) -> Json:
        clock = self._workspace.clock
        clock.move(body.required("offset_seconds", float))
        return {"offset_seconds": clock.offset_seconds, "now": clock.now()}

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Stream `change` events with the state's version; a comment every few seconds keeps the connection alive."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        changes = self._workspace.changes
        version = -1
        try:
            while not changes.closed:
                if changes.version != version:
                    version = changes.version
                    await response.write(f"event: change\ndata: {json.dumps({'version': version})}\n\n".encode())
                elif not await changes.after(version, HEARTBEAT_SECONDS):
                    await response.write(b": alive\n\n")
        except ConnectionError:
            pass  # the client has left
        return response


@dataclass(frozen=True, slots=True)
class Outside:
    """State that is visible outside the bot, JSON-ready.

    `messages` and `files` are as in the control API's state; `crm` contains the records of each object.
    """

    messages: list[Json]
    files: list[Json]
    crm: dict[str, list[Json]]
    sightings: list[LoggedRequest]


class World:
    """All external services for one bot, either served on loopback (`serve`) or called in their own process (`unserved`).

    `data_dir` holds uploads, certificates and the request log; without one they stay in memory and the world cannot be served.
    `ack_seconds` is how long Slack waits for an ack; with `echo_own_messages` the bot also receives its own messages as events, as
    from Slack. `now` (Unix seconds), `monotonic` (seconds) and `tokens` are its only sources of time and randomness. `line` carries
    envelopes to the bot; the default is Socket Mode. `scopes` are those the app was installed with, None for all; a `limited` Slack
    has its rate limits. With `delayed_events` the app has Delayed Events switched on.
    """

    def __init__(
        self,
        data_dir: Path | None,
        *,
        ack_seconds: float = ACK_SECONDS,
        echo_own_messages: bool = False,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        tokens: Tokens | None = None,
        line: Line | None = None,
        scopes: frozenset[str] | None = None,
        limited: bool = False,
        delayed_events: bool = False,
    ) -> None:
        if data_dir is not None:
            data_dir.mkdir(parents=True, exist_ok=True)
        tokens = Tokens() if tokens is None else tokens
        self.clock = VirtualClock(now)
        self.weather = ArmedFaults(monotonic=monotonic, tokens=tokens)
        self.witness = Witness(data_dir and data_dir / "witness.jsonl", now=now)
        self.slack = Workspace(self.clock, tokens, data_dir and data_dir / "slack-files")
        self.salesforce = SalesforceService(
            self.witness, self.weather, data_dir and data_dir / "salesforce", now=now, tokens=tokens
        )
        self.llm = LlmService(self.witness, self.weather, now=now)
        rates = Rates(monotonic) if limited else None
        self._limited = limited
        self._reads_links = scopes is None or "links:read" in scopes
        self._web_api = WebApi(self.slack, self.weather, self.witness, scopes=scopes, rates=rates)
        self.socket = SocketMode(
            self.slack.passes, self.slack.changes, self.weather, self.witness, tokens, ack_seconds=ack_seconds, monotonic=monotonic
        )
        self.courier = Courier(self.socket if line is None else line, self.clock, tokens, delayed_events=delayed_events)
        self.gestures = Gestures(self.slack, self.courier, echo_own_messages=echo_own_messages)
        self.backstage = Backstage(self.slack.changes, self.weather, self.courier)
        self._control = Control(
            self.slack, self.gestures, self.courier, self.socket, self.weather, self.witness, self.salesforce, self.backstage
        )
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Return the base URL, without a trailing slash; empty before the start."""
        return self.slack.url

    def unserved(self) -> World:
        """Give the world addresses without serving it: the caller passes requests to `receive`. Raises RuntimeError once served."""
        if self.url:
            raise RuntimeError("the world has its addresses already; make a new one")
        self.slack.url, self.salesforce.url = _UNSERVED_SLACK, _UNSERVED_SALESFORCE
        self._register_domain()
        return self

    def delay(self, received: Received) -> float:
        """Return for how many seconds a request is delayed; call it once per request, because it counts a hit of the fault."""
        return self._stand_in_for(received).delay(received)

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer a request to Slack, Salesforce or the LLM. Raises Cut if the connection is cut instead.

        `waited` states that `delay` was not 0, so that no second fault applies.
        """
        return self._stand_in_for(received).receive(received, waited=waited)

    def seen(self) -> Outside:
        """Return the present state outside the bot."""
        return Outside(
            messages=shown_messages(self.slack),
            files=shown_files(self.slack),
            crm={sobject.name: self.salesforce.records(sobject.name) for sobject in SCHEMA.values()},
            sightings=self.witness.since(),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables that connect `quotebot run` to this world, except to the model."""
        return {
            "SLACK_API_URL": f"{self.url}/api/",
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            **({} if self._limited else {"SLACK_MESSAGES_AT_ONCE": str(UNPACED), "QUOTEBOT_COMMANDS_PER_MINUTE": str(UNPACED)}),
            "QUOTEBOT_APPROVERS": json.dumps(APPROVERS),
            "QUOTEBOT_OPERATORS": json.dumps(OPERATORS),
            **self.salesforce.environment(),
        }

    def seller_environment(self) -> dict[str, str]:
        """Return the environment variables of a sample seller, so that documents look like those of a real one."""
        folder = Path(__file__).resolve().parent / "seller"
        return {
            "QUOTEBOT_SELLER_NAME": "Sandbox Software Inc.",
            "QUOTEBOT_SELLER_LINES": json.dumps(["100 Harbor Street", "Boston, MA 02110", "United States"]),
            "QUOTEBOT_SELLER_LOGO": str(folder / "logo.png"),
            "QUOTEBOT_SELLER_FOOTER": "Sandbox Software Inc. \u00b7 Delaware file number 1234567 \u00b7 EIN 12-3456789",
            "QUOTEBOT_DOCUMENT_FOLDER": str(folder),
        }

    def model_environment(self) -> dict[str, str]:
        """Return the environment variables that also connect it to the stand-in for a model."""
        return self.llm.environment(self.url)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve on a loopback address; port 0 takes a free one. Raises ValueError on any other address, OSError on a taken port."""
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"the sandbox's tokens are public, so it serves on loopback only, not on {host}")
        if self.url or self._runner is not None or self.slack.changes.closed:
            raise RuntimeError("a world is served once; make a new one")
        app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[only_local])
        for part in (self._web_api, self.socket, self._control, self.llm, page):
            app.add_routes(part.routes())
        app.on_shutdown.append(self._hang_up)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        self._runner = runner
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            self.slack.url = f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}"
            await self.salesforce.start()
            self._register_domain()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close every connection and port. The state stays readable."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        await runner.cleanup()
        await self.courier.close()
        await self.salesforce.stop()

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[World]:
        """Serve for the length of a `with` block."""
        await self.start(host, port)
        try:
            yield self
        finally:
            await self.stop()

    def _register_domain(self) -> None:
        """Register the local Salesforce as the domain of the app whose links it is told about."""
        host = urlsplit(self.salesforce.url).hostname
        self.slack.unfurl_domains = frozenset({host} if host is not None and self._reads_links else ())

    def _stand_in_for(self, received: Received) -> StandIn:
        if received.origin in (self.salesforce.url, self.salesforce.plain_url):
            return self.salesforce
        return self.llm if received.path.startswith("/v1/") else self._web_api

    async def _hang_up(self, _app: web.Application) -> None:
        """Close event streams and sockets, which would otherwise delay the shutdown."""
        self.slack.changes.close()
        await self.backstage.close()
        await self.socket.close()
