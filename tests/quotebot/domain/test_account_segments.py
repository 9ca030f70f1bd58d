"""Tests of segments that a customer's account in the CRM opens: the values that name one, the price, its snapshot and its reuse."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files

import pytest

from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.approvals.reuse import got_worse
from quotebot.domain.catalogue.rulesets import Ruleset, canonical_ruleset, parse_ruleset
from quotebot.domain.pricing.engine import (
    LineRequest,
    PriceRequest,
    Pricing,
    canonical,
    explain,
    for_account,
    from_canonical,
    price,
    reprice,
)
from quotebot.domain.quotes.versions import Simulation, difference_words, simulate
from quotebot.domain.rules import AccountSegments
from tests.quotebot.domain.ruleset_parts import book, product, ruleset

POLICY = parse_policy(files("quotebot").joinpath("data/policy.toml").read_text("utf-8"))
RULES = ruleset(
    products=[product("a", cost=0)],
    price_books=[book({"a": 3}), book({"a": 2}, name="partner", segment="partner", priority=1)],
)
LISTED = parse_ruleset({**canonical_ruleset(RULES), "accounts": [{"account": "Acme", "segment": "partner"}]})
REQUEST = PriceRequest((LineRequest("a", 10),), 12, Decimal(0), segment="partner")
RESELLER = "Channel Partner / Reseller"
NOW = 1_790_000_000_000
NEEDS_DESK = ("prices of the segment partner need Deal Desk",)


def priced(segments: dict[str, str], rules: Ruleset = RULES) -> Pricing:
    found = price(for_account(REQUEST, "Acme", segments), rules)
    assert isinstance(found, Pricing)
    return found


@pytest.mark.parametrize(
    ("table", "value", "segments"),
    [
        ({}, "Partner", {"partner": "Partner"}),
        ({}, " Public  Sector ", {"public sector": "Public Sector"}),
        ({}, "Partner;Education;;PARTNER", {"partner": "Partner", "education": "Education"}),
        ({}, None, {}),
        ({}, "", {}),
        ({RESELLER.casefold(): "partner"}, RESELLER, {"partner": RESELLER}),
        ({RESELLER.casefold(): "Partner"}, RESELLER.upper(), {"partner": RESELLER.upper()}),
        ({RESELLER.casefold(): "partner"}, "Partner", {}),
        ({RESELLER.casefold(): "partner"}, f"Prospect;{RESELLER}", {"partner": RESELLER}),
        ({"true": "partner"}, True, {"partner": "true"}),
        ({"true": "partner"}, False, {}),
        ({}, "x" * 101, {"x" * 101: f"{'x' * 99}\u2026"}),
    ],
)
def test_the_value_of_an_account_names_its_segments(
    table: dict[str, str],
    value: str | bool | None,  # noqa: FBT001 -- pytest passes it by name
    segments: dict[str, str],
) -> None:
    assert AccountSegments("", 15, table).of(value) == segments


@pytest.mark.parametrize(
    ("segments", "rules", "hits", "why"),
    [
        ({}, RULES, NEEDS_DESK, None),
        ({"education": "Education"}, RULES, NEEDS_DESK, None),
        ({"partner": RESELLER}, RULES, (), f'its account in Salesforce is "{RESELLER}".'),
        ({}, LISTED, (), "the catalog lists it."),
        ({"partner": RESELLER}, LISTED, (), f'its account in Salesforce is "{RESELLER}".'),
    ],
)
def test_a_segment_that_the_account_has_needs_no_approval_and_says_why(
    segments: dict[str, str], rules: Ruleset, hits: tuple[str, ...], why: str | None
) -> None:
    found = priced(segments, rules)
    assert evaluate(found, POLICY).hits == hits
    said = [row for row in explain(found) if row.startswith("The segment")]
    assert said == ([] if why is None else [f"The segment partner is open to the customer: {why}"])
    assert from_canonical(canonical(found)) == found
    assert reprice(found, rules) == ()


def test_a_snapshot_without_an_account_that_opens_it_keeps_its_form() -> None:
    closed, opened = (canonical(priced(segments)) for segments in ({}, {"partner": RESELLER}))
    assert {**opened, "request": {**opened["request"], "segment_value": None}} == {  # type: ignore[dict-item]
        **closed,
        "segment_is_open": True,
        "request": {**closed["request"], "segment_value": None},  # type: ignore[dict-item]
    }
    assert "segment_is_open" not in closed
    assert "segment_value" not in closed["request"]  # type: ignore[operator]


def test_another_customer_or_no_segment_does_not_keep_the_value() -> None:
    opened = for_account(REQUEST, "Acme", {"partner": RESELLER})
    assert for_account(opened, "Globex") == replace(REQUEST, account="Globex")
    assert for_account(replace(opened, segment=None), "Acme", {"partner": RESELLER}) == replace(REQUEST, segment=None)


def test_a_segment_that_opens_or_closes_is_a_difference_and_only_closing_is_worse() -> None:
    closed, opened = priced({}), priced({"partner": RESELLER})
    assert difference_words(closed, opened) == ("Segment partner → partner (open to the customer)",)
    assert got_worse(closed, opened) == ()
    assert got_worse(opened, closed) == ("segment",)
    assert got_worse(opened, priced({"partner": "Distributor"})) == ()


def test_a_simulation_uses_the_segments_of_the_customer() -> None:
    for segments, automatic in (({"partner": RESELLER}, True), ({}, False)):
        found = simulate(REQUEST, RULES, POLICY, NOW, "Acme", segments)
        assert isinstance(found, Simulation)
        assert found.decision.automatic is automatic
