"""Short-lived permissions that Slack issues: triggers, response URLs, socket tickets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quotebot.sandbox.slack.directory import TEAM_ID
from quotebot.sandbox.slack.errors import SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.chance import Tokens, VirtualClock

TRIGGER_SECONDS = 3.0
RESPONSE_URL_SECONDS = 30 * 60.0
RESPONSE_URL_USES = 5
TICKET_SECONDS = 60.0


@dataclass(slots=True)
class Trigger:
    """The right to open one view for `user`."""

    user: str
    issued_at: float
    used: bool = False


@dataclass(slots=True)
class ResponseUrl:
    """The right to answer one gesture five times. `message_ts` is the message clicked, or the first answer to a slash command."""

    id: str
    kind: Literal["commands", "actions"]
    user: str
    channel: str
    issued_at: float
    message_ts: str | None = None
    uses: int = 0

    @property
    def path(self) -> str:
        """Return the path of the URL; the last part is the secret."""
        return f"/hooks/{self.kind}/{TEAM_ID}/{self.id}"


class Passes:
    """Issues and redeems permissions, by the world's clock."""

    def __init__(self, clock: VirtualClock, tokens: Tokens) -> None:
        self._clock = clock
        self._random = tokens
        self._triggers: dict[str, Trigger] = {}
        self._response_urls: dict[str, ResponseUrl] = {}
        self._tickets: dict[str, tuple[str, float]] = {}

    def trigger(self, user: str) -> str:
        """Issue a trigger_id."""
        now = self._clock.now()
        trigger_id = f"{int(now * 1000)}.{self._random.below(10**10)}.{self._random.hex(16)}"
        self._triggers[trigger_id] = Trigger(user, now)
        return trigger_id

    def redeem_trigger(self, trigger_id: str) -> str:
        """Return the user a trigger was issued to, once, within 3 s.

        Raises SlackError invalid_trigger_id, expired_trigger_id or exchanged_trigger_id.
        """
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if trigger.used:
            raise SlackError("exchanged_trigger_id")
        if self._clock.now() - trigger.issued_at > TRIGGER_SECONDS:
            raise SlackError("expired_trigger_id")
        trigger.used = True
        return trigger.user

    def response_url(self, kind: Literal["commands", "actions"], user: str, channel: str, message_ts: str | None) -> ResponseUrl:
        """Issue a response_url."""
        hook = ResponseUrl(
            id=f"{self._random.object_id('')}/{self._random.hex(12)}",
            kind=kind,
            user=user,
            channel=channel,
            issued_at=self._clock.now(),
            message_ts=message_ts,
        )
        self._response_urls[hook.path] = hook
        return hook

    def redeem_response_url(self, path: str) -> ResponseUrl:
        """Return the response URL if it is still valid; the caller counts the use.

        Raises SlackError no_hook, expired_url or used_url.
        """
        hook = self._response_urls.get(path)
        if hook is None:
            raise SlackError("no_hook")
        if self._clock.now() - hook.issued_at > RESPONSE_URL_SECONDS:
            raise SlackError("expired_url")
        if hook.uses >= RESPONSE_URL_USES:
            raise SlackError("used_url")
        return hook

    def ticket(self, app_token: str) -> str:
        """Issue a socket ticket to the holder of an app-level token."""
        ticket = self._random.hex(16)
        self._tickets[ticket] = (app_token, self._clock.now())
        return ticket

    def redeem_ticket(self, ticket: str) -> str | None:
        """Return the token that a socket ticket was issued to, or None; the ticket is valid once, for a minute."""
        app_token, issued_at = self._tickets.pop(ticket, ("", -math.inf))
        return app_token if self._clock.now() - issued_at <= TICKET_SECONDS else None
