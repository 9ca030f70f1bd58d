from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.catalogue.rulesets import parse_ruleset, parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, canonical, explain, from_canonical, price

RULESET = parse_ruleset_toml(files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8"))
GOLDEN = (LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1))
ODD = parse_ruleset(
    {
        "name": "odd",
        "version": "7",
        "currency": "USD",
        "products": [
            {"sku": sku, "name": sku, "family": "saas", "unit": "call", "billing": "one_time", "cost": "0.001"}
            for sku in ("unit", "half")
        ],
        "price_books": [
            {"name": "list", "currency": "USD", "prices": [{"sku": "unit", "price": "0.005"}, {"sku": "half", "price": "0.01"}]}
        ],
    }
)


def priced(lines: tuple[LineRequest, ...], term: int = 12, discount: str = "0") -> Pricing:
    result = price(PriceRequest(lines, term, Decimal(discount)), RULESET)
    assert isinstance(result, Pricing)
    return result


def test_the_golden_quote_costs_20_400_list_and_17_340_at_15_percent() -> None:
    pricing = priced(GOLDEN, discount="15")
    assert pricing.list_total == Decimal("20400.00")
    assert pricing.discount_total == Decimal("3060.00")
    assert pricing.net_total == Decimal("17340.00")
    assert pricing.cost_total == Decimal("6120.00")
    assert [str(line.net_amount) for line in pricing.lines] == ["9180.00", "3060.00", "5100.00"]
    assert [line.tier for line in pricing.lines] == ["100+", None, None]
    assert (pricing.ruleset, pricing.currency) == ("sample 1", "USD")


@pytest.mark.parametrize(("quantity", "net"), [(49, "490.00"), (50, "400.00"), (99, "792.00"), (100, "600.00")])
def test_the_reached_tier_prices_every_unit(quantity: int, net: str) -> None:
    assert str(priced((LineRequest("pro", quantity),), term=1).net_total) == net


def test_a_one_time_product_is_charged_once_whatever_the_term() -> None:
    line = priced((LineRequest("onboarding", 2),), term=36).lines[0]
    assert (line.months, str(line.list_amount), str(line.cost_amount)) == (1, "10000.00", "5000.00")


def test_half_cent_rounds_up_once_per_line_and_the_discount_once_over_all_lines() -> None:
    pricing = price(PriceRequest((LineRequest("unit", 1), LineRequest("half", 1)), 1, Decimal(50)), ODD)
    assert isinstance(pricing, Pricing)
    assert [(str(line.list_amount), str(line.discount_amount), str(line.net_amount)) for line in pricing.lines] == [
        ("0.01", "0.00", "0.01"),  # 0.005 -> 0.01 list; half of 0.02 is one cent, and equal claims to it go by name
        ("0.01", "0.01", "0.00"),
    ]
    assert str(pricing.net_total) == "0.01"


def test_a_ruleset_may_round_each_lines_part_of_the_discount_on_its_own() -> None:
    per_line = replace(ODD, header_rule="per_line")
    pricing = price(PriceRequest((LineRequest("unit", 1), LineRequest("half", 1)), 1, Decimal(50)), per_line)
    assert isinstance(pricing, Pricing)
    assert [str(line.discount_amount) for line in pricing.lines] == ["0.01", "0.01"]
    assert (str(pricing.net_total), pricing.header_rule) == ("0.00", "per_line")


def test_every_problem_is_reported_at_once_in_reading_order_with_a_suggestion() -> None:
    lines = (LineRequest("prp", 0), LineRequest("sso", 1), LineRequest("sso", 2), LineRequest("pro", 1_000_001))
    problems = price(PriceRequest(lines, 0, Decimal("100.01")), RULESET)
    assert not isinstance(problems, Pricing)
    assert [problem.code for problem in problems] == ["unknown_sku", "quantity", "quantity", "duplicate_sku", "term", "discount"]
    assert problems[0].suggestion == "did you mean pro?"
    assert problems[3].suggestion == "combine them: 3 sso"
    assert all(problem.suggestion for problem in problems)


