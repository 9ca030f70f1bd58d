from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from datetime import date
from decimal import Decimal

import pytest

from quotebot.domain import money
from quotebot.domain.pricing.commercial_terms import LANGUAGES, CommercialTerms
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.views.document import DocumentChoice, Seller, document_set, named_texts, quote_document, seller_of, with_term_names
from quotebot.views.document_texts import ENGLISH, TEXTS
from tests.quotebot.domain.ruleset_parts import ask, book, priced, product, ruleset
from tests.quotebot.views.quote_examples import decided, example_pricing, quote_in

SELLER = Seller("Seller Ltd", ("1 Street", "City"))
APPROVED = quote_in(QuoteState.APPROVED)


def texts_in(value: object) -> list[str]:
    """Return every text inside a value of a document."""
    if isinstance(value, dict):
        return texts_in(tuple(value.values()))
    if isinstance(value, list | tuple):
        return [text for each in value for text in texts_in(each)]
    return [value] if isinstance(value, str) and not value.isidentifier() else []


FIELD = re.compile(r"\{\w+\}")


def test_the_document_says_what_was_approved_to_the_cent() -> None:
    document = quote_document(APPROVED, SELLER, "rep", ("rep@acme.example",))
    assert document.preparer == ("rep@acme.example",)
    assert (document.quote_id, document.version, document.account, document.currency) == ("Q-2026-0042", "1", "Acme", "USD")
    assert (document.list_total, document.discount_total, document.net_total) == (
        "$20,400.00",
        "\u2212$3,060.00",
        "$17,340.00",
    )
    assert (document.discount_label, document.term) == ("Discount (15%)", "12 months")
    assert (document.issued_on, document.valid_until) == ("November 21, 2026", "December 21, 2026")
    assert (document.prepared_by, document.billing, document.page) == ("rep", "Once, in advance", "Letter")
    assert (document.seller_name, document.seller_lines) == ("Seller Ltd", ("1 Street", "City"))


def test_every_line_is_there_with_quantity_term_and_amount() -> None:
    lines = (LineRequest("pro", 1500), LineRequest("onboarding", 1))
    first, second = quote_document(replace(APPROVED, pricing=example_pricing(lines=lines)), SELLER, "rep").lines
    assert (first.position, first.quantity, first.term, first.detail) == ("1", "1,500", "12 months", "")
    assert (first.unit_price, first.discount, first.amount) == ("6.00", "15%", "91,800.00")
    assert (second.term, second.detail, second.amount) == ("", "", "4,250.00")


def test_optional_lines_and_agreed_prices_are_on_the_document() -> None:
    agreed = LineRequest("pro", 150, agreed_price=Decimal("5.70"), price_reason="volume deal")
    pricing = example_pricing(lines=(agreed, LineRequest("sso", 10, optional=True)), discount="0")
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    (line,) = document.lines
    assert "Agreed price 5.70" in line.detail
    assert "volume deal" not in json.dumps(asdict(document), default=str)
    (option,) = document.options
    assert (option.quantity, option.name, option.detail, option.amount) == ("10", "SSO", "Per month \u00b7 12 months", "$240.00")
    assert pricing.net_total == line_total(line.amount)


def line_total(amount: str) -> Decimal:
    return Decimal(amount.replace(",", ""))


def test_document_line_shows_its_discount_its_slabs_and_its_bundle() -> None:
    tiers = [{"from": 1, "price": 10}, {"from": 50, "price": 8}, {"from": 100, "price": 6}]
    parts = [{"sku": "a", "quantity": 120}]
    bundle = product("set", kind="bundle", name="Starter Kit", components=parts)
    rules = ruleset(
        products=[product("a"), product("b"), bundle],
        price_books=[book([{"sku": "a", "kind": "slab", "tiers": tiers}, {"sku": "b", "price": 5}])],
    )
    pricing = priced(ask(("set", 1), LineRequest("b", 1, Decimal(20)), term=12, discount="10"), rules)
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    bundled, first, second = document.lines
    assert (bundled.name, bundled.quantity, bundled.unit_price, bundled.amount, bundled.kind) == (
        "Starter Kit",
        "1",
        "",
        "",
        "bundle",
    )
    assert (first.unit_price, first.discount, first.amount) == ("", "10%", "10,972.80")
    assert (first.detail, first.kind) == ("49 at 10.00, 50 at 8.00, 21 at 6.00", "part")
    assert (second.unit_price, second.discount, second.amount) == ("5.00", "28%", "43.20")
    assert document.discount_label == "Discount"


