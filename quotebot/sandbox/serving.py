"""Adapter between aiohttp and the stand-ins: a request becomes a value, an answer becomes a response."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from aiohttp import web

from quotebot.sandbox.wire import Answer, Cut, Received, StandIn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


async def _sleep(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True


def serving(
    stand_in: StandIn, *, hold: Callable[[float], Awaitable[bool]] = _sleep, reset: bool = False
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a handler that answers with `stand_in`.

    `hold` waits for a delay and tells whether the request still needs an answer. A cut connection is closed; with `reset` the peer
    gets a TCP reset.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        target = request.raw_path
        url = f"{request.scheme}://{request.host}{target}" if target.startswith("/") else target
        received = Received(request.method, url, request.headers, await request.read())
        seconds = stand_in.delay(received)
        if seconds > 0 and not await hold(seconds):
            return cut(request, reset=reset)
        try:
            answer = stand_in.receive(received, waited=seconds > 0)
        except Cut:
            return cut(request, reset=reset)
        if answer.drip_seconds > 0:
            return await _dripped(request, answer, hold)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body or None)

    return handle


async def _dripped(request: web.Request, answer: Answer, hold: Callable[[float], Awaitable[bool]]) -> web.StreamResponse:
    """Send the answer byte by byte, until the client disconnects."""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    try:
        await response.prepare(request)
        for place in range(len(answer.body)):
            if not await hold(answer.drip_seconds):
                return cut(request, reset=False)
            await response.write(answer.body[place : place + 1])
        await response.write_eof()
    except ConnectionError:
        return cut(request, reset=False)
    return response


def cut(request: web.Request, *, reset: bool) -> web.Response:
    """Cut the connection, with `reset` by a TCP reset; the returned response is never sent."""
    transport = request.transport
    if transport is None:
        return web.Response()
    connection = transport.get_extra_info("socket") if reset else None
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
    return web.Response()
