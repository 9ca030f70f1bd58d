from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.pricing.engine import instalments
from tests.quotebot.domain.ruleset_parts import ask, priced


@pytest.mark.parametrize(
    ("frequency", "term", "rows"),
    [
        ("upfront", 12, [(1, 12, "25400.00")]),
        ("annual", 12, [(1, 12, "25400.00")]),
        ("annual", 30, [(1, 12, "25400.00"), (13, 12, "20400.00"), (25, 6, "10200.00")]),
        ("quarterly", 7, [(1, 3, "10100.00"), (4, 3, "5100.00"), (7, 1, "1700.00")]),
        ("monthly", 2, [(1, 1, "6700.00"), (2, 1, "1700.00")]),
    ],
)
def test_instalments_follow_the_frequency_and_the_last_is_prorated(
    frequency: str, term: int, rows: list[tuple[int, int, str]]
) -> None:
    pricing = priced(ask(("pro", 150), ("sso", 150), ("support", 1), ("onboarding", 1), term=term))
    found = instalments(pricing, frequency)
    assert [(row.first_month, row.months, str(row.amount)) for row in found] == rows
    assert [row.number for row in found] == list(range(1, len(rows) + 1))


@given(
    st.integers(1, 9_999),
    st.integers(1, 120),
    st.decimals(0, 100, places=2),
    st.sampled_from(["upfront", "monthly", "quarterly", "annual"]),
)
def test_instalments_add_up_to_the_net_total(quantity: int, term: int, discount: Decimal, frequency: str) -> None:
    pricing = priced(ask(("sso", quantity), ("onboarding", 1), term=term, discount=str(discount)))
    found = instalments(pricing, frequency)
    assert sum((row.amount for row in found), Decimal(0)) == pricing.net_total
    assert sum(row.months for row in found) == term
