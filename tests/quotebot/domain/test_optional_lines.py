"""Optional lines: priced and shown beside the quote, in no total, until a revision makes them a part of it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from quotebot.domain.approvals.policy import evaluate, family_totals
from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, canonical, explain, from_canonical, reprice
from quotebot.domain.pricing.price_requests import Changes, LineChange, canonical_changes, changed, parse_changes
from quotebot.domain.pricing.term_clauses import line_text
from quotebot.domain.quotes.versions import difference_words
from quotebot.slack.grammar import read_changes, read_request
from tests.quotebot.domain.ruleset_parts import ask, book, priced, problems, product, ruleset
from tests.quotebot.parts import POLICY

RULES: Final = ruleset(
    products=[product("a"), product("b"), product("care", family="services"), product("box")],
    price_books=[book([{"sku": "a", "price": 10}, {"sku": "b", "price": 20}, {"sku": "care", "kind": "percent", "percent": 10}])],
    constraints=[{"kind": "requires", "sku": "b", "other": "a"}],
)
OPTION: Final = LineRequest("b", 5, optional=True)


def test_an_optional_line_is_priced_and_in_no_total() -> None:
    alone, found = (priced(ask(("a", 10), *more, term=12, discount="10"), RULES) for more in ((), (OPTION,)))
    assert replace(found, options=(), request=alone.request) == alone
    (line,) = found.options
    assert (line.position, line.list_amount, line.net_amount) == (2, Decimal("1200.00"), Decimal("1080.00"))
    assert family_totals(found) == family_totals(alone)
    assert evaluate(found, POLICY) == evaluate(alone, POLICY)
    assert "Optional, in no total: B." in explain(found)
    assert "net: $1,080.00" in explain(found, 2)


def test_a_snapshot_keeps_optional_lines_and_one_without_keeps_its_bytes() -> None:
    found = priced(ask(("a", 10), OPTION), RULES)
    stored: Any = canonical(found)
    assert from_canonical(stored) == found
    assert stored["request"]["lines"][1] == {"sku": "b", "quantity": 5, "optional": True}
    assert "options" not in canonical(priced(ask(("a", 10)), RULES))
    assert reprice(found, RULES) == ()


def test_a_percentage_of_other_lines_leaves_optional_ones_out() -> None:
    asked = ask(("a", 10), OPTION, LineRequest("care", 1, optional=True))
    assert priced(asked, RULES).options[1].list_amount == Decimal("10.00")
    assert priced(ask(("a", 10), OPTION, ("care", 1)), RULES).lines[1].list_amount == Decimal("10.00")


def test_a_quote_of_optional_lines_alone_has_no_price() -> None:
    assert problems(ask(LineRequest("a", 1, optional=True)), RULES)[0].message.startswith("every line is optional")


def test_constraints_hold_with_each_optional_line_chosen_alone() -> None:
    assert priced(ask(("a", 1), OPTION), RULES).options
    option = LineRequest("a", 1, optional=True)
    assert [problem.code for problem in problems(ask(("b", 1), option), RULES)] == ["requires"]
    alternatives = ruleset(constraints=[{"kind": "excludes", "sku": "a", "other": "b"}], products=[product(sku) for sku in "abc"])
    assert len(priced(ask(("c", 1), OPTION, option), alternatives).options) == 2
    assert problems(ask(("b", 1), option), alternatives)[0].code == "excludes"


def test_a_discount_of_an_optional_line_counts_for_the_policy() -> None:
    found = priced(ask(("a", 10), replace(OPTION, discount_percent=Decimal(15))), RULES)
    assert found.deepest_discount_percent == 15
    assert evaluate(found, POLICY).required_roles == ("sales_manager",)


def test_the_customers_choice_is_a_revision_that_takes_the_line() -> None:
    changes = read_changes("take b", RULES.catalogue)
    assert changes == Changes((LineChange("take", "b"),))
    assert isinstance(changes, Changes)
    before = ask(("a", 10), OPTION)
    taken = changed(before, parse_changes(canonical_changes(changes)))
    assert taken == ask(("a", 10), ("b", 5))
    assert isinstance(taken, PriceRequest)
    words = difference_words(priced(before, RULES), priced(taken, RULES))
    assert "Added 5 \u00d7 B: $100.00" in words
    assert "Optional 5 \u00d7 B at $100.00 \u2192 none" in words
    missing = changed(ask(("a", 10)), changes)
    assert isinstance(missing, tuple)
    assert missing[0].message == "there is no line b to take"


def test_a_new_or_cheaper_optional_line_needs_a_new_approval() -> None:
    plain, option, cheaper = (
        priced(ask(("a", 10), *more), RULES) for more in ((), (OPTION,), (replace(OPTION, discount_percent=Decimal(1)),))
    )
    assert got_worse(plain, option) == ("optional B",)
    assert "optional B" in got_worse(option, cheaper)
    assert got_worse(option, plain) == ()


def test_more_units_another_tier_or_a_lower_price_of_an_option_needs_a_new_approval() -> None:
    before = priced(ask(("a", 10), OPTION), RULES)
    (option,) = before.options
    for change in ({"quantity": 6}, {"tier": "5+"}, {"unit_price": option.unit_price - 1}):
        assert got_worse(before, replace(before, options=(replace(option, **change),))) == ("optional B",)
    for change in ({"quantity": 4}, {"unit_price": option.unit_price + 1}):
        assert got_worse(before, replace(before, options=(replace(option, **change),))) == ()


@pytest.mark.parametrize(
    "text", ["10 a, optional 1,000 b", "10 a; Optional 1,000 b", "10 a, 1,000 b (optional)", "10 a; optional: 1000 b"]
)
def test_an_optional_line_can_be_typed(text: str) -> None:
    found = read_request(text, RULES.catalogue)
    assert not isinstance(found, tuple)
    assert found.lines == (LineRequest("a", 10), LineRequest("b", 1000, optional=True))
    assert ", ".join(line_text(line) for line in found.lines) == "10 a, 1000 b (optional)"


def test_an_unclear_scope_of_optional_is_refused() -> None:
    assert isinstance(read_request("10 a; optional 5 b, 1 care", RULES.catalogue), tuple)
    assert isinstance(read_changes("10 a; optional 5 b, 1 care", RULES.catalogue), tuple)
    found = read_request("10 a; optional 5 b, optional 1 care", RULES.catalogue)
    assert not isinstance(found, tuple)
    assert [line.optional for line in found.lines] == [False, True, True]


def test_a_revision_keeps_a_line_optional_until_it_says_otherwise() -> None:
    before = ask(("a", 10), OPTION)
    for text, line in (("7 b", replace(OPTION, quantity=7)), ("add 2 b", replace(OPTION, quantity=7))):
        changes = read_changes(text, RULES.catalogue)
        assert not isinstance(changes, tuple)
        after = changed(before, changes)
        assert isinstance(after, PriceRequest)
        assert after.lines[1] == line
    added = read_changes("add optional 5 b", RULES.catalogue)
    assert not isinstance(added, tuple)
    assert changed(ask(("a", 10)), parse_changes(canonical_changes(added))) == before
