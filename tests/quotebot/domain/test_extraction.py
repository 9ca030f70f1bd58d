"""Tests of extraction without a model: never silently wrong, and linear in the text's length."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.app.installation import speak
from quotebot.commands.payloads import CreateQuote
from quotebot.domain.catalogue.catalogue import Catalogue
from quotebot.domain.extraction import vocabulary
from quotebot.domain.extraction.extractor import REMARKS_MAX, Extraction, extract
from quotebot.domain.extraction.remarks import DOUBTS, Remark
from quotebot.slack import verbs
from quotebot.views import extraction_messages
from tests.quotebot.views.quote_examples import RULESET

CATALOGUE = RULESET.catalogue
REQUESTS = Path(__file__).parents[2] / "data" / "requests.txt"
LINE_SECONDS = 0.001
CHARACTERS = 24_000
GROWTH = 6
LINEAR = 2.5 * GROWTH  # measured on a busy machine; a quadratic parser would take 36 times as long


@dataclass(frozen=True, slots=True)
class Request:
    text: str
    meaning: tuple[Any, ...] | None  # None: the bot asks back


def meaning(found: Extraction) -> tuple[Any, ...]:
    lines = tuple((line.quantity, line.sku) for line in found.lines)
    return (found.account, lines, found.term_months, found.discount_percent, found.currency)


def labelled(row: str) -> Request:
    text, account, lines, term, discount, currency = (part.strip() for part in row.split(" | "))
    if account == "?":
        return Request(text, None)
    pairs = [line.split() for line in lines.split(", ")]
    return Request(
        text,
        (
            account,
            tuple((int(quantity), sku) for quantity, sku in pairs),
            None if term == "-" else int(term),
            None if discount == "-" else Decimal(discount),
            None if currency == "-" else currency,
        ),
    )


@cache
def requests() -> tuple[Request, ...]:
    rows = REQUESTS.read_text("utf-8").splitlines()
    return tuple(labelled(row) for row in rows if row and not row.startswith("#"))


@pytest.mark.parametrize("request_", requests(), ids=lambda request: request.text)
def test_a_labelled_request_is_read_as_a_careful_reader_would_or_asked_back(request_: Request) -> None:
    found = extract(request_.text, CATALOGUE)
    assert found.open_questions or meaning(found) == request_.meaning, found


def test_three_quarters_of_the_labelled_requests_are_read_exactly() -> None:
    exact = sum(not (found := extract(row.text, CATALOGUE)).open_questions and meaning(found) == row.meaning for row in requests())
    assert len(requests()) >= 120
    assert exact / len(requests()) >= 0.75


def test_a_labelled_request_is_read_within_a_millisecond() -> None:
    def seconds(text: str) -> float:
        taken = []
        for _ in range(5):
            begun = time.process_time()
            extract(text, CATALOGUE)
            taken.append(time.process_time() - begun)
        return min(taken)

    assert max(seconds(row.text) for row in requests()) < LINE_SECONDS


def remarks_on(text: str) -> list[tuple[str, str, str]]:
    return [(row.code, row.excerpt, row.meaning) for row in extract(text, CATALOGUE).remarks]


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("10 pro for Acme, 12 months", []),
        ("10 pro for Acme", [("term", "", "12")]),
        ("10 entreprise for Acme, 12m", [("near_name", "entreprise", "enterprise")]),
        ("a premium support for Acme, 12m", [("one", "a premium support", "support")]),
        ("2k pro for Acme, 12m", [("thousands", "2k", "2000")]),
        ("10 pro for Acme, 12m, 15%", [("percent", "15%", "15")]),
        ("10 pro for Acme, 12m, discount 15", [("percent", "discount 15", "15")]),
        ("10 pro for Acme, 12m, $5", [("money", "$5", ""), ("dollars", "$5", "USD")]),
        ("10 pro to Acme, 12m", [("account", "Acme", "Acme")]),
        ("10 pro for Acme, 12m, free forever", [("unclaimed", "free", ""), ("unclaimed", "forever", "")]),
        ("10 pro, 10 sso at 5% off for Acme, 12m", [("on_all", "5% off", "")]),
        ("10 pro for Acme, 12m, at a discount", [("unclaimed", "discount", "")]),
        (
            "Which of the plans, with 50 seats, is pro for Acme, 12m",
            [("joined", "50 seats, is pro", "50 pro"), ("unclaimed", "Which", "")],
        ),
        ("10 gizmos for Acme, 12m", [("unknown_product", "10 gizmos", ""), ("no_lines", "", "")]),
        ("10 pro for Acme, 12m, 24m", [("terms", "12m / 24m", "")]),
        ("10 pro for Acme, 12m, USD, EUR", [("currencies", "USD / EUR", "")]),
        ("10 pro, 5 pro for Acme, 12m", [("twice", "5 pro", "pro")]),
        ("pro for Acme, 12m", [("no_quantity", "pro", "pro"), ("no_lines", "", "")]),
        ("10 pro, 12m", [("no_account", "", "")]),
        ("1\u200b0 pro for Acme, 12m", [("number", "1", ""), ("sign", "\u200b", "")]),
    ],
)
def test_what_is_inferred_unread_or_in_doubt_is_reported(text: str, remarks: list[tuple[str, str, str]]) -> None:
    assert remarks_on(text) == remarks


def test_what_does_not_fit_into_the_list_is_counted() -> None:
    words = " ".join(f"word{letter}" for letter in "abcdefghijklmno")
    found = extract(f"10 pro for Acme, 12m, {words}", CATALOGUE).remarks
    assert len(found) == REMARKS_MAX
    assert found[-1] == Remark("more", "", "4")


def test_every_remark_has_its_sentence() -> None:
    said = {code: extraction_messages.remark(Remark(code, "<this>", "that.")) for code in extraction_messages.CODES}
    assert DOUBTS < extraction_messages.CODES
    assert all("<" not in sentence and sentence.endswith((".", "?")) for sentence in said.values())


IN_GERMAN: dict[str, tuple[Any, ...]] = {
    "Bitte 150 Pro und 20 SSO für Acme, 24 Monate, 10 % Rabatt": ("Acme", ((150, "pro"), (20, "sso")), 24, Decimal(10), None),
    "Wir brauchen ein Angebot für Müller GmbH: 20 Lizenzen Pro, Laufzeit zwei Jahre, Rabatt von 12,5 %": (
        "Müller GmbH",
        ((20, "pro"),),
        24,
        Decimal("12.5"),
        None,
    ),
    "Acme möchte 1500 Nutzer Pro für ein Jahr in Euro": ("Acme", ((1500, "pro"),), 12, None, "EUR"),
    "fünfundzwanzig Pro für Acme, dreißig Monate, fünf Prozent Nachlass": ("Acme", ((25, "pro"),), 30, Decimal(5), None),
    "12 Monate Pro, 20 Plätze, Kunde: Globex": ("Globex", ((20, "pro"),), 12, None, None),
    "150 pro for Acme, 24 months, 10% off": ("Acme", ((150, "pro"),), 24, Decimal(10), None),
}


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize("text", IN_GERMAN)
def test_german_text_is_read_where_the_installation_speaks_german(text: str) -> None:
    found = extract(text, CATALOGUE)
    assert (meaning(found), found.open_questions) == (IN_GERMAN[text], ())


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("1.500 Pro für Acme", ("number", "1.500 Pro")),
        ("1.000 Pro für Acme", ("number", "1.000 Pro")),
        ("Acme möchte 1,500 Nutzer Pro", ("number", "1,500 Nutzer Pro")),
        ("150 Pro und SSO für Acme", ("no_quantity", "SSO")),
        ("noch 20 Pro für Acme", ("word", "noch")),
        ("20 Pro für Acme, 30 Tage", ("word", "Tage")),
        ("20 Pro für Acme, außer SSO", ("word", "außer")),
        ("etwa 20 Pro für Acme", ("word", "etwa")),
        ("10,5 Pro für Acme", ("number", "10,5 Pro")),
    ],
)
def test_german_text_that_is_unclear_is_asked_about(text: str, doubt: tuple[str, str]) -> None:
    assert doubt in [(remark.code, remark.excerpt) for remark in extract(text, CATALOGUE).open_questions]


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize(
    "said",
    [
        *("USt. 19 %", "Preise netto, MwSt. 19 %", "Umsatzsteuer: 19 %", "19 % (MwSt.)", "19 %, Mehrwertsteuer", "USt-Satz 19 %"),
        *("VAT 19%", "tax: 19 percent", "VAT at 19%", "Skonto 2 %", "Skonto: zwei Prozent", "Anzahlung 30 %", "deposit, 30%"),
    ],
)
def test_a_percentage_beside_a_tax_or_a_payment_is_no_discount_but_asked_about(said: str) -> None:
    found = extract(f"20 Pro für Acme, 12 Monate, {said}", CATALOGUE)
    assert (found.discount_percent, [remark.code for remark in found.open_questions]) == (None, ["number"])


@pytest.mark.usefixtures("german")
@pytest.mark.parametrize(
    ("text", "lines", "doubts"),
    [
        ("20 Support, 5 Nutzer pro Standort, für Acme", [(20, "support")], ["5 Nutzer pro Standort"]),
        ("SSO für Acme, 5 Nutzer pro Standort", [], ["5 Nutzer pro Standort", "SSO"]),
        ("20 SSO pro Kunde für Acme", [], ["20 SSO pro Kunde"]),
        ("10 Nutzer pro Monat für Acme", [], ["10 Nutzer pro Monat"]),
        ("10 pro nutzer für Acme", [], ["10 pro nutzer"]),
        ("20 Support pro 10 Nutzer für Acme", [], ["20 Support pro 10"]),
        ("20 Support, pro 10 Nutzer für Acme", [(20, "support"), (10, "pro")], []),
        ("20 SSO für Acme, Pro Standort 5 Nutzer", [(20, "sso")], ["Pro Standort", "5"]),
        ("20 SSO für Acme, 5 EUR pro Monat", [(20, "sso")], []),
        ("20 SSO für Acme, Abrechnung pro Jahr", [(20, "sso")], []),
        ("20 pro à 5 EUR pro Nutzer für Acme", [(20, "pro")], []),
        *(
            (f"{said} für Acme", [(10, "pro")], [])
            for said in ("10 Pro", "10 pro", "10 Pro-Lizenzen", "10 Pro Lizenzen", "10 pro seats")
        ),
        *((f"{said} für Acme", [(10, "pro")], []) for said in ('10 "pro" Monatslizenz', "10 Pro, Monatslizenz", "10 Pro nur")),
        ("150 pro und 20 SSO für Acme", [(150, "pro"), (20, "sso")], []),
        ("Acme: pro zwölf", [(12, "pro")], []),
        ("10 Pro Plan für Acme", [(10, "pro")], []),
    ],
)
def test_the_german_word_pro_before_a_noun_is_no_product(text: str, lines: list[tuple[int, str]], doubts: list[str]) -> None:
    found = extract(text, CATALOGUE)
    assert [(line.quantity, line.sku) for line in found.lines] == lines
    assert [remark.excerpt for remark in found.open_questions if remark.code != "no_lines"] == doubts


@pytest.mark.parametrize(
    ("text", "lines", "doubts"),
    [
        ("20 sso per site for Acme", [], ["20 sso per site"]),
        ("150 pro and 20 sso per site for Acme", [(150, "pro")], ["20 sso per site"]),
        ("20 support per 10 users for Acme", [], ["20 support per 10"]),
        ("10 pro per month for Acme", [(10, "pro")], []),
        ("10 pro at $8 per seat for Acme", [(10, "pro")], []),
    ],
)
def test_a_share_of_something_is_no_quantity(text: str, lines: list[tuple[int, str]], doubts: list[str]) -> None:
    found = extract(text, CATALOGUE)
    assert [(line.quantity, line.sku) for line in found.lines] == lines
    assert [remark.excerpt for remark in found.open_questions if remark.code == "word"] == doubts


def test_pro_stays_a_product_where_the_installation_speaks_english() -> None:
    assert [line.sku for line in extract("10 pro Monatslizenz for Acme", CATALOGUE).lines] == ["pro"]


def test_german_words_mean_nothing_where_the_installation_speaks_english() -> None:
    found = extract("20 Pro für Acme, 24 Monate", CATALOGUE)
    assert (found.account, found.term_months) == (None, None)


def test_each_word_of_another_language_stands_for_a_known_one() -> None:
    tables = (vocabulary.KINDS, vocabulary.FILLERS, vocabulary.UNCLEAR, vocabulary.NO_NAMES)
    words = {english for words in vocabulary.WORDS.values() for english in words.values()}
    assert [word for word in words if not any(word in table for table in tables)] == []


def test_a_question_in_german_is_whole() -> None:
    speak("de")
    try:
        said = extraction_messages.question(extract("1500 pro and gizmo for Acme, 24 months, 12.5% off, 30", CATALOGUE))
        spent = extraction_messages.remark(Remark("rules", "", extraction_messages.WITHOUT_MODEL["late"]))
        told = extraction_messages.remark(Remark("percent", "12.5 off", "12.5"))
    finally:
        speak("en")
    assert said == (
        "Bisher: 1.500 pro, für Acme, 24 Monate, 12,5\u00a0% Rabatt. Für das Angebot fehlt noch etwas:\n"
        "• Was bedeutet 30? Ein Rabatt, eine Menge oder Monate?"
    )
    assert spent == "Das Lesen mit KI hat zu lange gedauert, daher gelten einfache Regeln."
    assert told == "„12.5 off“ wurde als 12,5\u00a0% Rabatt auf das ganze Angebot gelesen."


NAMES = st.sampled_from(["Acme", "Globex Corp", "Bank of Oslo", "Bolt Ltd"])
SKUS = st.lists(st.sampled_from(sorted(CATALOGUE.products)), min_size=1, max_size=4, unique=True)
QUANTITIES = st.integers(1, 99_999)
DISCOUNTS = st.none() | st.decimals(0, 100, places=2)


@given(NAMES, SKUS, st.data(), st.integers(1, 60), DISCOUNTS, st.sampled_from([None, "EUR", "USD", "JPY"]))
def test_what_is_written_plainly_is_read_back(
    account: str, skus: list[str], data: st.DataObject, term: int, discount: Decimal | None, currency: str | None
) -> None:
    wanted = tuple((data.draw(QUANTITIES), sku) for sku in skus)
    text = f"{', '.join(f'{quantity:,} {sku}' for quantity, sku in wanted)} for {account}, {term} months"
    text += f", {discount}% off" if discount is not None else ""
    text += f", in {currency}" if currency is not None else ""
    found = extract(text, CATALOGUE)
    assert meaning(found) == (account, wanted, term, discount, currency)
    assert found.remarks == ()


@given(NAMES, SKUS, st.data(), st.integers(1, 60), DISCOUNTS)
def test_what_was_read_is_written_as_the_command_that_means_it(
    account: str, skus: list[str], data: st.DataObject, term: int, discount: Decimal | None
) -> None:
    lines = ", ".join(f"{data.draw(QUANTITIES)} {sku}" for sku in skus)
    found = extract(f"{lines} for {account}, {term} months" + (f", {discount}% off" if discount is not None else ""), CATALOGUE)
    command = verbs.parse(f"new {extraction_messages.written(found)}", "C0SALES", CATALOGUE)
    assert isinstance(command, CreateQuote)
    request = command.request
    read = tuple((line.quantity, line.sku) for line in request.lines)
    assert (command.account, read, request.term_months, request.discount_percent) == (
        *meaning(found)[:3],
        discount or Decimal(0),
    )


PIECES = [
    "10",
    "pro",
    "for",
    "Acme",
    "and",
    "12 months",
    "%",
    "off",
    "$",
    "k",
    "a",
    "one hundred",
    "-",
    ",",
    "\u202e",
    "٣",
    "is",
    "of",
    "&",
]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
def test_any_text_is_read_without_an_error_within_bounds_and_the_same_way_again(text: str) -> None:
    found = extract(text, CATALOGUE)
    assert found == extract(text, CATALOGUE)
    assert len(found.remarks) <= REMARKS_MAX
    assert all(line.sku in CATALOGUE.products and line.quantity >= 0 for line in found.lines)
    assert found.account is None or found.account in " ".join(text.split())
    assert len(extraction_messages.question(found)) < 3_000
    assert all(code in extraction_messages.CODES for code in (row.code for row in found.remarks))


HOSTILE = {
    "number words": "one hundred and ",
    "capitals": "for Acme and ",
    "links": "for A of of of of of of ",
    "digits": "1,2.",
    "unknown products": "10 gizmo gadget ",
    "near names": "10 entreprize plam ",
    "percentages": "5% off of the ",
    "units": "10 seats of x of x seats ",
    "products": "pro x pro with ",
    "one word": "a",
    "hyphens": "a-1-",
    "money": "$5k ",
    "signs": "\u202e~",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def seconds(characters: int) -> float:
        text = piece * (characters // len(piece))
        taken = []
        for _ in range(2):
            begun = time.process_time()
            extract(text, CATALOGUE)
            taken.append(time.process_time() - begun)
        return min(taken)

    assert seconds(CHARACTERS) < LINEAR * max(seconds(CHARACTERS // GROWTH), LINE_SECONDS)


def test_extraction_time_does_not_grow_with_the_size_of_the_catalogue() -> None:
    sold = CATALOGUE.products["pro"]
    many = {f"thing-{number}": replace(sold, sku=f"thing-{number}", aliases=()) for number in range(10_000)}
    large = Catalogue({**many, **CATALOGUE.products}, {**{sku: sku for sku in many}, **CATALOGUE.aliases})
    text = "Acme needs 150 seats of pro, 20 single-sign-on and 7 thing 77 for two years, 10% off"

    def seconds(catalogue: Catalogue) -> float:
        taken = []
        for _ in range(5):
            begun = time.process_time()
            extract(text, catalogue)
            taken.append(time.process_time() - begun)
        return min(taken)

    assert [line.sku for line in extract(text, large).lines] == ["pro", "sso", "thing-77"]
    assert seconds(large) < 5 * max(seconds(CATALOGUE), LINE_SECONDS)
