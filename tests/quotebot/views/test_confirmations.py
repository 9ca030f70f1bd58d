"""Tests of the question whether to create the same quote again, and of its buttons' values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from quotebot.views.blocks import ButtonValue, parse_button_value, written
from quotebot.views.confirmations import (
    CLONE,
    CREATE_ANOTHER,
    SHOW,
    Correction,
    offer_blocks,
    parse_correction,
    parse_token,
    parse_typed,
    problem_blocks,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

TOKEN = "ab" * 32
OFFER = {"token": TOKEN, "quote_id": "Q-2026-0042", "version": 3}


def test_the_question_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert offer_blocks("You created Q-2026-0042 20 s ago. Create another?", OFFER) == snapshot


def test_each_button_carries_what_its_click_needs() -> None:
    create, show = offer_blocks("?", OFFER)[1]["elements"]
    assert (create["action_id"], parse_token(create["value"])) == (CREATE_ANOTHER, TOKEN)
    assert (show["action_id"], parse_button_value(show["value"])) == (SHOW, ButtonValue("Q-2026-0042", 3, None))


def test_neither_button_can_be_taken_for_the_other() -> None:
    create, show = offer_blocks("?", OFFER)[1]["elements"]
    assert parse_token(show["value"]) is None
    assert parse_button_value(create["value"]) is None
    assert json.loads(create["value"])["v"] == json.loads(show["value"])["v"] == 1


def test_a_stale_click_is_answered_with_a_button_that_shows_the_head() -> None:
    _, row = offer_blocks("v1 was replaced by v2.", {"quote_id": "Q-2026-0042", "version": 2})
    assert [(each["action_id"], each["text"]["text"]) for each in row["elements"]] == [("quote.show", "Show v2")]


def test_a_click_on_an_expired_quote_is_answered_with_a_button_that_clones_it() -> None:
    _, row = offer_blocks("Q-2026-0042 expired.", {"quote_id": "Q-2026-0042", "version": 2, "clone": True})
    (button,) = row["elements"]
    assert (button["action_id"], button["text"]["text"]) == (CLONE, "Clone quote")
    assert parse_button_value(button["value"]) == ButtonValue("Q-2026-0042", 2, None)


@pytest.mark.parametrize("version", [None, 3])
def test_a_correction_carries_its_token_and_the_version_that_was_there(version: int | None) -> None:
    given = Correction("add-line Q-2026-0042: 10 pro", TOKEN, version)
    blocks = problem_blocks("?", "for Acme: 10 prro", repair=(given, "Use Pro"))
    assert blocks is not None
    use, fix = (each["value"] for each in blocks[1]["elements"])
    assert (parse_correction(use), parse_typed(fix)) == (given, "for Acme: 10 prro")
    assert (parse_correction(fix), parse_typed(use)) == (None, None)


@pytest.mark.parametrize("wrong", [{"w": 1}, {"t": "short"}, {"t": None}, {"n": 0}, {"n": "1"}, {"n": True}])
def test_a_correction_that_was_not_written_here_is_not_read(wrong: dict[str, object]) -> None:
    assert parse_correction(written({"w": "new for Acme: 10 pro", "t": TOKEN, "n": None, **wrong})) is None
