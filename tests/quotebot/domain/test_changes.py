from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.pricing.engine import LineRequest, PriceRequest, price, request_of
from quotebot.domain.pricing.price_requests import CHANGES_MAX, Changes, LineChange, changed
from tests.quotebot.views.quote_examples import CATALOGUE, GOLDEN, RULESET, example_pricing

REQUEST = PriceRequest(GOLDEN, 12, Decimal(15))


def after(*lines: LineChange, term: int | None = None, discount: str | None = None) -> PriceRequest:
    found = changed(REQUEST, Changes(lines, term, None if discount is None else Decimal(discount)))
    assert isinstance(found, PriceRequest), found
    return found


def quantities(request: PriceRequest) -> list[tuple[str, int]]:
    return [(line.sku, line.quantity) for line in request.lines]


CASES = {
    "a set quantity keeps its place": ((LineChange("set", "pro", 200),), [("pro", 200), ("sso", 150), ("support", 1)]),
    "an added quantity is added": ((LineChange("add", "sso", 10),), [("pro", 150), ("sso", 160), ("support", 1)]),
    "a removed line is gone": ((LineChange("remove", "sso"),), [("pro", 150), ("support", 1)]),
    "a new product comes last": (
        (LineChange("set", "onboarding", 1),),
        [("pro", 150), ("sso", 150), ("support", 1), ("onboarding", 1)],
    ),
    "a product that is not there is added as a line": (
        (LineChange("add", "onboarding", 2),),
        [("pro", 150), ("sso", 150), ("support", 1), ("onboarding", 2)],
    ),
    "edits follow one another": (
        (LineChange("remove", "pro"), LineChange("set", "pro", 5), LineChange("add", "pro", 2)),
        [("sso", 150), ("support", 1), ("pro", 7)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_are_edited_one_after_the_other(case: str) -> None:
    changes, expected = CASES[case]
    assert quantities(after(*changes)) == expected


def test_term_and_discount_are_changed_alone_or_left_alone() -> None:
    assert (after(term=24).term_months, after(term=24).discount_percent) == (24, Decimal(15))
    assert (after(discount="8").term_months, after(discount="8").discount_percent) == (12, Decimal(8))
    assert after() == REQUEST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (LineChange("remove", "onboarding"), "no_such_line"),
        (LineChange("set", "pro", 0), "quantity"),
        (LineChange("add", "pro", -5), "quantity"),
    ],
)
def test_an_edit_that_cannot_be_made_is_a_problem_with_a_suggestion(change: LineChange, code: str) -> None:
    found = changed(REQUEST, Changes((change, change)))
    assert isinstance(found, tuple)
    assert [problem.code for problem in found] == [code, code]
    assert all(problem.suggestion for problem in found)


def test_there_is_a_limit_of_edits() -> None:
    edits = (LineChange("add", "pro", 1),) * CHANGES_MAX
    assert quantities(after(*edits))[0] == ("pro", 150 + CHANGES_MAX)
    assert isinstance(changed(REQUEST, Changes((*edits, edits[0]))), tuple)


@given(st.sampled_from(["0", "7.5", "15", "100"]), st.lists(st.sampled_from(sorted(CATALOGUE.products)), unique=True, min_size=1))
def test_the_request_of_a_price_prices_to_the_same_figures(discount: str, skus: list[str]) -> None:
    priced = example_pricing(discount, tuple(LineRequest(sku, 3) for sku in skus))
    assert price(request_of(priced), RULESET) == priced
