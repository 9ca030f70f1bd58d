"""The line to the bot: it carries an envelope to the bot and returns the ack. Socket Mode is the usual one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quotebot.sandbox.slack.errors import Json


@dataclass(frozen=True, slots=True)
class Ack:
    """Response to one envelope. `payload` is None without an ack, {} for a bare one; `error` is Slack's code for a missing ack."""

    payload: Json | None
    milliseconds: float | None
    error: str | None = None

    def body(self) -> Json:
        """Return the ack in the control API's format."""
        body: Json = {"ack": self.payload, "ack_ms": self.milliseconds}
        return body if self.error is None else {**body, "error": self.error}


class Line(Protocol):
    """Transport of envelopes to the bot."""

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Send one envelope (JSON text) and wait for its ack; `kind` is slash_commands, interactive or events_api.

        Without an ack the Ack contains Slack's error: dispatch_failed (no connection) or operation_timeout (no ack in time).
        """
        ...