@pytest.mark.parametrize(
    ("price", "shown"),
    [
        ("0.405", "0.405"),
        ("7.766736", "7.77"),
        ("8.466667", "8.47"),
        ("0.0000123", "0.00001"),
        ("1234.5", "1,234.50"),
        ("7", "7.00"),
    ],
)
def test_unit_price_is_rounded_for_people(price: str, shown: str) -> None:
    assert money.rounded_price(Decimal(price), "USD") == shown


def test_converted_slabs_and_blocks_show_no_average() -> None:
    tiers = [{"from": 1, "price": 10}, {"from": 50, "price": 8}]
    prices = [{"sku": "a", "kind": "slab", "tiers": tiers}, {"sku": "b", "kind": "block", "tiers": tiers}]
    rates = [{"base": "USD", "currency": "EUR", "rate": "0.9", "on": "2026-01-01"}]
    rules = ruleset(products=[product("a"), product("b")], price_books=[book(prices, converts_to=["EUR"])], rates=rates)
    pricing = priced(ask(("a", 60), ("b", 60), term=12, currency="EUR", priced_on=date(2026, 1, 2)), rules)
    first, second = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep").lines
    assert (first.unit_price, first.detail) == ("", "49 at 9.00, 11 at 7.20")
    assert (second.unit_price, second.detail) == ("", "Price of the whole quantity")


def test_goods_bought_once_have_no_term_and_no_recurring_words() -> None:
    pricing = priced(ask(("onboarding", 1), term=12))
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    text = json.dumps(asdict(replace(document, texts={})), default=str)
    assert not any(word in text for word in ("12 months", "ecurring", "ubscription", "one time"))


def test_special_term_has_a_sentence_to_sign() -> None:
    pricing = priced(ask(("pro", 10), term=12, terms=("liability_cap",)))
    clauses = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep").clauses
    assert clauses == (("Liability cap", "Applies as agreed in writing, and goes before the terms above."),)


def test_chosen_attributes_are_printed() -> None:
    box = product("box", kind="configurable", attributes=[{"name": "gb", "choices": ["10", "20"]}])
    pricing = priced(ask(LineRequest("box", 3, attributes=(("gb", "20"),)), term=12), ruleset(products=[box]))
    (line,) = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep").lines
    assert line.detail == "gb: 20"


def test_without_a_discount_none_is_mentioned() -> None:
    document = quote_document(replace(APPROVED, pricing=example_pricing("0")), SELLER, "rep")
    assert document.discount_total == ""
    assert {line.discount for line in document.lines} == {""}


def test_what_the_customer_reads_holds_no_cost_no_margin_and_no_slack_id() -> None:
    text = json.dumps(asdict(quote_document(APPROVED, SELLER, "rep")), default=str)
    assert not any(
        secret in text
        for secret in ("U0REP", "U0MANAGER", "T0HOME", "C0SALES", "A-2026", "cost", "margin", "discount 15% is over", "Volume tier")
    )
    assert f"{APPROVED.pricing.cost_total:,.2f}" not in text


def test_document_does_not_say_that_it_had_to_be_approved_or_by_whom() -> None:
    approval = decided(ApprovalState.APPROVED, decided_role="deal_desk + legal")
    text = json.dumps(asdict(quote_document(replace(APPROVED, approval=approval), SELLER, "rep")), default=str)
    assert not any(word in text for word in ("Deal Desk", "deal_desk", "egal", "manager", "pprov"))


def test_the_same_quote_gives_the_same_document() -> None:
    assert quote_document(APPROVED, SELLER, "rep") == quote_document(quote_in(QuoteState.APPROVED), SELLER, "rep")


