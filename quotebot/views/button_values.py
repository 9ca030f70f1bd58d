"""What buttons, menus and forms carry: versioned, compact JSON, read back without trust. Another version reads as None."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from quotebot.domain.quotes.quote import parse_quote_id

BUTTON_SCHEMA: Final = 1
BUTTON_CHARACTERS_MAX: Final = 2_000
MENU_CHARACTERS_MAX: Final = 150  # of one entry


@dataclass(frozen=True, slots=True)
class ButtonValue:
    """What a button was about when it was drawn: the version is the one the person saw."""

    quote_id: str
    version: int
    approval_id: str | None


def value_text(value: ButtonValue) -> str:
    """Return what a button carries, as text; `parse_button_value` reads it."""
    return written({"q": value.quote_id, "n": value.version, "a": value.approval_id})


def parse_button_value(text: str) -> ButtonValue | None:
    """Return what a button carried, or None when it is not a value this build wrote."""
    return _button_value(read(text, {"q", "n", "a"}))


def menu_text(deed: str, value: ButtonValue) -> str:
    """Return what an entry of a card's menu carries: what to do, and about what. It names no approval: an entry decides nothing."""
    return written({"d": deed, "q": value.quote_id, "n": value.version})


def parse_menu_value(text: str) -> tuple[str, ButtonValue] | None:
    """Return what a menu's entry asked for and about what, or None when it is not a value this build wrote."""
    fields = read(text, {"d", "q", "n"})
    value = None if fields is None else _button_value({**fields, "a": None})
    if fields is None or value is None or not isinstance(fields["d"], str):
        return None
    return fields["d"], value


def written(fields: dict[str, Any]) -> str:
    """Return the fields as text, with the schema's version first."""
    return json.dumps({"v": BUTTON_SCHEMA, **fields}, separators=(",", ":"))


def read(text: str, names: set[str]) -> dict[str, Any] | None:
    """Return the fields of what `written` wrote, or None when the version or the names are others."""
    if len(text) > BUTTON_CHARACTERS_MAX:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != names | {"v"}:
        return None
    return value if type(value["v"]) is int and value["v"] == BUTTON_SCHEMA else None


def named_version(quote_id: object, version: object) -> tuple[str, int] | None:
    """Return a quote's number and version as read from a value, or None when they are none."""
    numbered = type(version) is int and version >= 1
    named = isinstance(quote_id, str) and parse_quote_id(quote_id) == quote_id
    return (str(quote_id), int(str(version))) if numbered and named else None


def _button_value(fields: dict[str, Any] | None) -> ButtonValue | None:
    if fields is None:
        return None
    about, approval_id = named_version(fields["q"], fields["n"]), fields["a"]
    if about is None or not (approval_id is None or isinstance(approval_id, str)):
        return None
    return ButtonValue(*about, approval_id)
