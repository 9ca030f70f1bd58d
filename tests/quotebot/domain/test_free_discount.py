from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quotebot.domain.approvals.advice import ADVISED_LINES_MAX, free_discount
from quotebot.domain.approvals.policy import ApprovalPolicy, Threshold, evaluate
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price
from tests.quotebot.domain.test_policy import POLICY, RULESET

SMALL_TOTALS = replace(POLICY, total_over=(Threshold(Decimal(10_000), "deal_desk"), Threshold(Decimal(20_000), "vp_sales")))
NO_DISCOUNT_RULES = replace(SMALL_TOTALS, discount_over=(), discount_blocked_over=Decimal(100), margin_under=POLICY.margin_under)


def priced(lines: dict[str, int], discount: Decimal, term: int = 12) -> Pricing:
    wanted = tuple(LineRequest(sku, quantity) for sku, quantity in lines.items())
    found = price(PriceRequest(wanted, term, discount), RULESET)
    assert isinstance(found, Pricing)
    return found


@pytest.mark.parametrize(
    ("lines", "discount", "policy", "expected"),
    [
        ({"pro": 150}, "15", POLICY, "10.00"),
        ({"pro": 150}, "45", POLICY, "10.00"),
        ({"pro": 140}, "15", SMALL_TOTALS, "10.00"),  # 10,080 list: 10% off is less than 10,000
        ({"pro": 200}, "0", SMALL_TOTALS, None),
        ({"pro": 140}, "0", NO_DISCOUNT_RULES, None),  # a margin decides before 100%, which a card does not reveal
        ({"pro": 10}, "15", replace(POLICY, currency="EUR"), None),
    ],
)
def test_free_discount_is_the_policys_limit_where_it_needs_no_approval(
    lines: dict[str, int], discount: str, policy: ApprovalPolicy, expected: str | None
) -> None:
    found = free_discount(priced(lines, Decimal(discount)), RULESET, policy)
    assert found == (None if expected is None else Decimal(expected))


def test_a_quote_whose_prices_have_changed_has_no_free_discount() -> None:
    assert free_discount(replace(priced({"pro": 150}, Decimal(15)), net_total=Decimal(1)), RULESET, POLICY) is None


def test_a_long_quote_is_not_kept_waiting_for_its_free_discount() -> None:
    quote = priced({"pro": 150}, Decimal(15))
    assert free_discount(replace(quote, lines=quote.lines * (ADVISED_LINES_MAX + 1)), RULESET, POLICY) is None


@settings(max_examples=60, deadline=None)
@given(
    lines=st.dictionaries(st.sampled_from(sorted(RULESET.catalogue.products)), st.integers(1, 400), min_size=1, max_size=4),
    term=st.integers(1, 36),
    now=st.integers(0, 10_000).map(lambda step: Decimal(step) / 100),
    policy=st.sampled_from((POLICY, SMALL_TOTALS)),
)
def test_a_free_discount_needs_no_approval_and_a_deeper_one_does(
    lines: dict[str, int], term: int, now: Decimal, policy: ApprovalPolicy
) -> None:
    found = free_discount(priced(lines, now, term), RULESET, policy)
    assume(found is not None)
    assert found is not None
    assert evaluate(priced(lines, found, term), policy).automatic
    assert not evaluate(priced(lines, found + Decimal("0.01"), term), policy).automatic
