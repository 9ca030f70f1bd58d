"""Block Kit as Slack accepts it: limits and shapes checked, missing ids filled in.

slack_sdk's own models check lengths and required parts; this module checks what those accept wrongly (field length, unknown types,
empty text, duplicate ids, a form without a submit button). Those models are slow, so a verdict is cached by the block's shape: the
block with its free texts replaced by as many x.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block

from quotebot.sandbox.slack.elements import INTERACTIVE, interactive_parts
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from quotebot.sandbox.chance import Tokens

MESSAGE_BLOCKS_MAX = 50
VIEW_BLOCKS_MAX = 100
FIELD_MAX = 2000
TITLE_MAX = 24
PRIVATE_METADATA_MAX = 3000
ID_MAX = 255
VIEW_BYTES_MAX = 250_000
MESSAGE_BYTES_MAX = 250_000
SHAPES_REMEMBERED = 4096
ESCAPE_CHARACTERS_MAX = 12  # the most characters of one character in JSON
# Texts of which only the length matters. (An action_id is compared with its neighbours, so it is not among them.)
_FREE_TEXTS = frozenset({"text", "value", "block_id"})
# These accept plain text only.
_PLAIN_ONLY = {"header": "text", "input": "label"}

_Problem = tuple[str, str]  # the message, and its place in the block as a JSON pointer


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Result of the check of one block. `size` is its length as JSON if every free text is plain."""

    problems: tuple[_Problem, ...]
    size: int


def check_message_blocks(blocks: Any, tokens: Tokens) -> list[Json]:
    """Return the blocks with ids filled in. Raises SlackError invalid_blocks_format, invalid_blocks or msg_blocks_too_long."""
    if blocks in (None, ""):
        return []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise SlackError("invalid_blocks_format")
    verdicts = _judged(blocks)
    if _is_larger(blocks, verdicts, MESSAGE_BYTES_MAX):
        raise SlackError("msg_blocks_too_long")
    problems = list(_problems(blocks, verdicts, limit=MESSAGE_BLOCKS_MAX, at="/blocks"))
    if problems:
        raise SlackError("invalid_blocks", messages=problems)
    return with_ids(blocks, tokens)


def check_view(view: Any, *, kind: str) -> None:
    """Check a view of `kind` modal or home. Raises SlackError invalid_arguments or view_too_large."""
    if not isinstance(view, dict):
        raise SlackError("invalid_arguments", messages=["[ERROR] must provide an object [json-pointer:/view]"])
    given = view.get("blocks")
    readable = isinstance(given, list) and all(isinstance(block, dict) for block in given)
    blocks: list[Json] = given if isinstance(given, list) and readable else []
    verdicts = _judged(blocks)
    around = {name: part for name, part in view.items() if name != "blocks"} if readable else view
    if _is_larger(view, [*verdicts, _Verdict((), len(json.dumps(around)))], VIEW_BYTES_MAX):
        raise SlackError("view_too_large")
    problems = list(_view_problems(view, kind))
    if not readable:
        problems.append("[ERROR] missing required field: blocks [json-pointer:/view]")
    else:
        problems += _problems(blocks, verdicts, limit=VIEW_BLOCKS_MAX, at="/view/blocks")
        if kind == "modal" and any(block.get("type") == "input" for block in blocks) and not view.get("submit"):
            problems.append("[ERROR] missing required field: submit, a view with an input block needs it [json-pointer:/view]")
    if problems:
        raise SlackError("invalid_arguments", messages=problems)


def with_ids(blocks: list[Json], tokens: Tokens) -> list[Json]:
    """Return blocks in which each has a block_id and every interactive element an action_id; given ids are kept."""
    return [_with_ids(block, tokens) for block in blocks]


def _with_ids(block: Json, tokens: Tokens) -> Json:
    nameless = any("action_id" not in element for element in interactive_parts(block))
    filled = copy.deepcopy(block) if nameless else {**block}
    if "block_id" not in filled:
        filled["block_id"] = tokens.short_id()
    for element in interactive_parts(filled) if nameless else ():
        element.setdefault("action_id", tokens.short_id())
    return filled


def _judged(blocks: list[Json]) -> list[_Verdict]:
    return [_verdict(_shape(block, "")) for block in blocks]


def _is_larger(value: Any, verdicts: list[_Verdict], limit: int) -> bool:
    """Tell whether `value` is longer than `limit` as JSON; it is encoded only if that is possible."""
    return sum(verdict.size for verdict in verdicts) * ESCAPE_CHARACTERS_MAX > limit and len(json.dumps(value)) > limit


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


