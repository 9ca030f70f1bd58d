"""Tests of each kind of price, book, bundle, constraint, tax and rate. The figures were computed by hand."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.pricing.engine import LineRequest, PricedLine
from quotebot.domain.quotes.versions import difference
from tests.quotebot.domain.ruleset_parts import SAMPLE, ask, book, priced, problems, product, ruleset

if TYPE_CHECKING:
    from quotebot.domain.catalogue.rulesets import Ruleset

TIERS = [{"from": 1, "price": 10}, {"from": 50, "price": 8}, {"from": 100, "price": 6}]
DAY = date(2026, 11, 21)


def only(price: dict[str, Any], quantity: int, *, term: int = 1, rules: dict[str, Any] | None = None) -> PricedLine:
    """Return the line of `quantity` a under this price."""
    made = ruleset(products=[product("a")], price_books=[book([{"sku": "a", **price}])], **(rules or {}))
    return priced(ask(("a", quantity), term=term), made).lines[0]


@pytest.mark.parametrize(
    ("kind", "quantity", "amount", "tier"),
    [
        ("range", 49, "490.00", "1-49"),
        ("range", 50, "400.00", "50-99"),
        ("range", 99, "792.00", "50-99"),
        ("range", 100, "600.00", "100+"),
        ("slab", 49, "490.00", "1-49"),
        ("slab", 50, "498.00", "50-99"),
        ("slab", 99, "890.00", "50-99"),
        ("slab", 100, "896.00", "100+"),
        ("block", 49, "10.00", "1-49"),
        ("block", 50, "8.00", "50-99"),
        ("block", 99, "8.00", "50-99"),
        ("block", 100, "6.00", "100+"),
    ],
)
def test_each_kind_of_tier_holds_at_its_boundaries(kind: str, quantity: int, amount: str, tier: str) -> None:
    line = only({"kind": kind, "tiers": TIERS}, quantity)
    assert (str(line.list_amount), line.tier, line.kind) == (amount, tier, kind)


def test_a_slab_shows_every_bracket_and_the_average_unit_price() -> None:
    line = only({"kind": "slab", "tiers": TIERS}, 120, term=12)
    assert [(step.name, str(step.amount), step.detail) for step in line.trace] == [
        ("base", "10", "tier 1-49"),
        ("slab", "490", "49 in tier 1-49 at 10"),
        ("slab", "400", "50 in tier 50-99 at 8"),
        ("slab", "126", "21 in tier 100+ at 6"),
    ]
    assert (str(line.list_amount), str(line.unit_price)) == ("12192.00", "8.466667")


def test_formula_prices_a_unit_from_its_inputs_the_term_and_numeric_choices() -> None:
    box = product("a", kind="configurable", attributes=[{"name": "gb", "choices": ["10", "20"]}, {"name": "os", "choices": ["x"]}])
    price = {"kind": "formula", "formula": "max(1, base + gb / 4 - term_months * 0.1)", "inputs": {"base": "2.5"}}
    rules = ruleset(products=[box], price_books=[book([{"sku": "a", **price}])])
    line = priced(ask(LineRequest("a", 3, attributes=(("gb", "20"), ("os", "x"))), term=12), rules).lines[0]
    assert (str(line.unit_price), str(line.list_amount)) == ("6.300000", "226.80")  # 2.5 + 5 - 1.2 = 6.3; * 3 * 12
    assert line.trace[0].detail == "max(1, base + gb / 4 - term_months * 0.1) with base = 2.5, gb = 20, term_months = 12"
    assert line.attributes == (("gb", "20"), ("os", "x"))


@pytest.mark.parametrize(
    ("formula", "why"),
    [("1 / (quantity - 5)", "it divides by 0"), ("quantity - 6", "its value -1 is no price"), ("2000000000", "no price")],
)
def test_a_formula_without_a_price_is_a_problem(formula: str, why: str) -> None:
    rules = ruleset(products=[product("a")], price_books=[book([{"sku": "a", "kind": "formula", "formula": formula}])])
    (problem,) = problems(ask(("a", 5)), rules)
    assert problem.code == "formula"
    assert why in problem.message


SHARE = [product("a"), product("b", family="services"), product("care", family="care"), product("more", family="care")]


def shares(**care: Any) -> Ruleset:
    rows = [{"sku": "a", "price": 10}, {"sku": "b", "price": 5}, {"sku": "care", "kind": "percent", "percent": 20, **care}]
    return ruleset(products=SHARE, price_books=[book([*rows, {"sku": "more", "kind": "percent", "percent": 1}])])


@pytest.mark.parametrize(
    ("care", "amount"),
    [
        ({}, "29.00"),  # 20 % of 95 + 50
        ({"of": ["saas"]}, "19.00"),
        ({"of": ["b"]}, "10.00"),
        ({"of": ["saas", "a", "b"]}, "29.00"),  # named twice, counted once
        ({"of": ["saas"], "basis": "list"}, "20.00"),
    ],
)
def test_percentage_line_is_based_on_the_named_lines_after_their_own_discounts(care: dict[str, Any], amount: str) -> None:
    lines = (("care", 1), LineRequest("a", 10, Decimal(5)), ("more", 1), ("b", 10))
    pricing = priced(ask(*lines), shares(**care))
    assert [line.sku for line in pricing.lines] == ["care", "a", "more", "b"]
    assert str(pricing.lines[0].list_amount) == amount
    assert str(pricing.lines[2].list_amount) == "1.45"  # of a and b, not of the other percentage


def test_a_percentage_of_other_lines_is_there_once() -> None:
    (problem,) = problems(ask(("a", 1), ("care", 2)), shares())
    assert (problem.code, problem.suggestion) == ("quantity", "write 1 care")


def test_a_bundle_is_its_components_each_with_its_share_of_the_bundles_discount() -> None:
    products = [
        product("a"),
        product("b", billing="one_time", family="services"),
        product(
            "set", kind="bundle", components=[{"sku": "a", "quantity": 50}, {"sku": "b", "quantity": 1}], bundle_discount_percent=10
        ),
    ]
    rules = ruleset(products=products, price_books=[book([{"sku": "a", "tiers": TIERS}, {"sku": "b", "price": 100}])])
    pricing = priced(ask(("set", 2), ("a", 1), term=12), rules)
    assert [(line.sku, line.bundle, line.quantity, str(line.net_amount)) for line in pricing.lines] == [
        ("a", "set", 100, "6480.00"),  # 100 * 6 * 12 less 10 %
        ("b", "set", 2, "180.00"),
        ("a", None, 1, "120.00"),
    ]
    assert [str(line.bundle_discount_amount) for line in pricing.lines] == ["720.00", "20.00", "0.00"]
    assert pricing.deepest_discount_percent == 0  # a bundle's discount is the seller's own, not a requested one


SUITE = ruleset(
    products=[
        *(product(sku) for sku in ("pro", "support", "premium", "sso")),
        product("old", active=False),
        product(
            "suite",
            kind="bundle",
            components=[{"sku": "pro", "quantity": 1}],
            choices=[
                {"name": "support", "of": ["support", "premium"], "default": "support"},
                {"name": "login", "of": ["sso", "old"], "quantity": 3, "optional": True},
            ],
            bundle_discount_percent=10,
        ),
        product("plans", kind="bundle", components=[], choices=[{"name": "plan", "of": ["pro", "premium"]}]),
    ],
    price_books=[book({"pro": 10, "support": 5, "premium": 20, "sso": 2, "old": 1})],
)


@pytest.mark.parametrize(
    ("chosen", "parts"),
    [
        ((), [("pro", "", 2, "18.00"), ("support", "support", 2, "9.00")]),
        ((("support", "premium"),), [("pro", "", 2, "18.00"), ("premium", "support", 2, "36.00")]),
        (
            (("login", "sso"), ("support", "support")),
            [("pro", "", 2, "18.00"), ("support", "support", 2, "9.00"), ("sso", "login", 6, "10.80")],
        ),
        ((("login", "none"),), [("pro", "", 2, "18.00"), ("support", "support", 2, "9.00")]),
    ],
)
def test_a_bundle_holds_what_is_chosen_or_its_default(
    chosen: tuple[tuple[str, str], ...], parts: list[tuple[str, str, int, str]]
) -> None:
    pricing = priced(ask(LineRequest("suite", 2, attributes=chosen)), SUITE)
    assert [(line.sku, line.choice, line.quantity, str(line.net_amount)) for line in pricing.lines] == parts
    assert {line.bundle for line in pricing.lines} == {"suite"}


@pytest.mark.parametrize(
    ("sku", "chosen", "message", "suggestion", "attribute"),
    [
        ("suite", ("support", "sso"), "sso is no support of suite", "one of support, premium", "support"),
        ("suite", ("support", "none"), "none is no support of suite", "one of support, premium", "support"),
        ("suite", ("login", "pro"), "pro is no login of suite", "one of sso, old, none", "login"),
        ("suite", ("login", "old"), "suite holds old, which is no longer sold", "choose another login", "login"),
        ("suite", ("colour", "red"), "suite has no choice colour", "known are support, login", "colour"),
        ("plans", None, "plans needs a choice of plan", "one of pro, premium", "plan"),
    ],
)
def test_a_choice_that_is_unknown_or_missing_is_named_with_what_is_possible(
    sku: str, chosen: tuple[str, str] | None, message: str, suggestion: str, attribute: str
) -> None:
    line = LineRequest(sku, 1, attributes=() if chosen is None else (chosen,))
    (problem,) = problems(ask(line), SUITE)
    assert (problem.code in ("attribute", "inactive_sku"), problem.message, problem.suggestion) == (True, message, suggestion)
    assert (problem.sku, problem.attribute) == (sku, attribute)


def test_another_choice_in_a_bundle_is_not_what_people_approved() -> None:
    usual, other = (
        priced(ask(LineRequest("suite", 2, attributes=(("support", choice),))), SUITE) for choice in ("support", "premium")
    )
    assert "Support removed" in got_worse(usual, other)
    assert "Premium removed" in got_worse(other, usual)
    assert [line.sku for line in difference(usual, other).added] == ["premium"]
    assert got_worse(usual, priced(ask(("suite", 2)), SUITE)) == ()  # its default, by name or not


def test_a_bundle_that_unpacks_into_too_many_lines_or_units_is_refused() -> None:
    products = [product(f"p{number}") for number in range(50)]
    parts = [{"sku": row["sku"], "quantity": 10_000} for row in products]
    bundles = [product(f"s{number}", kind="bundle", components=parts) for number in range(9)]
    rules = ruleset(products=[*products, *bundles])
    codes = {row.code for row in problems(ask(*((row["sku"], 1) for row in bundles)), rules)}
    assert codes == {"line_count"}
    assert {row.code for row in problems(ask(("s0", 101)), rules)} == {"quantity"}


def test_a_choice_may_cost_extra_per_unit_and_month() -> None:
    box = product("a", kind="configurable", attributes=[{"name": "region", "choices": ["us", "eu"], "default": "us"}])
    price = {"sku": "a", "tiers": TIERS, "surcharges": [{"attribute": "region", "choice": "eu", "amount": "0.5"}]}
    rules = ruleset(products=[box], price_books=[book([price])])
    assert str(priced(ask(("a", 100), term=12), rules).net_total) == "7200.00"
    line = priced(ask(LineRequest("a", 100, attributes=(("region", "eu"),)), term=12), rules).lines[0]
    assert (str(line.list_amount), str(line.unit_price)) == ("7800.00", "6.5")


def test_a_configuration_is_complete_and_known_or_every_problem_is_named() -> None:
    box = product("a", kind="configurable", attributes=[{"name": "gb", "choices": ["10", "20"]}])
    rules = ruleset(products=[box])
    assert [row.suggestion for row in problems(ask(("a", 1)), rules)] == ["one of 10, 20"]
    line = LineRequest("a", 1, attributes=(("gb", "30"), ("os", "x")))
    assert [row.message for row in problems(ask(line), rules)] == ["30 is no gb of a", "a has no attribute os"]
    twice = LineRequest("a", 1, attributes=(("gb", "10"), ("gb", "20")))
    assert "a has an attribute twice" in [row.message for row in problems(ask(twice), rules)]


CONSTRAINED = ruleset(
    products=[
        product("a"),
        product("b"),
        product(
            "box", kind="configurable", attributes=[{"name": "gb", "choices": ["1", "2"]}, {"name": "os", "choices": ["x", "y"]}]
        ),
        product("set", kind="bundle", components=[{"sku": "a", "quantity": 3}]),
    ],
    constraints=[
        {"kind": "requires", "sku": "box", "other": "a"},
        {"kind": "min_quantity", "sku": "a", "quantity": 2},
        {"kind": "max_quantity", "sku": "a", "quantity": 5},
        {"kind": "same_quantity", "sku": "a", "other": "b"},
        {"kind": "excludes", "sku": "b", "other": "box", "message": "b is built into a box"},
        {"kind": "attribute", "sku": "box", "attribute": "gb", "choice": "2", "then_attribute": "os", "then_choices": ["y"]},
    ],
)


def box(gb: str, os: str) -> LineRequest:
    return LineRequest("box", 1, attributes=(("gb", gb), ("os", os)))


@pytest.mark.parametrize(
    ("lines", "violated"),
    [
        ((("a", 2),), []),
        ((("a", 5),), []),
        ((("a", 1),), [("min_quantity", "e.g. 2 a")]),
        ((("a", 6),), [("max_quantity", "e.g. 5 a")]),
        ((("set", 1),), []),
        ((("set", 2),), [("max_quantity", "e.g. 5 a")]),
        ((("set", 1), ("a", 3)), [("max_quantity", "e.g. 5 a")]),
        ((("a", 3), ("b", 3)), []),
        ((("a", 3), ("b", 4)), [("same_quantity", "e.g. 4 a, 4 b")]),
        ((box("1", "x"), ("a", 2)), []),
        ((box("1", "x"),), [("requires", "add a, or leave box out")]),
        ((box("2", "y"), ("a", 2)), []),
        ((box("2", "x"), ("a", 2)), [("attribute", "choose os = y")]),
        (
            (box("2", "x"), ("b", 1)),
            [
                ("requires", "add a, or leave box out"),
                ("excludes", "leave one of them out: b or box"),
                ("attribute", "choose os = y"),
            ],
        ),
    ],
)
def test_every_violated_constraint_is_reported_with_a_suggestion(lines: tuple[Any, ...], violated: list[tuple[str, str]]) -> None:
    if violated:
        assert [(row.code, row.suggestion) for row in problems(ask(*lines), CONSTRAINED)] == violated
    else:
        priced(ask(*lines), CONSTRAINED)


def test_a_constraint_may_speak_in_its_own_words() -> None:
    found = problems(ask(box("1", "x"), ("a", 2), ("b", 2)), CONSTRAINED)
    assert [row.message for row in found] == ["b is built into a box"]


BOOKS = ruleset(
    price_books=[
        book({"a": 10}),
        book({"a": 9}, name="smb", segment="smb", priority=1),
        book({"a": 8}, name="de", region="DE", priority=2),
        book({"a": 5}, name="sale", priority=9, valid_from="2026-11-01", valid_until="2026-11-30"),
        book({"a": 7}, name="euro", currency="EUR"),
    ],
    rates=[
        {"base": "USD", "currency": "EUR", "rate": "0.9", "on": "2026-01-01"},
        {"base": "USD", "currency": "EUR", "rate": "0.8", "on": "2026-11-21"},
    ],
)


@pytest.mark.parametrize(
    ("changes", "unit_price", "source"),
    [
        ({}, "10", "list"),
        ({"segment": "large"}, "10", "list"),
        ({"segment": "smb"}, "9", "smb"),
        ({"segment": "smb", "region": "DE"}, "8", "de"),
        ({"priced_on": date(2026, 10, 31), "segment": "smb"}, "9", "smb"),
        ({"priced_on": date(2026, 11, 1), "segment": "smb"}, "5", "sale"),
        ({"priced_on": date(2026, 11, 30)}, "5", "sale"),
        ({"priced_on": date(2026, 12, 1)}, "10", "list"),
        ({"priced_on": DAY, "currency": "EUR"}, "7", "euro"),
    ],
)
def test_the_book_with_the_highest_priority_of_those_that_hold_counts(
    changes: dict[str, Any], unit_price: str, source: str
) -> None:
    line = priced(ask(("a", 1), **changes), BOOKS).lines[0]
    assert (str(line.unit_price), line.book) == (unit_price, source)


@pytest.mark.parametrize("changes", [{"currency": "EUR"}, {"currency": "EUR", "priced_on": date(2025, 12, 31)}])
def test_without_a_rate_of_the_day_there_is_no_price_because_costs_would_be_guessed(changes: dict[str, Any]) -> None:
    (problem,) = problems(ask(("a", 1), **changes), BOOKS)
    assert problem.code == "no_rate"
    assert "from USD to EUR" in problem.message


def test_a_missing_price_is_a_problem_never_a_guess() -> None:
    (problem,) = problems(ask(("a", 1), ("b", 1)), BOOKS)
    assert (problem.code, problem.message) == ("no_price", "b has no price in USD on no particular day")
    rules = ruleset(price_books=[book({"a": 1}, segment="smb")])
    assert [row.code for row in problems(ask(("a", 1)), rules)] == ["no_price"]


@pytest.mark.parametrize(
    ("day", "rate", "cost"), [(date(2026, 11, 20), "0.9", "0.90"), (DAY, "0.8", "0.80"), (date(2027, 5, 1), "0.8", "0.80")]
)
def test_the_latest_rate_of_the_day_or_before_counts_and_stays_in_the_price(day: date, rate: str, cost: str) -> None:
    pricing = priced(ask(("a", 1), currency="EUR", priced_on=day), BOOKS)
    assert pricing.rate is not None
    assert (str(pricing.rate.rate), str(pricing.cost_total)) == (rate, cost)


@pytest.mark.parametrize(
    ("currency", "net", "cost", "monthly"),
    [
        ("EUR", "18768.00", "5630.40", "1564.00"),
        ("JPY", "3060000", "918000", "255000"),
        ("KWD", "6262.800", "1878.840", "521.900"),
        ("USD", "20400.00", "6120.00", "1700.00"),
    ],
)
def test_the_golden_quote_in_other_currencies_has_their_exponents(currency: str, net: str, cost: str, monthly: str) -> None:
    request = ask(("pro", 150), ("sso", 150), ("support", 1), term=12, currency=currency, priced_on=DAY)
    pricing = priced(request, SAMPLE)
    assert (pricing.currency, str(pricing.net_total), str(pricing.cost_total)) == (currency, net, cost)
    assert str(pricing.monthly_recurring_revenue) == monthly
    assert (pricing.rate is None) == (currency == "USD")


@pytest.mark.parametrize(
    ("currency", "lines"), [("JPY", ["3", "3", "3"]), ("KWD", ["2.500", "2.500", "2.500"]), ("EUR", ["2.50", "2.50", "2.50"])]
)
def test_each_line_is_rounded_half_up_to_the_currencys_exponent(currency: str, lines: list[str]) -> None:
    rules = ruleset(
        currency=currency,
        products=[product(sku) for sku in "abc"],
        price_books=[book(dict.fromkeys("abc", "2.5"), currency=currency)],
    )
    pricing = priced(ask(("a", 1), ("b", 1), ("c", 1)), rules)
    assert [str(line.net_amount) for line in pricing.lines] == lines
    assert pricing.net_total == sum(Decimal(line) for line in lines)


TAXED = ruleset(
    products=[product("a"), product("b", tax_category="books")],
    taxes=[
        {"region": "DE", "percent": 19},
        {"region": "DE", "category": "books", "percent": 7, "estimated": True, "valid_until": "2026-12-31"},
        {"region": "DE", "category": "books", "percent": 5, "valid_from": "2027-01-01"},
        {"region": "JP", "category": "saas", "percent": 10},
    ],
)


@pytest.mark.parametrize(
    ("day", "taxes", "estimated"),
    [(date(2026, 12, 31), ["1.71", "1.26"], True), (date(2027, 1, 1), ["1.71", "0.90"], False), (None, ["1.71", "3.42"], False)],
)
def test_tax_is_taken_of_each_lines_net_by_region_category_and_day(day: date | None, taxes: list[str], *, estimated: bool) -> None:
    pricing = priced(ask(("a", 1), ("b", 1), discount="10", region="DE", priced_on=day, with_tax=True), TAXED)
    assert [str(line.tax_amount) for line in pricing.lines] == taxes
    assert pricing.tax_estimated == estimated
    assert (str(pricing.net_total), pricing.tax_total) == ("27.00", sum(Decimal(tax) for tax in taxes))
    assert pricing.gross_total == pricing.net_total + pricing.tax_total


def test_a_tax_that_is_not_in_the_table_is_a_problem_and_no_tax_wanted_is_none() -> None:
    assert [row.code for row in problems(ask(("a", 1), with_tax=True), TAXED)] == ["no_tax"]
    assert [row.message for row in problems(ask(("a", 1), ("b", 1), region="JP", with_tax=True), TAXED)] == [
        "the tax table has no row for books in JP without a day"
    ]
    assert str(priced(ask(("a", 1), region="FR"), TAXED).gross_total) == "10.00"