def test_recurring_and_one_time_charges_are_apart_with_subtotals_that_add_up() -> None:
    lines = (LineRequest("onboarding", 1), LineRequest("pro", 150), LineRequest("sso", 150))
    document = quote_document(replace(APPROVED, pricing=example_pricing(lines=lines)), SELLER, "rep")
    assert document.sections == (("Subscription, 12 months", ""), ("One-time charges", ""))
    assert [line.section[:3] for line in document.lines] == ["One", "Sub", "Sub"]
    assert document.split_rows == (("Subscription, 12 months", "$12,240.00"), ("One-time charges", "$4,250.00"))
    assert document.net_total == "$16,490.00"


def test_what_is_billed_alike_is_one_table() -> None:
    document = quote_document(APPROVED, SELLER, "rep")
    assert document.sections == ()
    assert {line.section for line in document.lines} == {""}


@pytest.mark.parametrize(
    ("term", "lines", "names"),
    [
        (12, (LineRequest("pro", 150),), ["Total before tax", "Per month"]),
        (24, (LineRequest("pro", 150),), ["Total before tax", "Per month", "Per year"]),
        (12, (LineRequest("onboarding", 1),), ["Total before tax"]),
        (
            24,
            (LineRequest("pro", 1), LineRequest("onboarding", 1)),
            ["Total before tax", "Per month", "Per year", "One-time charges"],
        ),
    ],
)
def test_the_figures_at_a_glance_are_those_that_say_something(term: int, lines: tuple[LineRequest, ...], names: list[str]) -> None:
    asked = ask(*((line.sku, line.quantity) for line in lines), term=term)
    document = quote_document(replace(APPROVED, pricing=priced(asked)), SELLER, "rep")
    assert [name for name, _ in document.key_figures] == names


@pytest.mark.parametrize(
    ("currency", "price", "unit", "total", "monthly"),
    [
        ("EUR", "1234.5", "1,234.50", "€44,442.00", "€3,703.50"),
        ("JPY", "1234", "1,234", "¥44,424", "¥3,702"),
        ("KWD", "1.2345", "1.2345", "KWD\u00a044.442", "KWD\u00a03.704"),  # three decimals; a unit price keeps those it has
    ],
)
def test_each_currency_has_its_own_decimals_everywhere(currency: str, price: str, unit: str, total: str, monthly: str) -> None:
    rules = ruleset(
        products=[product("a")], price_books=[book([{"sku": "a", "price": price}], currency=currency)], currency=currency
    )
    document = quote_document(replace(APPROVED, pricing=priced(ask(("a", 3), term=12, currency=currency), rules)), SELLER, "rep")
    assert (document.lines[0].unit_price, document.net_total) == (unit, total)
    assert dict(document.key_figures)["Per month"] == monthly


def test_document_shows_the_sellers_branding_template_and_terms() -> None:
    seller = Seller("Seller", (), accent="#102030", footer="VAT 1", terms=("Payment within 14 days.",), template="summary")
    document = quote_document(APPROVED, seller, "rep")
    assert (document.accent, document.footer, document.terms, document.template) == (
        "#102030",
        "VAT 1",
        ("Payment within 14 days.",),
        "summary",
    )


def test_contract_of_two_years_has_totals_per_year_that_add_up() -> None:
    pricing = priced(ask(("pro", 150), ("onboarding", 1), term=36, discount="15"))
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    assert document.year_rows == (("Year 1", "$13,430.00"), ("Year 2", "$9,180.00"), ("Year 3", "$9,180.00"))
    assert document.net_total == "$31,790.00"
    yearly = priced(ask(("pro", 150), ("onboarding", 1), term=36, discount="15", billing_frequency="annual"))
    billed = quote_document(replace(APPROVED, pricing=yearly), SELLER, "rep")
    assert (billed.year_rows, billed.invoice_rows[0]) == ((), ("Invoice 1", "$13,430.00"))


def test_instalments_of_many_amounts_end_in_one_row_for_the_rest() -> None:
    pricing = priced(ask(("pro", 7), term=36, discount="1.11", billing_frequency="monthly"))
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    assert 1 <= len(document.invoice_rows) <= 6
    assert document.invoice_rows[-1][0].startswith("Invoices")


