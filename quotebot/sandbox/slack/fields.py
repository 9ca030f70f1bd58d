"""Checks that Slack's own client makes in a form before it sends it: too short, too long, not a number, not an address."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quotebot.sandbox.slack.elements import is_empty

if TYPE_CHECKING:
    from quotebot.sandbox.slack.elements import Found
    from quotebot.sandbox.slack.errors import Json

REQUIRED = "Please complete this required field."
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
_TOO_MANY = "Please choose at most {0}."


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
        return _TOO_MANY.format(most)
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
