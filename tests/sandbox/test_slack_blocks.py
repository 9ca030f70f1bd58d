"""Tests of Block Kit limits: the sandbox refuses what Slack refuses."""

from __future__ import annotations

from typing import Any

import pytest

from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.slack.errors import SlackError
from quotebot.sandbox.slack.views import check_message_blocks, check_view

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def button(text: str = "Go", **more: object) -> Json:
    return {"type": "button", "text": plain(text), **more}


def section(**more: object) -> Json:
    return {"type": "section", "text": mrkdwn("x"), **more}


def modal(*blocks: Json, **more: object) -> Json:
    return {"type": "modal", "title": plain("Title"), "blocks": list(blocks), **more}


INPUT = {"type": "input", "label": plain("Name"), "element": {"type": "plain_text_input", "action_id": "name"}}

REFUSED_BLOCKS = {
    "an unknown block": [{"type": "hologram"}],
    "a block without a type": [{"text": mrkdwn("x")}],
    "51 blocks": [{"type": "divider"}] * 51,
    "a section over 3000": [{"type": "section", "text": mrkdwn("x" * 3001)}],
    "a section with nothing": [{"type": "section"}],
    "an empty text": [{"type": "section", "text": mrkdwn("")}],
    "an unknown text type": [{"type": "section", "text": {"type": "html", "text": "x"}}],
    "11 fields": [{"type": "section", "fields": [mrkdwn("x")] * 11}],
    "a field over 2000": [{"type": "section", "fields": [mrkdwn("x" * 2001)]}],
    "fields that are no list": [{"type": "section", "fields": 5}],
    "a header over 150": [{"type": "header", "text": plain("x" * 151)}],
    "a header in mrkdwn": [{"type": "header", "text": mrkdwn("x")}],
    "11 context elements": [{"type": "context", "elements": [mrkdwn("x")] * 11}],
    "26 buttons": [{"type": "actions", "elements": [button(action_id=f"a{number}") for number in range(26)]}],
    "no buttons": [{"type": "actions", "elements": []}],
    "an unknown element": [{"type": "actions", "elements": [{"type": "lever"}]}],
    "a button over 75": [{"type": "actions", "elements": [button("x" * 76)]}],
    "a value over 2000": [{"type": "actions", "elements": [button(value="x" * 2001)]}],
    "an unknown style": [{"type": "actions", "elements": [button(style="loud")]}],
    "one action twice": [{"type": "actions", "elements": [button(action_id="a"), button(action_id="a")]}],
    "one block_id twice": [section(block_id="b"), section(block_id="b")],
    "a block_id over 255": [section(block_id="b" * 256)],
    "an input without an element": [{"type": "input", "label": plain("x")}],
}


@pytest.mark.parametrize("blocks", REFUSED_BLOCKS.values(), ids=REFUSED_BLOCKS.keys())
def test_a_message_with_bad_blocks_is_refused_with_a_pointer(blocks: list[Json]) -> None:
    with pytest.raises(SlackError) as caught:
        check_message_blocks(blocks, Tokens())
    assert caught.value.code == "invalid_blocks"
    assert all("[json-pointer:/blocks" in message for message in caught.value.messages)


@pytest.mark.parametrize("blocks", ["text", {"type": "divider"}, [1]])
def test_blocks_that_are_no_list_of_objects_are_refused(blocks: object) -> None:
    with pytest.raises(SlackError, match="invalid_blocks_format"):
        check_message_blocks(blocks, Tokens())


def test_missing_ids_are_filled_in_and_given_ids_kept() -> None:
    given = [section(accessory=button()), {"type": "actions", "block_id": "mine", "elements": [button(action_id="go")]}]
    first, second = check_message_blocks(given, Tokens())
    assert first["block_id"]
    assert first["accessory"]["action_id"]
    assert (second["block_id"], second["elements"][0]["action_id"]) == ("mine", "go")
    assert "block_id" not in given[0]


REFUSED_VIEWS = {
    "no title": {"type": "modal", "blocks": [section()]},
    "a title over 24": modal(section(), title=plain("x" * 25)),
    "a submit over 24": modal(section(), submit=plain("x" * 25)),
    "a title in mrkdwn": modal(section(), title=mrkdwn("x")),
    "an input without submit": modal(INPUT),
    "private_metadata over 3000": modal(section(), private_metadata="x" * 3001),
    "a callback_id over 255": modal(section(), callback_id="x" * 256),
    "101 blocks": modal(*[{"type": "divider"}] * 101),
    "a home": {"type": "home", "blocks": [section()]},
    "no blocks": {"type": "modal", "title": plain("x")},
    "a bad block": modal({"type": "hologram"}),
    "no view": None,
}


@pytest.mark.parametrize("view", REFUSED_VIEWS.values(), ids=REFUSED_VIEWS.keys())
def test_a_bad_view_is_refused_with_a_pointer(view: object) -> None:
    with pytest.raises(SlackError) as caught:
        check_view(view, kind="modal")
    assert caught.value.code == "invalid_arguments"
    assert all("[json-pointer:/view" in message for message in caught.value.messages)


def test_a_view_over_250_kilobytes_is_too_large() -> None:
    with pytest.raises(SlackError, match="view_too_large"):
        check_view(modal(*[section(text=mrkdwn("x" * 3000))] * 90), kind="modal")


def test_a_good_form_passes() -> None:
    check_view(modal(INPUT, submit=plain("Send")), kind="modal")