@pytest.mark.parametrize(
    ("lines", "term", "discount", "codes"),
    [
        ((), 12, "0", ["line_count"]),
        ((LineRequest("pro", 1),) * 401, 12, "0", ["line_count"]),
        ((LineRequest("pro", 1),), 1, "0", []),
        ((LineRequest("pro", 1_000_000),), 120, "100", []),
        ((LineRequest("pro", 1),), 121, "0", ["term"]),
        ((LineRequest("pro", 0),), 12, "0", ["quantity"]),
        ((LineRequest("pro", -3),), 12, "0", ["quantity"]),
        ((LineRequest("pro", 1),), 12, "-0.01", ["discount"]),
        ((LineRequest("pro", 1),), 12, "12.345", ["discount"]),
        ((LineRequest("pro", 1),), 12, "12.3400", []),
        ((LineRequest("pro", 1),), 12, "1e99", ["discount"]),
        ((LineRequest("pro", 1),), 12, "NaN", ["discount"]),
    ],
)
def test_the_limits_of_a_request_are_exact(lines: tuple[LineRequest, ...], term: int, discount: str, codes: list[str]) -> None:
    result = price(PriceRequest(lines, term, Decimal(discount)), RULESET)
    assert ([] if isinstance(result, Pricing) else [problem.code for problem in result]) == codes


def test_a_float_discount_raises() -> None:
    with pytest.raises(TypeError, match="never float"):
        price(PriceRequest(GOLDEN, 12, 15.0), RULESET)  # type: ignore[arg-type] # the point of the test


def test_the_trace_explains_every_line_and_the_total_without_any_cost() -> None:
    trace = explain(priced(GOLDEN, discount="15"))
    assert trace[2] == "Pro 150 \u00d7 $6.00 \u00d7 12 months = $10,800.00, less 15% = $9,180.00"
    assert trace[-1] == "Total: $20,400.00 list \u2212 $3,060.00 = $17,340.00 net"
    assert not any("cost" in sentence or "6,120" in sentence for sentence in trace)


LINES = st.lists(
    st.builds(LineRequest, st.sampled_from(sorted(RULESET.catalogue.products)), st.integers(1, 1_000_000)),
    min_size=1,
    max_size=5,
    unique_by=lambda line: line.sku,
).map(tuple)
DISCOUNTS = st.decimals(min_value=0, max_value=100, places=2)


@given(LINES, st.integers(1, 120), DISCOUNTS)
def test_a_snapshot_survives_json_and_comes_back_the_same_to_the_byte(
    lines: tuple[LineRequest, ...], term: int, discount: Decimal
) -> None:
    pricing = price(PriceRequest(lines, term, discount), RULESET)
    assert isinstance(pricing, Pricing)
    stored = json.dumps(canonical(pricing), sort_keys=True)
    again = from_canonical(json.loads(stored))
    assert again == pricing
    assert json.dumps(canonical(again), sort_keys=True) == stored


@given(LINES, st.integers(1, 120), DISCOUNTS)
def test_every_line_and_every_column_adds_up_to_the_cent(lines: tuple[LineRequest, ...], term: int, discount: Decimal) -> None:
    pricing = price(PriceRequest(lines, term, discount), RULESET)
    assert isinstance(pricing, Pricing)
    assert all(line.list_amount - line.discount_amount == line.net_amount for line in pricing.lines)
    assert all(0 <= line.discount_amount <= line.list_amount for line in pricing.lines)
    assert pricing.net_total == sum(line.net_amount for line in pricing.lines) == pricing.list_total - pricing.discount_total
    assert price(PriceRequest(lines, term, discount), RULESET) == pricing


@pytest.mark.parametrize(
    "damage", [{"v": 3}, {"v": None}, {"lines": None}, {"lines": [{}]}, {"net_total": 1.5}, {"net_total": "x"}]
)
def test_a_snapshot_of_another_schema_or_with_missing_parts_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"snapshot|number"):
        from_canonical({**canonical(priced(GOLDEN)), **damage})


def test_a_snapshot_holds_no_float() -> None:
    def leaves(node: object) -> list[object]:
        if isinstance(node, dict):
            return [leaf for child in node.values() for leaf in leaves(child)]
        if isinstance(node, list):
            return [leaf for child in node for leaf in leaves(child)]
        return [node]

    assert {type(leaf) for leaf in leaves(canonical(priced(GOLDEN, discount="12.5")))} <= {str, int, bool, type(None)}