def test_german_seller_has_a_german_document_with_german_figures_on_a4() -> None:
    pricing = priced(ask(("pro", 1500), ("onboarding", 1), term=24, discount="12.5", terms=("liability_cap",)))
    document = quote_document(replace(APPROVED, pricing=pricing), replace(SELLER, locale="de_DE"), "rep")
    assert (document.language, document.page, document.title) == ("de", "A4", "Angebot")
    assert (document.issued_on, document.term, document.discount_label) == (
        "21. November 2026",
        "24 Monate",
        "Rabatt (12,5\u00a0%)",
    )
    assert (document.lines[0].quantity, document.lines[0].amount, document.net_total) == (
        "1.500",
        "189.000,00",
        "193.375,00\u00a0$",
    )
    written = " ".join(text for value in asdict(replace(document, texts={})).values() for text in texts_in(value))
    assert not [word for word in ("Total", "month", "Discount", "Term", "sign", "price") if word in written]


def test_every_language_fills_in_the_same_values() -> None:
    assert set(TEXTS) == set(LANGUAGES)
    for name, text in named_texts(ENGLISH).items():
        for texts in TEXTS.values():
            assert sorted(FIELD.findall(named_texts(texts)[name])) == sorted(FIELD.findall(text)), name


def test_commercial_terms_are_on_the_document_and_the_approvers_note_is_not() -> None:
    agreed = CommercialTerms(
        start_date=date(2027, 1, 1),
        payment_days=45,
        po_number="PO-4711",
        bill_to="Ada Example",
        bill_to_email="ada@example.com",
        bill_to_address="1 Long Lane, 10115 Berlin, Germany",
        vat_id="DE123456789",
        approver_note="they threatened to leave",
        customer_note="As agreed by phone.",
    )
    document = quote_document(replace(APPROVED, pricing=priced(ask(("pro", 10), term=12, commercial=agreed))), SELLER, "rep")
    assert document.bill_to == ("1 Long Lane", "10115 Berlin", "Germany", "VAT ID DE123456789")
    assert document.contact == ("Ada Example", "ada@example.com")
    assert (document.start_on, document.payment, document.po_number) == ("January 1, 2027", "Net 45 days", "PO-4711")
    assert document.note == "As agreed by phone."
    assert "threatened" not in json.dumps(asdict(document), default=str)


def test_quote_in_german_of_an_american_seller_keeps_their_paper() -> None:
    pricing = priced(ask(("pro", 10), term=12, commercial=CommercialTerms(language="de", payment_days=0)))
    document = quote_document(replace(APPROVED, pricing=pricing), SELLER, "rep")
    assert (document.language, document.page, document.issued_on) == ("de", "Letter", "21. November 2026")
    assert document.payment == "Sofort bei Erhalt"


def test_stored_set_gives_the_same_seller_again() -> None:
    full = replace(
        SELLER,
        logo=b"\x89PNG",
        terms=("One.",),
        locale="de_DE",
        templates={"own": "<p>\n</p>"},
        style="p { color: red }",
        clauses={"liability_cap": {"de": ("Haftung", "Text.")}},
        regions={"de": DocumentChoice("de", None)},
        customers={"acme": DocumentChoice(None, "own")},
    )
    for seller in (SELLER, full):
        kept = document_set(seller)
        assert seller_of(kept.content) == seller
        assert document_set(seller_of(kept.content)) == kept
    with pytest.raises(ValueError, match="schema 2 is unknown"):
        seller_of(document_set(SELLER).content.replace('"v":1', '"v":2'))


def test_a_special_term_without_a_clause_has_the_name_of_the_policy() -> None:
    own = replace(SELLER, clauses={"net_60": {"de": ("Zahlung", "Text.")}})
    names = {"de": {"net_60": "60 Tage Zahlungsziel", "liability_cap": "Haftungsobergrenze"}}
    found = with_term_names(own, names)
    for language, titles in {"de": ["Haftungsobergrenze", "Zahlung"], "en": ["Liability cap", "Net 60"]}.items():
        agreed = CommercialTerms(language=language)
        quote = replace(APPROVED, pricing=priced(ask(("pro", 10), term=12, terms=("liability_cap", "net_60"), commercial=agreed)))
        assert [title for title, _text in quote_document(quote, found, "rep").clauses] == titles
    assert with_term_names(own, {}) == own
    assert quote_document(quote, own, "rep").clauses == quote_document(quote, found, "rep").clauses
