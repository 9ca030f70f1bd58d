from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.app.installation import speak
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, dated, price
from quotebot.domain.quotes.versions import Simulation, difference, difference_words, simulate
from tests.quotebot.views.quote_examples import CATALOGUE, GOLDEN, MORNING, RULESET, example_pricing

POLICY = parse_policy(files("quotebot").joinpath("data/policy.toml").read_text("utf-8"))
FIRST = example_pricing("15")


def priced(lines: tuple[LineRequest, ...] = GOLDEN, term: int = 12, discount: str = "15") -> Pricing:
    found = price(dated(PriceRequest(lines, term, Decimal(discount)), MORNING), RULESET)
    assert isinstance(found, Pricing)
    return found


CASES: dict[str, tuple[Pricing, tuple[str, ...]]] = {
    "nothing": (FIRST, ()),
    "another order of lines": (priced(GOLDEN[::-1]), ()),
    "another ruleset with the same prices": (replace(FIRST, ruleset="sample 2"), ()),
    "a discount": (
        priced(discount="10"),
        (
            "Total $17,340.00 → $18,360.00 (+$1,020.00)",
            "Pro: $9,180.00 → $9,720.00",
            "SSO: $3,060.00 → $3,240.00",
            "Premium Support: $5,100.00 → $5,400.00",
            "Discount 15% → 10%",
        ),
    ),
    "a removed and an added line": (
        priced((*GOLDEN[:2], LineRequest("onboarding", 1))),
        (
            "Total $17,340.00 → $16,490.00 (\u2212$850.00)",
            "Added 1 \u00d7 Onboarding: $4,250.00",
            "Removed 1 \u00d7 Premium Support: $5,100.00",
            "List price $20,400.00 → $19,400.00",
        ),
    ),
    "a quantity in another tier": (
        priced((LineRequest("pro", 60), *GOLDEN[1:])),
        (
            "Total $17,340.00 → $13,056.00 (\u2212$4,284.00)",
            "Pro: 150 → 60, unit price $6.00 → $8.00, $9,180.00 → $4,896.00",
            "List price $20,400.00 → $15,360.00",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_said_old_to_new(case: str) -> None:
    after, expected = CASES[case]
    assert difference_words(FIRST, after) == expected
    assert bool(difference(FIRST, after)) is bool(expected)


def test_what_differs_is_said_in_german() -> None:
    agreed = LineRequest("support", 1, agreed_price=Decimal(400), price_reason="Bestandskunde")
    request = PriceRequest((LineRequest("pro", 1500), agreed, LineRequest("onboarding", 1)), 24, Decimal("7.5"), terms=("net_60",))
    after = price(dated(replace(request, billing_frequency="annual"), MORNING), RULESET)
    assert isinstance(after, Pricing)
    speak("de")
    assert difference_words(FIRST, after) == (
        "Summe 17.340,00\u00a0$ → 213.305,00\u00a0$ (+195.965,00\u00a0$)",
        "Neu: 1 \u00d7 Onboarding, 4.625,00\u00a0$",
        "Entfernt: 150 \u00d7 SSO, 3.060,00\u00a0$",
        "Pro: 150 → 1.500, 9.180,00\u00a0$ → 199.800,00\u00a0$",
        "Premium Support: Listenpreis → vereinbarter Preis 400,00\u00a0$ (Bestandskunde), 5.100,00\u00a0$ → 8.880,00\u00a0$",
        "Laufzeit 12 → 24 Monate",
        "Rabatt 15\u00a0% → 7,5\u00a0%",
        "Sonderbedingungen keine → net 60",
        "Abrechnung im Voraus → jährlich",
        "Listenpreis 20.400,00\u00a0$ → 233.000,00\u00a0$",
    )


def test_a_term_changes_recurring_lines_and_not_one_time_ones() -> None:
    lines = (LineRequest("pro", 10), LineRequest("onboarding", 1))
    found = difference(priced(lines), priced(lines, term=24))
    assert found.term_months == (12, 24)
    assert [after.sku for _, after in found.changed] == ["pro"]


def test_another_currency_is_a_difference_even_at_the_same_figures() -> None:
    found = difference(FIRST, replace(FIRST, currency="EUR"))
    assert found.currency == ("USD", "EUR")
    assert difference_words(FIRST, replace(FIRST, currency="EUR"))[0] == "Total $17,340.00 → €17,340.00"


LINES = st.dictionaries(st.sampled_from(sorted(CATALOGUE.products)), st.integers(1, 300), min_size=1).map(
    lambda found: tuple(LineRequest(sku, quantity) for sku, quantity in found.items())
)


@given(LINES, LINES, st.integers(1, 36), st.integers(1, 36))
def test_a_difference_read_backwards_is_the_difference_of_the_way_back(
    one: tuple[LineRequest, ...], two: tuple[LineRequest, ...], term: int, other: int
) -> None:
    before, after = priced(one, term), priced(two, other)
    there, back = difference(before, after), difference(after, before)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert set(there.changed) == {(after, before) for before, after in back.changed}
    assert (there.net_total is None) == (before.net_total == after.net_total)
    assert not difference(before, before)


def test_a_simulation_prices_and_previews_the_policy() -> None:
    found = simulate(PriceRequest(GOLDEN, 12, Decimal(25)), RULESET, POLICY, MORNING)
    assert isinstance(found, Simulation)
    assert found.pricing == priced(discount="25")
    assert (found.decision.required_roles, found.decision.blocked) == (("vp_sales",), False)


def test_a_simulation_of_what_has_no_price_says_every_reason() -> None:
    found = simulate(PriceRequest((LineRequest("prro", 0),), 0, Decimal(101)), RULESET, POLICY, MORNING)
    assert isinstance(found, tuple)
    assert {problem.code for problem in found} == {"unknown_sku", "quantity", "term", "discount"}
