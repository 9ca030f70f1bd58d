"""Basic parts of every card and form, as Block Kit JSON, and the values of buttons, menus and forms.

A value is versioned, compact JSON, validated when it is read. A value of another version reads as None.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from quotebot.domain.language import _
from quotebot.domain.quotes.quote import parse_quote_id, plain_times

Json = dict[str, Any]
_LINK: Final = re.compile(r"https?://[^\s<>|]{1,500}")  # contains no character that would end a Slack link early


def plain(text: str) -> Json:
    """Return a plain_text object. Slack shows it literally, entities included, so `<` and `>` become similar characters instead."""
    return {"type": "plain_text", "text": plain_times(text).replace("<", "\u2039").replace(">", "\u203a"), "emoji": True}


def mrkdwn(text: str) -> Json:
    """Return a mrkdwn object of escaped text. It is verbatim, so that Slack does not turn typed names into mentions or links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def section(text: str) -> Json:
    """Return one paragraph of escaped mrkdwn."""
    return {"type": "section", "text": mrkdwn(text)}


def context(lines: list[str]) -> Json:
    """Return small grey lines of escaped mrkdwn, at most ten."""
    return {"type": "context", "elements": [mrkdwn(line) for line in lines]}


def linked(text: str, link: str | None) -> str:
    """Return the text as a Slack link, or unchanged if `link` is None or cannot be written as one."""
    return text if link is None or not _LINK.fullmatch(link) else f"<{link}|{text}>"


def button(action_id: str, label: str, value: str, *, style: Literal["primary", "danger"] | None = None) -> Json:
    """Return a button that carries `value`."""
    made = {"type": "button", "action_id": action_id, "text": plain(label), "value": value}
    return made if style is None else {**made, "style": style}


def confirm(title: str, text: str, yes: str, no: str) -> Json:
    """Return the dialog that Slack shows before it sends a click."""
    return {"title": plain(title), "text": plain(text), "confirm": plain(yes), "deny": plain(no)}


def option(label: str, value: str) -> Json:
    """Return one entry of a menu or a select."""
    return {"text": plain(label), "value": value}


def text_input(
    block_id: str,
    label: str,
    *,
    length_max: int,
    initial: str | None = None,
    hint: str | None = None,
    example: str | None = None,
    multiline: bool = False,
    optional: bool = False,
) -> Json:
    """Return a text input; its block_id and action_id are the same."""
    element: Json = {"type": "plain_text_input", "action_id": block_id, "multiline": multiline, "max_length": length_max}
    if not optional:
        element["min_length"] = 1
    if initial:
        element["initial_value"] = initial[:length_max]
    if example is not None:
        element["placeholder"] = plain(example)
    block: Json = {"type": "input", "block_id": block_id, "label": plain(label), "optional": optional, "element": element}
    return block if hint is None else {**block, "hint": plain(hint)}


def modal(callback_id: str, title: str, submit: str, private_metadata: str, blocks: list[Json]) -> Json:
    """Return a form; `title` and `submit` have at most 24 characters."""
    return {
        "type": "modal",
        "callback_id": callback_id,
        "private_metadata": private_metadata,
        "title": plain(title),
        "submit": plain(submit),
        "close": plain(_("Cancel")),
        "blocks": blocks,
    }


BUTTON_SCHEMA: Final = 1
BUTTON_CHARACTERS_MAX: Final = 2_000
SEAL_CHARACTERS: Final = 21  # added to a value in an ephemeral reply or a view
VALUE_CHARACTERS_MAX: Final = BUTTON_CHARACTERS_MAX - SEAL_CHARACTERS  # of a value that may be sealed


@dataclass(frozen=True, slots=True)
class ButtonValue:
    """Subject of a button when it was drawn; `version` is the version that the user saw."""

    quote_id: str
    version: int
    approval_id: str | None


def value_text(value: ButtonValue) -> str:
    """Return a button's value as text; `parse_button_value` reads it."""
    return written({"q": value.quote_id, "n": value.version, "a": value.approval_id})


def parse_button_value(text: str) -> ButtonValue | None:
    """Return the value of a button, or None if this build did not write it."""
    return _button_value(read(text, {"q", "n", "a"}))


def menu_text(deed: str, value: ButtonValue) -> str:
    """Return the value of a card's menu entry: its action and subject. It names no approval, because no entry decides one."""
    return written({"d": deed, "q": value.quote_id, "n": value.version})


def parse_menu_value(text: str) -> tuple[str, ButtonValue] | None:
    """Return the action and the subject of a menu entry, or None if this build did not write its value."""
    fields = read(text, {"d", "q", "n"})
    value = None if fields is None else _button_value({**fields, "a": None})
    if fields is None or value is None or not isinstance(fields["d"], str):
        return None
    return fields["d"], value


def written(fields: dict[str, Any]) -> str:
    """Return the fields as compact JSON, with the schema version first."""
    return json.dumps({"v": BUTTON_SCHEMA, **fields}, separators=(",", ":"))


def read(text: str, names: set[str]) -> dict[str, Any] | None:
    """Return the fields of a text that `written` wrote, or None if its schema version or field names differ."""
    value = read_any(text)
    return value if value is not None and set(value) == names | {"v"} else None


def read_any(text: str) -> dict[str, Any] | None:
    """Return the fields of a text that `written` wrote, whatever their names; None for every other text."""
    if len(text) > BUTTON_CHARACTERS_MAX:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and type(value.get("v")) is int and value["v"] == BUTTON_SCHEMA else None


def named_version(quote_id: object, version: object) -> tuple[str, int] | None:
    """Return the quote id and version that a value holds, or None if either is invalid."""
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
