"""JSON requests and responses of the control API: a body with typed access, and handlers that report what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from quotebot.sandbox.slack.errors import GestureError, Json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_MISSING = object()


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

    def text(self, name: str, default: Any = _MISSING) -> str:
        """Return a text field."""
        value = self._take(name, default, str, "a string")
        return str(value)

    def optional_text(self, name: str) -> str | None:
        """Return a text field or None."""
        value = self._take(name, None, str, "a string")
        return None if value is None else str(value)

    def number(self, name: str, default: Any = _MISSING) -> float:
        """Return a number."""
        return float(self._take(name, default, (int, float), "a number"))

    def optional_number(self, name: str) -> float | None:
        """Return a number or None."""
        value = self._take(name, None, (int, float), "a number")
        return None if value is None else float(value)

    def optional_count(self, name: str) -> int | None:
        """Return a whole number of at least 0, or None."""
        value = self._take(name, None, int, "a whole number")
        if value is not None and value < 0:
            raise GestureError(400, f"field {name!r} must not be negative")
        return None if value is None else int(value)

    def flag(self, name: str) -> bool:
        """Return a boolean, false when absent."""
        return bool(self._take(name, False, bool, "true or false"))  # noqa: FBT003 -- the default of a JSON field

    def optional_flag(self, name: str) -> bool | None:
        """Return a boolean or None."""
        value = self._take(name, None, bool, "true or false")
        return None if value is None else bool(value)

    def optional_texts(self, name: str) -> list[str] | None:
        """Return a list of texts or None."""
        value = self._take(name, None, list, "a list of strings")
        if value is not None and not all(isinstance(each, str) for each in value):
            raise GestureError(400, f"field {name!r} must be a list of strings")
        return value if value is None else list(value)

    def mapping(self, name: str) -> Json:
        """Return an object, empty when absent."""
        value: Json = self._take(name, {}, dict, "an object")
        return value

    def anything(self, name: str) -> Any:
        """Return a field of any type, None when absent."""
        return self._values.get(name)

    def _take(self, name: str, default: Any, kind: type | tuple[type, ...], described: str) -> Any:
        value = self._values.get(name)
        if value is None:
            if default is _MISSING:
                raise GestureError(400, f"field {name!r} is missing: {described}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise GestureError(400, f"field {name!r} must be {described}, not {json.dumps(value)}")
        return value


def posted(work: Callable[[Body], Awaitable[Json]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that passes the parsed body to `work`; a GestureError becomes a response with its status and reason."""

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await Body.read(request)
            return web.json_response(await work(body))
        except GestureError as error:
            return web.json_response({"error": str(error)}, status=error.status)

    return handle


def answered(work: Callable[[web.Request], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that responds with the result of `work` as JSON."""

    async def handle(request: web.Request) -> web.Response:
        try:
            answer = await work(request)
        except GestureError as error:
            return web.json_response({"error": str(error)}, status=error.status)
        return web.json_response(answer)

    return handle
