"""Basic parts of every card and form, as Block Kit JSON. This module does not depend on quotes."""

from __future__ import annotations

from typing import Any, Literal

Json = dict[str, Any]


def plain(text: str) -> Json:
    """Return a plain_text object. Slack shows it literally, entities included, so `<` and `>` become similar characters instead."""
    return {"type": "plain_text", "text": text.replace("<", "\u2039").replace(">", "\u203a"), "emoji": True}


def mrkdwn(text: str) -> Json:
    """Return a mrkdwn object of escaped text. It is verbatim, so that Slack does not turn typed names into mentions or links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def section(text: str) -> Json:
    """Return one paragraph of escaped mrkdwn."""
    return {"type": "section", "text": mrkdwn(text)}


def context(lines: list[str]) -> Json:
    """Return small grey lines of escaped mrkdwn, at most ten."""
    return {"type": "context", "elements": [mrkdwn(line) for line in lines]}


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
        "close": plain("Cancel"),
        "blocks": blocks,
    }
