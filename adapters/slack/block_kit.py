"""Validation of messages and views before sending: every limit of Block Kit for the elements this app uses.

Content that Slack would refuse is refused here without a request, and the problem names the place. The texts themselves are
never repeated: they may name customers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]

MESSAGE_BLOCKS_MAX: Final = 50
VIEW_BLOCKS_MAX: Final = 100
VIEW_BYTES_MAX: Final = 250_000
MESSAGE_TEXT_MAX: Final = 4_000  # chat.update refuses more
MARKDOWN_MAX: Final = 12_000  # of all markdown blocks together
OPTION_VALUE_MAX: Final = 150
BLOCKS: Final = frozenset({"header", "section", "context", "actions", "divider", "input", "image", "markdown"})  # used by this app
ELEMENTS: Final = frozenset(
    {
        "button",
        "overflow",
        "static_select",
        "external_select",
        "multi_static_select",
        "datepicker",
        "conversations_select",
        "users_select",
        "plain_text_input",
        "checkboxes",
        "radio_buttons",
    }
)
PLAIN_ONLY: Final = frozenset({"title", "submit", "close", "label", "hint", "placeholder", "confirm", "deny", "description"})

# place of a text -> its maximum length
TEXTS: Final = {
    ("header", "text"): 150,
    ("section", "text"): 3_000,
    ("section", "fields"): 2_000,
    ("context", "elements"): 3_000,
    ("input", "label"): 2_000,
    ("input", "hint"): 2_000,
    ("button", "text"): 75,
    ("option", "text"): 75,
    ("option", "description"): 75,
    ("group", "label"): 75,
    ("confirm", "title"): 100,
    ("confirm", "text"): 300,
    ("confirm", "confirm"): 30,
    ("confirm", "deny"): 30,
    ("element", "placeholder"): 150,
    ("view", "title"): 24,
    ("view", "submit"): 24,
    ("view", "close"): 24,
}
_REQUIRED: Final = frozenset({("header", "text"), ("input", "label")})
STRINGS: Final = {"value": 2_000, "url": 3_000, "action_id": 255, "block_id": 255, "alt_text": 2_000, "image_url": 3_000}


def message_problems(text: str, blocks: list[Json]) -> list[str]:
    """Return every problem for which Slack would refuse a message; empty without problems."""
    return list(_message_problems(text, blocks))


def view_problems(view: Json) -> list[str]:
    """Return every problem for which Slack would refuse a modal or an App Home; empty without problems."""
    return list(_view_problems(view))


def _message_problems(text: str, blocks: list[Json]) -> Iterator[str]:
    if not text:
        yield "a message without text: nothing for notifications and screen readers"
    if len(text) > MESSAGE_TEXT_MAX:
        yield f"text over {MESSAGE_TEXT_MAX}"
    if any(block.get("type") == "input" for block in blocks):
        yield "an input block in a message"
    yield from _blocks_problems(blocks, MESSAGE_BLOCKS_MAX)


def _view_problems(view: Json) -> Iterator[str]:
    kind = view.get("type")
    if kind not in ("modal", "home"):
        yield f"no such view: {kind}"
    for name in ("title", "submit", "close"):
        if name in view:
            yield from _text_problems(view[name], "view", name)
    if kind == "modal" and not view.get("title"):
        yield "a modal without a title"
    if kind == "modal" and any(block.get("type") == "input" for block in view["blocks"]) and not view.get("submit"):
        yield "a modal with an input and no submit"
    limits = {"private_metadata": 3_000, "callback_id": 255, "external_id": 255}
    yield from (f"{name} over {limit}" for name, limit in limits.items() if len(view.get(name) or "") > limit)
    if len(json.dumps(view).encode()) > VIEW_BYTES_MAX:
        yield f"a view over {VIEW_BYTES_MAX} bytes"
    if not view["blocks"]:
        yield "a view without blocks"
    yield from _blocks_problems(view["blocks"], VIEW_BLOCKS_MAX)


def _blocks_problems(blocks: list[Json], limit: int) -> Iterator[str]:
    if len(blocks) > limit:
        yield f"over {limit} blocks"
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(set(ids)) < len(ids):
        yield "two blocks with the same block_id"
    if sum(len(block.get("text", "")) for block in blocks if block.get("type") == "markdown") > MARKDOWN_MAX:
        yield f"over {MARKDOWN_MAX} characters of markdown"
    for index, block in enumerate(blocks):
        yield from (f"{problem} (/blocks/{index})" for problem in _block_problems(block))


def _block_problems(block: Json) -> Iterator[str]:
    kind = str(block.get("type"))
    if kind not in BLOCKS:
        yield f"no such block: {kind}"
        return
    yield from _string_problems(block)
    for name in ("text", "label", "hint"):
        if isinstance(block.get(name), dict) or (kind, name) in _REQUIRED:
            yield from _text_problems(block.get(name), kind, name)
    if kind in _PARTS:
        yield from _PARTS[kind](block)


def _context_problems(block: Json) -> Iterator[str]:
    yield from _sized(block.get("elements", []), 1, 10, "elements of a context")
    for element in block.get("elements", []):
        if element.get("type") == "image":
            yield from _string_problems(element)
        else:
            yield from _text_problems(element, "context", "elements")


def _actions_problems(block: Json) -> Iterator[str]:
    elements = block.get("elements", [])
    yield from _sized(elements, 1, 25, "elements of an actions block")
    if len({element.get("action_id") for element in elements}) < len(elements):
        yield "two elements with the same action_id in a block"
    for element in elements:
        yield from _element_problems(element)


def _image_problems(block: Json) -> Iterator[str]:
    if not block.get("alt_text"):
        yield "an image without a text"


def _section_problems(block: Json) -> Iterator[str]:
    if not block.get("text") and not block.get("fields"):
        yield "a section without text and fields"
    if "fields" in block:
        yield from _sized(block["fields"], 1, 10, "fields of a section")
        for field in block["fields"]:
            yield from _text_problems(field, "section", "fields")
    if "accessory" in block:
        yield from _element_problems(block["accessory"])


def _element_problems(element: Json) -> Iterator[str]:
    kind = str(element.get("type"))
    if kind not in ELEMENTS:
        yield f"no such element: {kind}"
        return
    if not element.get("action_id"):
        yield f"a {kind} without an action_id"
    yield from _string_problems(element)
    if "placeholder" in element:
        yield from _text_problems(element["placeholder"], "element", "placeholder")
    if "confirm" in element:
        for name in ("title", "text", "confirm", "deny"):
            yield from _text_problems(element["confirm"].get(name), "confirm", name)
    if kind == "button":
        yield from _text_problems(element.get("text"), "button", "text")
        if element.get("style", "primary") not in ("primary", "danger"):
            yield f"no such style: {element['style']}"
    if kind == "plain_text_input" and len(element.get("initial_value", "")) > element.get("max_length", 3_000):
        yield "an initial value over its own limit"
    if kind in ("overflow", "static_select", "multi_static_select", "checkboxes", "radio_buttons"):
        yield from _choice_problems(element, kind)


def _choice_problems(element: Json, kind: str) -> Iterator[str]:
    most = {"overflow": 5, "static_select": 100, "multi_static_select": 100}.get(kind, 10)
    groups = element.get("option_groups")
    if groups is not None:
        yield from _sized(groups, 1, 100, "groups of options")
        for group in groups:
            yield from _text_problems(group.get("label"), "group", "label")
    lists = [element.get("options", [])] if groups is None else [group["options"] for group in groups]
    for options in lists:
        yield from _sized(options, 1, most, f"options of a {kind}")
        for option in options:
            yield from _text_problems(option.get("text"), "option", "text")
            if "description" in option:
                yield from _text_problems(option["description"], "option", "description")
            if not 1 <= len(option.get("value", "")) <= OPTION_VALUE_MAX:
                yield f"the value of an option has 1 to {OPTION_VALUE_MAX} characters"
    initial = [element["initial_option"]] if "initial_option" in element else element.get("initial_options", [])
    if not all(any(each in options for options in lists) for each in initial):
        yield "an initial option that is not among the options"


def _text_problems(text: Any, where: str, name: str) -> Iterator[str]:
    place = f"{name} of a {where}"
    if not isinstance(text, dict) or text.get("type") not in ("plain_text", "mrkdwn"):
        yield f"no text object: {place}"
        return
    plain = name in PLAIN_ONLY or where in ("header", "button", "option") or (where, name) == ("confirm", "title")
    if plain and text["type"] != "plain_text":
        yield f"not plain_text: {place}"
    if not text.get("text"):
        yield f"empty: {place}"
    if len(text.get("text", "")) > TEXTS[where, name]:
        yield f"over {TEXTS[where, name]}: {place}"


def _string_problems(part: Json) -> Iterator[str]:
    for name, limit in STRINGS.items():
        if isinstance(part.get(name), str) and len(part[name]) > limit:
            yield f"{name} over {limit}"


def _sized(found: list[Any], least: int, most: int, what: str) -> Iterator[str]:
    if not least <= len(found) <= most:
        yield f"{least} to {most} {what}, not {len(found)}"


_PARTS: Final[dict[str, Callable[[Json], Iterator[str]]]] = {
    "section": _section_problems,
    "context": _context_problems,
    "actions": _actions_problems,
    "input": lambda block: _element_problems(block.get("element", {})),
    "image": _image_problems,
}
