"""Block Kit as Slack accepts it: limits and shapes checked, missing ids filled in.

Lengths and required parts are judged by slack_sdk's own models; what those let through (field length, unknown types, empty
text, duplicate ids, a form without a submit button) is checked here.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block

from quotebot.sandbox.slack.elements import INTERACTIVE, interactive_parts
from quotebot.sandbox.slack.errors import Json, SlackError
from quotebot.sandbox.slack.ids import short_id

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE_BLOCKS_MAX = 50
VIEW_BLOCKS_MAX = 100
FIELD_MAX = 2000
TITLE_MAX = 24
PRIVATE_METADATA_MAX = 3000
ID_MAX = 255
VIEW_BYTES_MAX = 250_000
MESSAGE_BYTES_MAX = 250_000
# Plain text is all these accept.
_PLAIN_ONLY = {"header": "text", "input": "label"}


def check_message_blocks(blocks: Any) -> list[Json]:
    """Return the blocks with ids filled in. Raises SlackError invalid_blocks_format, invalid_blocks or msg_blocks_too_long."""
    if blocks in (None, ""):
        return []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise SlackError("invalid_blocks_format")
    if len(json.dumps(blocks)) > MESSAGE_BYTES_MAX:
        raise SlackError("msg_blocks_too_long")
    problems = list(_problems(blocks, limit=MESSAGE_BLOCKS_MAX, at="/blocks"))
    if problems:
        raise SlackError("invalid_blocks", messages=problems)
    return with_ids(blocks)


def check_view(view: Any, *, kind: str) -> None:
    """Judge a view of `kind` modal or home. Raises SlackError invalid_arguments or view_too_large."""
    if not isinstance(view, dict):
        raise SlackError("invalid_arguments", messages=["[ERROR] must provide an object [json-pointer:/view]"])
    if len(json.dumps(view)) > VIEW_BYTES_MAX:
        raise SlackError("view_too_large")
    problems = list(_view_problems(view, kind))
    blocks = view.get("blocks")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        problems.append("[ERROR] missing required field: blocks [json-pointer:/view]")
    else:
        problems += _problems(blocks, limit=VIEW_BLOCKS_MAX, at="/view/blocks")
        if kind == "modal" and any(block.get("type") == "input" for block in blocks) and not view.get("submit"):
            problems.append("[ERROR] missing required field: submit, a view with an input block needs it [json-pointer:/view]")
    if problems:
        raise SlackError("invalid_arguments", messages=problems)


def with_ids(blocks: list[Json]) -> list[Json]:
    """Return a copy in which every block has a block_id and every interactive element an action_id."""
    filled = copy.deepcopy(blocks)
    for block in filled:
        block.setdefault("block_id", short_id())
        for element in interactive_parts(block):
            element.setdefault("action_id", short_id())
    return filled


def _view_problems(view: Json, kind: str) -> Iterator[str]:
    if view.get("type") != kind:
        yield f"[ERROR] must be one of: {kind} [json-pointer:/view/type]"
    if kind == "modal" and not view.get("title"):
        yield "[ERROR] missing required field: title [json-pointer:/view]"
    for name in ("title", "submit", "close"):
        text = view.get(name)
        if text is None:
            continue
        if not isinstance(text, dict) or text.get("type") != "plain_text" or not isinstance(text.get("text"), str):
            yield f"[ERROR] must be a plain_text object [json-pointer:/view/{name}]"
        elif not 1 <= len(text["text"]) <= TITLE_MAX:
            yield f"[ERROR] must be between 1 and {TITLE_MAX} characters [json-pointer:/view/{name}/text]"
    limits = {"private_metadata": PRIVATE_METADATA_MAX, "callback_id": ID_MAX, "external_id": ID_MAX}
    for name, limit in limits.items():
        if len(str(view.get(name) or "")) > limit:
            yield f"[ERROR] must be less than {limit + 1} characters [json-pointer:/view/{name}]"


def _problems(blocks: list[Json], *, limit: int, at: str) -> Iterator[str]:
    if len(blocks) > limit:
        yield f"[ERROR] no more than {limit} items allowed [json-pointer:{at}]"
    seen: set[str] = set()
    for index, block in enumerate(blocks):
        pointer = f"{at}/{index}"
        yield from _model_problems(block, pointer)
        yield from _own_problems(block, pointer)
        block_id = block.get("block_id")
        if isinstance(block_id, str):
            if block_id in seen:
                yield f"[ERROR] `block_id` already exists: {block_id} [json-pointer:{pointer}/block_id]"
            seen.add(block_id)


def _model_problems(block: Json, pointer: str) -> Iterator[str]:
    """Let slack_sdk's models judge one block."""
    try:
        parsed = Block.parse(copy.deepcopy(block))
        if parsed is None:
            yield f"[ERROR] unsupported type: {block.get('type')} [json-pointer:{pointer}/type]"
            return
        parsed.to_dict()
    except SlackObjectFormationError as error:
        yield f"[ERROR] {error} [json-pointer:{pointer}]"
    except (TypeError, ValueError, KeyError, AttributeError):
        yield f"[ERROR] failed to match all allowed schemas [json-pointer:{pointer}]"


