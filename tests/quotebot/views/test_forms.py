"""Tests of the forms: within Slack's limits for every quote, and read back as a command or as errors at the right fields."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import CancelQuote, CreateByForm, CreateQuote, LoseQuote, MarkSent, ReviseQuote, SubmitQuote
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.price_requests import Changes, LineChange, LineRequest, PriceRequest
from quotebot.domain.quotes.quote import QuoteState, reason_words
from quotebot.slack.drafts import draft_of, draft_of_creation, draft_of_message
from quotebot.slack.form_input import Filled, Form, last_block, read_form
from quotebot.views import messages
from quotebot.views.builder import Draft, carried_by, create_form, discount_form, revise_form, with_details
from quotebot.views.builder_details import PARTIES, TERMS
from quotebot.views.forms import cancel_form, lose_form, resubmit_form, send_form
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import CATALOGUE, MORNING, RULESET, example_quote, quote_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

    from quotebot.domain.quotes.quote import Quote

QUOTE = example_quote()
HOSTILE = "<!channel> & <@U0CFO> \u202eA\u05d0\u05d1 *x* `y` " + "W" * 300
FORMS: dict[str, Callable[[Quote], dict[str, Any]]] = {
    "revise": lambda quote: revise_form(quote, RULESET, POLICY),
    "discount": discount_form,
    "send": send_form,
    "lose": lose_form,
    "cancel": cancel_form,
    "resubmit": lambda quote: resubmit_form(quote_in(QuoteState.DRAFT) if quote.approval is None else quote),
}


def many_lines(count: int) -> Quote:
    pricing = QUOTE.pricing
    assert pricing.request is not None
    lines = tuple(LineRequest(f"sku-{number}-{'x' * 40}", number + 1) for number in range(count))
    return replace(QUOTE, pricing=replace(pricing, request=replace(pricing.request, lines=lines)))


def typed(view: dict[str, Any], **values: str | None) -> dict[str, Any]:
    """Return the view as submitted: the initial values, replaced by those that the person typed."""
    state: dict[str, Any] = {}
    for block in view["blocks"]:
        if block["type"] != "input":
            continue
        name, element = block["block_id"], block["element"]
        content: dict[str, Any] = {"type": element["type"], "value": values.get(name, element.get("initial_value"))}
        if element["type"] in ("static_select", "external_select"):
            chosen = values.get(name, element.get("initial_option", {}).get("value"))
            content = {"type": element["type"], "selected_option": None if chosen is None else {"value": chosen}}
        if element["type"] == "datepicker":
            content = {"type": element["type"], "selected_date": values.get(name, element.get("initial_date"))}
        if element["type"] in ("multi_static_select", "checkboxes"):
            content = {"type": element["type"], "selected_options": element.get("initial_options", [])}
        if element["type"] == "conversations_select":
            content = {"type": element["type"], "selected_conversation": values.get(name)}
        state[name] = {name: content}
    return {**view, "id": "V0FORM", "root_view_id": "V0FORM", "state": {"values": state}}


def read(view: dict[str, Any], **values: str | None) -> Filled | dict[str, str]:
    return read_form(Form(typed(view, **values), RULES, MORNING, QUOTE if view["callback_id"] == "quote.revise" else None))


# -------------------------------------------------------------------------------------------------------------- as drawn


@pytest.mark.parametrize("name", FORMS)
def test_each_form_about_a_quote_reads_like_this(name: str, snapshot: SnapshotAssertion) -> None:
    view = FORMS[name](QUOTE)
    assert view_problems(view) == []
    assert view == snapshot


@pytest.mark.parametrize("channel", ["C0SALES", None])
def test_the_form_of_a_new_quote_reads_like_this(channel: str | None, snapshot: SnapshotAssertion) -> None:
    view = create_form(channel, RULESET, draft_of("for Acme: 150 prro, 2 sso; term 24m; discount 1O%", CATALOGUE))
    assert view_problems(view) == []
    assert view == snapshot


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("state", list(QuoteState))
def test_no_state_and_no_name_takes_a_form_over_its_limits(name: str, state: QuoteState) -> None:
    view = FORMS[name](replace(quote_in(state), account=HOSTILE, version=12))
    assert view_problems(view) == []
    assert "<!channel>" not in str(view)
    assert "<@U0CFO>" not in str(view)


@pytest.mark.parametrize("count", [20, 21, 400])
def test_a_long_quote_shows_its_first_lines_and_says_how_the_rest_is_changed(count: int) -> None:
    view = revise_form(many_lines(count), RULESET)
    assert view_problems(view) == []
    rows = [block for block in view["blocks"] if block.get("block_id", "").endswith(".quantity")]
    assert len(rows) <= 20
    hint = next(block for block in view["blocks"] if block.get("block_id") == "terms")["hint"]["text"]
    assert (f"The other {count - len(rows)} lines stay as they are" in hint) == (count > len(rows))


def test_a_draft_takes_over_what_was_typed_however_wrong() -> None:
    assert draft_of("for Acme: 10 prro, 2 sso; term soon; discount 1O%", CATALOGUE) == Draft(
        "Acme", term="soon", discount="1O%", text="10 prro, 2 sso"
    )
    euros = "for Acme: 10 pro; currency eur; tax DE; terms liability_cap, net_60; term 24m"
    more = Changes(region="DE", with_tax=True, terms=("liability_cap", "net_60"))
    assert draft_of(euros, CATALOGUE) == Draft("Acme", (LineRequest("pro", 10),), "24m", "0", "EUR", more=more)
    assert draft_of("10 pro", CATALOGUE) == Draft("10 pro", (), "12m", "0")
    assert draft_of("", CATALOGUE) == Draft()
    long = draft_of("for " + "x" * 5_000 + ": " + "y" * 5_000, CATALOGUE)
    assert view_problems(create_form("C0SALES", RULESET, long)) == []


ACME: Draft = Draft("Acme", (LineRequest("pro", 10),))
MESSAGES = {
    "<@U0QUOTEBOT> new for Acme: 10 pro; term 24m": replace(ACME, term="24m"),
    "/quote new for Acme &amp; Co: 10 pro": replace(ACME, account="Acme & Co"),
    "Acme wants\n10 pro for 3 years, 5% off": Draft("Acme", (LineRequest("pro", 10),), "36m", "5", quoted="> Acme wants"),
    "Could we have 10 seats?": Draft(quoted="> Could we have 10 seats?"),
    "": Draft(),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_a_message_is_taken_over_as_far_as_it_can_be(text: str) -> None:
    found = draft_of_message(text, CATALOGUE)
    assert replace(found, quoted=found.quoted.partition("\n")[0]) == MESSAGES[text]
    assert view_problems(create_form("C0SALES", RULESET, draft_of_message(text * 2_000, CATALOGUE))) == []


# --------------------------------------------------------------------------------------------------------------- as read

CREATION = create_form("C0SALES", RULESET)
GOOD: dict[str, str | None] = {"account": "Acme", "terms": "150 pro\n150 sso, 1 support", "term": "12m", "discount": "15 %"}


def test_a_filled_in_form_is_a_creation_that_works_once() -> None:
    request = PriceRequest((LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1)), 12, Decimal(15), "USD")
    assert read(CREATION, **GOOD) == Filled(CreateByForm("V0FORM", CreateQuote("Acme", request, "C0SALES")))


def test_a_form_without_a_channel_asks_for_it() -> None:
    view = create_form(None, RULESET)
    assert read(view, **GOOD) == {"channel": "Choose a channel."}
    filled = read(view, **GOOD, channel="C0DEALS")
    assert isinstance(filled, Filled)
    assert isinstance(filled.payload, CreateByForm)
    assert filled.payload.quote.channel == "C0DEALS"


WRONG: dict[str, tuple[dict[str, str | None], dict[str, str]]] = {
    "no customer": ({"account": " \u200f "}, {"account": "Enter a customer."}),
    "a long customer": ({"account": "x" * 101}, {"account": "At most 100 characters."}),
    "no products": ({"terms": None}, {"product.0": "Add a product."}),
    "an unknown product": ({"terms": "10 prro"}, {"terms": "id you mean pro?"}),
    "no quantity": ({"terms": "pro"}, {"terms": "Write it first: 10 pro."}),
    "a product twice": ({"terms": "10 pro, 5 pro"}, {"terms": "a product has one line"}),
    "another discount among the rest": ({"terms": "10 pro; discount 12%"}, {"terms": "different values for the discount"}),
    "a term in words": ({"term": "soon"}, {"term": "Enter a term like 12 or 24 months."}),
    "a term too long": ({"term": "200"}, {"term": "1 to 120 months"}),
    "a discount in letters": ({"discount": "1O"}, {"discount": "Enter a number from 0 to 100."}),
    "a discount over 100": ({"discount": "101"}, {"discount": "0 to 100%"}),
    "a special term that is no name": ({"terms": "10 pro; terms 5%"}, {"terms": "is no name of a term"}),
    "an unknown special term": ({"terms": "10 pro; terms line_cap"}, {"terms": '"line_cap" is no special term of the policy'}),
    "several at once": ({"account": "", "terms": "1.5 pro", "term": ""}, {"account": "Enter", "terms": "whole", "term": "Enter"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_its_field(case: str) -> None:
    values, expected = WRONG[case]
    errors = read(CREATION, **{**GOOD, **values})
    assert isinstance(errors, dict)
    assert set(errors) == set(expected)
    assert all(part in errors[block_id] for block_id, part in expected.items())
    assert not any("&lt;" in error or "`" in error for error in errors.values())  # it is shown as plain text


REQUESTS = [
    PriceRequest((LineRequest("pro", 150),), 12, Decimal(0), "USD"),
    PriceRequest((LineRequest("pro", 60), LineRequest("sso", 5)), 24, Decimal("12.5"), "USD", region="DE", with_tax=True),
    PriceRequest((LineRequest("pro", 60),), 36, Decimal(5), "USD", region="DE", terms=("liability_cap", "net_60")),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_unchanged_form_of_a_proposal_creates_exactly_that_quote(request_: PriceRequest) -> None:
    wanted = CreateQuote("Acme", request_, "C0SALES")
    view = create_form("C0SALES", RULESET, draft_of_creation(wanted, "a token"))
    assert read(view) == Filled(CreateByForm("a token", wanted))


def test_currency_that_is_not_sold_is_shown_and_never_replaced() -> None:
    view = create_form("C0SALES", RULESET, draft_of("for Acme: 10 pro; currency XYZ; tax DE", CATALOGUE))
    terms = next(block["element"] for block in view["blocks"] if block["block_id"] == "terms")
    assert terms["initial_value"] == "currency XYZ"
    errors = read(view)
    assert isinstance(errors, dict)
    assert "different values for the currency" in errors["terms"]


REVISION = revise_form(QUOTE, RULESET, POLICY)
for group in (TERMS, PARTIES):
    metadata = carried_by(REVISION["private_metadata"])
    assert metadata is not None
    REVISION = with_details(REVISION, metadata, group, RULESET, POLICY)
REVISED: dict[str, tuple[dict[str, str | None], Changes]] = {
    "a quantity": ({"row.0.quantity": "1,200"}, Changes((LineChange("set", "pro", 1_200),))),
    "a line's own discount": ({"row.0.discount": "5%"}, Changes((LineChange("set", "pro", 150, Decimal(5)),))),
    "a line out": ({"row.2.quantity": None}, Changes((LineChange("remove", "support"),))),
    "a line in": ({"terms": "add 10 enterprise"}, Changes((LineChange("add", "enterprise", 10),))),
    "the term": ({"term": "24m"}, Changes(term_months=24)),
    "the discount": ({"discount": "12.5"}, Changes(discount_percent=Decimal("12.5"))),
    "the tax and the billing": (
        {"tax": "=DE", "billing": "annual"},
        Changes(region="DE", with_tax=True, billing_frequency="annual"),
    ),
    "the commercial terms": (
        {"deal.start_date": "2027-01-31", "deal.payment_days": "60", "deal.valid": "45 days", "deal.vat_id": "de123456789"},
        Changes(commercial=CommercialTerms(date(2027, 1, 31), 60, vat_id="DE123456789", valid_days=45)),
    ),
    "the same in a field and as text": (
        {"deal.payment_days": "60", "terms": "payment net 60; po 4711"},
        Changes(commercial=CommercialTerms(payment_days=60, po_number="4711")),
    ),
    "the same line in a field and as text": (
        {"row.0.quantity": "200", "row.2.quantity": "0", "terms": "200 pro, remove support"},
        Changes((LineChange("set", "pro", 200), LineChange("remove", "support"), LineChange("set", "pro", 200))),
    ),
    "one line's discount in its field and its quantity as text": (
        {"row.0.discount": "5", "terms": "add 10 pro"},
        Changes((LineChange("set", "pro", 150, Decimal(5)), LineChange("add", "pro", 10))),
    ),
    "all of it": (
        {"row.1.quantity": "0", "terms": "2 support", "term": "24m", "discount": "8"},
        Changes((LineChange("remove", "sso"), LineChange("set", "support", 2)), 24, Decimal(8)),
    ),
}


@pytest.mark.parametrize("case", REVISED)
def test_only_what_differs_is_changed_and_about_the_version_that_was_seen(case: str) -> None:
    values, changes = REVISED[case]
    assert read(REVISION, **values) == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


def test_the_discount_alone_is_changed_by_its_own_form() -> None:
    changes = Changes(discount_percent=Decimal(10))
    assert read(discount_form(QUOTE), discount="10%") == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


@pytest.mark.parametrize(
    ("values", "block_id"),
    [
        ({"deal.valid": "soon"}, "deal.valid"),
        ({"deal.vat_id": "?"}, "deal.vat_id"),
        ({"deal.bill_to_email": "jo"}, "deal.bill_to_email"),
        ({"deal.payment_days": "60", "terms": "payment net 30"}, "terms"),
        ({}, "terms"),
        ({"row.0.quantity": "1.5"}, "row.0.quantity"),
        ({"terms": "remove prro"}, "terms"),
        ({"terms": "terms line_cap"}, "terms"),
        ({"row.0.quantity": "200", "terms": "300 pro"}, "terms"),
        ({"row.0.quantity": "200", "terms": "2000000 pro"}, "terms"),
        ({"row.0.quantity": "200", "terms": "add 50 pro"}, "terms"),
        ({"row.0.quantity": "0", "terms": "300 pro"}, "terms"),
        ({"row.0.discount": "5", "terms": "150 pro -6%"}, "terms"),
        ({"row.0.discount": "5", "terms": "150 pro @5 because volume"}, "terms"),
        ({"row.0.discount": "5", "terms": "remove pro"}, "terms"),
        ({"term": "x"}, "term"),
    ],
)
def test_a_revision_that_says_nothing_or_nonsense_stays_open(values: dict[str, str | None], block_id: str) -> None:
    assert set(read(REVISION, **values)) == {block_id}  # type: ignore[arg-type] # errors, by field


def test_the_form_that_resubmits_needs_a_note_and_names_the_request() -> None:
    view = resubmit_form(quote_in(QuoteState.DRAFT))
    assert read(view, approver_note="they\n\n need SSO") == Filled(
        SubmitQuote("they\nneed SSO", "A-2026-0042-v1-1"), "Q-2026-0042", 1
    )
    assert isinstance(read(view, approver_note="x" * 500), Filled)
    for wrong in (" \n ", "x" * 501):
        assert set(read(view, approver_note=wrong)) == {"approver_note"}  # type: ignore[arg-type] # errors


def test_the_form_that_cancels_takes_a_reason_and_needs_none() -> None:
    view = cancel_form(QUOTE)
    assert read(view, reason=" a \n\n double ") == Filled(CancelQuote("a\ndouble"), "Q-2026-0042", 1)
    assert read(view) == Filled(CancelQuote(), "Q-2026-0042", 1)
    assert (view["submit"]["text"], view["close"]["text"]) == ("Cancel quote", "Keep quote")


def test_a_recipient_and_a_reason_are_read() -> None:
    assert read(send_form(QUOTE), recipient=" buyer@acme.example ") == Filled(MarkSent("buyer@acme.example"), "Q-2026-0042", 1)
    assert read(lose_form(QUOTE), reason="too\n\n dear") == Filled(LoseQuote("too\ndear"), "Q-2026-0042", 1)
    lost = read(lose_form(QUOTE), loss_category="no_decision", reason="20 % over")
    assert lost == Filled(LoseQuote("No decision: 20 % over"), "Q-2026-0042", 1)
    assert read(lose_form(QUOTE), loss_category="price") == Filled(LoseQuote("Price"), "Q-2026-0042", 1)
    details = next(block["element"]["max_length"] for block in lose_form(QUOTE)["blocks"] if block.get("block_id") == "reason")
    longest = read(lose_form(QUOTE), loss_category="no_decision", reason="x" * details)
    assert longest == Filled(LoseQuote(f"No decision: {'x' * details}"), "Q-2026-0042", 1)
    assert set(read(send_form(QUOTE), recipient="x" * 201)) == {"recipient"}  # type: ignore[arg-type] # errors
    assert set(read(lose_form(QUOTE), reason=" \n ")) == {"reason"}  # type: ignore[arg-type] # errors


@pytest.mark.parametrize("name", [*FORMS, "create"])
@pytest.mark.parametrize("metadata", ["", "{}", '{"v":2,"q":"Q-2026-0042","n":1,"a":null}'])
def test_a_form_of_another_build_is_explained_in_it(name: str, metadata: str) -> None:
    view = {**(CREATION if name == "create" else FORMS[name](QUOTE)), "private_metadata": metadata}
    assert read(view) == {last_block(view): messages.UNREADABLE_FORM}


def test_a_form_in_another_currency_asks_for_prices_in_it() -> None:
    filled = read(CREATION, **{**GOOD, "currency": "EUR"})
    assert isinstance(filled, Filled)
    assert isinstance(filled.payload, CreateByForm)
    assert filled.payload.quote.request.currency == "EUR"


@pytest.mark.usefixtures("german")
def test_the_forms_keep_slacks_limits_in_german_and_read_alike() -> None:
    longest = replace(example_quote(), account="W" * 100, version=999)
    views = [
        *(form(longest) for form in FORMS.values()),
        create_form(None, RULESET, lookup=True, opportunities=True, policy=POLICY),
    ]
    assert [problem for view in views for problem in view_problems(view)] == []
    assert [view["title"]["text"] for view in views] == [
        "Angebot bearbeiten",
        "Rabatt ändern",
        "Als gesendet markieren",
        "Als verloren markieren",
        "Angebot stornieren",
        "Unverändert vorlegen",
        "Neues Angebot",
    ]
    months = next(block for block in views[-1]["blocks"] if block.get("block_id") == "term")["element"]["options"]
    assert [each["text"]["text"] for each in months] == ["12 Monate", "24 Monate", "36 Monate", "Andere"]
    pricing = QUOTE.pricing
    assert pricing.request is not None
    valid = replace(pricing.request, commercial=CommercialTerms(valid_days=45, payment_days=30))
    quote = replace(QUOTE, pricing=replace(pricing, request=valid))
    unchanged = Form(typed(revise_form(quote, RULESET, POLICY)), RULES, MORNING, quote)
    assert read_form(unchanged) == {"terms": "Noch keine Änderungen."}
    wrong = read(revise_form(QUOTE, RULESET), **{"row.0.quantity": "x"})
    assert wrong == {"row.0.quantity": "Bitte eine ganze Zahl eingeben; 0 entfernt die Position."}
    assert (reason_words("Price: zu teuer"), reason_words("Termin: Mai")) == ("Preis: zu teuer", "Termin: Mai")
    assert read(lose_form(quote), loss_category="price", reason="zu teuer") == Filled(
        LoseQuote("Price: zu teuer"), QUOTE.quote_id, 1
    )
