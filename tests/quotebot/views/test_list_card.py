"""Tests of the list with its buttons: each contains its whole query, and a click replaces the answer in place."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.app.installation import speak
from quotebot.commands.queries import OPEN, ListRequest
from quotebot.domain.quotes.quote import Listed, QuoteState
from quotebot.store.quotes import Page
from quotebot.views.confirmations import SHOW
from quotebot.views.list_card import NEWER, OLDER, WHICH, WHOSE, link_preview, list_blocks, parse_question, question_text
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from tests.rig import Deal

QUOTE = Listed("Q-2026-0042", 2, QuoteState.SENT, "Acme & <Sons>", "U0REP", "rep", MORNING, MORNING, Decimal("17340.00"), "USD")
ASKED = (
    ListRequest(),
    ListRequest(mine=False, states=OPEN, page=3),
    ListRequest(mine=False, owner="U0CFO", states=frozenset({QuoteState.SENT, QuoteState.LOST}), account="Acme <& Söhne>"),
)


def buttons(blocks: list[dict[str, Any]]) -> dict[str, ListRequest | None]:
    return {element["action_id"]: parse_question(element["value"]) for element in blocks[-1]["elements"]}


@pytest.mark.parametrize("asked", ASKED)
def test_the_list_reads_like_this(asked: ListRequest, snapshot: SnapshotAssertion) -> None:
    blocks = list_blocks(Page((QUOTE, replace(QUOTE, version=1)), asked.page, more=True), asked, "as text")
    assert message_problems("as text", blocks) == []
    assert blocks == snapshot


@pytest.mark.parametrize("asked", ASKED)
def test_a_button_carries_its_whole_question(asked: ListRequest) -> None:
    assert parse_question(question_text(asked)) == asked


def test_the_buttons_turn_the_page_and_change_one_thing_each() -> None:
    asked = ListRequest(account="Acme", page=2)
    assert buttons(list_blocks(Page((QUOTE,), 2, more=True), asked, "x")) == {
        WHOSE: ListRequest(mine=False, account="Acme"),
        WHICH: ListRequest(states=OPEN, account="Acme"),
        NEWER: ListRequest(account="Acme", page=1),
        OLDER: ListRequest(account="Acme", page=3),
    }
    assert set(buttons(list_blocks(Page((), 1, more=False), ListRequest(), "You have no quotes."))) == {WHOSE, WHICH}


def test_a_full_page_of_the_longest_names_is_within_the_limits() -> None:
    long = replace(QUOTE, account="<&>" * 200, quote_id="Q-2026-999999999", version=999_999)
    asked = ListRequest(account="ß" * 100, states=frozenset(QuoteState), page=9_999)
    assert message_problems("x", list_blocks(Page((long,) * 20, 9_999, more=True), asked, "x")) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"v":2,"m":true,"o":null,"s":[],"a":null,"p":1}',
        '{"v":1,"m":1,"o":null,"s":[],"a":null,"p":1}',
        '{"v":1,"m":true,"o":3,"s":[],"a":null,"p":1}',
        '{"v":1,"m":true,"o":null,"s":["gone"],"a":null,"p":1}',
        '{"v":1,"m":true,"o":null,"s":[],"a":null,"p":0}',
        '{"v":1,"m":true,"o":null,"s":[],"a":null,"p":true}',
    ],
)
def test_a_question_of_another_build_is_none(text: str) -> None:
    assert parse_question(text) is None


async def lists(deal: Deal) -> list[dict[str, Any]]:
    return [message for message in await deal.messages() if message["ephemeral_for"] == "U0REP" and message["blocks"]]


async def test_a_list_is_filtered_and_paged_by_clicks_in_the_same_private_message(deal: Deal) -> None:
    for number in range(21):
        await deal.slash(f"new for Customer {number}: {number + 1} pro")
    await deal.settled()
    answer = await deal.slash("list")
    assert len(answer["ack"]["blocks"]) == 22
    for action_id, rows, first in ((OLDER, 1, "Customer 0"), (NEWER, 20, "Customer 20"), (WHOSE, 20, "Customer 20")):
        await deal.click_ephemeral(action_id)
        shown = await lists(deal)
        assert len(shown) == 1, action_id
        assert len(shown[0]["blocks"]) == rows + 2
        assert first in shown[0]["blocks"][1]["text"]["text"]
    assert "*All quotes*" in shown[0]["blocks"][0]["text"]["text"]
    await deal.click_ephemeral(SHOW)
    shown = await lists(deal)
    assert "Customer 20" in shown[-1]["text"]
    assert len(await deal.rows("SELECT 1 FROM operations")) == 21


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_link_preview_has_no_button_and_says_its_time(language: str, snapshot: SnapshotAssertion) -> None:
    quote = example_quote(QuoteState.PRICED, account="<!channel> & " + "Acme " * 40)
    speak(language)
    try:
        blocks = link_preview(quote, MORNING)
    finally:
        speak("en")
    assert message_problems("x", blocks) == []
    assert blocks == snapshot


def test_a_list_speaks_german() -> None:
    speak("de")
    try:
        asked = ListRequest(mine=True, states=frozenset({QuoteState.SENT, QuoteState.LOST}), account="Acme", page=2)
        blocks = list_blocks(Page((QUOTE,), 2, more=True), asked, "x")
    finally:
        speak("en")
    assert blocks[0]["text"]["text"] == '*Ihre Angebote · An Kunden gesendet oder verloren · "Acme" · Seite 2*'
    assert "📤 An Kunden gesendet · <@U0REP>" in blocks[1]["text"]["text"]
    assert [each["text"]["text"] for each in blocks[-1]["elements"]] == ["Alle Angebote", "Alle Status", "◀ Neuere", "Ältere ▶"]
