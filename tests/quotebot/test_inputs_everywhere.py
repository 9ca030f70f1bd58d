"""Every requested input of a price can be typed, and a form carries it unchanged."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.cli.quote_work import TermOptions
from quotebot.commands.payloads import CloneQuote, CreateByForm, CreateQuote, ReviseQuote
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.approvals.policy_document import policy_document, read_policy
from quotebot.domain.catalogue.rulesets import canonical_ruleset, parse_ruleset, ruleset_changes
from quotebot.domain.extraction.extractor import extract
from quotebot.domain.pricing.commercial_terms import NAMES, CommercialTerms
from quotebot.domain.pricing.engine import (
    LineRequest,
    PriceRequest,
    Pricing,
    canonical,
    for_account,
    from_canonical,
    price,
    renewed,
)
from quotebot.domain.pricing.price_requests import (
    BILLING_FREQUENCIES,
    Changes,
    LineChange,
    canonical_changes,
    changed,
    dated,
    parse_changes,
)
from quotebot.domain.pricing.term_clauses import FIELDS, line_text, terms_text
from quotebot.domain.rules import Rules
from quotebot.handlers.decision import Asked
from quotebot.handlers.lifecycle import clone
from quotebot.handlers.quotes import create
from quotebot.slack.drafts import draft_of, draft_of_creation
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.slack.grammar import creation, read_changes, read_request
from quotebot.views.builder import create_form, revise_form
from tests.quotebot.domain.ruleset_parts import book, document, product
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.quote_examples import MORNING, example_quote
from tests.quotebot.views.quote_examples import RULESET as EXAMPLE_RULESET
from tests.quotebot.views.test_forms import typed

if TYPE_CHECKING:
    from tests.rig import Deal

STORAGE: Final = product(
    "storage",
    kind="configurable",
    attributes=[{"name": "gb", "choices": ["10", "100"], "default": "10"}, {"name": "region", "choices": ["us", "eu central"]}],
)
KIT: Final = product(
    "kit",
    kind="bundle",
    components=[{"sku": "a", "quantity": 2}],
    choices=[{"name": "extra", "of": ["b", "storage_eu"], "optional": True}, {"name": "care", "of": ["basic", "gold"]}],
)
PRICES: Final = {"a": 10, "b": 20, "storage": 5, "storage_eu": 6, "basic": 1, "gold": 3}
RULESET: Final = parse_ruleset(
    document(
        products=[
            *(product(sku) for sku in ("a", "b", "storage_eu", "basic")),
            product("gold", name="Gold Care"),
            STORAGE,
            KIT,
        ],
        price_books=[
            book(PRICES, converts_to=["EUR"]),
            book({"a": 8, "b": 16, "storage": 4}, name="partner", segment="partner", priority=1, converts_to=["EUR"]),
        ],
        taxes=[{"region": "DE", "percent": 19}],
        rates=[{"base": "USD", "currency": "EUR", "rate": "0.9", "on": "2026-01-02"}],
    )
)
OFFERED: Final = Rules(RULESET, POLICY, {})
NOW: Final = 1_790_000_000_000
NOT_TYPED: Final = {
    "account": "the customer, whom the quote names",
    "segment_value": "the value of the customer's account in the CRM",
    "priced_on": "the day of the request",
    "discount_limit_percent": "the authorised maximum, which the price computes",
    "accepted": "texts of a stored request that are refused today",
}
NOTES: Final = st.text('ab "“”;:=<>,`\u00e9', min_size=1, max_size=12).filter(lambda text: text == " ".join(text.split()))
CONFIGURED: Final = (("gb", "100"), ("region", "eu central"))
EVERYTHING: Final = PriceRequest(
    lines=(
        LineRequest("a", 10, Decimal("7.5")),
        LineRequest("storage", 1_000, Decimal(5), attributes=CONFIGURED, optional=True),
        LineRequest("b", 1, agreed_price=Decimal("14.1"), price_reason="two years, paid upfront"),
        LineRequest("kit", 3, attributes=(("care", "gold"), ("extra", "none"))),
    ),
    term_months=24,
    discount_percent=Decimal("12.5"),
    currency="EUR",
    segment="partner",
    region="DE",
    billing_frequency="quarterly",
    with_tax=True,
    terms=("liability_cap", "net_60"),
    commercial=CommercialTerms(
        start_date=date(2027, 1, 31),
        payment_days=60,
        po_number="4711/a",
        bill_to="Jo Doe",
        bill_to_email="jo@acme.example",
        bill_to_address="1 Main St, Springfield",
        vat_id="DE123456789",
        valid_days=45,
        language="de",
        template="standard",
        approver_note='They say "too much"; their budget ends in June.',
        customer_note="See you soon",
    ),
)


def as_text(request: PriceRequest) -> str:
    """Return a request as a person types it."""
    parts = [", ".join(line_text(line) for line in request.lines), f"term {request.term_months}m"]
    parts.append(f"discount {request.discount_percent:f}%")
    return "; ".join((*parts, *([] if request.currency is None else [f"currency {request.currency}"]), terms_text(request)))


def by_form(request: PriceRequest) -> PriceRequest:
    """Return the request of the form that was filled in with this one and submitted unchanged."""
    draft = draft_of_creation(CreateQuote("Acme", request, "C0DEALS"))
    filled = read_form(Form(typed(create_form("C0DEALS", RULESET, draft)), OFFERED, NOW))
    assert isinstance(filled, Filled), filled
    assert isinstance(filled.payload, CreateByForm)
    assert isinstance(filled.payload.quote, CreateQuote)
    return filled.payload.quote.request


def test_everything_that_can_be_asked_for_is_in_the_example() -> None:
    usual = PriceRequest((LineRequest("a", 1),), 12, Decimal(0))
    unset = {each.name for each in fields(PriceRequest) if getattr(EVERYTHING, each.name) == getattr(usual, each.name)}
    assert unset == set(NOT_TYPED)
    # a validity is in days or until a date
    assert {name for name in NAMES if getattr(EVERYTHING.commercial, name) is None} == {"valid_until"}
    plain = LineRequest("a", 1)
    usual_in_all = {
        each.name
        for each in fields(LineRequest)
        if all(getattr(line, each.name) == getattr(plain, each.name) for line in EVERYTHING.lines)
    }
    assert usual_in_all == {"discount_limit_percent"}


def test_typed_text_a_form_and_a_slash_command_ask_for_the_same() -> None:
    assert isinstance(price(dated(EVERYTHING, NOW), RULESET), Pricing)
    text = as_text(EVERYTHING)
    assert text == (
        "10 a -7.5%, 1000 storage (gb=100, region=eu central) (optional) -5%, "
        '1 b @14.1 because "two years, paid upfront", 3 kit (care=gold, extra=none); '
        "term 24m; discount 12.5%; currency EUR; tax DE; "
        "terms liability_cap, net_60; segment partner; billing quarterly; "
        "start 2027-01-31; payment net 60; po 4711/a; bill-to Jo Doe; email jo@acme.example; address 1 Main St, Springfield; "
        "vat DE123456789; valid 45d; language de; template standard; "
        'note "They say ""too much""; their budget ends in June."; customer-note See you soon'
    )
    assert read_request(text, RULESET.catalogue) == EVERYTHING
    assert creation(f"for Acme: {text}", "C0DEALS", RULESET.catalogue) == CreateQuote("Acme", EVERYTHING, "C0DEALS")
    assert by_form(EVERYTHING) == EVERYTHING


CHOSEN: Final = PriceRequest((LineRequest("kit", 3, attributes=(("care", "gold"), ("extra", "b"))),), 12, Decimal(0))


def test_the_choices_of_a_bundle_are_said_like_attributes_on_every_surface() -> None:
    priced = price(dated(CHOSEN, NOW), RULESET)
    assert isinstance(priced, Pricing)
    assert [(line.sku, line.choice, line.quantity) for line in priced.lines] == [
        ("a", "", 6),
        ("b", "extra", 3),
        ("gold", "care", 3),
    ]
    text = "3 kit (care=gold, extra=b)"
    assert as_text(CHOSEN).startswith(text)
    assert read_request("3 Kit (Extra = B, care=Gold Care)", RULESET.catalogue) == CHOSEN
    assert by_form(replace(CHOSEN, currency="USD")) == replace(CHOSEN, currency="USD")
    found = extract("please quote 3 kit with gold care, extra b, for Acme, 12 months", RULESET.catalogue)
    assert (found.open_questions, found.request) == ((), CHOSEN)
    quote = replace(example_quote(), pricing=priced)
    edited = Form(typed(revise_form(quote, RULESET), **{"row.0.=extra": "=none"}), OFFERED, NOW, quote)
    revised = read_form(edited)
    assert isinstance(revised, Filled), revised
    changes = read_changes("3 kit (care=gold, extra=none)", RULESET.catalogue)
    assert not isinstance(changes, tuple)
    assert revised.payload == ReviseQuote(changes=changes)
    again = changed(renewed(from_canonical(canonical(priced)), NOW), parse_changes(canonical_changes(changes)))
    assert isinstance(again, PriceRequest)
    assert again.lines == (LineRequest("kit", 3, attributes=(("care", "gold"), ("extra", "none"))),)


@pytest.mark.parametrize("price", ["0", "5.4", "0.125", "1.125", "1500"])
@pytest.mark.parametrize("reason", ["volume deal", "two years, paid upfront", "because of (gb=10, x) at 5", "- 5%", "we agreed @9"])
def test_no_agreed_price_is_lost_between_quote_and_text(price: str, reason: str) -> None:
    lines = (
        LineRequest("storage", 9, attributes=CONFIGURED, agreed_price=Decimal(price), price_reason=reason),
        LineRequest("a", 1),
    )
    assert read_request(as_text(PriceRequest(lines, 12, Decimal(0))), RULESET.catalogue) == PriceRequest(lines, 12, Decimal(0))


@given(
    lines=st.lists(
        st.builds(
            LineRequest,
            st.sampled_from(("a", "b", "storage")),
            st.integers(1, 1_000_000),
            st.decimals(0, 99, places=2),
            attributes=st.just(()),
        ),
        min_size=1,
        unique_by=lambda line: line.sku,
    ),
    term=st.integers(1, 120),
    discount=st.decimals(0, 40, places=2),
    segment=st.sampled_from((None, "partner")),
    billing=st.sampled_from(BILLING_FREQUENCIES),
    tax=st.booleans(),
    terms=st.sampled_from(((), ("net_60",), ("exclusivity", "net_60"))),
    commercial=st.builds(
        CommercialTerms,
        start_date=st.none() | st.dates(date(2000, 1, 1), date(2099, 12, 31)),
        payment_days=st.sampled_from((None, 60)),
        vat_id=st.sampled_from((None, "ATU 123")),
        valid_until=st.none() | st.dates(date(2026, 9, 21), date(2027, 9, 21)),
        approver_note=st.none() | NOTES,
        customer_note=st.none() | NOTES,
    ),
)
def test_no_request_is_lost_between_quote_text_and_form(
    lines: list[LineRequest],
    term: int,
    discount: Decimal,
    segment: str | None,
    billing: str,
    tax: bool,  # noqa: FBT001 -- hypothesis passes it by name
    terms: tuple[str, ...],
    commercial: CommercialTerms,
) -> None:
    given_lines = tuple(
        LineRequest(line.sku, line.quantity, line.discount_percent, attributes=CONFIGURED if line.sku == "storage" else ())
        for line in lines
    )
    request = PriceRequest(
        *(given_lines, term, discount, "USD", segment, "DE" if tax else None, None, billing),
        with_tax=tax,
        terms=terms,
        commercial=commercial,
    )
    assert read_request(as_text(request), RULESET.catalogue) == request
    assert by_form(request) == request
    priced = price(dated(request, NOW), RULESET)
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    edited = Form(typed(revise_form(quote, RULESET)), OFFERED, NOW, quote)
    assert read_form(edited) == {"terms": "No changes yet."}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("20 a", LineRequest("a", 20, Decimal("7.5"))),
        ("20 a -10%", LineRequest("a", 20, Decimal(10))),
        ("add 5 a - 3 %", LineRequest("a", 15, Decimal(3))),
        ("10 a -0%", LineRequest("a", 10)),
    ],
)
def test_a_revision_changes_a_lines_own_discount_only_where_it_is_typed(text: str, line: LineRequest) -> None:
    changes = read_changes(text, RULESET.catalogue)
    assert not isinstance(changes, tuple)
    assert parse_changes(canonical_changes(changes)) == changes
    found = changed(EVERYTHING, changes)
    assert isinstance(found, PriceRequest)
    assert found.lines[0] == line
    assert found.lines[1:] == EVERYTHING.lines[1:]


def test_a_revision_may_change_attributes_segment_and_billing() -> None:
    changes = read_changes("5 storage (GB = 10, region=US); segment Reseller; billing Annual", RULESET.catalogue)
    assert not isinstance(changes, tuple)
    found = changed(EVERYTHING, parse_changes(canonical_changes(changes)))
    assert isinstance(found, PriceRequest)
    assert found.lines[1] == LineRequest("storage", 5, Decimal(5), attributes=(("gb", "10"), ("region", "us")), optional=True)
    assert (found.segment, found.billing_frequency) == ("reseller", "annual")


def test_the_word_none_removes_a_segment_and_is_read_in_a_new_quote() -> None:
    changes = read_changes("segment none", RULESET.catalogue)
    assert not isinstance(changes, tuple)
    assert changes != Changes()
    found = changed(EVERYTHING, parse_changes(canonical_changes(changes)))
    assert found == replace(EVERYTHING, segment=None)
    request = PriceRequest((LineRequest("a", 1),), 12, Decimal(0), "USD")
    assert read_request("1 a; currency USD; segment None", RULESET.catalogue) == request
    draft = draft_of("for Acme: 1 a; currency USD; segment none", RULESET.catalogue)
    filled = read_form(Form(typed(create_form("C0DEALS", RULESET, draft)), OFFERED, NOW))
    assert isinstance(filled, Filled), filled
    assert isinstance(filled.payload, CreateByForm)
    assert filled.payload.quote.request == request


def test_changes_without_the_new_inputs_keep_their_stored_form() -> None:
    changes = read_changes("200 a, remove b; term 24m", RULESET.catalogue)
    assert not isinstance(changes, tuple)
    assert set(canonical_changes(changes)) == {
        *("lines", "term_months", "requested_discount_percent", "currency", "region", "with_tax", "terms")
    }
    assert all(set(line) == {"deed", "sku", "quantity"} for line in canonical_changes(changes)["lines"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10 a; billing quartely", "Did you mean `billing quarterly`?"),
        ("10 a; billing never", "Choose one of upfront, monthly, quarterly, annual"),
        ("10 a; segment ???", "isn't a segment. Example: `segment partner`."),
        ("10 a -200%", "A discount on a is 0 to 100%"),
    ],
)
def test_an_input_that_cannot_be_read_is_named_with_its_remedy(text: str, said: str) -> None:
    problems = read_request(text, RULESET.catalogue)
    assert isinstance(problems, tuple)
    assert said in "".join(problems)


async def test_a_quote_is_sold_at_an_agreed_price(deal: Deal) -> None:
    await deal.slash("new for Acme: 100 pro @5.70 because volume deal, 10 sso; term 12m")
    await deal.settled()
    assert "agreed price $5.70" in await deal.card_text()
    await deal.slash("revise Q-2026-0001: 100 pro @4.50 because they asked again")
    await deal.settled()
    card = await deal.card_text()
    assert "agreed price $4.50" in card
    assert "margin is under the floor" in card


async def test_an_optional_line_is_shown_apart_until_the_customer_takes_it(deal: Deal) -> None:
    await deal.slash("new for Acme: 10 pro, optional 10 sso; term 12m")
    await deal.settled()
    before = await deal.card_text()
    assert "Optional: 10 SSO" in before
    assert "(not in the total)" in before
    await deal.slash("revise Q-2026-0001: take sso")
    await deal.settled()
    assert "Optional" not in await deal.card_text()


async def test_a_quote_of_a_listed_customer_records_the_open_segment() -> None:
    listed = parse_ruleset({**canonical_ruleset(RULESET), "accounts": [{"account": "Acme", "segment": "partner"}]})
    request = PriceRequest((LineRequest("a", 10),), 12, Decimal(0), segment="partner")
    asked = Asked("ab" * 32, "c-abababab", "U0REP", "T0HOME", NOW, None)
    rules = replace(RULES, ruleset=listed)
    made = create(asked, CreateQuote("Acme", request, "C0DEALS"), lambda: "Q-2026-0001", rules).quote
    assert made is not None
    assert made.pricing.segment_is_open
    to_another = CloneQuote("Q-2026-0001", "C0DEALS", account="Globex")
    cloned = clone(asked, to_another, made, lambda: "Q-2026-0002", rules).quote
    assert cloned is not None
    assert not cloned.pricing.segment_is_open


async def test_a_card_shows_a_lines_own_discount_and_the_billing(deal: Deal) -> None:
    await deal.slash("new for Acme: 10 pro -5%, 10 sso; term 12m; billing quarterly")
    await deal.settled()
    card = await deal.card_text()
    assert "(5% off)" in card
    assert "Billing: *quarterly*" in card
    await deal.slash("revise Q-2026-0001: 10 pro -25%")
    await deal.settled()
    assert "VP Sales" in await deal.card_text()  # a line's own discount counts in the policy


async def test_a_listed_customer_gets_the_prices_of_its_segment_without_an_approval() -> None:
    listed = parse_ruleset({**canonical_ruleset(RULESET), "accounts": [{"account": "Acme", "segment": "Partner"}]})
    assert ruleset_changes(RULESET, listed)[0].table == "accounts"
    assert parse_ruleset(canonical_ruleset(listed)) == listed
    request = PriceRequest((LineRequest("a", 10),), 12, Decimal(0), segment="partner")
    blocking = read_policy({**policy_document(POLICY), "segment": {"partner": "blocked"}})
    for account, is_open in (("ACME", True), ("Globex", False)):
        priced = price(dated(for_account(request, account), NOW), listed)
        assert isinstance(priced, Pricing)
        assert from_canonical(canonical(priced)) == priced
        assert (evaluate(priced, POLICY).hits == ()) is is_open
        assert evaluate(priced, blocking).blocked is not is_open
    assert for_account(replace(request, segment=None, account="Acme"), "Acme").account is None
    assert not RULESET.is_open("partner", "Acme")


async def test_a_segment_needs_an_approval_until_the_policy_says_otherwise() -> None:
    priced = price(dated(replace(EVERYTHING, discount_percent=Decimal(0), terms=()), NOW), RULESET)
    assert isinstance(priced, Pricing)
    assert "prices of the segment partner need Deal Desk" in evaluate(priced, POLICY).hits
    for role, hits in (("vp_sales", ["prices of the segment partner need VP Sales"]), ("nobody", [])):
        found = evaluate(priced, read_policy({**policy_document(POLICY), "segment": {"Partner": role}}))
        assert [hit for hit in found.hits if "segment" in hit] == hits


def test_the_form_of_a_revision_changes_every_other_input_too() -> None:
    quote = example_quote()
    typed_text = "add 1 sso; currency EUR; billing annual\npayment net 45; valid until 2026-12-31; po none"
    form = Form(typed(revise_form(quote, EXAMPLE_RULESET), terms=typed_text), RULES, MORNING, quote)
    filled = read_form(form)
    assert isinstance(filled, Filled), filled
    assert isinstance(filled.payload, ReviseQuote)
    agreed = CommercialTerms(payment_days=45, valid_until=date(2026, 12, 31))
    changes = Changes((LineChange("add", "sso", 1),), currency="EUR", billing_frequency="annual", commercial=agreed)
    assert filled.payload.changes == replace(changes, cleared=("po_number",))


def test_every_commercial_term_is_a_word_of_the_text_and_an_option_of_the_terminal() -> None:
    assert {each.name.replace("_", "-") for each in fields(TermOptions)} == set(FIELDS)
    assert set(FIELDS.values()) | {"valid_until"} == set(NAMES)


async def test_a_quote_carries_its_commercial_terms_to_its_card_and_revision(deal: Deal) -> None:
    await deal.slash('new for Acme: 10 pro; term 12m; payment net 45; valid 10d; po 4711; note "big; really"')
    await deal.settled()
    card = await deal.card_text()
    for said in ("Payment: *net 45*", "Purchase order: *4711*", "Note to the approver: *big; really*"):
        assert said in card
    (row,) = await deal.rows("SELECT created_at, valid_until FROM quotes")
    assert row["valid_until"] == row["created_at"] + 10 * 86_400_000
    await deal.slash("revise Q-2026-0001: valid 20d; po none")
    await deal.settled()
    card = await deal.card_text()
    assert "Payment: *net 45*" in card
    assert "4711" not in card
    (row,) = await deal.rows("SELECT valid_until - created_at AS days FROM quotes")
    assert row["days"] > 19 * 86_400_000
