"""Agreed prices: the price of a line in place of its list price, its floor, its reason, and what the policy makes of it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from quotebot.domain.approvals.advice import avoidances
from quotebot.domain.approvals.policy import evaluate, margin_figures
from quotebot.domain.approvals.policy_document import PolicyError, policy_document, read_policy
from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.catalogue.ruleset_sheets import to_sheets
from quotebot.domain.catalogue.rulesets import lint, parse_ruleset
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.engine import LineRequest, canonical, explain, from_canonical, price, renewed, reprice, request_of
from quotebot.domain.pricing.price_requests import Changes, LineChange, canonical_changes, changed, parse_changes
from quotebot.domain.quotes.versions import difference_words
from quotebot.slack.grammar import read_changes, read_request
from tests.quotebot.domain.ruleset_parts import ask, book, document, priced, problems, product, ruleset
from tests.quotebot.parts import POLICY

RULES: Final = ruleset(
    price_books=[
        book([{"sku": "a", "price": 10, "floor": "8"}, {"sku": "b", "kind": "block", "tiers": [{"from": 1, "price": 100}]}])
    ]
)


def agreed(amount: str, quantity: int = 10, sku: str = "a", reason: str = "volume deal", **changes: Any) -> LineRequest:
    return LineRequest(sku, quantity, agreed_price=Decimal(amount), price_reason=reason, **changes)


def test_an_agreed_price_is_the_net_before_the_discount_on_the_whole() -> None:
    found = priced(ask(agreed("9"), term=12, discount="10"), RULES)
    line = found.lines[0]
    assert (line.list_amount, line.before_header, line.net_amount) == (Decimal("1200.00"), Decimal("1080.00"), Decimal("972.00"))
    assert line.requested_percent == 10
    assert found.deepest_discount_percent == 19


def test_discount_over_a_limit_is_shown_with_two_decimals_rounded_up() -> None:
    found = priced(ask(agreed("7.01"), term=12, discount="15.05"), RULES)
    assert found.deepest_discount_percent == Decimal("40.450050")
    assert "discount 40.46% is over the 40% maximum" in evaluate(found, POLICY).hits


def test_a_discount_over_a_limit_names_its_line_among_several() -> None:
    found = priced(ask(LineRequest("b", 1), agreed("8"), term=12, discount="5"), RULES)
    assert "discount 24% on A (limit 20%)" in evaluate(found, POLICY).hits
    alike = priced(ask(LineRequest("b", 1), LineRequest("a", 10), term=12, discount="25"), RULES)
    assert "discount 25% (limit 20%)" in evaluate(alike, POLICY).hits


def test_discount_of_the_whole_counts_what_the_lines_grant() -> None:
    both = priced(ask(agreed("9"), term=12, discount="10"), RULES)
    assert both.discount_off_list_percent == 19
    assert priced(ask(agreed("9"), term=12), RULES).discount_off_list_percent == 10
    assert priced(ask(LineRequest("a", 10), discount="12.5"), RULES).discount_off_list_percent == Decimal("12.5")


def test_a_discount_of_a_price_is_rounded_up_so_that_no_limit_is_passed_unseen() -> None:
    found = priced(ask(agreed("8.999999", 1_000)), RULES)
    assert found.lines[0].requested_percent == Decimal("10.00")  # 9,000.00 of 10,000.00
    assert priced(ask(agreed("33.33", 3, "b")), RULES).lines[0].requested_percent == Decimal("0.01")


def test_a_snapshot_keeps_the_price_and_its_reason_and_one_without_keeps_its_bytes() -> None:
    found = priced(ask(agreed("0"), ("b", 1)), RULES)
    stored: Any = canonical(found)
    assert from_canonical(stored) == found
    assert (stored["lines"][0]["agreed_price"], stored["lines"][0]["price_reason"]) == ("0", "volume deal")
    assert not {"agreed_price", "price_reason", "floor_price"} & set(stored["lines"][1])
    assert set(stored["request"]["lines"][1]) == {"sku", "quantity"}
    assert reprice(found, RULES) == ()


def test_the_trace_names_both_prices_and_the_reason() -> None:
    steps = explain(priced(ask(agreed("9.5")), RULES), 1)
    assert "agreed price: $9.50 instead of $10.00 (volume deal), $5.00, 5%" in steps


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (agreed("10.01"), "the price $10.01 of a is above its list price $10.00"),
        (agreed("9", reason=""), "the price of a needs a reason"),
        (agreed("9", reason="x" * 201), "the reason for the price of a is longer than 200 characters"),
        *(
            (agreed("9", reason=f"vol{sign}ume"), "the reason for the price of a is no text on one line")
            for sign in ("\n", "\x07", "\u200b", "\u2028", "\u202e")
        ),
        (agreed("9", reason="   "), "the reason for the price of a is no text on one line"),
        (agreed("9", discount_percent=Decimal(1)), "a has both a price and a discount of its own"),
        (agreed("-1"), "the price of a is 0 or more with at most 6 decimals, not -1"),
        (agreed("1.0000001"), "the price of a is 0 or more with at most 6 decimals"),
    ],
)
def test_a_price_that_cannot_hold_is_refused(line: LineRequest, said: str) -> None:
    assert said in problems(ask(line), RULES)[0].message


@pytest.mark.parametrize("sign", ["\U0001fa77", "\ue000"])
def test_a_sign_that_an_older_unicode_does_not_know_is_a_text(sign: str) -> None:
    request = replace(ask(agreed("9", reason=f"deal {sign}")), commercial=CommercialTerms(customer_note=f"note {sign}"))
    assert reprice(priced(request, RULES), RULES) == ()


@pytest.mark.parametrize("sign", ["\u200b", "\u2028", "\x07"])
def test_a_text_that_was_accepted_once_is_priced_revised_and_cloned(sign: str) -> None:
    stored: Any = canonical(priced(replace(ask(agreed("9")), commercial=CommercialTerms(customer_note="note")), RULES))
    for line in (stored["lines"][0], stored["request"]["lines"][0]):
        line["price_reason"] = f"vol{sign}ume"
    stored["request"]["commercial"]["customer_note"] = "Jo\u200bDoe"
    old = from_canonical(stored)
    assert reprice(old, RULES) == ()
    assert priced(renewed(old, 0), RULES).lines == old.lines
    asked = request_of(old)
    revised: Any = changed(asked, Changes((LineChange("set", "a", 20),), 24))
    assert priced(revised, RULES).lines[0].price_reason == f"vol{sign}ume"
    typed = (
        Changes((LineChange("set", "a", 20, agreed_price=Decimal(8), price_reason=f"an{sign}other"),)),
        Changes(commercial=CommercialTerms(customer_note=f"an{sign}other")),
    )
    for changes in typed:
        again: Any = changed(asked, changes)
        (problem,) = problems(again, RULES)
        assert "is no text on one line" in problem.message


def test_a_price_under_its_floor_needs_an_approval_or_is_blocked() -> None:
    found = priced(ask(agreed("7.99")), RULES)
    policy = replace(POLICY, discount_over=(), margin_under={"*": POLICY.margin_under["saas"]})
    needs_top = evaluate(found, policy)
    assert (needs_top.required_roles, needs_top.hits) == (("cfo",), ("A is priced under its floor",))
    assert margin_figures(found, policy) == ("A is priced under its floor of $8.00",)
    for role, blocked in (("deal_desk", False), ("blocked", True)):
        other = read_policy({**policy_document(policy), "price": {"under_floor": role}})
        assert read_policy(policy_document(other)) == other
        decision = evaluate(found, other)
        assert (decision.blocked, decision.required_roles) == (blocked, ("cfo",) if blocked else (role,))
    assert evaluate(priced(ask(agreed("8")), RULES), policy).automatic
    with pytest.raises(PolicyError, match="under_floor"):
        read_policy({**policy_document(policy), "price": {"under_floor": "nobody"}})


def test_a_discount_under_the_floor_counts_like_a_price_under_it() -> None:
    found = priced(ask(LineRequest("a", 10, Decimal(25))), RULES)
    assert "A is priced under its floor" in evaluate(found, POLICY).hits


def test_a_price_of_the_list_or_a_bundle_is_never_under_a_floor() -> None:
    rules = ruleset(
        products=[
            product("a"),
            product("set", kind="bundle", bundle_discount_percent=50, components=[{"sku": "a", "quantity": 1}]),
        ],
        price_books=[book([{"sku": "a", "tiers": [{"from": 1, "price": 10}, {"from": 100, "price": 7}], "floor": 8}])],
    )
    for asked in (("a", 100), ("set", 1)):
        assert margin_figures(priced(ask(asked), rules), POLICY) == ()
    assert len(margin_figures(priced(ask(LineRequest("a", 100, Decimal(1))), rules), POLICY)) == 1
    assert lint(rules) == ("the floor 8 of a in list is above its own price of 7 there",)


def test_advice_names_the_price_that_needs_no_approval() -> None:
    rules = ruleset()
    found = priced(ask(agreed("8.50", 100)), rules)
    policy = replace(POLICY, margin_under={"saas": replace(POLICY.margin_under["saas"], limit=Decimal(0))})
    assert [change.words for change in avoidances(found, rules, policy)] == ["A at $9.00 (now $8.50)"]


def test_another_reason_for_a_price_is_worse_than_the_approved_one() -> None:
    before, after = (priced(ask(agreed("9", reason=reason)), RULES) for reason in ("volume deal", "a favor"))
    assert got_worse(before, after) == ("agreed price of A",)
    assert got_worse(before, before) == ()
    assert difference_words(before, after)[0].startswith("A: agreed price $9.00 (volume deal) \u2192 agreed price $9.00 (a favor)")


def test_floors_are_part_of_the_document_and_of_its_sheets() -> None:
    assert parse_ruleset(document(price_books=[book([{"sku": "a", "price": 10, "floor": "8"}])])).books[0].prices["a"].floor == 8
    assert "8" in to_sheets(RULES)["prices"].splitlines()[1].split(",")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("10 a @9 because volume deal", agreed("9")),
        ("10 a AT 9.50 because volume deal", agreed("9.50")),
        ('10 a @ 9 because "two years, paid upfront", 1 b', agreed("9", reason="two years, paid upfront")),
        ("10 a @0.125 because volume deal", agreed("0.125")),
    ],
)
def test_an_agreed_price_can_be_typed(text: str, line: LineRequest) -> None:
    found = read_request(text, RULES.catalogue)
    assert not isinstance(found, tuple)
    assert found.lines[0] == line


@pytest.mark.parametrize("text", ["10 a @1.500 because x", "10 a @1,500 because x", "10 a @$5 because x", "10 a @9", "10 a @9,5"])
def test_a_price_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    assert isinstance(read_request(text, RULES.catalogue), tuple)


def test_a_change_sets_either_a_price_or_a_discount() -> None:
    priced_line, discounted = ask(agreed("9")), ask(LineRequest("a", 10, Decimal(5)))
    for request, text, line in (
        (priced_line, "10 a -5%", LineRequest("a", 10, Decimal(5))),
        (priced_line, "10 a -0%", LineRequest("a", 10)),
        (priced_line, "20 a", agreed("9", 20)),
        (discounted, "add 5 a @9 because volume deal", agreed("9", 15)),
    ):
        changes = read_changes(text, RULES.catalogue)
        assert not isinstance(changes, tuple)
        found = changed(request, parse_changes(canonical_changes(changes)))
        assert not isinstance(found, tuple)
        assert found.lines == (line,)
    assert isinstance(price(ask(agreed("9", discount_percent=Decimal(5))), RULES), tuple)
