"""Tests of messages to the bot in a quote's thread: shown as a change of that quote, applied only by a click, once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.app.installation import speak
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.domain.quotes.quote import QuoteState
from quotebot.slack.message_text import APPLY, asks_about, parse_applied, proposed, with_number
from quotebot.views import messages
from tests.quotebot.parts import RULES
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import MORNING, example_quote, quote_in
from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from quotebot.commands.payloads import ReviseQuote
    from quotebot.domain.quotes.quote import Quote
    from tests.rig import Deal

QUOTE = example_quote()


def answered(text: str) -> tuple[str, ReviseQuote | None]:
    """Return the reply to a message in the golden quote's thread, and the change that its button makes."""
    answer = proposed(text, QUOTE, RULES, MORNING)
    assert answer is not None, text
    said, blocks = answer
    assert message_problems(said, blocks or []) == []
    if blocks is None:
        return said, None
    applied = parse_applied(blocks[-1]["elements"][0]["value"])
    assert applied is not None
    assert (applied.quote_id, applied.version) == (QUOTE.quote_id, QUOTE.version)
    return said, applied.payload


SHOWN = {
    "200 pro": ["• Pro: 150 → 200"],
    "discount 12%": ["• Discount 15% → 12%"],
    "remove support; term 24m": ["• Removed 1 \u00d7 Premium Support", "12 → 24 months"],
    "add 10 sso": ["• SSO: 150 → 160"],
    f"revise {QUOTE.quote_id}: 200 pro": ["• Pro: 150 → 200"],
    "make it 200 pro and 12% discount please": ["• Pro: 150 → 200", "• Discount 15% → 12%"],
    "make it 500 prro": ["• Pro: 150 → 500", 'I took "prro" as pro.'],
    "Acme wants 200 seats of Pro": ["• Pro: 150 → 200"],
    "two years": ["12 → 24 months"],
}


@pytest.mark.parametrize(
    "text", ["make it 18%", "18 %", "can we do 18%?", "please set it to 18 percent", "Let's go with an 18% please"]
)
def test_a_lone_percentage_is_offered_as_a_choice(text: str) -> None:
    said, blocks = proposed(text, QUOTE, RULES, MORNING) or ("", None)
    assert "15% \u2192 18%" in said
    assert blocks is not None
    labels = [element["text"]["text"] for element in blocks[-1]["elements"]]
    assert labels == ["Set discount to 18%", "Something else"]


def test_a_lone_percentage_with_a_decimal_comma_is_a_choice_in_german() -> None:
    assert answered("18,5 %")[1] is None
    speak("de")
    try:
        said, _blocks = proposed("18,5 %", QUOTE, RULES, MORNING) or ("", None)
    finally:
        speak("en")
    assert "Rabatt 15 % \u2192 18,5 %" in said


@pytest.mark.parametrize("text", SHOWN)
def test_a_change_is_shown_before_it_is_made(text: str) -> None:
    said, change = answered(text)
    assert change is not None
    assert said.startswith(f"*Change {QUOTE.quote_id} to v2?*\n")
    for part in SHOWN[text]:
        assert part in said


def test_a_proposed_change_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert proposed("Acme wants 200 profesional seats and 12% off", QUOTE, RULES, MORNING) == snapshot


ASKED_BACK = {
    "20 more pro and 12% discount": 'what "more" means here. Write `200 pro` for the new quantity',
    "2k more pro": '"more"',
    "we need 20 pro without sso": '"without"',
    "10% discount or 12% discount": '"or"',
    "150 pro, 15% discount": "already says",
}


@pytest.mark.parametrize("text", ASKED_BACK)
def test_what_could_mean_two_things_or_nothing_is_asked_back_without_a_button(text: str) -> None:
    said, change = answered(text)
    assert ASKED_BACK[text] in said
    assert change is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("pro 200", 200),
        ("Pro 1,500 please", 1500),
        ("revise: pro 200", 200),
        ("give them 20 more pro", 20),
        ("pro +20", 20),
        ("increase pro to 200", 200),
        ("a dozen more pro", 12),
    ],
)
def test_a_number_that_may_add_is_asked_about_with_a_button_for_each_meaning(text: str, number: int) -> None:
    said, blocks = proposed(with_number(text, QUOTE), QUOTE, RULES, MORNING) or ("", None)
    assert blocks is not None
    assert message_problems(said, blocks) == []
    assert blocks[0]["text"]["text"] == "Do you mean the new quantity or an addition?"
    buttons = [block["accessory"] for block in blocks[1:]]
    assert [each["text"]["text"] for each in buttons] == [f"Set Pro to {number:,}", f"Add {number:,} Pro"]
    applied = [parse_applied(each["value"]) for each in buttons]
    assert [each and each.payload.changes for each in applied] == [
        Changes((LineChange("set", "pro", number),)),
        Changes((LineChange("add", "pro", number),)),
    ]
    results = zip((number, 150 + number), blocks[1:], strict=True)
    assert all(f"• Pro: 150 \u2192 {new:,}" in block["text"]["text"] for new, block in results)


@pytest.mark.parametrize("text", ["noch 20 Pro", "bitte 20 zusätzliche Pro", "20 more pro"])
def test_a_german_word_that_adds_is_asked_about_too(text: str) -> None:
    speak("de")
    try:
        _said, blocks = proposed(text, QUOTE, RULES, MORNING) or ("", None)
        without = proposed("20 Pro ohne SSO", QUOTE, RULES, MORNING)
    finally:
        speak("en")
    assert blocks is not None
    labels = [block["accessory"]["text"]["text"] for block in blocks[1:]]
    assert labels == ["Pro auf 20 setzen", "20 Pro hinzufügen"]
    assert without is not None
    assert "ohne" in without[0]
    assert without[1] is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pro: 200", "• Pro: 150 \u2192 200"),
        ("pro x 200", "• Pro: 150 \u2192 200"),
        ("pro 150", "already says"),
        ("150 more pro", "• Pro: 150 \u2192 300"),
        ("1 more onboarding", "• Added 1 \u00d7 Onboarding"),
    ],
)
def test_a_number_with_one_meaning_is_not_asked_about(text: str, shown: str) -> None:
    said, blocks = proposed(text, QUOTE, RULES, MORNING) or ("", None)
    assert shown in said
    assert not any("accessory" in block for block in blocks or ())


