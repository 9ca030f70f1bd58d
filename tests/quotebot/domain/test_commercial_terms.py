"""Tests of commercial terms: how they are written, their limits, their edits, their end, and what an approval compares."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from adapters.pdf.renderer import DETAILED
from quotebot.app.installation import speak
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.approvals.policy_document import lint_policy, policy_document, read_policy
from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.pricing.commercial_terms import (
    USUAL,
    CommercialTerms,
    edited,
    ends_at,
    find_term_problems,
    payment_days,
    renewed_terms,
    term_rows,
)
from quotebot.domain.pricing.engine import Pricing, canonical, dated, from_canonical, price, request_of, trace
from quotebot.domain.pricing.price_requests import LineRequest
from quotebot.domain.pricing.term_clauses import clauses, line_text, read_clause, terms_text, written
from quotebot.domain.quotes.versions import difference_words
from quotebot.views.builder_details import PARTIES, Details, commercial_block
from tests.quotebot.parts import POLICY
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_quote

DAY = date(2026, 11, 21)
REQUEST = replace(request_of(example_quote().pricing), discount_percent=Decimal(0))
FULL = CommercialTerms(start_date=date(2027, 1, 31), payment_days=45, po_number="4711", bill_to="Jo Doe", vat_id="DE123")


def priced(**terms: Any) -> Pricing:
    found = price(dated(replace(REQUEST, commercial=CommercialTerms(**terms)), MORNING), RULESET)
    assert isinstance(found, Pricing), found
    return found


@pytest.mark.parametrize(
    ("keyword", "value", "found"),
    [
        ("start", "2027-01-31", {"start_date": date(2027, 1, 31)}),
        ("start", "1 February 2027", {"start_date": date(2027, 2, 1)}),
        ("payment", "Net 45", {"payment_days": 45}),
        ("payment", "30 days", {"payment_days": 30}),
        ("payment", "on receipt", {"payment_days": 0}),
        ("valid", "45 days", {"valid_days": 45, "valid_until": None}),
        ("valid", "until 2027-01-31", {"valid_days": None, "valid_until": date(2027, 1, 31)}),
        ("valid", "none", {"valid_days": None, "valid_until": None}),
        ("email", "<mailto:jo@acme.example|jo@acme.example>", {"bill_to_email": "jo@acme.example"}),
        ("vat", "de123456789", {"vat_id": "DE123456789"}),
        ("note", "“too much; too late”", {"approver_note": "too much; too late"}),
        ("note", '"none"', {"approver_note": "none"}),
        ("note", "none", {"approver_note": None}),
        ("language", "German", {"language": "de"}),
        ("start", "31.01.2027", {"start_date": date(2027, 1, 31)}),
        ("start", "01/31/2027", {"start_date": date(2027, 1, 31)}),
        ("start", "5.5.2027", {"start_date": date(2027, 5, 5)}),
    ],
)
def test_a_term_is_read_as_it_is_typed(keyword: str, value: str, found: dict[str, object]) -> None:
    assert read_clause(keyword, value) == found


@pytest.mark.parametrize(
    ("keyword", "value", "said"),
    [
        ("start", "01/02/2027", "two ways"),
        ("start", "1.2.2027", "two ways"),
        ("start", "31.1.27", "two ways"),
        ("start", "32.13.2026", "no day of the calendar"),
        ("start", "30.02.2027", "no day of the calendar"),
        ("valid", "until 1/2/2027", "two ways"),
        ("start", "2027-02-30", "no day of the calendar"),
        ("start", "soon", "`start 2027-01-31`"),
        ("payment", "1.500", "not readable"),
        ("payment", "next year", "not readable"),
        ("valid", "1.500d", "not readable"),
        ("note", '"a" and "b"', "no closing quotation mark"),
        ("note", "", "is empty"),
        ("language", "fr", "one of en, de"),
    ],
)
def test_an_ambiguous_or_unreadable_term_is_refused_with_a_remedy(keyword: str, value: str, said: str) -> None:
    found = read_clause(keyword, value)
    assert isinstance(found, str)
    assert said in found


def test_only_a_quoted_text_after_its_word_may_hold_a_semicolon() -> None:
    assert list(clauses('10 pro; note "a; ""b"""; po 1')) == ["10 pro", 'note "a; ""b"""', "po 1"]
    assert list(clauses('10 "pro; sso"')) == ['10 "pro', 'sso"']


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (CommercialTerms(payment_days=366), "payment"),
        (CommercialTerms(payment_days=30), "payment"),  # the special term is net 60
        (CommercialTerms(valid_days=0), "valid"),
        (CommercialTerms(valid_until=date(2026, 11, 20)), "valid"),
        (CommercialTerms(valid_until=date(2027, 12, 1)), "valid"),
        (CommercialTerms(start_date=date(2207, 1, 1)), "start"),
        (CommercialTerms(bill_to_email="jo at acme"), "bill_to"),
        (CommercialTerms(vat_id="DE"), "bill_to"),
        (CommercialTerms(approver_note="x" * 301), "note"),
        (CommercialTerms(customer_note="two\nlines"), "note"),
        (CommercialTerms(po_number="4711\u202e"), "po"),
        (CommercialTerms(bill_to="Jo\u200bDoe"), "bill_to"),
        (CommercialTerms(approver_note="soft\xadhyphen"), "note"),
        (CommercialTerms(language="fr"), "language"),
        (CommercialTerms(template="../x"), "template"),
    ],
)
def test_a_term_out_of_its_limits_is_refused(terms: CommercialTerms, code: str) -> None:
    assert [problem[0] for problem in find_term_problems(terms, ("net_60",), DAY)] == [code]


