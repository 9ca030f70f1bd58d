"""Interactive elements: their places, their state in a form, the payload of a click.

Slack's own client checks a form before it sends it: too short, too long, not a number, not an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from quotebot.sandbox.slack.errors import GestureError, Json

TEXT_INPUTS = frozenset({"plain_text_input", "email_text_input", "url_text_input", "number_input"})
ONE_OF = frozenset({"static_select", "external_select", "radio_buttons"})
MANY_OF = frozenset({"multi_static_select", "multi_external_select", "checkboxes"})
# element type -> (key of its value, key of its initial value)
DIRECT = {
    "users_select": ("selected_user", "initial_user"),
    "multi_users_select": ("selected_users", "initial_users"),
    "conversations_select": ("selected_conversation", "initial_conversation"),
    "multi_conversations_select": ("selected_conversations", "initial_conversations"),
    "channels_select": ("selected_channel", "initial_channel"),
    "multi_channels_select": ("selected_channels", "initial_channels"),
    "datepicker": ("selected_date", "initial_date"),
    "timepicker": ("selected_time", "initial_time"),
    "datetimepicker": ("selected_date_time", "initial_date_time"),
    "rich_text_input": ("rich_text_value", "initial_value"),
    "file_input": ("files", "initial_files"),
}
STATELESS = frozenset({"button", "overflow", "workflow_button", "icon_button", "feedback_buttons"})
REQUIRED = "Please complete this required field."
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
INTERACTIVE = TEXT_INPUTS | ONE_OF | MANY_OF | DIRECT.keys() | STATELESS


@dataclass(frozen=True, slots=True)
class Found:
    """An interactive element and its block."""

    block_id: str
    element: Json
    is_input: bool
    optional: bool = False

    @property
    def action_id(self) -> str:
        """Return its action_id."""
        return str(self.element["action_id"])


def interactive_parts(block: Json) -> list[Json]:
    """Return the interactive elements of one block, in order."""
    candidates = [block.get("accessory"), block.get("element")]
    elements = block.get("elements")
    if block.get("type") in ("actions", "context_actions") and isinstance(elements, list):
        candidates += elements
    return [part for part in candidates if isinstance(part, dict) and part.get("type") in INTERACTIVE]


def find_all(blocks: list[Json]) -> list[Found]:
    """Return every interactive element of a message or view, whose ids must be filled in."""
    return [
        Found(
            block_id=str(block["block_id"]),
            element=element,
            is_input=block.get("type") == "input",
            optional=bool(block.get("optional", False)),
        )
        for block in blocks
        for element in interactive_parts(block)
    ]


def options_of(element: Json) -> list[Json]:
    """Return the options of a select, groups flattened."""
    grouped = [option for group in element.get("option_groups") or [] for option in group.get("options", [])]
    return [*(element.get("options") or []), *grouped]


def initial_state(blocks: list[Json]) -> dict[str, Json]:
    """Return state.values of an untouched form."""
    state: dict[str, Json] = {}
    for found in find_all(blocks):
        if found.element["type"] not in STATELESS:
            state.setdefault(found.block_id, {})[found.action_id] = _initial(found.element)
    return state


def _initial(element: Json) -> Json:
    kind = element["type"]
    if kind in TEXT_INPUTS:
        return {"type": kind, "value": element.get("initial_value")}
    if kind in ONE_OF:
        return {"type": kind, "selected_option": element.get("initial_option")}
    if kind in MANY_OF:
        return {"type": kind, "selected_options": element.get("initial_options") or []}
    value_key, initial_key = DIRECT[kind]
    return {"type": kind, value_key: element.get(initial_key)}


def state_object(element: Json, value: Any) -> Json:
    """Convert a plain value (or a ready state object) to this element's entry in state.values.

    Raises GestureError 404 if a select has no such option.
    """
    kind = element["type"]
    if isinstance(value, dict) and kind != "rich_text_input":
        return {"type": kind, **value}
    if kind in TEXT_INPUTS:
        return {"type": kind, "value": None if value in (None, "") else str(value)}
    if kind in ONE_OF or kind == "overflow":
        return {"type": kind, "selected_option": None if value in (None, "") else _option(element, value)}
    if kind in MANY_OF:
        chosen = value if isinstance(value, list) else [value]
        return {"type": kind, "selected_options": [_option(element, one) for one in chosen if one not in (None, "")]}
    if kind in DIRECT:
        return {"type": kind, DIRECT[kind][0]: value or None}
    return {"type": kind, "value": value}


def _option(element: Json, value: Any) -> Json:
    if isinstance(value, dict):
        return value
    if element["type"] in ("external_select", "multi_external_select"):
        return {"text": {"type": "plain_text", "text": str(value), "emoji": True}, "value": str(value)}
    options = options_of(element)
    by_value = [option for option in options if option.get("value") == value]
    matching = by_value or [option for option in options if option.get("text", {}).get("text") == value]
    if matching:
        return matching[0]
    known = ", ".join(repr(option.get("value")) for option in options)
    raise GestureError(404, f"{element['action_id']!r} has no option {value!r}; it has: {known}")


def is_empty(state: Json) -> bool:
    """Tell whether a state object is empty, which a required input refuses."""
    return all(value in (None, "", []) for key, value in state.items() if key != "type")


def action_of(found: Found, value: Any, action_ts: str) -> Json:
    """Return the entry of payload.actions for a click or a choice. Raises GestureError 404 if a select has no such option."""
    element = found.element
    action: Json = {"type": element["type"], "action_id": found.action_id, "block_id": found.block_id, "action_ts": action_ts}
    if element["type"] in ("button", "icon_button", "workflow_button"):
        sent = element.get("value") if value is None else value
        if "text" in element:
            action["text"] = element["text"]
        if sent is not None:
            action["value"] = sent
        for key in ("style", "confirm", "url"):
            if key in element:
                action[key] = element[key]
        return action
    return {**action, **state_object(element, value)}


def refusals(fields: list[Found], state: dict[str, Json]) -> dict[str, str]:
    """Return the errors of a filled-in form: {block_id: message}."""
    found = {field.block_id: complaint(field, state[field.block_id][field.action_id]) for field in fields if field.is_input}
    return {block_id: words for block_id, words in found.items() if words is not None}


def complaint(field: Found, held: Json) -> str | None:
    """Return the error of one field, or None; `held` is its state object."""
    if is_empty(held):
        return None if field.optional else REQUIRED
    element = field.element
    most = element.get("max_selected_items")
    if most is not None and any(isinstance(value, list) and len(value) > most for value in held.values()):
        return f"Please choose at most {most}."
    text = held.get("value")
    return _typed(element, text) if isinstance(text, str) else None


def _typed(element: Json, text: str) -> str | None:
    match element["type"]:
        case "number_input":
            return _number(element, text)
        case "email_text_input":
            return None if _EMAIL.fullmatch(text.strip()) else "Please enter a valid email address."
        case "url_text_input":
            parts = urlsplit(text.strip())
            return None if parts.scheme in ("http", "https") and parts.netloc else "Please enter a valid URL, with https://."
    return _length(element, text)


def _length(element: Json, text: str) -> str | None:
    least, most = element.get("min_length", 0), element.get("max_length")
    if len(text) < least:
        return f"Please use at least {least} characters."
    if most is not None and len(text) > most:
        return f"Please use at most {most} characters."
    return None


def _number(element: Json, text: str) -> str | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return "Please enter a number."
    if not number.is_finite():
        return "Please enter a number."
    if not element.get("is_decimal_allowed", False) and number != number.to_integral_value():
        return "Please enter a whole number."
    least, most = element.get("min_value"), element.get("max_value")
    if least is not None and number < Decimal(least):
        return f"Please enter {least} or more."
    if most is not None and number > Decimal(most):
        return f"Please enter {most} or less."
    return None
