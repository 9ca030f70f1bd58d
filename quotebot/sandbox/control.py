"""The control API of the local world: people's gestures, faults, and the real state. JSON, loopback only."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from quotebot.sandbox.answering import Body, answered, posted
from quotebot.sandbox.faults import SOCKET_EFFECTS, ArmedFaults
from quotebot.sandbox.slack.courier import REDELIVERIES_MAX, Courier
from quotebot.sandbox.slack.errors import GestureError, Json
from quotebot.sandbox.slack.listing import listing
from quotebot.sandbox.slack.workspace import Workspace, describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quotebot.sandbox.backstage import Backstage
    from quotebot.sandbox.request_log import Witness
    from quotebot.sandbox.salesforce import SalesforceService
    from quotebot.sandbox.slack.gestures import Gestures
    from quotebot.sandbox.slack.socket_mode import SocketMode

HEARTBEAT_SECONDS = 10.0


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
        return {**seen, "app": listing(), "process": self._backstage.standing()}

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
