"""How an armed fault shows on an HTTP request: one place for the Web API, uploads and response URLs."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.slack.errors import Json
    from quotebot.sandbox.weather import Weather
    from quotebot.sandbox.witness import Witness

HTTP_EFFECTS = frozenset({"429", "5xx", "slow", "reset_before", "reset_after", "malformed", "auth_expired"})


@dataclass(frozen=True, slots=True)
class Served:
    """What serving a request came to. `status` is 200 or an error code, as the witness keeps it."""

    response: web.Response
    applied: bool
    status: int | str
    key: str | None


class Outages:
    """Serve a request under the weather and let the witness see it."""

    def __init__(self, weather: Weather, witness: Witness) -> None:
        self._weather = weather
        self._witness = witness

    async def serve(
        self, request: web.Request, method: str, raw: bytes, key: Callable[[], str | None], apply: Callable[[], Served]
    ) -> web.Response:
        """Apply the request unless a fault comes first; `key` names it when it is refused before it was applied."""
        fault = self._weather.take("slack", method, only=HTTP_EFFECTS)
        effect = fault.effect if fault is not None else ""
        if fault is not None and effect == "slow":
            await asyncio.sleep(fault.delay)
        refusal = _refusal(effect, fault.retry_after if fault is not None else None)
        if refusal is not None:
            response, status = refusal
            self._witness.record("slack", method, key=key(), applied=False, status=status, request=raw)
            return response
        if effect == "reset_before":
            self._witness.record("slack", method, key=key(), applied=False, status=None, request=raw)
            return cut(request)
        served = apply()
        seen = None if effect == "reset_after" else served.status
        self._witness.record("slack", method, key=served.key, applied=served.applied, status=seen, request=raw)
        if effect == "reset_after":
            return cut(request)
        if effect == "malformed":
            return web.Response(text='{"ok": tr', content_type="application/json")
        return served.response


def json_response(body: Json, status: int = 200) -> web.Response:
    """Answer JSON the way Slack does."""
    return web.Response(text=json.dumps(body), status=status, content_type="application/json", charset="utf-8")


def cut(request: web.Request) -> web.Response:
    """Reset the TCP connection; the returned response never reaches anybody."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()


def _refusal(effect: str, retry_after: int | None) -> tuple[web.Response, int | str] | None:
    if effect == "429":
        response = json_response({"ok": False, "error": "ratelimited"}, status=429)
        response.headers["Retry-After"] = str(1 if retry_after is None else retry_after)
        return response, 429
    if effect == "5xx":
        return web.Response(text="upstream connect error", status=503), 503
    if effect == "auth_expired":
        return json_response({"ok": False, "error": "invalid_auth"}), "invalid_auth"
    return None
