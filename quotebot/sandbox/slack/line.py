"""The line to the bot: how an envelope reaches it and what comes back. Socket Mode is the usual one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quotebot.sandbox.slack.errors import Json


@dataclass(frozen=True, slots=True)
class Ack:
    """What came back for one envelope. `payload` is None without an ack, {} for a bare one; `error` is Slack's word for no ack."""

    payload: Json | None
    milliseconds: float | None
    error: str | None = None

    def body(self) -> Json:
        """Return it as the control API shows it."""
        body: Json = {"ack": self.payload, "ack_ms": self.milliseconds}
        return body if self.error is None else {**body, "error": self.error}


class Line(Protocol):
    """Whoever carries envelopes to the bot."""

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        """Hand over one envelope (JSON text) and wait for its ack; `kind` is slash_commands, interactive or events_api.

        Without an ack the Ack carries Slack's word for it: dispatch_failed (nobody there) or operation_timeout (no ack in time).
        """
        ...