@pytest.mark.parametrize(
    "text",
    ["hello there", "help", "status", "new for Globex: 10 pro", "Globex wants 10 pro", "submit", "revise Q-2026-0099: 10 pro", ""],
)
def test_what_asks_for_no_change_of_this_quote_is_left_to_others(text: str) -> None:
    assert proposed(text, QUOTE, RULES, MORNING) is None


@pytest.mark.parametrize(
    ("text", "quote", "shown"),
    [
        ("what is the status?", QUOTE, QUOTE.quote_id),
        ("who approves this", QUOTE, QUOTE.quote_id),
        ("thoughts?", QUOTE, QUOTE.quote_id),
        ("nice work everybody", QUOTE, None),
        ("what is the status?", None, None),
        ("where is q-2026-0007 please", None, "Q-2026-0007"),
    ],
)
def test_a_question_about_a_quote_shows_it(text: str, quote: Quote | None, shown: str | None) -> None:
    found = asks_about(text, quote)
    assert (None if found is None else found.quote_id) == shown


def test_a_quote_that_is_final_is_not_changed() -> None:
    answer = proposed("200 pro", quote_in(QuoteState.ACCEPTED), RULES, MORNING)
    assert answer is not None
    assert answer[0].startswith("Q-2026-0042 was won, so it can't be revised")
    assert answer[1] is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("status", "status Q-2026-0042"),
        ("Please cancel this quote.", "cancel Q-2026-0042"),
        ("submit it now", "submit Q-2026-0042"),
        ("thank it", "thank it"),
        ("explain line 2", "explain Q-2026-0042 line 2"),
        ("simulate: 200 pro", "simulate Q-2026-0042: 200 pro"),
        ("edit: 200 pro", "edit Q-2026-0042: 200 pro"),
        ("status Q-2026-0001", "status Q-2026-0001"),
        ("list mine", "list mine"),
        ("digest on", "digest on"),
        ("discount 12%", "discount 12%"),
        ("new for Acme: 10 pro", "new for Acme: 10 pro"),
        ("200 pro", "200 pro"),
    ],
)
def test_a_verb_without_a_number_means_the_quote_of_the_thread(text: str, meant: str) -> None:
    assert with_number(text, QUOTE) == meant


@pytest.mark.parametrize(
    "value",
    [
        "",
        "{}",
        '{"v":2,"q":"Q-2026-0042","n":1,"c":{}}',
        '{"v":1,"q":"Q-2026-0042","n":1,"c":{}}',
        '{"v":1,"q":"Q-2026-0042","n":0,"c":{"v":2,"changes":null,"request":null}}',
        '{"v":1,"q":"x","n":1,"c":{"v":2,"changes":null,"request":null}}',
        '{"v":1,"q":"Q-2026-0042","n":1,"c":{"v":2,"changes":{"lines":[{"deed":"set"}]},"request":null}}',
    ],
)
def test_a_button_of_another_build_is_none(value: str) -> None:
    assert parse_applied(value) is None


@given(st.text(max_size=300))
def test_no_message_raises_or_breaks_a_limit(text: str) -> None:
    answer = proposed(with_number(text, QUOTE), replace(QUOTE, account="<!channel>"), RULES, MORNING)
    if answer is not None:
        assert message_problems(answer[0], answer[1] or []) == []
        assert "<!channel>" not in answer[0]


async def test_thread_change_is_shown_to_its_author_only_and_made_once_by_a_click(deal: Deal) -> None:
    await deal.slash()
    await deal.settled()
    root = (await deal.card())["ts"]

    async def said(text: str, **more: Any) -> str:
        await deal.post("message", user="U0REP", channel="C0DEALS", text=text, **{"thread_ts": root, **more})
        return (await deal.whispers("U0REP"))[-1]

    await deal.post("message", user="U0REP", channel="C0DEALS", text="make it 200 pro", thread_ts=root)
    assert await deal.whispers("U0REP") == []  # the message was not for the bot
    assert "• Pro: 150 → 200" in await said("@quotebot make it 200 pro, 12% discount")
    assert f"Quote {FIRST_QUOTE}" in await said("@quotebot status")
    assert messages.BY_COMMAND_ONLY in await said("@quotebot submit")
    assert len(await deal.rows("SELECT 1 FROM operations")) == 1

    assert "Add 200 Pro" in await said("@quotebot pro 200")
    await said("@quotebot 200 pro; discount 12%")
    clicked = await deal.click_ephemeral(APPLY)
    await deal.redeliver(clicked["request_id"], "retry", 2)
    await deal.settled()
    assert f"{FIRST_QUOTE} v2" in (await deal.card())["text"]
    assert len(await deal.cards()) == 1
    await deal.click_ephemeral(APPLY)  # the same button again: v1 is superseded
    await deal.settled()
    assert f"v1 of {FIRST_QUOTE} was replaced by v2" in (await deal.whispers("U0REP"))[-1]
    outcomes = await deal.rows("SELECT outcome FROM operations WHERE action_kind = 'quote.revise' ORDER BY id")
    assert [row["outcome"] for row in outcomes] == ["applied", "refused"]
