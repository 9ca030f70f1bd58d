"""The local world as one object: Slack, Salesforce and an LLM on loopback, with their faults, request log and control API."""

from __future__ import annotations

import ipaddress
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from quotebot.observability.loopback import only_local
from quotebot.sandbox import web as page
from quotebot.sandbox.backstage import Backstage
from quotebot.sandbox.chance import Tokens, VirtualClock
from quotebot.sandbox.control import Control
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.llm import LlmService
from quotebot.sandbox.request_log import LoggedRequest, Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.slack.courier import Courier, Line
from quotebot.sandbox.slack.directory import APP_TOKEN, APPROVERS, BOT_TOKEN, OPERATORS, SUBSCRIPTIONS
from quotebot.sandbox.slack.gestures import Gestures
from quotebot.sandbox.slack.limits import Rates
from quotebot.sandbox.slack.socket_mode import SocketMode
from quotebot.sandbox.slack.web_api import WebApi
from quotebot.sandbox.slack.workspace import Workspace, shown_files, shown_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from quotebot.sandbox.slack.errors import Json
    from quotebot.sandbox.wire import Answer, Received, StandIn

REQUEST_BYTES_MAX = 40 * 2**20
ACK_SECONDS = 3.0
STOP_SECONDS = 1.0
UNPACED = 100_000  # messages at once, and commands of one person: without rate limits no pacing is needed
# Addresses that are never served, for a world that is called in its own process.
_UNSERVED_SLACK = "http://127.0.0.1:1"
_UNSERVED_SALESFORCE = "https://127.0.0.1:2"


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
    `ack_seconds` is how long Slack waits for an ack; `subscriptions` are the app's event subscriptions; with `echo_own_messages`
    the bot also receives its own messages as events, as from Slack. `now` (Unix seconds), `monotonic` (seconds) and `tokens` are
    its only sources of time and randomness. `line` carries envelopes to the bot; the default is Socket Mode. `scopes` are those the
    app was installed with, None for all; a `limited` Slack has its rate limits. With `delayed_events` the app has Delayed Events
    switched on.
    """

    def __init__(
        self,
        data_dir: Path | None,
        *,
        ack_seconds: float = ACK_SECONDS,
        subscriptions: frozenset[str] = SUBSCRIPTIONS,
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
        self.slack = Workspace(self.clock, tokens, data_dir and data_dir / "slack-files", subscriptions=subscriptions)
        self.salesforce = SalesforceService(
            self.witness, self.weather, data_dir and data_dir / "salesforce", now=now, tokens=tokens
        )
        self.llm = LlmService(self.witness, self.weather, now=now)
        rates = Rates(monotonic) if limited else None
        self._limited = limited
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

    def _stand_in_for(self, received: Received) -> StandIn:
        if received.origin in (self.salesforce.url, self.salesforce.plain_url):
            return self.salesforce
        return self.llm if received.path.startswith("/v1/") else self._web_api

    async def _hang_up(self, _app: web.Application) -> None:
        """Close event streams and sockets, which would otherwise delay the shutdown."""
        self.slack.changes.close()
        await self.backstage.close()
        await self.socket.close()
