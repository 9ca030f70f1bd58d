"""Menus whose options the app looks up while a person types (external_select): Slack requests them with block_suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.errors import GestureError, Json
from quotebot.sandbox.slack.payloads import Payloads

if TYPE_CHECKING:
    from quotebot.sandbox.slack.courier import Courier
    from quotebot.sandbox.slack.gestures import Gestures
    from quotebot.sandbox.slack.line import Ack
    from quotebot.sandbox.slack.workspace import Workspace

OPTIONS_MAX = 100
OPTION_TEXT_MAX = 75
OPTION_VALUE_MAX = 150
QUERY_LENGTH_MIN = 3  # Slack's minimum unless the element sets another
_LOOKED_UP = frozenset({"external_select", "multi_external_select"})


class Suggestions:
    """Requests options from the app, as Slack's client does at every pause in the typing."""

    def __init__(self, workspace: Workspace, gestures: Gestures, courier: Courier) -> None:
        self._gestures = gestures
        self._payloads = Payloads(workspace)
        self._courier = courier

    async def ask(self, user: str, place: Json, action_id: str, value: str) -> Json:
        """Return the content of the menu after `value` was typed; `place` names a view_id, or a channel and message_ts.

        Fewer characters than the menu's minimum are not sent. An answer that Slack cannot show counts as none: no options, an
        error.
        """
        where, found = self._gestures.element_at(user, place, action_id)
        if found.element["type"] not in _LOOKED_UP:
            raise GestureError(400, f"{action_id!r} is a {found.element['type']}: its options are its own")
        if len(value) < found.element.get("min_query_length", QUERY_LENGTH_MIN):
            return {"request_id": None, "ack": None, "ack_ms": None, "options": []}
        payload = self._payloads.suggestion(user, where, found, value)
        delivery, ack = await self._courier.send("interactive", payload, accepts_response=True, on_ack=_trouble)
        options = _options(ack.payload) if ack.error is None and ack.payload is not None else []
        return {"request_id": delivery.request_id, **ack.body(), "options": options}


def _trouble(ack: Ack) -> str | None:
    """Return the error of an answer, or None."""
    if ack.payload is None:
        return ack.error
    options = _options(ack.payload)
    if not {"options", "option_groups"} & ack.payload.keys():
        return "invalid_response: neither options nor option_groups"
    if len(options) > OPTIONS_MAX:
        return f"invalid_response: more than {OPTIONS_MAX} options"
    return next((words for option in options if (words := _wrong(option)) is not None), None)


def _options(answer: Json) -> list[Any]:
    groups = answer.get("option_groups")
    grouped = [group.get("options") for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    return [option for part in (answer.get("options"), *grouped) if isinstance(part, list) for option in part]


def _wrong(option: Any) -> str | None:
    if not isinstance(option, dict) or not isinstance(option.get("value"), str) or not isinstance(option.get("text"), dict):
        return "invalid_response: an option is a text object and a value"
    text = option["text"]
    if text.get("type") != "plain_text" or not 1 <= len(str(text.get("text", ""))) <= OPTION_TEXT_MAX:
        return f"invalid_response: an option's text is plain and has 1 to {OPTION_TEXT_MAX} characters"
    return (
        f"invalid_response: a value of more than {OPTION_VALUE_MAX} characters" if len(option["value"]) > OPTION_VALUE_MAX else None
    )
