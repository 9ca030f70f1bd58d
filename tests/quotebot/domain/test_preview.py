from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotebot.domain.approvals.advice import PREVIEWED_LINES_MAX, STEPS, Preview, free_discount, preview
from quotebot.domain.approvals.policy import ApprovalPolicy, Threshold, evaluate
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price
from tests.quotebot.domain.test_policy import POLICY, RULESET, line, pricing

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL_TOTALS = replace(POLICY, total_over=(Threshold(Decimal(10_000), "deal_desk"), Threshold(Decimal(20_000), "vp_sales")))
NO_DISCOUNT_RULES = replace(SMALL_TOTALS, discount_over=(), discount_blocked_over=Decimal(100), margin_under=POLICY.margin_under)


def engine(lines: dict[str, int], term: int) -> Callable[[Decimal], Pricing]:
    """Return a function that prices the same quote at any discount."""
    wanted = tuple(LineRequest(sku, quantity) for sku, quantity in lines.items())

    def reprice(discount: Decimal) -> Pricing:
        priced = price(PriceRequest(wanted, term, discount), RULESET)
        assert isinstance(priced, Pricing)
        return priced

    return reprice


def seen(
    lines: dict[str, int], discount: str, policy: ApprovalPolicy, *, terms: frozenset[str] = frozenset(), term: int = 12
) -> Preview:
    reprice = engine(lines, term)
    return preview(reprice(Decimal(discount)), reprice, policy, terms)


def shown(found: Preview) -> tuple[tuple[str, ...], str | None, str | None]:
    ends = (found.largest_free_discount, found.nearest_free_discount)
    largest, nearest = (None if end is None else format(end.normalize(), "f") for end in ends)
    return found.decision.required_roles, largest, nearest


@pytest.mark.parametrize(
    ("lines", "discount", "policy", "expected"),
    [
        ({"pro": 150}, "15", POLICY, (("sales_manager",), "10", "10")),
        ({"pro": 150}, "5", POLICY, ((), "10", "5")),
        ({"pro": 150}, "10.01", POLICY, (("sales_manager",), "10", "10")),
        ({"pro": 150}, "45", POLICY, (("cfo",), "10", "10")),
        # 140 pro are 10,080 list: from 0.8% on they cost less than 10,000, and from 10% on a manager has to agree.
        ({"pro": 100}, "0", SMALL_TOTALS, ((), "10", "0")),
        ({"pro": 140}, "0", SMALL_TOTALS, (("deal_desk",), "10", "0.8")),
        ({"pro": 140}, "15", SMALL_TOTALS, (("sales_manager",), "10", "10")),
        ({"pro": 200}, "0", SMALL_TOTALS, (("deal_desk",), None, None)),
    ],
)
def test_the_preview_names_who_decides_and_which_discounts_need_nobody(
    lines: dict[str, int], discount: str, policy: ApprovalPolicy, expected: tuple[tuple[str, ...], str | None, str | None]
) -> None:
    assert shown(seen(lines, discount, policy)) == expected


def test_no_discount_avoids_a_legal_term_or_a_currency_of_no_policy() -> None:
    assert shown(seen({"pro": 10}, "0", POLICY, terms=frozenset({"exclusivity"}))) == (("legal",), None, None)
    assert shown(seen({"pro": 10}, "0", replace(POLICY, currency="EUR"))) == (("cfo",), None, None)


@pytest.mark.parametrize(
    ("lines", "discount", "policy"),
    [
        ({"pro": 140}, "0", SMALL_TOTALS),
        ({"pro": 180, "onboarding": 1}, "12.34", NO_DISCOUNT_RULES),  # only the margin and the total decide
    ],
)
def test_both_discounts_are_those_of_a_search_through_all_ten_thousand(
    lines: dict[str, int], discount: str, policy: ApprovalPolicy
) -> None:
    reprice = engine(lines, 12)
    now = int(Decimal(discount) * 100)
    found = preview(reprice(Decimal(discount)), reprice, policy)
    free = [step for step in range(STEPS + 1) if evaluate(reprice(Decimal(step) / 100), policy).automatic]
    nearest = min(free, key=lambda step: abs(step - now), default=None)
    assert (found.largest_free_discount, found.nearest_free_discount) == (
        (None, None) if nearest is None else (Decimal(max(free)) / 100, Decimal(nearest) / 100)
    )


def test_a_card_is_told_the_largest_free_discount_of_a_quote_at_todays_prices() -> None:
    reprice = engine({"pro": 150}, 12)
    assert free_discount(reprice(Decimal(15)), RULESET, POLICY) == 10
    assert free_discount(replace(reprice(Decimal(15)), net_total=Decimal(1)), RULESET, POLICY) is None


def test_a_card_of_a_long_quote_is_not_kept_waiting_for_a_search() -> None:
    priced = engine({"pro": 150}, 12)(Decimal(15))
    assert free_discount(replace(priced, lines=priced.lines * (PREVIEWED_LINES_MAX + 1)), RULESET, POLICY) is None


percents = st.integers(0, STEPS).map(lambda step: Decimal(step) / 100)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.dictionaries(st.sampled_from(sorted(RULESET.catalogue.products)), st.integers(1, 400), min_size=1, max_size=4),
    term=st.integers(1, 36),
    now=percents,
    others=st.lists(percents, min_size=20, max_size=20),
    policy=st.sampled_from((POLICY, SMALL_TOTALS, NO_DISCOUNT_RULES)),
)
def test_what_is_found_needs_nobody_and_nothing_beyond_or_nearer_does(
    lines: dict[str, int], term: int, now: Decimal, others: list[Decimal], policy: ApprovalPolicy
) -> None:
    reprice = engine(lines, term)
    found = preview(reprice(now), reprice, policy)
    last, nearest = found.largest_free_discount, found.nearest_free_discount
    free = [each for each in (*others, now) if evaluate(reprice(each), policy).automatic]
    if last is None or nearest is None:
        assert (last, nearest, free) == (None, None, [])
        return
    assert evaluate(reprice(last), policy).automatic
    assert evaluate(reprice(nearest), policy).automatic
    assert last == 100 or not evaluate(reprice(last + Decimal("0.01")), policy).automatic
    assert all(each <= last and abs(nearest - now) <= abs(each - now) for each in free)


def test_a_cent_that_rounding_gives_and_takes_hides_no_discount() -> None:
    """Shares of a discount are rounded by largest remainder, so a line may get a cent more at a deeper discount."""
    policy = replace(NO_DISCOUNT_RULES, total_over=())

    def reprice(discount: Decimal) -> Pricing:
        net = round(10 - discount / 10, 2) + Decimal("0.01") * (int(discount * 100) % 3 == 1)
        return pricing(line("saas", str(net), "3.60"), discount=str(discount))

    free = [step for step in range(STEPS + 1) if evaluate(reprice(Decimal(step) / 100), policy).automatic]
    gaps = sorted(set(range(max(free))) - set(free))
    assert gaps
    for step in gaps:
        found = preview(reprice(Decimal(step) / 100), reprice, policy)
        assert found.largest_free_discount == Decimal(max(free)) / 100
        assert found.nearest_free_discount is not None
        assert abs(found.nearest_free_discount * 100 - step) == min(abs(each - step) for each in free)
