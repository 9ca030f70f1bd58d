"""Tests of the rows beside a price's lines: tax, another currency, special terms; on every surface with the currency's decimals."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.salesforce.graph import exact_json
from quotebot.app.installation import speak
from quotebot.dispatch.crm import crm_quote
from quotebot.domain import money
from quotebot.domain.approvals.special_terms import unknown_terms
from quotebot.domain.pricing.engine import Pricing, dated, price
from quotebot.domain.pricing.tax_lines import tax_lines
from quotebot.domain.quotes.quote import QuoteState
from quotebot.slack import grammar
from quotebot.views.card import price_rows, status_card
from quotebot.views.document import Seller, quote_document
from tests.quotebot.parts import POLICY
from tests.quotebot.views.quote_examples import CATALOGUE, MORNING, RULESET, example_quote, quote_in

KNOWN = "annual_prepayment, exclusivity, liability_cap, net_60, penalty_clause, source_escrow"
SELLER = Seller("Seller Ltd", ())


def typed(text: str) -> Pricing:
    request = grammar.read_request(text, CATALOGUE)
    assert not isinstance(request, tuple), request
    found = price(dated(request, MORNING), RULESET)
    assert isinstance(found, Pricing), found
    return found


def spoken(pricing: Pricing) -> str:
    card = status_card(example_quote(pricing=pricing), (), figures=price_rows(pricing, POLICY))
    return json.dumps(card.blocks, ensure_ascii=False)


def test_the_estimated_tax_and_the_total_with_it_are_on_the_card_and_in_the_document() -> None:
    pricing = typed("150 pro, 150 sso, 1 support; discount 15%; tax de")
    expected = (("Tax 19% (estimated)", "$3,294.60"), ("Total with tax", "$20,634.60"))
    assert price_rows(pricing, POLICY) == expected
    assert all(f"{name}: *{amount}*" in spoken(pricing) for name, amount in expected)
    document = quote_document(replace(quote_in(QuoteState.APPROVED), pricing=pricing), SELLER, "rep")
    assert document.net_total == "$17,340.00"
    assert document.tax_rows == (("Tax 19% (estimated)", "$3,294.60"), ("Total with tax", "$20,634.60"))


def test_without_tax_terms_or_another_currency_nothing_is_added() -> None:
    assert price_rows(typed("10 pro"), POLICY) == ()


@pytest.mark.parametrize(
    ("text", "net", "for_the_policy", "gross", "unit_price"),
    [
        ("150 pro; currency EUR; tax DE", "€9,936.00", "$10,800.00", "€11,823.84", "66.24"),
        ("150 pro; currency JPY; tax JP", "¥1,620,000", "$10,800.00", "¥1,782,000", "10800"),
        ("150 pro; currency KWD; tax DE", "KWD\u00a03,315.600", "$10,800.00", "KWD\u00a03,945.564", "22.104"),
    ],
)
def test_every_surface_shows_a_currency_with_its_own_decimals(
    text: str, net: str, for_the_policy: str, gross: str, unit_price: str
) -> None:
    pricing = typed(text)
    quote = replace(quote_in(QuoteState.APPROVED), pricing=pricing)
    document = quote_document(quote, SELLER, "rep")
    assert (document.net_total, document.tax_rows[-1][1]) == (net, gross)
    card = spoken(pricing)
    assert (f"*{net}*" in card, gross in card, f"{for_the_policy} (1 USD = " in card) == (True, True, True)
    record = crm_quote(quote, "lab")
    plain = net.lstrip("€¥KWD\u00a0").replace(",", "")
    assert (exact_json(record.total), money.trimmed(record.lines[0].unit_price)) == (plain, unit_price)
    assert "USD" not in json.dumps(document.tax_rows)  # the policy's converted amount is not for the customer


def test_a_document_and_a_record_are_the_same_whatever_the_installation_speaks() -> None:
    text = "1500 pro, 2 onboarding; currency EUR; tax DE; payment net 60; valid 30d; terms net_60; billing quarterly"
    quote = replace(quote_in(QuoteState.APPROVED), pricing=typed(text))
    english = (quote_document(quote, SELLER, "rep"), crm_quote(quote, "lab"))
    speak("de")
    assert (quote_document(quote, SELLER, "rep"), crm_quote(quote, "lab")) == english
    assert (crm_quote(quote, "lab").payment, typed(text)) == ("net 60", quote.pricing)


@settings(max_examples=40, deadline=None)
@given(
    quantities=st.dictionaries(st.sampled_from(sorted(CATALOGUE.products)), st.integers(1, 400), min_size=1),
    currency=st.sampled_from(["USD", "EUR", "JPY", "KWD"]),
    region=st.sampled_from(["DE", "JP"]),
    discount=st.integers(0, 10_000),
)
def test_the_lines_of_tax_are_the_tax_and_with_the_net_they_are_the_total(
    quantities: dict[str, int], currency: str, region: str, discount: int
) -> None:
    items = ", ".join(f"{quantity} {sku}" for sku, quantity in quantities.items())
    pricing = typed(f"{items}; currency {currency}; tax {region}; discount {Decimal(discount) / 100}%")
    amounts = [line.amount for line in tax_lines(pricing)]
    assert sum(amounts) == pricing.tax_total
    assert pricing.gross_total == pricing.net_total + pricing.tax_total
    assert all(amount == money.round_money(amount, currency) for amount in (*amounts, pricing.gross_total))


def test_special_terms_are_on_the_card_and_in_the_document_in_words() -> None:
    pricing = typed("10 pro; terms Liability Cap, net-60")
    assert pricing.terms == ("liability_cap", "net_60")
    assert "Special terms: *liability cap, net 60*" in spoken(pricing)
    document = quote_document(replace(quote_in(QuoteState.APPROVED), pricing=pricing), SELLER, "rep")
    assert [title for title, _ in document.clauses] == ["Liability cap", "Net 60"]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (("liability_cap", "net_60"), []),
        (("libility_cap",), ['"libility_cap" is no special term of the policy: did you mean liability_cap?']),
        (("zzz",), [f'"zzz" is no special term of the policy: known are {KNOWN}']),
    ],
)
def test_a_term_that_the_policy_does_not_know_is_refused(terms: tuple[str, ...], said: list[str]) -> None:
    assert [f"{problem.message}: {problem.suggestion}" for problem in unknown_terms(terms, POLICY.known_terms)] == said


PARTS: dict[str, dict[str, Any]] = {
    "currency eur": {"currency": "EUR"},
    "tax de": {"region": "DE", "with_tax": True},
    "region de": {"region": "DE"},
    "region DE; tax de": {"region": "DE", "with_tax": True},
    "terms none": {},
    "terms: exclusivity, exclusivity": {"terms": ("exclusivity",)},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_typed_request_means(part: str) -> None:
    plain = grammar.read_request("10 pro", CATALOGUE)
    assert not isinstance(plain, tuple)
    assert grammar.read_request(f"10 pro; {part}", CATALOGUE) == replace(plain, **PARTS[part])


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("currency euros", "isn't a currency code"),
        ("currency XYZ", "is no currency"),
        ("tax", "isn't a region code"),
        ("tax DE; region JP", "two regions"),
        ("terms", "Name a special term"),
        ("terms <!channel>", "is no name of a term"),
        ("currency EUR; currency JPY", "You gave currency twice"),
    ],
)
def test_an_unclear_part_is_a_problem(part: str, said: str) -> None:
    found = grammar.read_request(f"10 pro; {part}", CATALOGUE)
    assert isinstance(found, tuple)
    assert (said in found[0], "<!channel>" in found[0]) == (True, False)


def test_a_document_says_how_a_quote_is_invoiced_that_is_not_billed_upfront() -> None:
    pricing = typed("10 pro, 1 onboarding; term 12m; billing quarterly")
    document = quote_document(replace(quote_in(QuoteState.APPROVED), pricing=pricing), SELLER, "rep")
    assert document.billing == "Quarterly, in advance"
    assert document.invoice_rows == (("Invoice 1", "$5,300.00"), ("Invoices 2\u20134, each", "$300.00"))
    upfront = quote_document(replace(quote_in(QuoteState.APPROVED), pricing=typed("10 pro; term 12m")), SELLER, "rep")
    assert (upfront.billing, upfront.invoice_rows) == ("Once, in advance", ())
