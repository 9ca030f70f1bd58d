"""Tests of input limits at every Slack entry point: text over its limit is refused or cut before it is parsed."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.texts import composed
from quotebot.slack.form_input import Form, read_form
from quotebot.views import builder, forms
from quotebot.views import messages as words
from quotebot.views.blocks import BUTTON_CHARACTERS_MAX
from quotebot.views.forms import parse_rejection
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_quote
from tests.rig import FIRST_QUOTE, GOLDEN, Deal

if TYPE_CHECKING:
    from collections.abc import Callable

BLANKS = f"x{' ' * 39_900}y"  # quadratic in a regex search whose pattern begins with spaces
MARKS = "a" + "\u0315\u0301" * 19_000  # quadratic to normalize
FLOODS = {"blanks": BLANKS, "marks": MARKS, "mentions": "<@U0" * 10_000}
OPERATIONS = "SELECT 1 FROM operations"


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("channel", ["D0REP", "C0DEALS"])
async def test_message_over_4096_characters_is_refused_unread(deal: Deal, channel: str, flood: str) -> None:
    mention = "" if channel == "D0REP" else "@quotebot "
    await deal.post("message", user="U0REP", channel=channel, text=f"{mention}{FLOODS[flood]}")
    messages = (await deal.get("state"))["messages"]
    assert [each["text"] for each in messages if each["bot_id"]] == [words.message_too_long(4_096)]
    assert await deal.rows(OPERATIONS) == []


async def test_message_over_the_limit_in_a_quotes_thread_is_refused_unread(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    card = await deal.card()
    text = f"@quotebot revise: 200 pro {MARKS}"
    await deal.post("message", user="U0REP", channel="C0DEALS", text=text, thread_ts=card["ts"])
    assert (await deal.whispers("U0REP"))[-1] == words.message_too_long(4_096)


async def test_message_of_4096_characters_is_read(deal: Deal) -> None:
    text = GOLDEN.ljust(4_096 - len("<@U0QUOTEBOT> "))
    await deal.post("message", user="U0REP", channel="C0DEALS", text=f"@quotebot {text}")
    await deal.settled()
    assert len(await deal.rows(OPERATIONS)) == 1


async def test_message_of_4096_characters_in_a_quotes_thread_is_read(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    card = await deal.card()
    text = "revise: 200 pro".ljust(4_096 - len("<@U0QUOTEBOT> "))
    await deal.post("message", user="U0REP", channel="C0DEALS", text=f"@quotebot {text}", thread_ts=card["ts"])
    assert (await deal.whispers("U0REP"))[-1].startswith("*Change Q-2026-0001 to v2?*\n• Total $17,340.00 → $20,400.00")


async def test_slash_text_over_2048_characters_is_refused_unread(deal: Deal) -> None:
    answer = await deal.slash(f"new for Acme: 10 pro{' ' * 2_040}")
    assert answer["ack"]["text"] == words.too_long(2_048)
    assert await deal.rows(OPERATIONS) == []


@pytest.mark.parametrize("flood", FLOODS)
async def test_message_shortcut_takes_the_first_4096_characters(deal: Deal, flood: str) -> None:
    message = await deal.post("message", user="U0REP", channel="C0DEALS", text=f"150 pro\n10 sso\n{FLOODS[flood]}\n7 support")
    ts = message.get("ts") or message["message"]["ts"]
    await deal.post("shortcut", user="U0REP", callback_id=forms.FROM_MESSAGE, channel="C0DEALS", message_ts=ts)
    (view,) = (await deal.get("state"))["views"]
    quoted, *fields = view["view"]["blocks"]
    assert quoted["text"]["text"].startswith("> 150 pro\n> 10 sso\n> ")
    read = {each["block_id"]: each["element"].get("initial_value") for each in fields if each["block_id"].endswith(".quantity")}
    assert read == {"row.0.quantity": "150", "row.1.quantity": "10"}


FIELDS: dict[str, tuple[Callable[[], dict[str, Any]], int]] = {
    forms.ACCOUNT: (lambda: builder.create_form("C0DEALS", RULESET), 100),
    forms.TEXT: (lambda: builder.create_form("C0DEALS", RULESET), 2_900),
    forms.TERM: (lambda: builder.create_form("C0DEALS", RULESET), 20),
    forms.DISCOUNT: (lambda: builder.discount_form(example_quote()), 20),
    forms.CURRENCY: (lambda: builder.create_form("C0DEALS", RULESET), 150),
    "row.0.discount": (lambda: builder.revise_form(example_quote(), RULESET), 20),
    "row.0.quantity": (lambda: builder.revise_form(example_quote(), RULESET), 20),
    forms.RECIPIENT: (lambda: forms.send_form(example_quote()), 200),
    forms.REASON: (lambda: forms.lose_form(example_quote()), 487),
    "no.such.block": (lambda: forms.lose_form(example_quote()), 150),
}


@pytest.mark.parametrize("block_id", FIELDS)
def test_form_field_over_its_limit_is_refused_at_the_field(block_id: str) -> None:
    view, most = FIELDS[block_id][0](), FIELDS[block_id][1]
    state = {"values": {block_id: {block_id: {"value": "\u0315" * (most + 1)}}}}
    assert read_form(Form({**view, "state": state}, RULES, MORNING)) == {block_id: f"At most {most:,} characters."}


def test_reason_over_its_limit_is_no_reason() -> None:
    assert parse_rejection({"reason": {"reason": {"value": f"x{' ' * 500}"}}}) is None


@pytest.mark.parametrize("metadata", ["[" * 100_000, json.dumps({"v": 1, "c": "C" * BUTTON_CHARACTERS_MAX})])
def test_private_metadata_over_its_limit_is_not_parsed(metadata: str) -> None:
    view = {**builder.create_form("C0DEALS", RULESET), "private_metadata": metadata, "root_view_id": "V1", "state": {"values": {}}}
    assert list(read_form(Form(view, RULES, MORNING)).values()) == [words.UNREADABLE_FORM]  # type: ignore[union-attr]


@given(st.text(max_size=60))
def test_normal_form_is_nfc_for_text_without_long_runs_of_marks(text: str) -> None:
    assert composed(text) == unicodedata.normalize("NFC", text) or sum(map(unicodedata.combining, text)) > 0


def test_marks_beyond_thirty_in_a_row_are_dropped() -> None:
    assert composed("e" + "\u0301" * 40 + "x") == "\u00e9" + "\u0301" * 29 + "x"
    assert composed("e\u0301" * 40) == "\u00e9" * 40


INVISIBLE = ["\u200b", "\u3164", "\u2800", "\u00ad\u00ad", "\U000e0041\U000e0042", "\u202e", "\u200d"]


@pytest.mark.parametrize("name", INVISIBLE, ids=ascii)
async def test_customer_without_a_visible_character_is_refused(deal: Deal, name: str) -> None:
    answer = await deal.slash(f"new for {name}: 10 pro")
    assert "Name the customer" in answer["ack"]["text"]
    assert await deal.rows(OPERATIONS) == []


@pytest.mark.parametrize("name", INVISIBLE, ids=ascii)
def test_form_name_without_a_visible_character_is_refused(name: str) -> None:
    for view, block_id in (
        (builder.create_form("C0DEALS", RULESET), forms.ACCOUNT),
        (forms.send_form(example_quote()), forms.RECIPIENT),
    ):
        state = {"values": {block_id: {block_id: {"type": "plain_text_input", "value": name}}}}
        found = read_form(Form({**view, "root_view_id": "V1", "state": state}, RULES, MORNING))
        assert block_id in found  # type: ignore[operator] # a form that is filled in would be a command


def test_invisible_characters_are_stripped_from_names() -> None:
    assert words.one_line("Ac\u00adm\u200be\U000e0041 \u2066Ltd\u2069") == "Acme Ltd"


async def test_mention_inside_a_message_parts_two_words(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    await deal.post("message", user="U0REP", channel="C0DEALS", text=f"status @quotebot {FIRST_QUOTE}")
    assert f"Quote {FIRST_QUOTE} for Acme" in (await deal.whispers("U0REP"))[-1]