def test_hints_about_a_template_name_one_that_every_installation_has() -> None:
    ((_, _, suggestion),) = find_term_problems(CommercialTerms(template="../x"), (), DAY)
    (field,) = (block for block in Details((), (), ()).group(PARTIES, REQUEST) if block["block_id"] == commercial_block("template"))
    hints = (suggestion, str(read_clause("template", "")), f"template {field['element']['placeholder']['text']}")
    assert [re.findall(r"template ([a-z]+)", hint)[-1] for hint in hints] == [DETAILED] * 3


def test_an_edit_keeps_what_it_does_not_name_and_removes_what_it_clears() -> None:
    assert edited(FULL, CommercialTerms(payment_days=0), ("po_number",)) == replace(FULL, payment_days=0, po_number=None)
    dated_offer = edited(FULL, CommercialTerms(valid_until=DAY))
    assert edited(dated_offer, CommercialTerms(valid_days=10)) == replace(FULL, valid_days=10)


def test_an_offer_ends_with_its_last_day_or_after_its_days() -> None:
    midnight = 1_795_219_200_000  # 2026-11-21
    assert ends_at(CommercialTerms(valid_until=DAY), midnight + 5, 30) == midnight + 86_400_000 - 1
    assert ends_at(CommercialTerms(valid_days=2), midnight, 30) == midnight + 2 * 86_400_000
    assert ends_at(USUAL, midnight, 30) == midnight + 30 * 86_400_000


def test_a_clone_keeps_the_terms_but_not_of_another_customer_nor_an_ended_validity() -> None:
    old = replace(FULL, valid_until=date(2026, 11, 1))
    assert renewed_terms(old, MORNING, same_customer=True) == FULL
    assert renewed_terms(FULL, MORNING, same_customer=False) == CommercialTerms(start_date=FULL.start_date, payment_days=45)


def test_a_special_term_counts_as_payment_days() -> None:
    assert payment_days(USUAL, ("exclusivity", "net_60")) == 60
    assert payment_days(CommercialTerms(payment_days=0), ()) == 0
    assert payment_days(USUAL, ()) is None


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ({}, {"payment_days": 45}, ("payment",)),
        ({"payment_days": 45}, {"payment_days": 60}, ("payment",)),
        ({"payment_days": 45}, {"payment_days": 30}, ()),
        ({"payment_days": 45}, {}, ()),
        ({}, {"start_date": DAY}, ("start",)),
        ({"valid_days": 30}, {"valid_until": date(2027, 1, 31)}, ("validity",)),
        ({"valid_days": 90}, {"valid_until": date(2027, 1, 31)}, ()),
        ({}, {"vat_id": "DE123"}, ("billing address",)),
        ({}, {"approver_note": "a", "customer_note": "b", "po_number": "1", "bill_to": "Jo", "language": "de"}, ()),
    ],
)
def test_an_approval_is_not_reused_when_a_material_term_commits_to_more(
    before: dict[str, Any], after: dict[str, Any], worse: tuple[str, ...]
) -> None:
    assert got_worse(priced(**before), priced(**after)) == worse


