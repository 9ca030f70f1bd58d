"""Block Kit as Slack accepts it, open modals (a stack of at most three per person) and published App Homes.

slack_sdk's own models check lengths and required parts; this module checks what those accept wrongly (field length, unknown types,
empty text, duplicate ids, a form without a submit button) and fills missing ids in. Those models are slow, so a verdict is cached
by the block's shape: the block with its free texts replaced by as many x.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block

from quotebot.sandbox.slack.directory import APP_ID, BOT_ID, TEAM_ID
from quotebot.sandbox.slack.elements import INTERACTIVE, initial_state, interactive_parts
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from quotebot.sandbox.chance import Changes, Tokens, VirtualClock

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
STACK_LIMIT = 3


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
    for index, part in enumerate(fields if isinstance(fields, list) else []):
        yield from _text_problems(part, f"/fields/{index}")
        if isinstance(part, dict) and len(str(part.get("text", ""))) > FIELD_MAX:
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


@dataclass(slots=True)
class View:
    """A modal or a Home tab as Slack stores it. `errors` maps block_id (or "" for the whole form) to the visible message."""

    id: str
    user: str
    content: Json
    hash: str
    root_view_id: str
    previous_view_id: str | None = None
    state: dict[str, Json] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def blocks(self) -> list[Json]:
        """Return its blocks."""
        blocks: list[Json] = self.content["blocks"]
        return blocks

    def wire(self) -> Json:
        """Return the view as Slack sends it."""
        given = self.content
        return {
            "id": self.id,
            "team_id": TEAM_ID,
            "type": given["type"],
            "blocks": given["blocks"],
            "private_metadata": given.get("private_metadata", ""),
            "callback_id": given.get("callback_id", ""),
            "state": {"values": self.state},
            "hash": self.hash,
            "title": given.get("title", {"type": "plain_text", "text": "View Title", "emoji": True}),
            "clear_on_close": bool(given.get("clear_on_close", False)),
            "notify_on_close": bool(given.get("notify_on_close", False)),
            "close": given.get("close"),
            "submit": given.get("submit"),
            "previous_view_id": self.previous_view_id,
            "root_view_id": self.root_view_id,
            "app_id": APP_ID,
            "external_id": given.get("external_id", ""),
            "app_installed_team_id": TEAM_ID,
            "bot_id": BOT_ID,
        }


class Views:
    """Opens, pushes, updates, closes and publishes views, with Slack's hash and stack rules."""

    def __init__(self, changes: Changes, clock: VirtualClock, tokens: Tokens) -> None:
        self._changes = changes
        self._clock = clock
        self._tokens = tokens
        self.stacks: dict[str, list[View]] = {}
        self.homes: dict[str, View] = {}

    def _all(self) -> list[View]:
        return [view for stack in self.stacks.values() for view in stack] + list(self.homes.values())

    def open(self, user: str, content: Any) -> View:
        """Open a modal that `check_view` has accepted, in place of the person's open modals. Raises SlackError."""
        checked = self._with_ids(content)
        view = self._view(user, checked, root=None, previous=None)
        self.stacks[user] = [view]
        self._changes.bump()
        return view

    def push(self, user: str, content: Any) -> View:
        """Put a modal on top of the open one. Raises SlackError."""
        checked = self._checked(content, kind="modal")
        stack = self.stacks.get(user, [])
        if not stack:
            raise SlackError("not_found")
        if len(stack) >= STACK_LIMIT:
            raise SlackError("push_limit_reached")
        view = self._view(user, checked, root=stack[0].id, previous=stack[-1].id)
        stack.append(view)
        self._changes.bump()
        return view

    def update(self, view: View, content: Any, *, expected_hash: str | None) -> View:
        """Replace a view's content; values typed into blocks that remain are kept. Raises SlackError."""
        return self._replace(view, self._checked(content, kind=view.content["type"], replacing=view), expected_hash)

    def _replace(self, view: View, checked: Json, expected_hash: str | None) -> View:
        if expected_hash and expected_hash != view.hash:
            raise SlackError("hash_conflict")
        view.content = checked
        view.hash = self._hash()
        fresh = initial_state(checked["blocks"])
        for block_id, actions in fresh.items():
            for action_id in actions:
                typed = view.state.get(block_id, {}).get(action_id)
                if typed is not None and typed.get("type") == actions[action_id]["type"]:
                    actions[action_id] = typed
        view.state = fresh
        view.errors = {}
        self._changes.bump()
        return view

    def publish(self, user: str, content: Any, *, expected_hash: str | None) -> View:
        """Set a person's App Home. Raises SlackError."""
        home = self.homes.get(user)
        checked = self._checked(content, kind="home", replacing=home)
        if home is not None:
            return self._replace(home, checked, expected_hash)
        view = self._view(user, checked, root=None, previous=None)
        self.homes[user] = view
        self._changes.bump()
        return view

    def by_reference(self, view_id: str | None, external_id: str | None) -> View:
        """Find the view of an update. Raises SlackError not_found."""
        for view in self._all():
            if (view_id and view.id == view_id) or (external_id and view.content.get("external_id") == external_id):
                return view
        raise SlackError("not_found")

    def close(self, view: View) -> None:
        """Close one modal (the one below shows again)."""
        stack = self.stacks.get(view.user, [])
        if view in stack:
            stack.remove(view)
        self._drop_empty(view.user)

    def clear(self, user: str) -> None:
        """Close every modal of a person."""
        self.stacks[user] = []
        self._drop_empty(user)

    def refuse(self, view: View, errors: dict[str, str]) -> None:
        """Show errors in a form (keyed by block_id, "" for the whole form); an empty mapping clears them."""
        if view.errors != errors:
            view.errors = dict(errors)
            self._changes.bump()

    def _drop_empty(self, user: str) -> None:
        if not self.stacks.get(user):
            self.stacks.pop(user, None)
        self._changes.bump()

    def _checked(self, content: Any, *, kind: str, replacing: View | None = None) -> Json:
        check_view(content, kind=kind)
        return self._with_ids(content, replacing=replacing)

    def _with_ids(self, content: Json, *, replacing: View | None = None) -> Json:
        external_id = content.get("external_id")
        if external_id and any(view.content.get("external_id") == external_id for view in self._all() if view is not replacing):
            raise SlackError("duplicate_external_id")
        return {**content, "blocks": with_ids(content["blocks"], self._tokens)}

    def _view(self, user: str, content: Json, *, root: str | None, previous: str | None) -> View:
        view_id = self._tokens.object_id("V")
        return View(
            id=view_id,
            user=user,
            content=content,
            hash=self._hash(),
            root_view_id=root or view_id,
            previous_view_id=previous,
            state=initial_state(content["blocks"]),
        )

    def _hash(self) -> str:
        return f"{self._clock.microseconds() // 1_000_000}.{self._tokens.short_id()}{self._tokens.short_id()}"
