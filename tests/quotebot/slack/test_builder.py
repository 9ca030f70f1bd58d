"""Tests of the quote builder: lines, the live total, the approvals, and bundles and attributes in a new version."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from quotebot.app.installation import speak
from quotebot.commands.payloads import CreateByForm, ReviseQuote
from quotebot.domain.catalogue.rulesets import parse_ruleset
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.engine import Pricing, price
from quotebot.domain.pricing.price_requests import Changes, LineChange, LineRequest, PriceRequest, dated
from quotebot.domain.rules import Rules
from quotebot.slack import grammar
from quotebot.slack.builder import QuoteBuilder, _changed, _notice
from quotebot.slack.builder_input import previewed
from quotebot.slack.form_input import Filled, Form, read_form
from quotebot.views import builder, builder_fields
from quotebot.views.builder_details import PARTIES, TERMS
from quotebot.views.forms import FOUND, block_of, with_opportunities
from quotebot.views.product_messages import price_words, products_text
from tests.quotebot.domain.ruleset_parts import book, document, product
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_quote
from tests.quotebot.views.test_forms import typed
from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from tests.rig import Deal

STORAGE: Final = product(
    "storage",
    kind="configurable",
    attributes=[{"name": "gb", "choices": ["10", "100"], "default": "10"}, {"name": "region", "choices": ["us", "eu"]}],
)
KIT: Final = {
    "sku": "kit",
    "name": "Starter Kit",
    "family": "saas",
    "kind": "bundle",
    "bundle_discount_percent": "10",
    "components": [{"sku": "a", "quantity": 2}, {"sku": "b"}],
}
SHOP: Final = Rules(
    parse_ruleset(
        document(products=[product("a"), product("b"), STORAGE, KIT], price_books=[book({"a": 10, "b": 20, "storage": 5})])
    ),
    POLICY,
    {},
)


def blocks_of(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {block["block_id"]: block for block in view["blocks"] if "block_id" in block}


def foot(view: dict[str, Any]) -> str:
    text: str = blocks_of(view)[builder.PREVIEW]["text"]["text"]
    return text


def carried(view: dict[str, Any]) -> builder.Carried:
    found = builder.carried_by(view["private_metadata"])
    assert found is not None
    return found


def filled(view: dict[str, Any], **values: str | None) -> dict[str, Any]:
    """Return the view as previewed after these values were typed."""
    return previewed(typed(view, **values), RULES, MORNING, None)


def test_a_product_adds_a_line_of_one_unit_and_the_menu_is_empty_again() -> None:
    view = builder.create_form("C0SALES", RULESET, policy=POLICY)
    for sku in ("pro", "sso", "pro"):  # one line per product
        view = builder.with_line(view, carried(view), sku, RULESET)
    assert carried(view).rows == ((0, "pro"), (1, "sso"))
    assert "product.3" in blocks_of(view)
    assert view_problems(view) == []
    view = builder.without_line(view, carried(view), 0)
    assert carried(view).rows == ((1, "sso"),)
    assert not [block for block in blocks_of(view) if block.startswith("row.0")]


def test_the_total_and_the_approvals_follow_what_is_typed() -> None:
    view = builder.create_form("C0SALES", RULESET, policy=POLICY)
    assert foot(filled(view)) == "*No total yet:* Add a product."
    view = builder.with_line(view, carried(view), "pro", RULESET)
    assert "10,800.00" in foot(filled(view, **{"row.0.quantity": "150"}))
    assert "No approval needed" in foot(filled(view, **{"row.0.quantity": "150"}))
    over = filled(view, **{"row.0.quantity": "150", "discount": "15"})
    assert "9,180.00" in foot(over)
    assert "Needs approval" in foot(over)
    assert "9,180.00" in blocks_of(over)["row.0"]["text"]["text"]
    assert "Can't be submitted" in foot(filled(view, discount="50"))
    assert "Enter a whole number" in foot(filled(view, **{"row.0.quantity": "many"}))
    assert "line_cap" in foot(filled(view, terms="terms line_cap"))  # no special term of the policy
    assert view_problems(over) == []


def test_a_form_is_full_at_twenty_lines_and_keeps_within_slacks_limits() -> None:
    skus = [f"p{number}" for number in range(25)]
    rules = parse_ruleset(document(products=[product(sku) for sku in skus], price_books=[book(dict.fromkeys(skus, 10))]))
    view = builder.create_form("C0SALES", rules, policy=POLICY)
    for sku in skus:
        view = builder.with_line(view, carried(view), sku, rules)
    for group in (TERMS, PARTIES):
        view = builder.with_details(view, carried(view), group, rules, POLICY)
    assert len(carried(view).rows) == builder_fields.ROWS_MAX
    picked = {"action_id": "product.25", "selected_option": {"value": "p24"}}
    assert _notice(carried(view), view, picked) == builder.full()
    assert _notice(carried(view), view, {**picked, "selected_option": {"value": "p1"}}) == ""
    assert view_problems(view) == []
    draft = builder.Draft("Acme", tuple(LineRequest(sku, 1) for sku in skus))
    long = builder.create_form("C0SALES", rules, draft, policy=POLICY)
    assert blocks_of(long)["terms"]["element"]["initial_value"].endswith("1 p24")  # the rest stays typed, and none is lost
    found = read_form(Form(typed(long), Rules(rules, POLICY, {}), MORNING))
    assert isinstance(found, Filled)
    assert isinstance(found.payload, CreateByForm)
    assert [line.sku for line in found.payload.quote.request.lines] == skus


def test_products_are_offered_in_groups_with_price_and_unit() -> None:
    day = dated(PriceRequest((), 12, Decimal(0)), MORNING).priced_on
    assert day is not None
    groups = builder_fields.product_groups(RULESET, "", day)
    assert [group["label"]["text"] for group in groups] == ["saas", "services"]
    texts = {option["value"]: option["text"]["text"] for group in groups for option in group["options"]}
    assert texts["sso"] == f"SSO \u00b7 {price_words(RULESET.catalogue.products['sso'], RULESET, day)}"
    assert "per seat and month" in texts["pro"]
    assert "one-time" in texts["onboarding"]
    assert [option["value"] for group in builder_fields.product_groups(RULESET, "seat", day) for option in group["options"]] == [
        *("enterprise", "pro", "sso")
    ]


def test_the_menu_and_the_message_of_products_say_a_price_alike() -> None:
    prices = book([{"sku": "setup", "price": 5}, {"sku": "care", "kind": "percent", "percent": 20, "basis": "list"}])
    sold = [product("setup", billing="one_time", unit="A&B"), product("care")]
    rules = parse_ruleset(document(products=sold, price_books=[prices]))
    day, found = date(2026, 11, 21), " SETUP "
    menu = [option["text"]["text"] for group in builder_fields.product_groups(rules, "", day) for option in group["options"]]
    assert menu == ["Care \u00b7 20% of everything else", "Setup \u00b7 $5.00 per A&B, one-time"]
    message = products_text(rules, "", day).splitlines()
    assert message[1:3] == [
        "\u2022 *Care* `care`: 20% of everything else (list)",
        "\u2022 *Setup* `setup`: $5.00 per A&amp;B, one-time",
    ]
    assert len(builder_fields.product_groups(rules, found, day)[0]["options"]) == 1
    assert "`setup`" in products_text(rules, found, day)


def revised(request: PriceRequest, **values: str | None) -> Filled | dict[str, str]:
    """Return the reading of the Edit form of a quote with this request."""
    priced = price(dated(request, MORNING), SHOP.ruleset)
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    view = builder.revise_form(quote, SHOP.ruleset, POLICY)
    assert view_problems(view) == []
    shown = previewed(typed(view, **values), SHOP, MORNING, quote)
    assert blocks_of(shown)["row.0"]["text"]["text"].endswith("\n2 a, 1 b") == (request is CONFIGURED)
    assert ("against v1" in foot(shown)) == any(name.endswith("quantity") for name in values) or "No total" in foot(shown)
    return read_form(Form(typed(view, **values), SHOP, MORNING, quote))


CONFIGURED: Final = PriceRequest(
    (LineRequest("kit", 2), LineRequest("storage", 5, attributes=(("region", "us"),))), 12, Decimal(0), "USD"
)
AGREED: Final = replace(
    CONFIGURED, lines=(LineRequest("a", 7, agreed_price=Decimal(8), price_reason="volume"), LineRequest("b", 2, optional=True))
)
EDITED: Final[dict[str, tuple[dict[str, str | None], Changes]]] = {
    "a bundle's quantity": ({"row.0.quantity": "3"}, Changes((LineChange("set", "kit", 3),))),
    "a bundle out": ({"row.0.quantity": "0"}, Changes((LineChange("remove", "kit"),))),
    "an attribute": (
        {"row.1.=region": "=eu"},
        Changes((LineChange("set", "storage", 5, attributes=(("region", "eu"),)),)),
    ),
    "an attribute with a default": (
        {"row.1.=gb": "=100"},
        Changes((LineChange("set", "storage", 5, attributes=(("gb", "100"), ("region", "us"))),)),
    ),
}


def test_an_agreed_price_and_an_option_are_edited_in_their_fields() -> None:
    priced = price(dated(AGREED, MORNING), SHOP.ruleset)
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    view = builder.revise_form(quote, SHOP.ruleset, POLICY)
    back = builder.with_price(view, carried(view), 0, "A", priced=False)
    cases: tuple[tuple[dict[str, Any], dict[str, str | None], LineChange], ...] = (
        (view, {"row.0.price": "9"}, LineChange("set", "a", 7, agreed_price=Decimal(9), price_reason="volume")),
        (view, {"row.0.reason": "two years"}, LineChange("set", "a", 7, agreed_price=Decimal(8), price_reason="two years")),
        (view, {"row.1.quantity": "3"}, LineChange("set", "b", 3)),
        (back, {}, LineChange("set", "a", 7, Decimal(0))),
    )
    for shown, values, change in cases:
        found = read_form(Form(typed(shown, **values), SHOP, MORNING, quote))
        assert found == Filled(ReviseQuote(changes=Changes((change,))), "Q-2026-0042", 1)
    taken = typed(view)
    taken["state"]["values"]["row.1.optional"]["row.1.optional"]["selected_options"] = []
    change = LineChange("set", "b", 2, optional=False)
    found = read_form(Form(taken, SHOP, MORNING, quote))
    assert found == Filled(ReviseQuote(changes=Changes((change,))), "Q-2026-0042", 1)


@pytest.mark.parametrize("case", EDITED)
def test_bundles_and_attributes_are_edited_in_their_fields(case: str) -> None:
    values, changes = EDITED[case]
    assert revised(CONFIGURED, **values) == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


def test_a_larger_edit_leaves_lines_without_fields_as_they_are() -> None:
    agreed = LineRequest("a", 7, agreed_price=Decimal(8), price_reason="volume")
    request = replace(CONFIGURED, lines=(agreed, *CONFIGURED.lines))
    found = revised(request, **{"row.0.quantity": "9", "row.2.discount": "5"})
    changes = Changes((LineChange("set", "a", 9), LineChange("set", "storage", 5, Decimal(5))))
    assert found == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


def test_a_full_form_adds_no_further_fields_to_a_line_and_says_so() -> None:
    skus = [f"p{number}" for number in range(20)]
    rules = parse_ruleset(document(products=[product(sku) for sku in skus], price_books=[book(dict.fromkeys(skus, 10))]))
    view = builder.create_form(None, rules, builder.Draft(lines=tuple(LineRequest(sku, 1) for sku in skus)), policy=POLICY)
    for group in (TERMS, PARTIES):
        view = builder.with_details(view, carried(view), group, rules, POLICY)
    said = []
    for row in range(20):
        for chosen in ("price", "optional"):
            action = {"action_id": f"row.{row}.more", "selected_option": {"value": chosen}}
            view = _changed(view, carried(view), action, Rules(rules, POLICY, {}))
            said.append(_notice(carried(view), view, action))
    assert said == [""] * 4 + [builder.NO_ROOM] * 36
    assert view_problems(view) == []
    assert all({f"row.{row}.discount", f"row.{row}.price"} & set(blocks_of(view)) for row in range(20))


LOST: Final = document(
    products=[product("a")],
    price_books=[book({"a": 10}), book({"a": 8}, name="edu", segment="edu", priority=1)],
    taxes=[{"region": "FR", "percent": 20}],
)
LEFT: Final = {**LOST, "price_books": [book({"a": 10})], "taxes": [{"region": "DE", "percent": 19}]}


def test_what_the_rules_lost_stays_chosen_in_an_edit_until_it_is_removed() -> None:
    request = PriceRequest(
        (LineRequest("a", 7),), 12, Decimal(0), "USD", segment="edu", region="FR", with_tax=True, terms=("old_term",)
    )
    priced = price(dated(request, MORNING), parse_ruleset(LOST))
    assert isinstance(priced, Pricing)
    quote, rules = replace(example_quote(), pricing=priced), Rules(parse_ruleset(LEFT), POLICY, {})
    view = builder.revise_form(quote, rules.ruleset, POLICY)
    assert view_problems(view) == []
    assert read_form(Form(typed(view), rules, MORNING, quote)) == {"terms": "No changes yet."}
    lost = read_form(Form(typed(view, **{"row.0.quantity": "9"}), rules, MORNING, quote))
    assert isinstance(lost, dict)
    assert set(lost) == {"tax", "special"}
    assert " in FR" in lost["tax"]
    assert '"old_term" is no special term of the policy' in lost["special"]
    removed = typed(view, tax="none", segment="none")
    removed["state"]["values"]["special"]["special"]["selected_options"] = []
    changes = Changes(with_tax=False, terms=(), segment="")
    assert read_form(Form(removed, rules, MORNING, quote)) == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


def test_a_quotes_language_is_kept_when_other_fields_are_filled_in() -> None:
    priced = price(
        dated(replace(CONFIGURED, commercial=CommercialTerms(language="de", template="standard")), MORNING), SHOP.ruleset
    )
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    view = builder.revise_form(quote, SHOP.ruleset, POLICY)
    for group in (TERMS, PARTIES):
        view = builder.with_details(view, carried(view), group, SHOP.ruleset, POLICY)
    found = read_form(Form(typed(view, **{"deal.po_number": "4711"}), SHOP, MORNING, quote))
    changes = Changes(commercial=CommercialTerms(po_number="4711"))
    assert found == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)


async def test_a_segment_is_removed_in_the_form_and_by_text(deal: Deal) -> None:
    await deal.slash("new for Acme: 10 pro; segment partner")
    await deal.settled()
    assert "Segment: *partner*" in await deal.card_text()
    await deal.click("quote.revise", user="U0REP")
    person = {"user": "U0REP", "view_id": (await opened(deal))["id"]}
    await deal.post("submit", **person, values={"segment": {"segment": "none"}})
    await deal.settled()
    assert "v2" in (await deal.card())["text"]
    assert "Segment" not in await deal.card_text()
    for text in ("segment partner", "segment none"):
        await deal.slash(f"revise {FIRST_QUOTE}: {text}")
        await deal.settled()
    assert "v4" in (await deal.card())["text"]
    assert "Segment" not in await deal.card_text()


def test_a_line_gets_an_agreed_price_with_a_reason_or_becomes_an_option() -> None:
    view = builder.create_form("C0SALES", RULESET, builder.Draft("Acme", (LineRequest("pro", 10), LineRequest("sso", 5))))
    view = builder.with_price(view, carried(view), 0, "Pro", priced=True)
    view = builder.with_option(view, carried(view), 1, "SSO")
    assert view_problems(view) == []
    assert "Enter a price" in foot(filled(view))
    values: dict[str, str | None] = {"row.0.price": "5.50", "row.0.reason": "volume deal"}
    shown = filled(view, **values)
    assert "660.00" in foot(shown)  # without the option
    assert "(optional)" in blocks_of(shown)["row.1"]["text"]["text"]
    found = read_form(Form(typed(view, **values), RULES, MORNING))
    assert isinstance(found, Filled)
    assert isinstance(found.payload, CreateByForm)
    lines = (
        LineRequest("pro", 10, agreed_price=Decimal("5.50"), price_reason="volume deal"),
        LineRequest("sso", 5, optional=True),
    )
    assert found.payload.quote.request.lines == lines
    again = builder.create_form("C0SALES", RULESET, builder.Draft("Acme", lines))
    assert read_form(Form(typed(again), RULES, MORNING)) == found  # a prefilled form loses neither
    back = builder.with_price(again, carried(again), 0, "Pro", priced=False)
    assert "row.0.discount" in blocks_of(back)


def test_a_problem_of_one_line_is_said_at_its_field() -> None:
    found = revised(CONFIGURED, **{"row.1.quantity": "2000000"})
    assert isinstance(found, dict)
    assert list(found) == ["row.1.quantity"]


SUITE: Final = Rules(
    parse_ruleset(
        document(
            products=[
                *(product(sku) for sku in ("a", "b")),
                product("premium", name="Premium Care"),
                product("old", active=False),
                product(
                    "suite",
                    kind="bundle",
                    components=[{"sku": "a", "quantity": 2}],
                    choices=[
                        {"name": "care_plan", "of": ["b", "premium"], "default": "b", "quantity": 3},
                        {"name": "extra", "of": ["old"], "optional": True},
                    ],
                ),
            ]
        )
    ),
    POLICY,
    {},
)


def test_the_choices_of_a_bundle_are_menus_by_the_names_of_the_products() -> None:
    view = builder.create_form("C0SALES", SUITE.ruleset, builder.Draft("Acme", (LineRequest("suite", 1),)))
    menu, extra = (blocks_of(view)[f"row.0.={name}"] for name in ("care_plan", "extra"))
    assert menu["label"]["text"] == "Suite: care plan"
    assert [each["text"]["text"] for each in (*menu["element"]["options"], *extra["element"]["options"])] == [
        *("B", "Premium Care", "Old", "None")
    ]
    shown = previewed(typed(view, **{"row.0.=care_plan": "=premium"}), SUITE, MORNING, None)
    assert view_problems(shown) == []
    assert blocks_of(shown)["row.0"]["text"]["text"].endswith("\n2 a, 3 premium")
    found = read_form(Form(typed(view, **{"row.0.=extra": "=old"}), SUITE, MORNING))
    assert found == {"row.0.=extra": "Suite holds old, which is no longer sold: choose another extra"}


def test_products_show_the_choices_of_a_bundle() -> None:
    message = products_text(SUITE.ruleset, "suite", date(2026, 11, 21)).splitlines()[1]
    assert message.endswith("2 a, care_plan: 3 b | 3 premium (default b), extra: 1 old | none (default none)")
    menu = builder_fields.product_groups(SUITE.ruleset, "suite", date(2026, 11, 21))[0]["options"]
    assert [option["text"]["text"] for option in menu] == ["Suite \u00b7 2 a, care_plan: 3 b | 3 premium, extra: 1 old | none"]


def test_a_problem_stays_at_its_field_whatever_words_the_language_uses() -> None:
    skus = ("braucht", "eine", "storage")  # the first two are words of the German message
    sold = [product("braucht"), product("eine"), STORAGE]
    rules = Rules(parse_ruleset(document(products=sold, price_books=[book(dict.fromkeys(skus, 10))])), POLICY, {})
    speak("de")
    view = builder.create_form("C0SALES", rules.ruleset, builder.Draft("Acme", tuple(LineRequest(sku, 1) for sku in skus)))
    assert read_form(Form(typed(view), rules, MORNING)) == {
        "row.2.=region": "Storage braucht eine Auswahl für region: möglich: us, eu"
    }
    found = read_form(Form(typed(view, **{"row.2.=region": "=us", "row.2.quantity": "2000000"}), rules, MORNING))
    assert isinstance(found, dict)
    assert list(found) == ["row.2.quantity"]


@dataclass
class Redrawn:
    """A surface whose Slack refuses a view with an outdated hash."""

    view_hash: str = "h0"
    drawn: list[dict[str, Any]] = field(default_factory=list)
    loses_answer: bool = False
    opportunities: object = None
    ledger: Any = field(default_factory=lambda: SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: MORNING)))

    async def rules_now(self) -> Rules:
        return RULES

    async def rules_for(self, rules: Rules, *_customer: object) -> Rules:
        return rules

    async def redraw(self, person: str, view: dict[str, Any], anew: dict[str, Any]) -> str | None:
        assert person == "U0REP"
        before = view["hash"]
        await asyncio.sleep(0)
        if before != self.view_hash:
            return None
        self.drawn.append(anew)
        self.view_hash = f"h{len(self.drawn)}"
        return None if self.loses_answer else self.view_hash


def one_line_form() -> dict[str, Any]:
    form = builder.create_form(
        "C0SALES", RULESET, builder.Draft("Acme", (LineRequest("pro", 1),)), policy=POLICY, lookup=True, opportunities=True
    )
    return {**form, "id": "V1", "hash": "h0"}


def action(number: int, action_id: str, chosen: str | None = None) -> dict[str, Any]:
    """Return an action, later than those with lower numbers."""
    return {"action_id": action_id, "action_ts": f"{number}.0", "selected_option": {"value": chosen} if chosen else None}


async def test_fast_typing_ends_with_the_total_of_the_last_character() -> None:
    slack = Redrawn()
    listeners = QuoteBuilder(cast("Any", slack))
    typing = [
        listeners._redraw("U0REP", typed(one_line_form(), **{QUANTITY: quantity}), action(number, QUANTITY), None)
        for number, quantity in enumerate(("1", "15", "150"))
    ]
    await asyncio.gather(typing[0], typing[2], typing[1])
    assert "10,800.00" in foot(slack.drawn[-1])
    assert len(slack.drawn) <= len(typing)


QUANTITY: Final = "row.0.quantity"
OFFERED: Final = block_of("Acme Corp")
GROUPS: Final = (action(1, TERMS), action(2, PARTIES))
# Quick clicks -> blocks that they add, blocks that they remove.
QUICK: Final[dict[str, tuple[tuple[dict[str, Any], ...], set[str], set[str]]]] = {
    "two groups": (GROUPS, {"billing", "deal.po_number"}, {TERMS, PARTIES}),
    "one group twice": ((GROUPS[0], action(2, TERMS)), {"billing", PARTIES}, {TERMS}),
    "two products in one menu": (
        (action(1, "product.1", "sso"), action(2, "product.1", "support")),
        {QUANTITY, "row.1.quantity", "row.2.quantity", "product.3"},
        {"product.1", "product.2"},
    ),
    "a product and the menu of another line": (
        (action(1, "product.1", "sso"), action(2, "row.0.more", "price")),
        {"row.0.price", "row.0.reason", "row.1.quantity"},
        {"row.0.discount"},
    ),
    "a line out, and its price": (
        (action(1, "row.0.more", "remove"), action(2, "row.0.more", "price")),
        {"product.1"},
        {"row.0", QUANTITY, "row.0.price"},
    ),
    "a group between two terms": (
        (action(1, "term", "other"), action(2, PARTIES), action(3, "term", "24")),
        {"deal.po_number"},
        {"months", PARTIES},
    ),
    "an account and a product": (
        (action(1, FOUND, "Acme Corp"), action(2, "product.1", "sso")),
        {OFFERED, "row.1.quantity"},
        set(),
    ),
}


@pytest.mark.parametrize(("clicks", "added", "removed"), QUICK.values(), ids=QUICK)
async def test_quick_clicks_all_take_effect(clicks: tuple[dict[str, Any], ...], added: set[str], removed: set[str]) -> None:
    slack = Redrawn(opportunities=object())
    listeners = QuoteBuilder(cast("Any", slack))
    await asyncio.gather(*(listeners._redraw("U0REP", one_line_form(), click, None) for click in clicks))
    (*_, last) = slack.drawn
    assert added <= set(blocks_of(last))
    assert not removed & set(blocks_of(last))
    assert view_problems(last) == []


async def test_a_click_that_arrives_late_shows_the_newest_input() -> None:
    slack = Redrawn()
    listeners = QuoteBuilder(cast("Any", slack))
    newest = typed(one_line_form(), **{QUANTITY: "150"})
    await listeners._redraw("U0REP", newest, action(2, QUANTITY), None)
    await listeners._redraw("U0REP", typed(one_line_form(), **{QUANTITY: "1"}), GROUPS[0], None)
    assert "billing" in blocks_of(slack.drawn[-1])
    assert "10,800.00" in foot(slack.drawn[-1])


async def test_the_total_goes_on_after_a_lost_answer_and_after_a_foreign_redraw() -> None:
    slack = Redrawn()
    listeners = QuoteBuilder(cast("Any", slack))

    async def change(number: int) -> int:
        view = {**typed(one_line_form(), **{QUANTITY: f"{number}"}), "hash": slack.view_hash}
        await listeners._redraw("U0REP", view, action(number, QUANTITY), None)
        return len(slack.drawn)

    assert await change(1) == 1
    slack.loses_answer = True
    assert await change(2) == 2
    slack.loses_answer = False
    assert await change(3) == 3
    slack.view_hash = "drawn by another replica"
    assert await change(4) == 4


async def test_a_click_in_a_form_that_another_replica_has_redrawn_is_refused() -> None:
    slack = Redrawn()
    listeners = QuoteBuilder(cast("Any", slack))
    await listeners._redraw("U0REP", one_line_form(), GROUPS[0], None)
    slack.view_hash = "drawn by another replica"
    await listeners._redraw("U0REP", one_line_form(), GROUPS[1], None)
    assert len(slack.drawn) == 1


async def test_changes_of_one_form_may_reach_different_replicas() -> None:
    slack = Redrawn()
    one, other = (QuoteBuilder(cast("Any", slack)) for _ in range(2))
    await asyncio.gather(
        *(each._redraw("U0REP", one_line_form(), click, None) for each, click in ((one, GROUPS[0]), (other, GROUPS[1])))
    )
    (shown,) = slack.drawn  # Slack refuses the second
    assert "billing" in blocks_of(shown)
    for number, each in enumerate((other, one, other), start=3):
        typing = {**typed(shown, **{QUANTITY: f"{number}"}), "id": "V1", "hash": slack.view_hash}
        await each._redraw("U0REP", typing, GROUPS[1] if number == 3 else action(number, QUANTITY), None)
        shown = slack.drawn[-1]
    assert len(slack.drawn) == 4
    assert {"billing", "deal.po_number"} <= set(blocks_of(shown))
    assert "600.00" in foot(shown)  # of five
    assert view_problems(shown) == []


def test_a_field_over_its_limit_is_not_parsed_for_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    view = typed(builder.create_form("C0SALES", RULESET), terms="1 pro, " * 1_000)
    monkeypatch.setattr(grammar, "read_changes", None)
    assert foot(previewed(view, RULES, MORNING, None)) == "*No total yet:* At most 2,900 characters."


async def opened(deal: Deal) -> dict[str, Any]:
    (view,) = (await deal.get("state"))["views"]
    found: dict[str, Any] = view["view"]
    return found


async def test_a_quote_is_built_line_by_line_with_a_live_total(deal: Deal) -> None:
    await deal.slash("new")
    view_id = (await opened(deal))["id"]
    person: dict[str, Any] = {"user": "U0REP", "view_id": view_id}
    offered = await deal.post("suggest", **person, action_id="product.0", value="pro")
    assert {option["value"] for option in offered["options"]} == {"pro"}
    await deal.post("action", **person, action_id="product.0", value="pro")
    await deal.post("action", **person, action_id="product.1", value="sso")
    await deal.post("action", **person, action_id="row.0.quantity", value="150")
    await deal.post("action", **person, action_id="discount", value="15")
    view = await opened(deal)
    assert "Needs approval" in foot(view)
    await deal.post("action", **person, action_id="row.1.more", value="remove")
    await deal.post("action", **person, action_id="term", value="other")
    await deal.post("action", **person, action_id="months", value="6")
    view = await opened(deal)
    assert "4,590.00" in foot(view)
    await deal.post("action", **person, action_id="form.terms")
    values = {"account": {"account": "Acme"}, "billing": {"billing": "monthly"}}
    sent = await deal.post("submit", **person, values=values)
    assert sent["ack"] == {}
    await deal.settled()
    card = await deal.card_text()
    assert "4,590.00" in card
    assert "onthly" in card
    await deal.click("quote.revise", user="U0REP")
    person["view_id"] = (await opened(deal))["id"]
    await deal.post("action", **person, action_id="row.0.quantity", value="200")
    assert "+1,530.00" in foot(await opened(deal)).replace("$", "").replace("USD\u00a0", "")
    await deal.post("submit", **person, values={})
    await deal.settled()
    assert f"{FIRST_QUOTE} v2" in (await deal.card())["text"]


async def test_two_groups_opened_at_once_are_both_shown(deal: Deal) -> None:
    await deal.slash("new")
    person: dict[str, Any] = {"user": "U0REP", "view_id": (await opened(deal))["id"]}
    await asyncio.gather(*(deal.post("action", **person, action_id=group) for group in (TERMS, PARTIES)))
    assert {"billing", "deal.po_number"} <= set(blocks_of(await opened(deal)))


def test_an_emptied_field_removes_its_term_and_unused_groups_are_buttons() -> None:
    terms = CommercialTerms(payment_days=45, valid_days=30, po_number="4711", customer_note="Thank you")
    priced = price(dated(replace(CONFIGURED, commercial=terms), MORNING), SHOP.ruleset)
    assert isinstance(priced, Pricing)
    quote = replace(example_quote(), pricing=priced)
    view = builder.revise_form(quote, SHOP.ruleset, POLICY)
    emptied: dict[str, str | None] = {"deal.po_number": None, "deal.payment_days": "none", "deal.valid": "2026-12-24"}
    found = read_form(Form(typed(view, **emptied), SHOP, MORNING, quote))
    changes = Changes(commercial=CommercialTerms(valid_until=date(2026, 12, 24)), cleared=("payment_days", "po_number"))
    assert found == Filled(ReviseQuote(changes=changes), "Q-2026-0042", 1)
    plain = builder.revise_form(replace(quote, pricing=replace(priced, request=CONFIGURED)), SHOP.ruleset, POLICY)
    assert {"form.terms", "form.parties"} <= set(blocks_of(plain))
    assert not {"form.terms", "form.parties"} & set(blocks_of(view))


def test_the_discount_alone_shows_what_it_comes_to() -> None:
    quote = example_quote()
    view = builder.discount_form(quote, POLICY)
    shown = previewed(typed(view, discount="5"), RULES, MORNING, quote)
    assert "+2,040.00" in foot(shown).replace("$", "")
    assert "No approval needed" in foot(shown)
    assert read_form(Form(typed(view), RULES, MORNING, quote)) == {"discount": "No changes yet."}


def test_the_longest_names_leave_the_metadata_readable() -> None:
    skus = [f"{number:02}{'x' * 38}" for number in range(20)]
    rules = parse_ruleset(document(products=[product(sku) for sku in skus], price_books=[book(dict.fromkeys(skus, 10))]))
    draft = builder.Draft("Acme", tuple(LineRequest(sku, 1) for sku in skus), token="f" * 64)
    view = builder.create_form("C0SALES", rules, draft, lookup=True, opportunities=True)
    offered = with_opportunities(view, "\u00c4" * 100)
    assert offered is not None
    assert len(carried(offered).rows) == len(skus)
