"""The person behind a Slack request, and the access gate's decision about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from quotebot.domain.access import Refusal, Viewer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ADMISSION: Final = "admission"  # the key in a listener's context

Body = dict[str, Any]
Entry = Literal["command", "button", "form", "menu", "shortcut", "home", "mention", "direct_message"]
_INTERACTIVE: Final[Mapping[str, Entry]] = {
    "block_actions": "button",
    "view_submission": "form",
    "view_closed": "form",
    "block_suggestion": "menu",
    "message_action": "shortcut",
    "shortcut": "shortcut",
}


class TurnedAwayError(Exception):
    """A listener needs a viewer and the person is not admitted. The gate answers in the listener's place."""


@dataclass(frozen=True, slots=True)
class Approach:
    """One request of one person at one entry point."""

    user: str
    entry: Entry


class Learner(Protocol):
    """Interface of the access gate that an admission uses."""

    async def learned(self, user: str) -> Viewer | Refusal:
        """Return the gate's decision about a person; queries Slack if necessary."""
        ...

    async def near(self, viewer: Viewer, quote_ids: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of these quotes needs; queries Slack about channels if necessary."""
        ...


@dataclass(slots=True)
class Admission:
    """Gate decision about one request. `known` is None while this process does not know the person."""

    gate: Learner
    approach: Approach
    known: Viewer | Refusal | None

    async def viewer(self, quote_ids: Collection[str] = ()) -> Viewer:
        """Return the viewer of a read; queries Slack about an unknown person. Raises TurnedAwayError if the person is refused.

        Of quotes not in `quote_ids`, the viewer sees their own in full and the outline of all others.
        """
        if self.known is None:
            self.known = await self.gate.learned(self.approach.user)
        if isinstance(self.known, Refusal):
            raise TurnedAwayError(self.known.code)
        return await self.gate.near(self.known, quote_ids) if quote_ids else self.known


def approach_of(body: Body) -> Approach | None:
    """Return the person and the entry point of a request; None for an event that is not for the bot, e.g. talk in a channel."""
    if "command" in body:
        return Approach(body["user_id"], "command")
    gesture = _INTERACTIVE.get(str(body.get("type")))
    if gesture is not None:
        return Approach(body["user"]["id"], gesture)
    event = body.get("event") or {}
    entry, user = _entry(event), event.get("user")
    return Approach(user, entry) if entry is not None and isinstance(user, str) and not event.get("bot_id") else None


def _entry(event: Body) -> Entry | None:
    match event.get("type"):
        case "app_home_opened":
            return "home"
        case "app_mention":
            return "mention"
        case "message" if event.get("channel_type") == "im" and "subtype" not in event:
            return "direct_message"
    return None


async def viewer_of(context: Mapping[str, Any], *quote_ids: str | None) -> Viewer:
    """Return the viewer of a listener's request, with sight of these quotes; None ids are ignored. Raises TurnedAwayError."""
    admission: Admission = context[ADMISSION]
    return await admission.viewer([quote_id for quote_id in quote_ids if quote_id is not None])
