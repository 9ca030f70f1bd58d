"""The arguments of a Web API call, from any place that Slack accepts: query, form, multipart or JSON body."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.errors import SlackError
from quotebot.sandbox.wire import Received, first_values, multipart

if TYPE_CHECKING:
    from collections.abc import Mapping


_VERBS_WITH_A_FORM = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Arguments:
    """Typed access to loosely typed arguments. `raw` is the request as the request log hashes it."""

    def __init__(self, values: Mapping[str, Any], token: str | None, raw: bytes) -> None:
        self._values = values
        self.token = token
        self.raw = raw

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """Return a text argument."""
        value = self._values.get(name)
        return default if value is None else str(value)

    def require(self, name: str) -> str:
        """Return a required text argument. Raises SlackError invalid_arguments."""
        value = self.text(name)
        if not value:
            raise SlackError("invalid_arguments", messages=[f"[ERROR] missing required field: {name}"])
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean argument."""
        return str(self._values.get(name)).lower() in ("1", "true")

    def number(self, name: str, default: int, maximum: int) -> int:
        """Return a whole number between 1 and `maximum`. Raises SlackError invalid_limit."""
        value = self._values.get(name)
        if value in (None, ""):
            return default
        try:
            number = int(str(value))
        except ValueError:
            raise SlackError("invalid_limit") from None
        if number < 1:
            raise SlackError("invalid_limit")
        return min(number, maximum)

    def structure(self, name: str, error: str) -> Any:
        """Return an object or array argument, parsed if it is given as JSON text. Raises SlackError with the code `error`."""
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise SlackError(error, messages=[f"[ERROR] invalid JSON [json-pointer:/{name}]"]) from None

    def names(self, name: str) -> list[str]:
        """Return a comma-separated argument as a list."""
        value = self._values.get(name)
        if isinstance(value, list):
            return [str(part) for part in value]
        return [part.strip() for part in self.text(name).split(",") if part.strip()]


def read_arguments(received: Received) -> Arguments:
    """Parse the arguments of a call. Raises SlackError invalid_json, invalid_form_data or json_not_object."""
    values: dict[str, Any] = received.query if received.query_text else {}
    raw = received.query_text.encode()
    kind = received.content_type
    if kind == "application/json":
        raw = received.body
        values |= _json_object(raw)
    elif kind == "application/x-www-form-urlencoded":
        raw = received.body or raw
        if received.verb in _VERBS_WITH_A_FORM:
            values |= first_values(received.body.decode("utf-8", "replace").rstrip())
    elif kind == "multipart/form-data":
        values |= _form_texts(received)
        raw = json.dumps(values, sort_keys=True).encode()
    scheme, _, bearer = received.header("Authorization").partition(" ")
    token = bearer.strip() if scheme.lower() == "bearer" else values.get("token")
    return Arguments(values, token or None, raw)


def _form_texts(received: Received) -> dict[str, str]:
    try:
        parts = multipart(received.header("Content-Type"), received.body)
        return {part.name: part.text() for part in parts if part.filename is None and part.content_type.startswith("text/")}
    except ValueError:
        raise SlackError("invalid_form_data") from None


def _json_object(raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        return {}
    try:
        parsed = json.loads(raw)
    except ValueError:
        raise SlackError("invalid_json") from None
    if not isinstance(parsed, dict):
        raise SlackError("json_not_object")
    return parsed
