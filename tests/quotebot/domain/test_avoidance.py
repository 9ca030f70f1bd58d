"""Tests of the smallest change that avoids an approval: one step less does not avoid it."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotebot.domain.approvals.advice import Avoidance, avoidances, eases
from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision, Threshold, evaluate
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price, request_of
from quotebot.views.card import avoidance_rows
from tests.quotebot.domain.test_policy import POLICY, RULESET

if TYPE_CHECKING:
    from collections.abc import Callable

SKUS = sorted(RULESET.catalogue.products)
NO_DISCOUNT_RULES: Final = replace(
    POLICY, discount_over=(), discount_blocked_over=Decimal(100), total_over=(Threshold(Decimal(20_000), "deal_desk"),)
)
TERMS = ("exclusivity", "liability_cap", "net_60")


def asked(lines: dict[str, int], discount: str = "0", term: int = 12, terms: tuple[str, ...] = ()) -> Pricing:
    request = PriceRequest(tuple(LineRequest(sku, each) for sku, each in lines.items()), term, Decimal(discount), terms=terms)
    found = price(request, RULESET)
    assert isinstance(found, Pricing)
    return found


def said(pricing: Pricing, policy: ApprovalPolicy = POLICY) -> list[tuple[str, tuple[str, ...]]]:
    return [(way.words, way.roles) for way in avoidances(pricing, RULESET, policy)]


@pytest.mark.parametrize(
    ("pricing", "expected"),
    [
        (asked({"pro": 150}, "5"), []),
        (asked({"pro": 150}, "10.01"), [("10% discount (now 10.01%)", ())]),
        (asked({"pro": 150}, "45"), [("10% discount (now 45%)", ())]),
        # 1,400 Pro for a year are 100,800: 100,000 is met at 0.8%, in 11 months, and with 1,388 of them.
        (
            asked({"pro": 1400}),
            [("0.8% discount (now 0%)", ()), ("11 months (now 12)", ()), ("1388 pro (now 1400)", ())],
        ),
        (asked({"pro": 10}, terms=TERMS), [("no special term that needs Legal", ())]),
        # two hits: no single change avoids both, so each avoids one
        (
            asked({"pro": 10}, "15", terms=TERMS),
            [("10% discount (now 15%)", ("legal",)), ("no special term that needs Legal", ("sales_manager",))],
        ),
        (asked({"pro": 120}, "25"), [("10% discount (now 25%)", ())]),
    ],
)
def test_the_smallest_changes_are(pricing: Pricing, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert said(pricing) == expected


def test_they_read_as_one_row() -> None:
    rows = avoidance_rows(avoidances(asked({"pro": 1400}), RULESET, POLICY), POLICY.roles)
    assert rows == (("No approval needed with", "0.8% discount (now 0%) or 11 months (now 12) or 1388 pro (now 1400)"),)
    rows = avoidance_rows(avoidances(asked({"pro": 10}, "15", terms=TERMS), RULESET, POLICY), POLICY.roles)
    assert rows == (
        ("Only Legal approves with", "10% discount (now 15%)"),
        ("Only Sales Manager approves with", "no special term that needs Legal"),
    )


def test_nothing_is_said_of_prices_that_have_changed_since() -> None:
    assert avoidances(replace(asked({"pro": 150}, "15"), net_total=Decimal(1)), RULESET, POLICY) == ()


def a_step_less(way: Avoidance) -> PriceRequest | None:
    """Return the same change less one step; None where that is no change at all."""
    step = (Decimal("0.01") if way.what == "discount" else Decimal(1)) * (1 if way.after < way.before else -1)
    nearer, request = way.after + step, way.request
    if nearer == way.before or way.what == "terms":
        return None
    if way.what == "discount":
        return replace(request, discount_percent=nearer)
    if way.what == "term":
        return replace(request, term_months=int(nearer))
    lines = tuple(replace(line, quantity=int(nearer)) if line.sku == way.name else line for line in request.lines)
    return replace(request, lines=lines)


def ruling(request: PriceRequest, policy: ApprovalPolicy) -> PolicyDecision:
    found = price(request, RULESET)
    assert isinstance(found, Pricing)
    return evaluate(found, policy)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.dictionaries(st.sampled_from(SKUS), st.integers(1, 3_000), min_size=1, max_size=4),
    term=st.integers(1, 48),
    discount=st.integers(0, 6_000),
    terms=st.lists(st.sampled_from(TERMS), unique=True, max_size=2),
    policy=st.sampled_from((POLICY, NO_DISCOUNT_RULES)),
)
def test_suggested_change_avoids_the_approval_and_one_step_less_does_not(
    lines: dict[str, int], term: int, discount: int, terms: list[str], policy: ApprovalPolicy
) -> None:
    pricing = asked(lines, str(Decimal(discount) / 100), term, tuple(sorted(terms)))
    before = evaluate(pricing, policy)
    found = avoidances(pricing, RULESET, policy)
    nobody = any(not way.roles for way in found)
    suffices: Callable[[PolicyDecision], bool] = (lambda after: after.automatic) if nobody else (lambda after: eases(before, after))
    for way in found:
        after = ruling(way.request, policy)
        assert (suffices(after), after.required_roles) == (True, way.roles)
        assert request_of(pricing) != way.request
        less = a_step_less(way)
        assert less is None or not suffices(ruling(less, policy)), way


def test_avoidance_search_of_the_longest_searched_quote_takes_under_two_seconds() -> None:
    pricing = asked(dict.fromkeys(SKUS, 900), "35", 48, ("exclusivity",))
    began = time.perf_counter()
    assert avoidances(pricing, RULESET, POLICY)
    assert time.perf_counter() - began < 2.0


def test_a_change_that_a_margin_decides_is_for_approvers_alone() -> None:
    margin_only = replace(NO_DISCOUNT_RULES, total_over=())
    ways = avoidances(asked({"enterprise": 100}, "30"), RULESET, margin_only)
    assert ways
    assert all(way.by_margin for way in ways)
    assert avoidance_rows(ways, POLICY.roles) == ()
    assert avoidance_rows(ways, POLICY.roles, approver=True) != ()
    by_discount = avoidances(asked({"pro": 150}, "10.01"), RULESET, POLICY)
    assert [way.by_margin for way in by_discount] == [False]
    assert avoidance_rows(by_discount, POLICY.roles) == avoidance_rows(by_discount, POLICY.roles, approver=True)