def _problems(blocks: list[Json], verdicts: list[_Verdict], *, limit: int, at: str) -> Iterator[str]:
    if len(blocks) > limit:
        yield f"[ERROR] no more than {limit} items allowed [json-pointer:{at}]"
    seen: set[str] = set()
    for index, (block, verdict) in enumerate(zip(blocks, verdicts, strict=True)):
        pointer = f"{at}/{index}"
        for message, place in verdict.problems:
            yield f"[ERROR] {message} [json-pointer:{pointer}{place}]"
        block_id = block.get("block_id")
        if isinstance(block_id, str):
            if block_id in seen:
                yield f"[ERROR] `block_id` already exists: {block_id} [json-pointer:{pointer}/block_id]"
            seen.add(block_id)


def _shape(value: Any, name: str) -> Hashable:
    """Return the part of a value that a block's verdict depends on; `name` is the property that contains the value."""
    if isinstance(value, str):
        return "x" * len(value) if name in _FREE_TEXTS else value
    if isinstance(value, dict):
        return (dict, tuple(value), *(_shape(part, key) for key, part in value.items()))
    if isinstance(value, list):
        return (list, *(_shape(part, "") for part in value))
    return (type(value), value)  # 1, 1.0 and true are equal to Python but not to Slack


def _of_shape(shape: Any) -> Any:
    """Return a value of that shape."""
    if isinstance(shape, str):
        return shape
    if shape[0] is dict:
        return dict(zip(shape[1], map(_of_shape, shape[2:]), strict=True))
    return [_of_shape(part) for part in shape[1:]] if shape[0] is list else shape[1]


@lru_cache(maxsize=SHAPES_REMEMBERED)
def _verdict(shape: Hashable) -> _Verdict:
    """Check one block by its shape."""
    block: Json = _of_shape(shape)
    return _Verdict((*_model_problems(block), *_own_problems(block)), len(json.dumps(block)))


def _model_problems(block: Json) -> Iterator[_Problem]:
    """Check one block with slack_sdk's models."""
    try:
        parsed = Block.parse(copy.deepcopy(block))
        if parsed is None:
            yield f"unsupported type: {block.get('type')}", "/type"
            return
        parsed.to_dict()
    except SlackObjectFormationError as error:
        yield str(error), ""
    except (TypeError, ValueError, KeyError, AttributeError):
        yield "failed to match all allowed schemas", ""


def _own_problems(block: Json) -> Iterator[_Problem]:
    kind = block.get("type")
    yield from _text_problems(block.get("text"), "/text")
    plain = _PLAIN_ONLY.get(str(kind))
    if plain is not None and isinstance(block.get(plain), dict) and block[plain].get("type") != "plain_text":
        yield "must be a plain_text object", f"/{plain}"
    fields = block.get("fields")
    for index, field in enumerate(fields if isinstance(fields, list) else []):
        yield from _text_problems(field, f"/fields/{index}")
        if isinstance(field, dict) and len(str(field.get("text", ""))) > FIELD_MAX:
            yield f"must be less than {FIELD_MAX + 1} characters", f"/fields/{index}/text"
    element = block.get("element")
    if kind == "input" and (not isinstance(element, dict) or element.get("type") not in INTERACTIVE):
        yield "unsupported type", "/element/type"
    yield from _element_problems(block)


def _element_problems(block: Json) -> Iterator[_Problem]:
    elements = block.get("elements")
    if block.get("type") == "actions":
        if not isinstance(elements, list) or not elements:
            yield "must contain at least one element", "/elements"
            return
        for index, element in enumerate(elements):
            if not isinstance(element, dict) or element.get("type") not in INTERACTIVE:
                yield "unsupported type", f"/elements/{index}/type"
    if block.get("type") == "context" and isinstance(elements, list):
        for index, element in enumerate(elements):
            if isinstance(element, dict) and element.get("type") != "image":
                yield from _text_problems(element, f"/elements/{index}")
    yield from _interactive_problems(block)


def _interactive_problems(block: Json) -> Iterator[_Problem]:
    seen: set[str] = set()
    for element in interactive_parts(block):
        yield from _text_problems(element.get("text"), "/element/text")
        action_id = element.get("action_id")
        if isinstance(action_id, str):
            if action_id in seen:
                yield f"`action_id` already exists in this block: {action_id}", ""
            seen.add(action_id)


def _text_problems(text: Any, place: str) -> Iterator[_Problem]:
    """Refuse a text object of an unknown type or without a character."""
    if not isinstance(text, dict):
        return
    if text.get("type") not in ("plain_text", "mrkdwn"):
        yield "must be one of: plain_text, mrkdwn", f"{place}/type"
    if not text.get("text"):
        yield "must be more than 0 characters", f"{place}/text"
