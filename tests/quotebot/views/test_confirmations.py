"""Tests of the question whether to create the same quote again, and of its buttons' values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quotebot.views.blocks import ButtonValue, parse_button_value
from quotebot.views.confirmations import CREATE_ANOTHER, SHOW, offer_blocks, parse_token

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
