"""Tests of the validator: each limit of Block Kit, at the limit and one above it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from adapters.slack import block_kit
from tests.quotebot.views.block_kit import message_problems, view_problems

Json = dict[str, Any]


def plain(length: int = 1) -> Json:
    return {"type": "plain_text", "text": "x" * length}


def section(**parts: Any) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": "x"}, **parts}


def actions(*elements: Json, **parts: Any) -> Json:
    return {"type": "actions", "elements": list(elements), **parts}


def button(**parts: Any) -> Json:
    return {"type": "button", "action_id": "a", "text": plain(), **parts}


def options(count: int, **parts: Any) -> list[Json]:
    return [{"text": plain(), "value": f"v{number}", **parts} for number in range(count)]


def overflow(count: int = 1, **parts: Any) -> Json:
    return {"type": "overflow", "action_id": "o", "options": options(count), **parts}


def select(count: int = 1, **parts: Any) -> Json:
    return {"type": "static_select", "action_id": "s", "options": options(count), **parts}


def grouped(count: int) -> Json:
    return {"type": "static_select", "action_id": "s", "option_groups": [{"label": plain(), "options": options(1)}] * count}


def field(**parts: Any) -> Json:
    return {"type": "input", "label": plain(), "element": {"type": "plain_text_input", "action_id": "i"}, **parts}


def confirmed(**parts: Any) -> Json:
    return button(confirm={"title": plain(), "text": plain(), "confirm": plain(), "deny": plain(), **parts})


def modal(*blocks: Json, **parts: Any) -> Json:
    return {"type": "modal", "title": plain(), "submit": plain(), "blocks": list(blocks) or [section()], **parts}


# an element at its limit, and the same one above it
IN_A_MESSAGE: dict[str, tuple[list[Json], list[Json]]] = {
    "blocks": ([section()] * 50, [section()] * 51),
    "block_id": ([section(block_id="b" * 255)], [section(block_id="b" * 256)]),
    "equal block_ids": ([section(block_id="a"), section(block_id="b")], [section(block_id="a"), section(block_id="a")]),
    "section text": ([section(text=plain(3_000))], [section(text=plain(3_001))]),
    "empty section text": ([section()], [section(text=plain(0))]),
    "fields": ([section(fields=[plain()] * 10)], [section(fields=[plain()] * 11)]),
    "field": ([section(fields=[plain(2_000)])], [section(fields=[plain(2_001)])]),
    "header": ([{"type": "header", "text": plain(150)}], [{"type": "header", "text": plain(151)}]),
    "header text": ([{"type": "header", "text": plain()}], [{"type": "header"}]),
    "mrkdwn header": ([{"type": "header", "text": plain()}], [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}]),
    "context": ([{"type": "context", "elements": [plain()] * 10}], [{"type": "context", "elements": [plain()] * 11}]),
    "actions": (
        [actions(*(button(action_id=f"a{n}") for n in range(25)))],
        [actions(*(button(action_id=f"a{n}") for n in range(26)))],
    ),
    "no actions": ([actions(button())], [actions()]),
    "equal action_ids": ([actions(button(), overflow())], [actions(button(), button())]),
    "action_id": ([actions(button(action_id="a" * 255))], [actions(button(action_id="a" * 256))]),
    "no action_id": ([actions(button())], [actions({"type": "button", "text": plain()})]),
    "button text": ([actions(button(text=plain(75)))], [actions(button(text=plain(76)))]),
    "button value": ([actions(button(value="v" * 2_000))], [actions(button(value="v" * 2_001))]),
    "button url": ([actions(button(url="u" * 3_000))], [actions(button(url="u" * 3_001))]),
    "style": ([actions(button(style="danger"))], [actions(button(style="loud"))]),
    "overflow": ([actions(overflow(5))], [actions(overflow(6))]),
    "empty overflow": ([actions(overflow(1))], [actions(overflow(0))]),
    "options": ([actions(select(100))], [actions(select(101))]),
    "option text": (
        [actions(overflow(options=options(1, text=plain(75))))],
        [actions(overflow(options=options(1, text=plain(76))))],
    ),
    "option value": (
        [actions(overflow(options=options(1, value="v" * 150)))],
        [actions(overflow(options=options(1, value="v" * 151)))],
    ),
    "option groups": (
        [actions(grouped(100))],
        [actions(grouped(101))],
    ),
    "initial option": ([actions(select(initial_option=options(1)[0]))], [actions(select(initial_option=options(2)[1]))]),
    "placeholder": ([actions(select(placeholder=plain(150)))], [actions(select(placeholder=plain(151)))]),
    "confirm title": ([actions(confirmed(title=plain(100)))], [actions(confirmed(title=plain(101)))]),
    "confirm text": ([actions(confirmed(text=plain(300)))], [actions(confirmed(text=plain(301)))]),
    "confirm yes": ([actions(confirmed(confirm=plain(30)))], [actions(confirmed(confirm=plain(31)))]),
    "confirm no": ([actions(confirmed(deny=plain(30)))], [actions(confirmed(deny=plain(31)))]),
    "image text": (
        [{"type": "image", "image_url": "u", "alt_text": "x" * 2_000}],
        [{"type": "image", "image_url": "u", "alt_text": "x" * 2_001}],
    ),
    "image url": (
        [{"type": "image", "image_url": "u" * 3_000, "alt_text": "x"}],
        [{"type": "image", "image_url": "u" * 3_001, "alt_text": "x"}],
    ),
    "markdown": ([{"type": "markdown", "text": "x" * 6_000}] * 2, [{"type": "markdown", "text": "x" * 6_001}] * 2),
    "block type": ([{"type": "divider"}], [{"type": "carousel"}]),
    "element type": ([actions(button())], [actions({"type": "lever", "action_id": "a"})]),
    "input": ([section()], [field()]),
}
IN_A_VIEW: dict[str, tuple[Json, Json]] = {
    "blocks": (modal(*[section()] * 100), modal(*[section()] * 101)),
    "title": (modal(title=plain(24)), modal(title=plain(25))),
    "submit": (modal(submit=plain(24)), modal(submit=plain(25))),
    "close": (modal(close=plain(24)), modal(close=plain(25))),
    "private_metadata": (modal(private_metadata="p" * 3_000), modal(private_metadata="p" * 3_001)),
    "callback_id": (modal(callback_id="c" * 255), modal(callback_id="c" * 256)),
    "submit of an input": (
        modal(field()),
        {key: value for key, value in modal(field()).items() if key != "submit"},
    ),
    "label": (modal(field(label=plain(2_000))), modal(field(label=plain(2_001)))),
    "no label": (modal(field()), modal({key: value for key, value in field().items() if key != "label"})),
    "hint": (modal(field(hint=plain(2_000))), modal(field(hint=plain(2_001)))),
    "size": (modal(*[section(text=plain(2_400))] * 100), modal(*[section(text=plain(2_480))] * 100)),
    "type": (modal(), {**modal(), "type": "window"}),
    "no blocks": (modal(), {**modal(), "blocks": []}),
    "initial value": (
        modal(field(element={"type": "plain_text_input", "action_id": "i", "max_length": 3, "initial_value": "abc"})),
        modal(field(element={"type": "plain_text_input", "action_id": "i", "max_length": 3, "initial_value": "abcd"})),
    ),
}


@pytest.mark.parametrize("limit", IN_A_MESSAGE)
def test_a_message_may_reach_each_limit_and_not_pass_it(limit: str) -> None:
    at, over = IN_A_MESSAGE[limit]
    assert message_problems("x", copy.deepcopy(at)) == []
    assert block_kit.message_problems("x", copy.deepcopy(over)) != []  # without slack_sdk's models: the bot's own check


@pytest.mark.parametrize("limit", IN_A_VIEW)
def test_a_view_may_reach_each_limit_and_not_pass_it(limit: str) -> None:
    at, over = IN_A_VIEW[limit]
    assert view_problems(copy.deepcopy(at)) == []
    assert block_kit.view_problems(copy.deepcopy(over)) != []


@pytest.mark.parametrize("text", ["", "x" * 4_001])
def test_a_message_has_a_text_within_its_limit(text: str) -> None:
    assert message_problems("x" * 4_000, [section()]) == []
    assert block_kit.message_problems(text, [section()]) != []
