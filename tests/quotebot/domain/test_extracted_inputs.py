"""Free text reaches every input of a request, by explicit wording alone, and reports what it cannot read."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pytest

from quotebot.app.installation import speak
from quotebot.domain.extraction.extractor import extract
from quotebot.domain.extraction.model_answers import ModelLine, ModelReading, checked
from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.engine import LineRequest
from quotebot.slack.grammar import creation
from quotebot.views.extraction_messages import question, written
from tests.quotebot.domain.ruleset_parts import product, ruleset

CATALOGUE: Final = ruleset(
    products=[
        product("pro"),
        product("sso", name="SSO"),
        product(
            "storage",
            kind="configurable",
            attributes=[
                {"name": "gb", "choices": ["10", "100"], "default": "10"},
                {"name": "region", "choices": ["us", "eu central"], "default": "us"},
            ],
        ),
        product("basic"),
        product("onboarding"),
        product("premium", name="Premium Care", aliases=["deluxe"]),
        product(
            "suite",
            kind="bundle",
            components=[{"sku": "storage"}],
            choices=[
                {"name": "care", "of": ["basic", "premium"], "optional": True},
                {"name": "setup", "of": ["onboarding"], "optional": True},
            ],
        ),
    ]
).catalogue


TEXT: Final = "please quote 150 pro for Acme, 12 months"


@pytest.mark.parametrize(
    ("said", "inputs"),
    [
        ("billed quarterly", {"billing_frequency": "quarterly"}),
        ("invoiced every month", {"billing_frequency": "monthly"}),
        ("annual billing please", {"billing_frequency": "annual"}),
        ("paid up front", {"billing_frequency": "upfront"}),
        ("segment partner", {"segment": "partner"}),
        ("with reseller prices", {"segment": "reseller"}),
        ("plus tax DE", {"region": "DE", "with_tax": True}),
        ("region FR", {"region": "FR"}),
        ("special terms liability_cap and net_60", {"terms": ("liability_cap", "net_60")}),
        ("starting 2027-02-01", {"commercial": CommercialTerms(start_date=date(2027, 2, 1))}),
        ("start date: 1 Feb 2027", {"commercial": CommercialTerms(start_date=date(2027, 2, 1))}),
        ("from February 1, 2027", {"commercial": CommercialTerms(start_date=date(2027, 2, 1))}),
        ("payment net 45", {"commercial": CommercialTerms(payment_days=45)}),
        ("net-30 days", {"commercial": CommercialTerms(payment_days=30)}),
        ("PO number 4711-A", {"commercial": CommercialTerms(po_number="4711-A")}),
        ("valid for 45 days", {"commercial": CommercialTerms(valid_days=45)}),
        ("valid until 31 March 2027", {"commercial": CommercialTerms(valid_until=date(2027, 3, 31))}),
        (
            "; note: Their budget, 10,000, ends in June",
            {"commercial": CommercialTerms(approver_note="Their budget, 10,000, ends in June")},
        ),
        ("; language de", {"commercial": CommercialTerms(language="de")}),
    ],
)
def test_free_text_says_an_input_of_the_request(said: str, inputs: dict[str, Any]) -> None:
    found = extract(f"{TEXT}, {said}" if said[0] != ";" else f"{TEXT}{said}", CATALOGUE)
    assert found.open_questions == ()
    assert (found.account, found.term_months, found.lines) == ("Acme", 12, (LineRequest("pro", 150),))
    assert {name: getattr(found.inputs, name) for name in inputs} == inputs


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("20 pro -10%", LineRequest("pro", 20, Decimal(10))),
        ("20 pro seats -7.5 %", LineRequest("pro", 20, Decimal("7.5"))),
        (
            "20 pro at $5.40 per seat because volume deal",
            LineRequest("pro", 20, agreed_price=Decimal("5.40"), price_reason="volume deal"),
        ),
        ("20 pro @5 because we agreed", LineRequest("pro", 20, agreed_price=Decimal(5), price_reason="we agreed")),
        ("20 pro (optional)", LineRequest("pro", 20, optional=True)),
        ("optional 20 pro", LineRequest("pro", 20, optional=True)),
        ("20 pro as an option", LineRequest("pro", 20, optional=True)),
        (
            "20 storage (gb=100, region = EU Central)",
            LineRequest("storage", 20, attributes=(("gb", "100"), ("region", "eu central"))),
        ),
        ("20 storage with 100 gb", LineRequest("storage", 20, attributes=(("gb", "100"),))),
        ("20 storage, region eu central", LineRequest("storage", 20, attributes=(("region", "eu central"),))),
        ("20 storage -5% (optional)", LineRequest("storage", 20, Decimal(5), optional=True)),
        *(
            (said, LineRequest("suite", 20, attributes=(("care", choice),)))
            for said, choice in (
                ("20 suite (care=premium)", "premium"),
                ("20 suite (Care = Premium Care)", "premium"),
                ("20 suite with premium care", "premium"),
                ("20 suite with deluxe", "premium"),
                ("20 suite with basic care", "basic"),
                ("20 suite, care: basic", "basic"),
                ("20 suite without care", "none"),
            )
        ),
    ],
)
def test_free_text_says_an_option_of_a_line(said: str, line: LineRequest) -> None:
    found = extract(f"please quote 10 sso, {said}, for Acme, 12 months", CATALOGUE)
    assert found.open_questions == ()
    assert found.lines == (LineRequest("sso", 10), line)
    asked = creation(written(found), "C0DEALS", CATALOGUE)
    assert getattr(asked, "request", None) == found.request


def test_a_counted_product_is_a_line_of_its_own_beside_a_bundle_that_may_hold_it() -> None:
    for said in ("20 suite and 5 premium care for Acme, 12 months", "20 suite with 5 premium for Acme, 12 months"):
        assert extract(said, CATALOGUE).lines == (LineRequest("suite", 20), LineRequest("premium", 5)), said


def test_what_another_product_comes_with_is_no_choice_of_a_bundle() -> None:
    found = extract("10 suite and 5 sso with premium care for Acme, 12 months", CATALOGUE)
    assert found.lines == (LineRequest("suite", 10), LineRequest("sso", 5))
    assert [remark.code for remark in found.open_questions] == ["no_quantity"]


def test_a_choice_is_said_in_the_language_of_the_installation() -> None:
    speak("de")
    for said, choice in (("mit Premium Care", "premium"), ("ohne care", "none")):
        found = extract(f"20 suite {said} für Acme, 12 Monate", CATALOGUE)
        assert (found.open_questions, found.lines) == ((), (LineRequest("suite", 20, attributes=(("care", choice),)),))


@pytest.mark.parametrize(
    ("said", "choices", "doubts"),
    [
        ("with setup", (("setup", "onboarding"),), []),
        ("including the setup", (("setup", "onboarding"),), []),
        ("with setup and 5 sso", (("setup", "onboarding"),), []),
        ("with basic care and with setup", (("care", "basic"), ("setup", "onboarding")), []),
        ("(care=basic) with care", (("care", "basic"),), []),
        ("with care", (), [Remark("choice", "with care", "basic or premium")]),
        ("and 5 sso with setup", (), [Remark("choice", "with setup", "onboarding")]),
    ],
)
def test_a_bundles_choice_by_its_own_name_selects_its_only_product_or_is_asked(
    said: str, choices: tuple[tuple[str, str], ...], doubts: list[Remark]
) -> None:
    text = f"10 suite {said} for Acme, 12 months"
    found = extract(text, CATALOGUE)
    assert (found.lines[0], list(found.open_questions)) == (LineRequest("suite", 10, attributes=choices), doubts)
    given = ModelReading("Acme", (ModelLine("suite", "10", "10 suite"), ModelLine("sso", "5", "5 sso")), "12", None, None)
    beside = checked(text, given, CATALOGUE)
    assert beside.lines[0].attributes == choices
    assert [remark for remark in beside.open_questions if remark.code == "choice"] == doubts


def test_a_bundles_choice_by_its_own_name_is_read_in_german() -> None:
    speak("de")
    found = extract("10 suite mit Setup für Acme, 12 Monate", CATALOGUE)
    asked = question(extract("10 suite mit care für Acme, 12 Monate", CATALOGUE))
    assert (found.open_questions, found.lines[0].attributes) == ((), (("setup", "onboarding"),))
    assert asked.endswith("• „mit care“: Was davon, basic oder premium?")


def test_a_discount_on_a_named_product_is_that_lines_own() -> None:
    found = extract("20 pro and 5 sso for Acme, 10% off sso, 12 months", CATALOGUE)
    assert (found.open_questions, found.discount_percent) == ((), None)
    assert found.lines == (LineRequest("pro", 20), LineRequest("sso", 5, Decimal(10)))


@pytest.mark.parametrize(
    "said",
    ["billed quarterly, annual billing", "starting 2027-02-01, start 2027-03-01", "starting 02/03/2027", "net 30, payment net 45"],
)
def test_an_input_that_can_be_read_in_two_ways_is_asked_back(said: str) -> None:
    assert [remark.code for remark in extract(f"{TEXT}, {said}", CATALOGUE).open_questions] == ["number"]


def test_a_price_without_a_reason_is_remarked_and_changes_nothing() -> None:
    found = extract("20 pro at $5.40 for Acme, 12 months", CATALOGUE)
    assert "money" in [remark.code for remark in found.remarks if remark.excerpt == "$5.40"]
    assert found.lines == (LineRequest("pro", 20),)


@pytest.mark.parametrize(
    "said", ["the segment is growing", "segment none", "they start with us", "tax is their problem", "the PO follows"]
)
def test_other_words_set_no_input(said: str) -> None:
    found = extract(f"{TEXT}, {said}", CATALOGUE)
    assert found.inputs == extract(TEXT, CATALOGUE).inputs


def test_a_model_adds_inputs_that_the_message_contains_and_each_is_remarked() -> None:
    text = "Acme: 10 storage, 100 of gb, 5% off, optional; partner, each quarter, pay 45 days, on 1 of Feb, 2027"
    line = ModelLine("storage", "10", "10 storage, 100 of gb, 5% off", "5", (("gb", "100"),), optional=True)
    given = ModelReading(
        *("Acme", (line,), None, None, None),
        segment="partner",
        billing_frequency="quarterly",
        start_date="2027-02-01",
        payment_days="45",
    )
    found = checked(text, given, CATALOGUE)
    assert found.lines == (LineRequest("storage", 10, Decimal(5), attributes=(("gb", "100"),), optional=True),)
    assert (found.inputs.segment, found.inputs.billing_frequency) == ("partner", "quarterly")
    assert found.inputs.commercial == CommercialTerms(start_date=date(2027, 2, 1), payment_days=45)
    assert {remark.meaning for remark in found.remarks if remark.code == "joined"} == {
        *("segment partner", "billing frequency quarterly", "start date 2027-02-01", "payment days 45")
    }


@pytest.mark.parametrize("blank", [" ", "\u2003", "\t"])
@pytest.mark.parametrize("name", ["account", "segment", "po_number"])
def test_a_blank_value_of_a_model_is_none(name: str, blank: str) -> None:
    given = replace(ModelReading("Acme", (ModelLine("pro", "20", "20 pro"),), "12", None, None), **dict[str, Any]({name: blank}))
    found = checked("20 pro for Acme, 12 months", given, CATALOGUE)
    assert (found.account, found.inputs.segment, found.inputs.commercial.po_number) == ("Acme", None, None)
    assert not found.open_questions


def test_a_model_names_the_choice_of_a_bundle_by_any_name_that_the_message_has() -> None:
    for said, text in (
        ("premium", "with premium care"),
        ("Premium Care", "and the premium care for it"),
        ("none", "without care"),
        ("basic", "for less"),
    ):
        excerpt = f"20 suite {text}"
        line = ModelLine("suite", "20", excerpt, None, (("care", said),))
        found = checked(f"{excerpt}, for Acme, 12 months", ModelReading("Acme", (line,), "12", None, None), CATALOGUE)
        chosen = dict(found.lines[0].attributes)
        if said == "basic":
            assert (chosen, "invented" in [remark.code for remark in found.remarks]) == ({}, True)
        else:
            assert chosen == {"care": "none" if said == "none" else "premium"}
            assert "invented" not in [remark.code for remark in found.remarks]


def test_a_price_in_a_message_is_remarked_beside_a_model_too() -> None:
    reading = ModelReading("Acme", (ModelLine("pro", "20", "20 pro"),), "12", None, None)
    found = checked("20 pro at $5.40 for Acme, 12 months, soon", reading, CATALOGUE)
    assert Remark("money", "$5.40") in found.remarks
    assert found.lines == (LineRequest("pro", 20),)


def test_what_the_rules_read_of_a_line_is_kept_beside_a_model() -> None:
    reading = ModelReading("Acme", (ModelLine("pro", "10", "10 pro"),), "12", None, None)
    found = checked("10 pro -5% (optional), 1 sso for Acme, 12 months, billed monthly", reading, CATALOGUE)
    assert found.lines == (LineRequest("pro", 10, Decimal(5), optional=True),)
    assert found.inputs.billing_frequency == "monthly"
    assert [remark.code for remark in found.open_questions] == ["no_quantity"]


@pytest.mark.parametrize(
    ("said", "lines", "header", "codes"),
    [
        ("20 pro with 10% off", [("pro", "20", "20 pro with 10% off", "10")], None, []),
        ("20 pro with 10% off, 10% off in total", [("pro", "20", "20 pro with 10% off", "10")], 10, []),
        (
            "20 pro with 10% off and 5 sso",
            [("pro", "20", "20 pro with 10% off", "10"), ("sso", "5", "5 sso", None)],
            None,
            ["discounts"],
        ),
    ],
)
def test_a_percentage_that_a_message_has_once_is_applied_once(
    said: str, lines: list[tuple[str, str, str, str | None]], header: int | None, codes: list[str]
) -> None:
    given = ModelReading("Acme", tuple(ModelLine(*line) for line in lines), "12", None, None)
    found = checked(f"Acme: {said}, 12 months", given, CATALOGUE)
    assert (found.discount_percent, [remark.code for remark in found.open_questions]) == (header, codes)
    assert found.lines[0].discount_percent == 10


@pytest.mark.parametrize(
    ("said", "reason", "others"),
    [
        ("20 pro at 5 because volume deal and 10 sso", "volume deal", (LineRequest("sso", 10),)),
        (
            "20 pro at 5 because volume deal with optional 10 sso -5%",
            "volume deal",
            (LineRequest("sso", 10, Decimal(5), optional=True),),
        ),
        ('20 pro at 5 because "they leave sso -5% out"', "they leave sso -5% out", ()),
    ],
)
def test_the_reason_of_a_price_ends_before_the_next_product(said: str, reason: str, others: tuple[LineRequest, ...]) -> None:
    found = extract(f"{said}, for Acme, 12 months", CATALOGUE)
    assert found.open_questions == ()
    assert found.lines == (LineRequest("pro", 20, agreed_price=Decimal(5), price_reason=reason), *others)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("20 pro at 5 because they also take sso", "no_quantity"),
        ("20 pro at 5 because volume deal and 10 golds", "unknown_product"),
    ],
)
def test_a_product_named_in_a_reason_is_asked_about(said: str, code: str) -> None:
    assert code in [remark.code for remark in extract(f"{said}, for Acme, 12 months", CATALOGUE).open_questions]


MODEL: Final = ModelReading("Acme", (ModelLine("pro", "10", "10 pro"),), "12", None, None)
PLAIN: Final = "Acme wants 10 pro over 12 months; kindly hurry"


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ({"start_date": "soon"}, Remark("unclaimed", "start date soon")),
        ({"payment_days": "net 45"}, Remark("unclaimed", "payment days net 45")),
        ({"billing_frequency": "each moon"}, Remark("unclaimed", "billing frequency each moon")),
        ({"region": "Bavaria"}, Remark("unclaimed", "region Bavaria")),
        ({"discount_percent": "10%"}, Remark("discounts", "10%")),
        ({"currency": "euros"}, Remark("currencies", "euros")),
        ({"po_number": ""}, None),
        ({"term_months": "one year"}, None),  # the rules have read it
    ],
)
def test_a_models_field_in_another_format_is_dropped_and_remarked(given: dict[str, Any], remark: Remark | None) -> None:
    honest, found = (checked(PLAIN, replace(MODEL, **more), CATALOGUE) for more in ({}, given))
    assert set(found.remarks) - set(honest.remarks) == ({remark} if remark else set())
    assert (found.account, found.lines, found.term_months) == ("Acme", (LineRequest("pro", 10),), 12)
    assert (found.inputs, found.discount_percent, found.currency) == (honest.inputs, None, None)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("Acme wants 110 pro for 12 months", {}),  # "10 pro" is in it
        ("Acme wants 2.10 pro for 12 months", {}),
        ("Acmeville wants 10 pro for 12 months", {}),
        ("Acme wants 10 pro for 12 months, order 44711", {"po_number": "4711"}),
        ("Acme wants 10 pro for 12 months, no ORDERS yet", {"region": "DE"}),
        ("Acme wants 10 pro for 12 months, 1 market in 2027", {"start_date": "2027-03-01"}),
        ("Acme wants 10 pro for 12 months, 5 teams in 2027", {"start_date": "2027-12-05"}),
        ("Acme wants 10 pro for 12 months, adoption is slow", {"lines": (ModelLine("pro", "10", "10 pro", optional=True),)}),
    ],
)
def test_a_part_of_a_word_or_of_a_number_supports_no_value_of_a_model(text: str, given: dict[str, Any]) -> None:
    assert "invented" in {remark.code for remark in checked(text, replace(MODEL, **given), CATALOGUE).open_questions}


@pytest.mark.parametrize("start", [None, "2027-04-03", "2027-03-04"])
@pytest.mark.parametrize("said", ["starting 03/04/2027", "from 3.4.27"])
def test_a_date_that_can_be_read_in_two_ways_stays_a_question_beside_a_model(said: str, start: str | None) -> None:
    found = checked(f"{PLAIN}, {said}", replace(MODEL, start_date=start), CATALOGUE)
    assert Remark("number", said) in found.open_questions
    assert found.inputs.commercial.start_date is None


@pytest.mark.parametrize(
    "said", ["25/12/2027", "12/25/2027", "2027-12-25", "2027/12/25", "December 25th, 2027", "25 dec 2027", "25.12.27"]
)
def test_a_date_that_can_be_read_in_one_way_is_taken_from_a_model(said: str) -> None:
    found = checked(f"{PLAIN}, kick-off {said}.", replace(MODEL, start_date="2027-12-25"), CATALOGUE)
    assert (found.inputs.commercial.start_date, found.open_questions) == (date(2027, 12, 25), ())


@pytest.mark.parametrize(
    ("said", "given", "inputs"),
    [
        ("Zahlungsziel 30 Tage, monatliche Abrechnung", ("30", "monthly"), (30, "monthly")),
        ("zahlbar in dreißig Tagen, Rechnung vierteljährlich", ("30", "quarterly"), (30, "quarterly")),
        ("Rechnung pro Quartal, nicht je Jahr", (None, "quarterly"), (None, "quarterly")),
        ("jährliche Rechnung", (None, "annual"), (None, "annual")),
    ],
)
def test_a_model_is_supported_by_german_words(said: str, given: tuple[str | None, str], inputs: tuple[int | None, str]) -> None:
    speak("de")
    line = ModelLine("pro", "10", "zehn Pro")
    reading = ModelReading("Acme", (line,), "12", None, None, payment_days=given[0], billing_frequency=given[1])
    found = checked(f"zehn Pro für Acme, zwölf Monate, {said}", reading, CATALOGUE)
    assert (found.open_questions, found.lines) == ((), (LineRequest("pro", 10),))
    assert (found.inputs.commercial.payment_days, found.inputs.billing_frequency) == inputs


def test_german_words_support_no_other_value_of_a_model() -> None:
    speak("de")
    text = "zehn Pro für Acme, zwölf Monate, vierteljährliche Rechnung, 30 Leute"
    for given in ({"billing_frequency": "annual"}, {"payment_days": "30"}):
        found = checked(text, replace(MODEL, lines=(ModelLine("pro", "10", "zehn Pro"),), **given), CATALOGUE)
        assert [remark.code for remark in found.open_questions] == ["invented"], given


@pytest.mark.parametrize("percent", [None, "19"])
def test_a_tax_rate_is_no_discount_beside_a_model(percent: str | None) -> None:
    speak("de")
    text = "10 Pro für Acme, zwölf Monate, zzgl. MwSt. 19 %"
    found = checked(text, replace(MODEL, discount_percent=percent, lines=(ModelLine("pro", "10", "10 Pro"),)), CATALOGUE)
    assert found.discount_percent is None
    assert [remark.code for remark in found.open_questions] == (["invented"] if percent else [])
    assert Remark("unsure", "19 %") in found.remarks


def test_a_tax_rate_is_no_discount_of_a_models_line() -> None:
    line = ModelLine("pro", "10", "10 pro, VAT 19%", "19")
    found = checked("10 pro, VAT 19%, for Acme, 12 months", replace(MODEL, lines=(line,)), CATALOGUE)
    assert (found.lines, Remark("invented", "19 %") in found.open_questions) == ((LineRequest("pro", 10),), True)


def test_a_bare_percentage_is_remarked_beside_a_model_as_long_as_it_is_applied() -> None:
    text = "10 pro for Acme, 12 months, 15%"
    assert Remark("percent", "15%", "15") in checked(text, MODEL, CATALOGUE).remarks
    lines = (ModelLine("pro", "10", "10 pro for Acme, 12 months, 15%", "15"),)
    applied = checked(text, replace(MODEL, lines=lines), CATALOGUE)
    assert (applied.discount_percent, "percent" in {remark.code for remark in applied.remarks}) == (None, False)


def test_the_german_word_pro_is_no_product_that_a_model_left_out() -> None:
    speak("de")
    line = ModelLine("sso", "20", "20 SSO")
    found = checked("20 SSO für Acme, 12 Monate, 5 Nutzer pro Standort", replace(MODEL, lines=(line,)), CATALOGUE)
    assert (found.open_questions, Remark("unsure", "5 Nutzer pro Standort") in found.remarks) == ((), True)


def test_a_date_with_a_german_month_is_taken_from_a_model() -> None:
    speak("de")
    for said, start in (("1. März 2027", "2027-03-01"), ("1. Mai 2027", "2027-05-01"), ("1. Dezember 2027", "2027-12-01")):
        found = checked(f"Acme möchte 10 pro, 12 Monate, ab {said}", replace(MODEL, start_date=start), CATALOGUE)
        assert (found.inputs.commercial.start_date, found.open_questions) == (date.fromisoformat(start), ()), said