def test_a_policy_asks_for_approval_of_long_payment_terms_however_they_are_written() -> None:
    over = [{"days": "45", "role": "deal_desk"}, {"days": "75", "role": "cfo"}]
    policy = read_policy({**policy_document(POLICY), "payment": {"over": over}})
    assert read_policy(policy_document(policy)) == policy
    assert evaluate(priced(payment_days=45), policy).automatic
    assert evaluate(priced(payment_days=60), policy).required_roles == ("deal_desk",)
    found = evaluate(priced(payment_days=90), policy)
    assert (found.required_roles, found.hits) == (("cfo",), ("payment net 90 (limit 75 days)",))
    named = price(dated(replace(REQUEST, terms=("net_60",)), MORNING), RULESET)
    assert isinstance(named, Pricing)
    assert evaluate(named, policy).required_roles == ("deal_desk",)
    assert evaluate(named, POLICY).automatic
    assert "cfo has no holder, and nobody above it: nobody can approve" in lint_policy(policy, (), (), {})


def test_a_change_of_a_term_alone_is_a_difference_and_is_explained() -> None:
    before, after = priced(payment_days=0), priced(payment_days=45, vat_id="DE123")
    assert difference_words(before, after) == ("Payment on receipt → net 45", "VAT id none → DE123")
    assert "Agreed: payment net 45; bill to VAT id DE123." in trace(after)
    assert term_rows(after.request.commercial if after.request else USUAL) == (("Payment", "net 45"), ("Bill to", "VAT id DE123"))


def test_a_price_without_terms_keeps_its_stored_form_and_one_with_terms_comes_back() -> None:
    plain: Any = canonical(priced())["request"]
    assert "commercial" not in plain
    full = priced(payment_days=45, start_date=date(2027, 1, 31))
    assert from_canonical(canonical(full)) == full


def test_terms_are_shown_in_german_and_typed_in_english() -> None:
    terms = replace(FULL, valid_days=1, language="de", template="standard", payment_days=0)
    line = LineRequest("pro", 1_500, agreed_price=Decimal("5.4"), price_reason="volume deal", optional=True)
    request = replace(REQUEST, commercial=terms, region="DE", with_tax=True, terms=("net_60",), billing_frequency="annual")
    typed = (written(terms), terms_text(request), line_text(line))
    speak("de")
    assert (written(terms), terms_text(request), line_text(line)) == typed
    assert term_rows(terms) == (
        ("Beginn", "31. Jan. 2027"),
        ("Zahlungsziel", "bei Erhalt"),
        ("Bestellnummer", "4711"),
        ("Rechnung an", "Jo Doe, USt-IdNr. DE123"),
        ("Gültig für", "1 Tag"),
        ("Dokument", "Deutsch, Vorlage standard"),
    )
    read = dict(zip(("start", "payment"), (read_clause("start", "2027-01-31"), read_clause("payment", "on receipt")), strict=True))
    assert read == {"start": {"start_date": date(2027, 1, 31)}, "payment": {"payment_days": 0}}


def test_problems_and_differences_of_terms_are_told_in_german() -> None:
    speak("de")
    wrong = CommercialTerms(payment_days=45, vat_id="!", approver_note="x" * 301)
    assert list(find_term_problems(wrong, ("net_60",), DAY)) == [
        ("note", "Hinweis für die Freigabe: 301 Zeichen, möglich sind 300", "kürzen"),
        ("bill_to", "„!“ ist keine USt-IdNr.", "z. B. vat DE123456789"),
        ("payment", "das Zahlungsziel 45 Tage netto widerspricht der Sonderbedingung 60 Tage netto", "eine Angabe behalten"),
    ]
    assert read_clause("start", "1.2.2027") == "ist mehrdeutig: Jahr, Monat und Tag schreiben, z. B. `start 2027-01-31`"
    assert difference_words(priced(payment_days=30), priced(payment_days=45, po_number="4711")) == (
        "Zahlungsziel 30 Tage netto \u2192 45 Tage netto",
        "Bestellnummer keine \u2192 4711",
    )
    assert trace(priced(payment_days=30, po_number="4711"))[-2] == "Vereinbart: Zahlungsziel 30 Tage netto; Bestellnummer 4711."
