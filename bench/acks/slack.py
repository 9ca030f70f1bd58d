"""Minimal Slack: tickets, one WebSocket per application, and answers to the bot's calls. It measures the times."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass, field
from socket import SO_SNDBUF, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import Sequence

TEAM: Final = "T0BENCH"
PATIENCE_SECONDS: Final = 3.0  # Slack's; a later acknowledgement counts as late
GIVE_UP_SECONDS: Final = 12.0
SEND_BUFFER_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class Shot:
    """One envelope: when it was sent and acknowledged (perf_counter seconds), and the content of the acknowledgement."""

    request_id: str
    sent_at: float
    acked_at: float | None = None
    text: str | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds from sending to the acknowledgement; None without one."""
        return None if self.acked_at is None else self.acked_at - self.sent_at


@dataclass(slots=True, eq=False)
class _App:
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    shots: dict[str, Shot] = field(default_factory=dict)  # of this volley, by envelope id
    unacked: int = 0
    all_acked: asyncio.Event = field(default_factory=asyncio.Event)


class Slack:
    """Server for all applications of the benchmark, each identified by its app-level token `xapp-<name>`."""

    def __init__(self) -> None:
        self._apps: dict[str, _App] = {}
        self._numbers = itertools.count(1)
        self._stamps = itertools.count(1)
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.calls: dict[str, int] = {}

    async def start(self) -> None:
        """Serve on a free port of this machine."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.post("/api/{method}", self._call),
                web.get("/link/{name}", self._link),
                web.post("/{anything:upload|hooks}/{rest:.*}", self._take),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close all connections and stop the server."""
        for app in self._apps.values():
            await asyncio.gather(*(socket.close() for socket in list(app.sockets)))
        if self._runner is not None:
            await self._runner.cleanup()

    def connected(self, name: str) -> bool:
        """Tell whether this application has a connection."""
        return bool(self._app(name).sockets)

    async def volley(self, name: str, commands: Sequence[str], per_second: float | None) -> list[Shot]:
        """Send slash commands, evenly at a rate or all at once, and wait for their acknowledgements.

        `{n}` in a command is replaced by a different number each time.
        """
        app = self._app(name)
        envelopes = [self._envelope(command) for command in commands]
        app.shots.clear()
        app.unacked, socket = len(envelopes), app.sockets[-1]
        app.all_acked.clear()
        began = time.perf_counter()
        for index, (envelope_id, request_id, text) in enumerate(envelopes):
            if per_second is not None:
                wait = began + index / per_second - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
            app.shots[envelope_id] = Shot(request_id, time.perf_counter())
            await socket.send_str(text)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await app.all_acked.wait()
        return list(app.shots.values())

    def _app(self, name: str) -> _App:
        return self._apps.setdefault(name, _App())

    def _envelope(self, command: str) -> tuple[str, str, str]:
        number = next(self._numbers)
        payload = {
            "token": "bench",
            "team_id": TEAM,
            "team_domain": "bench",
            "channel_id": f"C{number:08}",  # one channel each: the bot is measured, not Slack's limit per channel
            "channel_name": "deals",
            "user_id": "U0REP",
            "user_name": "rep",
            "command": "/quote",
            "text": command.replace("{n}", str(number)),
            "api_app_id": "A0BENCH",
            "is_enterprise_install": "false",
            "response_url": f"{self.url}/hooks/commands/{TEAM}/{number}",
            "trigger_id": f"{number}.{number}.bench",
        }
        envelope_id = f"00000000-0000-4000-8000-{number:012}"
        envelope = {"envelope_id": envelope_id, "payload": payload, "type": "slash_commands", "accepts_response_payload": True}
        return envelope_id, f"{TEAM}:{number}.{number}.bench", json.dumps(envelope)

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        app, socket = self._app(request.match_info["name"]), web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        assert request.transport is not None  # noqa: S101 -- just connected
        request.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES)  # a large envelope at once
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0BENCH"}}))
        app.sockets.append(socket)
        try:
            async for frame in socket:
                if frame.type is WSMsgType.TEXT:
                    self._acked(app, frame.data, time.perf_counter())
        finally:
            app.sockets.remove(socket)
        return socket

    def _acked(self, app: _App, text: str, now: float) -> None:
        ack = json.loads(text)
        shot = app.shots.get(ack.get("envelope_id", ""))
        if shot is None or shot.acked_at is not None:
            return
        shot.acked_at, shot.text = now, (ack.get("payload") or {}).get("text", "")
        app.unacked -= 1
        if not app.unacked:
            app.all_acked.set()

    async def _take(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="ok")

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.calls[method] = self.calls.get(method, 0) + 1
        body = await (request.json() if request.content_type == "application/json" else request.post())
        if method == "apps.connections.open":
            name = request.headers["Authorization"].removeprefix("Bearer xapp-")
            return web.json_response({"ok": True, "url": f"{self.url.replace('http', 'ws', 1)}/link/{name}"})
        return web.json_response({"ok": True, **self._answer(method, str(body.get("channel", "C0DEALS")))})

    def _answer(self, method: str, channel_id: str) -> dict[str, Any]:
        stamp = f"1795297972.{next(self._stamps):06}"
        person = {"id": "U0REP", "team_id": TEAM, "name": "rep"}
        channel = {"id": channel_id, "name": "deals", "is_channel": True, "is_private": False, "is_ext_shared": False}
        answers: dict[str, dict[str, Any]] = {
            "auth.test": {"team_id": TEAM, "user_id": "U0BOT", "bot_id": "B0BOT", "user": "bot", "team": "bench", "url": self.url},
            "users.info": {"user": person},
            "conversations.info": {"channel": channel},
            "files.getUploadURLExternal": {"file_id": f"F{stamp}", "upload_url": f"{self.url}/upload/{stamp}"},
            "files.completeUploadExternal": {"files": [{"id": f"F{stamp}"}]},
        }
        return answers.get(method, {"channel": channel_id, "ts": stamp, "message_ts": stamp})
