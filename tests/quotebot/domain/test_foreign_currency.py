"""Tests of quotes in other currencies than the policy's: compared exactly, by the rate in their price, without a guess."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain import money
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.pricing.conversion import Converted, converted
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, canonical, from_canonical, price
from quotebot.domain.pricing.taxes import Rate
from tests.quotebot.domain.test_policy import POLICY, line, pricing
from tests.quotebot.views.quote_examples import RULESET

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = date(2026, 11, 21)
RATES: Mapping[str, Rate] = {
    currency: Rate("USD", currency, Decimal(rate), date(2026, 1, 2))
    for currency, rate in (("EUR", "0.92"), ("JPY", "150"), ("KWD", "0.307"))
}
LIMITS = {"EUR": ("92000", "460000"), "JPY": ("15000000", "75000000"), "KWD": ("30700", "153500")}


def foreign(currency: str, net: Decimal) -> Pricing:
    """Return a price of one line with a healthy margin in a currency, with its rate."""
    return replace(pricing(line("saas", str(net), "0")), currency=currency, rate=RATES[currency])


def asked(currency: str, term: int = 12, discount: str = "0", quantity: int = 150) -> Pricing:
    wanted = PriceRequest((LineRequest("pro", quantity),), term, Decimal(discount), currency=currency, priced_on=DAY)
    found = price(wanted, RULESET)
    assert isinstance(found, Pricing)
    return found


@pytest.mark.parametrize(("days", "is_refused"), [(323, False), (322, True), (None, False)])
def test_rate_older_than_the_limit_prices_no_quote(days: int | None, is_refused: bool) -> None:  # noqa: FBT001 -- a case
    rules = replace(RULESET, rate_days_max=days)
    wanted = PriceRequest((LineRequest("pro", 5),), 12, Decimal(0), currency="EUR", priced_on=DAY)  # 323 days after the rate
    found = price(wanted, rules)
    assert isinstance(found, Pricing) is not is_refused
    if not isinstance(found, Pricing):
        assert [problem.code for problem in found] == ["stale_rate"]
        assert "of 2026-01-02, older than the 322 days" in found[0].message
    assert isinstance(price(replace(wanted, currency="USD"), rules), Pricing)


@pytest.mark.parametrize("currency", LIMITS)
@pytest.mark.parametrize(("rung", "below", "above"), [(0, (), ("deal_desk",)), (1, ("deal_desk",), ("vp_sales",))])
def test_a_limit_in_another_currency_is_passed_by_its_smallest_unit_and_not_before(
    currency: str, rung: int, below: tuple[str, ...], above: tuple[str, ...]
) -> None:
    limit, unit = Decimal(LIMITS[currency][rung]), money.quantum(currency)
    for net, roles in ((limit - unit, below), (limit, below), (limit + unit, above)):
        assert (net, evaluate(foreign(currency, net), POLICY).required_roles) == (net, roles)


@pytest.mark.parametrize(
    ("currency", "net", "shown"),
    [
        ("EUR", "92000.01", "total €92,000.01, $100,000.02 (1 USD = 0.92 EUR on 2 Jan 2026), limit $100,000.00"),
        ("JPY", "15000001", "total ¥15,000,001, $100,000.01 (1 USD = 150 JPY on 2 Jan 2026), limit $100,000.00"),
        ("KWD", "30700.001", "total KWD\u00a030,700.001, $100,000.01 (1 USD = 0.307 KWD on 2 Jan 2026), limit $100,000.00"),
    ],
)
def test_the_hit_names_both_amounts_and_never_shows_the_limit_as_over_itself(currency: str, net: str, shown: str) -> None:
    assert evaluate(foreign(currency, Decimal(net)), POLICY).hits == (shown,)


@given(net=st.integers(0, 10**9), currency=st.sampled_from(sorted(RATES)))
def test_a_converted_total_is_never_less_than_exact_and_less_than_a_cent_more(net: int, currency: str) -> None:
    amount = Decimal(net) * money.quantum(currency)
    found = converted(foreign(currency, amount), "USD")
    assert found is not None
    exactly = money.multiply(found.amount, RATES[currency].rate)
    assert exactly >= amount > exactly - money.multiply(Decimal("0.01"), RATES[currency].rate)


def test_the_rate_is_the_one_that_the_stored_price_holds() -> None:
    stored = from_canonical(canonical(asked("EUR")))
    assert evaluate(stored, POLICY).converted == Converted(Decimal("10800.00"), "USD", RATES["EUR"])


UNFIT = {"none": None, "the inverse": Rate("EUR", "USD", Decimal("1.09"), DAY), "another": RATES["JPY"]}


@pytest.mark.parametrize("rate", UNFIT.values(), ids=UNFIT)
def test_without_a_rate_nobody_can_approve_and_it_says_what_to_do(rate: Rate | None) -> None:
    decision = evaluate(replace(foreign("EUR", Decimal(10)), rate=rate), POLICY)
    assert (decision.blocked, decision.automatic, decision.converted) == (True, False, None)
    assert "the quote is in EUR, the policy in USD" in decision.hits[0]
    assert "one currency, with a dated rate" in decision.hits[0]


def test_in_its_own_currency_a_total_is_not_converted() -> None:
    assert evaluate(asked("USD"), POLICY).converted is None


@pytest.mark.parametrize("currency", LIMITS)
def test_a_discount_counts_by_the_converted_total(currency: str) -> None:
    """1,400 Pro for a year are $100,800: from 0.8% on less than 100,000, in whatever currency."""
    needs = {each: evaluate(asked(currency, discount=each, quantity=1400), POLICY).required_roles for each in ("0", "0.78", "0.81")}
    assert needs == {"0": ("deal_desk",), "0.78": ("deal_desk",), "0.81": ()}
