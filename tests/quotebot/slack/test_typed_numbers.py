"""Tests of the numbers that people type: every field of the forms and the typed text, in English and in German."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from quotebot.app.installation import speak
from quotebot.commands.payloads import ReviseQuote
from quotebot.domain.extraction.extractor import extract
from quotebot.domain.pricing.engine import Pricing, price
from quotebot.domain.pricing.price_requests import LineRequest, PriceRequest, dated
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.slack.grammar import read_changes, read_discount, read_price, read_request
from quotebot.views import builder
from quotebot.views.builder_details import TERMS
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.quote_examples import CATALOGUE, MORNING, example_quote
from tests.quotebot.views.test_forms import typed

REQUEST: Final = PriceRequest(
    (
        LineRequest("pro", 150, agreed_price=Decimal("5.4"), price_reason="volume"),
        LineRequest("sso", 20, Decimal("2.5")),
    ),
    18,
    Decimal("7.5"),
    "USD",
)
# Field -> its value in the changes; what is read in both languages; what only English or German reads; what nobody reads.
FIELDS: Final[dict[str, tuple[str, dict[str, object], dict[str, dict[str, object]], tuple[str, ...]]]] = {
    "row.0.quantity": (
        "quantity",
        {"1500": 1500, "1,000,000": 1_000_000},
        {"en": {"1,500": 1500}, "de": {}},
        ("1.500", "1.500.000", "12,5", "12.5", "0,500", "1 500"),
    ),
    "row.0.price": (
        "agreed_price",
        {"4.25": Decimal("4.25"), "3": Decimal(3), "2.1250": Decimal("2.125"), "0.125": Decimal("0.125")},
        {"en": {}, "de": {"4,25": Decimal("4.25"), "2,1250": Decimal("2.125"), "0,125": Decimal("0.125")}},
        ("1.500", "1,500", "01.500", "001,500", "1.500,00", "1,500.00", "4,2,5", "-1,5", "4,"),
    ),
    "row.1.discount": (
        "discount_percent",
        {"12.5": Decimal("12.5"), "12.5 %": Decimal("12.5"), "5%": Decimal(5)},
        {"en": {}, "de": {"12,5": Decimal("12.5"), "12,5 %": Decimal("12.5"), "12,25%": Decimal("12.25")}},
        ("1.500", "1,500", "01,500", "12,500 %", "1.250,5", "12,5,5"),
    ),
    "discount": (
        "discount_percent",
        {"12.5": Decimal("12.5"), "12.5 %": Decimal("12.5"), "5%": Decimal(5)},
        {"en": {}, "de": {"12,5": Decimal("12.5"), "12,5 %": Decimal("12.5"), "12,25%": Decimal("12.25")}},
        ("1.500", "1,500", "12,500 %", "1.250,5", "12,5,5"),
    ),
    "months": ("term_months", {"24": 24, "24 months": 24, "24 Monate": 24, "2 Jahre": 24}, {}, ("1,5", "1.5", "1.500", "1,500")),
    "deal.valid": ("valid_days", {"45": 45, "45 days": 45, "45 Tage": 45}, {}, ("4,5", "1.500", "1,500", "4.5")),
}
MENUS: Final = {"deal.payment_days"}  # of numbers; Slack sends one of the values that were offered


def edit_form() -> tuple[dict[str, Any], Any]:
    """Return the Edit form with every field of a number, and its quote."""
    priced = price(dated(REQUEST, MORNING), RULES.ruleset)
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    view = builder.revise_form(quote, RULES.ruleset, POLICY)
    carried = builder.carried_by(view["private_metadata"])
    assert carried is not None
    return builder.with_details(view, carried, TERMS, RULES.ruleset, POLICY), quote


def changed_to(name: str, field: str, text: str) -> object:
    """Return what the form reads in a field; None if it refuses the text at that field."""
    view, quote = edit_form()
    found = read_form(Form(typed(view, **{name: text}), RULES, MORNING, quote))
    if isinstance(found, dict):
        return None if name in found else found
    assert isinstance(found, Filled)
    assert isinstance(found.payload, ReviseQuote)
    changes = found.payload.changes
    assert changes is not None
    places = (*changes.lines, changes.commercial) if name.startswith(("row.", "deal.")) else (changes,)
    values = [getattr(each, field, None) for each in places]
    return next((value for value in values if value is not None), found)


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("name", FIELDS)
def test_each_field_of_a_number_is_read_as_written_or_refused(name: str, language: str) -> None:
    speak(language)
    field, both, own, refused = FIELDS[name]
    read = both | own.get(language, {})
    others = [text for texts in own.values() for text in texts if text not in read]
    assert {text: changed_to(name, field, text) for text in read} == read
    assert [text for text in (*refused, *others) if changed_to(name, field, text) is not None] == []


@pytest.mark.parametrize("language", ["en", "de"])
def test_an_unchanged_form_and_its_examples_are_read_as_shown(language: str) -> None:
    speak(language)
    view, quote = edit_form()
    inputs = {block["block_id"]: block["element"] for block in view["blocks"] if block["type"] == "input"}
    shown = {name: inputs[name].get("initial_value") for name in ("row.0.price", "row.1.discount", "discount", "months")}
    comma = {name: str(value).replace(".", ",") for name, value in shown.items()}
    assert shown == (comma if language == "de" else dict(zip(shown, ("5.4", "2.5", "7.5", "18"), strict=True)))
    assert inputs["row.0.price"]["placeholder"]["text"] == ("5,40" if language == "de" else "5.40")
    unchanged = read_form(Form(typed(view), RULES, MORNING, quote))
    assert list(unchanged if isinstance(unchanged, dict) else ()) == ["terms"]
    for name in FIELDS:
        example = inputs[name]["placeholder"]["text"]
        parts = [part for part in example.replace(" or ", " oder ").split(" oder ") if part[:1].isdigit()]
        assert all(changed_to(name, FIELDS[name][0], part.partition(" ")[0]) is not None for part in parts), name


def test_no_field_of_a_form_is_a_number_input_and_every_number_is_enumerated() -> None:
    view, _quote = edit_form()
    inputs = {block["block_id"]: block["element"]["type"] for block in view["blocks"] if block["type"] == "input"}
    assert "number_input" not in inputs.values()
    texts = {name for name, kind in inputs.items() if kind == "plain_text_input"}
    assert texts - set(FIELDS) == {"row.1.quantity", "row.0.reason", "terms"}
    assert set(FIELDS) | MENUS <= set(inputs)


LINES: Final[dict[str, tuple[LineRequest, ...]]] = {
    "10 pro @5,40 because volume deal, 5 sso": (
        LineRequest("pro", 10, agreed_price=Decimal("5.4"), price_reason="volume deal"),
        LineRequest("sso", 5),
    ),
    "10 pro at 5,40 because volume deal,5 sso": (
        LineRequest("pro", 10, agreed_price=Decimal("5.4"), price_reason="volume deal"),
        LineRequest("sso", 5),
    ),
    '10 pro @5,40 because "two years, paid at once", 5 sso': (
        LineRequest("pro", 10, agreed_price=Decimal("5.4"), price_reason="two years, paid at once"),
        LineRequest("sso", 5),
    ),
    "10 pro -12,5%, 5 sso -2,5 %": (LineRequest("pro", 10, Decimal("12.5")), LineRequest("sso", 5, Decimal("2.5"))),
    "10 pro -12,5%,5 sso": (LineRequest("pro", 10, Decimal("12.5")), LineRequest("sso", 5)),
}
REFUSED: Final = {  # text -> how to write it, in German and in English
    "10 pro @1,500 because x": ("„1,500“ ist kein Preis. Schreibweise: 5,40 oder 1500", "Write it like 5.40 or 1500"),
    "10 pro @1.500 because x": ("„1.500“ ist kein Preis. Schreibweise: 5,40 oder 1500", "Write it like 5.40 or 1500"),
    "10 pro @5,40 5 sso": ("„@5,40 5 sso“ ist kein Preis. Schreibweise: 5,40", "Write it like 5.40 or 1500"),
    "10 pro @5,40 sso": ("„@5,40 sso“ ist kein Preis. Schreibweise: 5,40", "Write it like 5.40 or 1500"),
    "10 pro -1,500%": ("oder `discount 12,5%`", "or `discount 12.5%`"),
    "10 pro, discount 12,5%": ("`; discount 12,5%`", "`; discount 12,5%`"),
    "10 pro; discount 1,500%": ("oder `discount 12,5%`", "or `discount 12.5%`"),
    "10 pro; discount 1.500%": ("oder `discount 12,5%`", "or `discount 12.5%`"),
    "1.500 pro": ("z. B. 1500, ohne Tausendertrennzeichen", "like 1500 or 1,500"),
    "12,5 pro": ("z. B. 1500, ohne Tausendertrennzeichen", "like 1500 or 1,500"),
}


@pytest.mark.parametrize("text", LINES)
def test_a_decimal_comma_of_a_line_is_read_in_german_and_refused_in_english(text: str) -> None:
    assert isinstance(read_request(text, CATALOGUE), tuple)
    assert isinstance(read_changes(text, CATALOGUE), tuple)
    speak("de")
    found = read_request(text, CATALOGUE)
    assert not isinstance(found, tuple)
    assert found.lines == LINES[text]


@pytest.mark.parametrize("text", REFUSED)
def test_a_number_in_doubt_is_refused_with_how_to_write_it(text: str) -> None:
    for language, told in zip(("de", "en"), REFUSED[text], strict=True):
        speak(language)
        for read in (read_request, read_changes):
            problems = read(text, CATALOGUE)
            assert isinstance(problems, tuple), text
            assert told in " ".join(problems)


def test_a_thousand_with_a_comma_is_in_doubt_only_in_german() -> None:
    assert not isinstance(read_request("1,500 pro", CATALOGUE), tuple)
    speak("de")
    assert isinstance(read_request("1,500 pro", CATALOGUE), tuple)
    assert (read_price("5,40"), read_discount("12,5 %")) == (Decimal("5.40"), Decimal("12.5"))


def test_a_comma_between_digits_of_a_reason_is_refused_and_any_other_separates() -> None:
    for text in (
        "10 pro @9 because they look at 8,40 sso",
        "10 pro @9 because it was 8,40 sso, 5 support",
        '10 pro @9 because "volume" and 8,40 sso',
        '10 pro @9 because "it was 8,40 sso',
        '10 pro @9 because "it was 8,40" 5 sso',
    ):
        problems = read_request(text, CATALOGUE)
        assert isinstance(problems, tuple)
        assert 'Put the reason in quotation marks: `because "..."`.' in " ".join(problems)
        assert extract(f"{text} for Acme", CATALOGUE).open_questions or text.endswith('" 5 sso')  # which has one meaning
    found = read_request("10 pro @9 because of volume,40 sso", CATALOGUE)
    assert not isinstance(found, tuple)
    assert [(line.sku, line.quantity, line.price_reason) for line in found.lines] == [("pro", 10, "of volume"), ("sso", 40, "")]
    quoted = read_request('10 pro @9 because "it was 8,40", 40 sso', CATALOGUE)
    assert not isinstance(quoted, tuple)
    assert [line.price_reason for line in quoted.lines] == ["it was 8,40", ""]


def test_free_text_reads_a_decimal_comma_in_german_only() -> None:
    text = "10 pro @5,40 because volume deal and 5 sso -2,5% for Acme"
    assert extract(text, CATALOGUE).open_questions
    speak("de")
    lines = {line.sku: line for line in extract(text, CATALOGUE).lines}
    assert (lines["pro"].agreed_price, lines["sso"].discount_percent) == (Decimal("5.4"), Decimal("2.5"))
    for unclear in ("10 pro @1,500 because volume deal for Acme", "10 pro @1.500 because volume deal for Acme"):
        found = extract(unclear, CATALOGUE)
        assert found.open_questions or all(line.agreed_price is None for line in found.lines)