def _own_problems(block: Json, pointer: str) -> Iterator[str]:
    kind = block.get("type")
    yield from _text_problems(block.get("text"), f"{pointer}/text")
    plain = _PLAIN_ONLY.get(str(kind))
    if plain is not None and isinstance(block.get(plain), dict) and block[plain].get("type") != "plain_text":
        yield f"[ERROR] must be a plain_text object [json-pointer:{pointer}/{plain}]"
    fields = block.get("fields")
    for index, field in enumerate(fields if isinstance(fields, list) else []):
        yield from _text_problems(field, f"{pointer}/fields/{index}")
        if isinstance(field, dict) and len(str(field.get("text", ""))) > FIELD_MAX:
            yield f"[ERROR] must be less than {FIELD_MAX + 1} characters [json-pointer:{pointer}/fields/{index}/text]"
    element = block.get("element")
    if kind == "input" and (not isinstance(element, dict) or element.get("type") not in INTERACTIVE):
        yield f"[ERROR] unsupported type [json-pointer:{pointer}/element/type]"
    yield from _element_problems(block, pointer)


def _element_problems(block: Json, pointer: str) -> Iterator[str]:
    elements = block.get("elements")
    if block.get("type") == "actions":
        if not isinstance(elements, list) or not elements:
            yield f"[ERROR] must contain at least one element [json-pointer:{pointer}/elements]"
            return
        for index, element in enumerate(elements):
            if not isinstance(element, dict) or element.get("type") not in INTERACTIVE:
                yield f"[ERROR] unsupported type [json-pointer:{pointer}/elements/{index}/type]"
    if block.get("type") == "context" and isinstance(elements, list):
        for index, element in enumerate(elements):
            if isinstance(element, dict) and element.get("type") != "image":
                yield from _text_problems(element, f"{pointer}/elements/{index}")
    yield from _interactive_problems(block, pointer)


def _interactive_problems(block: Json, pointer: str) -> Iterator[str]:
    seen: set[str] = set()
    for element in interactive_parts(block):
        yield from _text_problems(element.get("text"), f"{pointer}/element/text")
        action_id = element.get("action_id")
        if isinstance(action_id, str):
            if action_id in seen:
                yield f"[ERROR] `action_id` already exists in this block: {action_id} [json-pointer:{pointer}]"
            seen.add(action_id)


def _text_problems(text: Any, pointer: str) -> Iterator[str]:
    """Refuse a text object of an unknown type or without a character in it."""
    if not isinstance(text, dict):
        return
    if text.get("type") not in ("plain_text", "mrkdwn"):
        yield f"[ERROR] must be one of: plain_text, mrkdwn [json-pointer:{pointer}/type]"
    if not text.get("text"):
        yield f"[ERROR] must be more than 0 characters [json-pointer:{pointer}/text]"
