"""JSON requests and responses of the control API: a body with typed access, and handlers that report what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from quotebot.sandbox.slack.errors import GestureError, Json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
_DESCRIBED: dict[type, str] = {
    str: "a string",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    dict: "an object",
    list: "a list of strings",
}


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
