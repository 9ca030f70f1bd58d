"""Refusals of the workspace: Slack's own error codes, in Slack's own format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]


class SlackError(Exception):
    """One refusal. `code` is Slack's error code, `messages` go to response_metadata.messages."""

    def __init__(self, code: str, *, messages: Sequence[str] = (), **extra: object) -> None:
        super().__init__(f"{code}: {'; '.join(messages)}" if messages else code)
        self.code = code
        self.messages = list(messages)
        self.extra = extra

    def body(self) -> Json:
        """Return the JSON answer, in Slack's format."""
        body: Json = {"ok": False, "error": self.code, **self.extra}
        if self.messages:
            body["response_metadata"] = {"messages": self.messages}
        return body


class GestureError(Exception):
    """A person's gesture that cannot be made (no such button, no such view). `status` is the HTTP status of the control API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
