"""Adapters between aiohttp and the local world: requests become values, answers become responses.

`serving` carries a stand-in. `posted` and `answered` carry the control API: JSON bodies with typed access, and answers that report
what is wrong with a body.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from quotebot.sandbox.slack.errors import GestureError, Json
from quotebot.sandbox.wire import Answer, Cut, Received, StandIn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
T = TypeVar("T")
_DESCRIBED: dict[type, str] = {
    str: "a string",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    dict: "an object",
    list: "a list of strings",
}


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


class Body:
    """A JSON request body with typed access; a missing field or a wrong type raises a GestureError 400 that names it."""

    def __init__(self, values: Json) -> None:
        self._values = values

    @classmethod
    async def read(cls, request: web.Request) -> Body:
        """Parse the body of a request."""
        try:
            parsed = json.loads(await request.read() or b"{}")
        except ValueError as error:
            raise GestureError(400, f"the body is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise GestureError(400, "the body must be a JSON object")
        return cls(parsed)

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return a field, None when it is absent; `kind` is str, float for any number, int, bool, dict or list."""
        value: Any = self._values.get(name)
        if value is None:
            return None
        fits = isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        if not fits:
            raise GestureError(400, f"field {name!r} must be {_DESCRIBED[kind]}, not {json.dumps(value)}")
        return float(value) if kind is float else value  # type: ignore[return-value] # checked above

    def required(self, name: str, kind: type[T]) -> T:
        """Return a field that must be there."""
        value = self.optional(name, kind)
        if value is None:
            raise GestureError(400, f"field {name!r} is missing: {_DESCRIBED[kind]}")
        return value

    def text(self, name: str) -> str:
        """Return a text field that must be there."""
        return self.required(name, str)

    def count(self, name: str) -> int | None:
        """Return a whole number of at least 0, or None."""
        value = self.optional(name, int)
        if value is not None and value < 0:
            raise GestureError(400, f"field {name!r} must not be negative")
        return value

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts or None."""
        value = self.optional(name, list)
        if value is not None and not all(isinstance(each, str) for each in value):
            raise GestureError(400, f"field {name!r} must be a list of strings")
        return value

    def anything(self, name: str) -> Any:
        """Return a field of any type, None when absent."""
        return self._values.get(name)


def posted(work: Callable[[Body], Awaitable[Json]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that passes the parsed body to `work` and responds with its result as JSON."""

    async def read(request: web.Request) -> Json:
        return await work(await Body.read(request))

    return answered(read)


def answered(work: Callable[[web.Request], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that responds with the result of `work` as JSON, or with the status and reason of a GestureError."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return web.json_response(await work(request))
        except GestureError as error:
            return web.json_response({"error": str(error)}, status=error.status)

    return handle
