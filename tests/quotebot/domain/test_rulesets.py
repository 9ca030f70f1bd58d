"""Tests of a ruleset's document: its valid contents, and that all errors are found at once with their places."""

from __future__ import annotations

import json
import re
import tomllib
from copy import deepcopy
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.catalogue.rulesets import (
    RulesetError,
    canonical_ruleset,
    parse_ruleset,
    parse_ruleset_toml,
    renamed,
    with_policy,
)
from quotebot.domain.pricing.engine import price
from quotebot.domain.pricing.price_requests import LineRequest
from quotebot.store import rulesets
from tests.quotebot.domain.ruleset_parts import SAMPLE, ask, book, document, priced, product
from tests.quotebot.parts import POLICY

if TYPE_CHECKING:
    from pathlib import Path

TIERS = [{"from": 1, "price": 10}, {"from": 50, "price": "8.5"}]
PARTS = [{"sku": "a", "quantity": 2}, {"sku": "box", "quantity": 1}]
CHOICES = [{"name": "extra", "of": ["b"], "quantity": "2", "optional": "true"}]  # as text, like in YAML
FULL = document(
    products=[
        product("a", aliases=["first"], tax_category="software"),
        product("b", billing="one_time", active=False),
        product("box", kind="configurable", attributes=[{"name": "gb", "choices": ["10", "20"], "default": "10"}]),
        product("set", kind="bundle", components=PARTS, choices=CHOICES, bundle_discount_percent="7.5"),
    ],
    price_books=[
        book([{"sku": "a", "kind": "slab", "tiers": TIERS}, {"sku": "b", "price": 3}], converts_to=["EUR"]),
        book(
            [
                {"sku": "a", "kind": "range", "tiers": TIERS},
                {"sku": "b", "kind": "percent", "percent": 20, "of": ["saas"], "basis": "list"},
                {
                    "sku": "box",
                    "kind": "formula",
                    "formula": "base + gb / 2",
                    "inputs": {"base": "1.5"},
                    "surcharges": [{"attribute": "gb", "choice": "20", "amount": "0.5"}],
                },
            ],
            name="smb",
            segment="smb",
            region="DE",
            valid_from="2026-01-01",
            valid_until="2026-12-31",
            priority=5,
        ),
        book([{"sku": "a", "kind": "block", "tiers": TIERS}], name="yen", currency="JPY"),
    ],
    constraints=[
        {"kind": "requires", "sku": "a", "other": "box", "message": "a is nothing without its box"},
        {"kind": "excludes", "sku": "a", "other": "b"},
        {"kind": "min_quantity", "sku": "a", "quantity": 2},
        {"kind": "max_quantity", "sku": "a", "quantity": 2},
        {"kind": "same_quantity", "sku": "a", "other": "b"},
        {"kind": "attribute", "sku": "box", "attribute": "gb", "choice": "10", "then_attribute": "gb", "then_choices": ["10"]},
    ],
    taxes=[{"region": "DE", "percent": 19}, {"region": "DE", "category": "software", "percent": 7, "estimated": True}],
    rates=[{"base": "USD", "currency": "EUR", "rate": "0.92", "on": "2026-01-02"}],
)


def found(content: object) -> dict[str, str]:
    """Return every problem: place -> message."""
    with pytest.raises(RulesetError) as refused:
        parse_ruleset(content)
    assert all(problem.suggestion for problem in refused.value.problems)
    return {problem.place: problem.message for problem in refused.value.problems}


@pytest.mark.parametrize("rules", [SAMPLE, parse_ruleset(FULL)], ids=["sample", "full"])
def test_the_canonical_document_is_read_as_the_same_ruleset_with_the_same_hash(rules: Any) -> None:
    stored = json.dumps(canonical_ruleset(rules), sort_keys=True)
    again = parse_ruleset(json.loads(stored))
    assert json.dumps(canonical_ruleset(again), sort_keys=True) == stored
    assert again.hash == rules.hash
    assert len(again.hash) == 64


def test_the_order_of_tables_and_the_spelling_of_numbers_do_not_change_the_hash() -> None:
    other: Any = deepcopy(FULL)
    for key in ("products", "price_books", "constraints", "taxes"):
        other[key] = other[key][::-1]
    other["price_books"][-1]["prices"][-1]["price"] = Decimal("3.00")
    assert parse_ruleset(other).hash == parse_ruleset(FULL).hash


@pytest.mark.parametrize(
    ("key", "row", "change"),
    [
        ("products", 0, {"cost": 2}),
        ("products", 1, {"active": True}),
        ("products", 3, {"bundle_discount_percent": "7.51"}),
        ("price_books", 0, {"priority": 1}),
        ("price_books", 1, {"valid_until": "2026-12-30"}),
        ("constraints", 2, {"quantity": 1}),
        ("taxes", 1, {"estimated": False}),
        ("rates", 0, {"rate": "0.93"}),
    ],
)
def test_whatever_decides_a_price_changes_the_hash(key: str, row: int, change: dict[str, Any]) -> None:
    other: Any = deepcopy(FULL)
    other[key][row] |= change
    assert parse_ruleset(other).hash != parse_ruleset(FULL).hash


def test_all_problems_are_found_at_once_each_with_its_path_in_the_document() -> None:
    bad: Any = deepcopy(FULL)
    bad["currency"] = "ZZZ"
    bad["products"][0]["cost"] = 1.5
    bad["products"][1]["colour"] = "red"
    bad["products"][3]["components"][1]["sku"] = "gone"
    bad["price_books"][1]["prices"][0]["tiers"] = [TIERS[0], TIERS[0]]
    bad["price_books"][1]["prices"][2]["formula"] = "base + nobody"
    bad["constraints"][0]["other"] = "a"
    bad["taxes"][1]["percent"] = "x"
    bad["rates"][0]["on"] = "soon"
    with pytest.raises(RulesetError) as refused:
        parse_ruleset(bad)
    assert {problem.path for problem in refused.value.problems} == {
        ("currency",),
        ("products", 0, "cost"),
        ("products", 1, "colour"),
        ("products", 3, "components", 1, "sku"),
        ("price_books", 1, "prices", 0, "tiers", 1, "from"),
        ("price_books", 1, "prices", 2, "formula"),
        ("constraints", 0, "other"),
        ("taxes", 1, "percent"),
        ("rates", 0, "on"),
    }
    assert "price_books[2].prices[1].tiers[2].from: 1 is not in order" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        ({"currency": None}, "currency", "must be a non-empty text"),
        ({"colour": 1}, "colour", "unknown key"),
        ({"schema": 2}, "schema", "whole number from 1 to 1"),
        ({"products": []}, "products", "list of 1 to"),
        ({"products": [1], "price_books": [book({"a": 1})]}, "products[1]", "must be a table"),
        ({"products": [product("a"), product("a")]}, "products[2].sku", "is there twice"),
        ({"products": [product("a"), product("b", name="A")]}, "products[2].name", "the name 'A' already means 'a'"),
        ({"products": [product("a", name="Two\nlines")]}, "products[1].name", "visible characters"),
        ({"products": [product("a", name="\u202eevil")]}, "products[1].name", "visible characters"),
        ({"products": [product("a", name="Two\u2028lines")]}, "products[1].name", "visible characters"),
        ({"products": [product("a", name="x" * 81)]}, "products[1].name", "at most 80"),
        ({"products": [product("A B")]}, "products[1].sku", "must be lower-case"),
        ({"products": [product("a", billing="weekly")]}, "products[1].billing", "must be one of recurring, one_time"),
        ({"products": [product("a", cost=-1)]}, "products[1].cost", "must be between 0 and"),
        ({"products": [product("a", cost="nan")]}, "products[1].cost", "must be an amount"),
        ({"products": [product("a", cost=True)]}, "products[1].cost", "must be an amount"),
        ({"products": [product("a", cost="0.0000001")]}, "products[1].cost", "at most 6 decimals"),
        ({"products": [product("a", aliases=[1])]}, "products[1].aliases", "non-empty texts"),
        ({"products": [product("a", active="perhaps")]}, "products[1].active", "true or false"),
        ({"products": [product("a", kind="configurable")]}, "products[1].attributes", "list of 1 to"),
        ({"products": [product("a", components=[])]}, "products[1].components", "a simple product has no components"),
        ({"products": [product("a", attributes=[{"name": "x", "choices": ["1"]}])]}, "products[1].kind", "only a configurable"),
        (
            {"products": [product("a", kind="configurable", attributes=[{"name": "x", "choices": ["1"], "default": "2"}])]},
            "products[1].attributes[1].default",
            "none of its choices",
        ),
        (
            {"products": [product("a"), product("s", kind="bundle", components=[{"sku": "s"}])]},
            "products[2].components[1].sku",
            "bundles do not nest",
        ),
        *(
            ({"products": [product("a"), product("s", kind="bundle", components=[], **table)]}, f"products[2].{place}", said)
            for table, place, said in (
                ({}, "components", "list of 1 to"),
                ({"choices": [{"name": "x", "of": ["a"], "optional": True}]}, "components", "list of 1 to"),
                ({"choices": [{"name": "x", "of": []}]}, "choices[1].of", "at least one product"),
                ({"choices": [{"name": "x", "of": ["gone"]}]}, "choices[1].of[1]", "is not in the catalogue"),
                ({"choices": [{"name": "x", "of": ["s"]}]}, "choices[1].of[1]", "bundles do not nest"),
                ({"choices": [{"name": "x", "of": ["none"]}]}, "choices[1].of[1]", "means no product"),
                ({"choices": [{"name": "x", "of": ["a"], "default": "none"}]}, "choices[1].default", "none of its products"),
                ({"choices": [{"name": "X", "of": ["a"]}]}, "choices[1].name", "must be lower-case"),
                (
                    {"choices": [{"name": "x", "of": ["a"]}, {"name": "y", "of": ["a"]}]},
                    "choices[2].of[1]",
                    "is in the bundle already",
                ),
            )
        ),
        ({"products": [product("a", choices=[])]}, "products[1].choices", "a simple product has no choices"),
        ({"price_books": []}, "price_books", "list of 1 to"),
        ({"price_books": [book({"gone": 1})]}, "price_books[1].prices[1].sku", "is not in the catalogue"),
        ({"price_books": [book([{"sku": "a", "price": 1}, {"sku": "a", "price": 2}])]}, "price_books[1].prices[2].sku", "twice"),
        ({"price_books": [book([{"sku": "a"}])]}, "price_books[1].prices[1].price", "must be an amount"),
        ({"price_books": [book([{"sku": "a", "price": 1, "tiers": TIERS}])]}, "price_books[1].prices[1].price", "has no price"),
        ({"price_books": [book([{"sku": "a", "tiers": []}])]}, "price_books[1].prices[1].tiers", "list of 1 to"),
        (
            {"price_books": [book([{"sku": "a", "tiers": [{"from": 2, "price": 1}]}])]},
            "price_books[1].prices[1].tiers[1].from",
            "the first is 1",
        ),
        (
            {"price_books": [book([{"sku": "a", "tiers": [{"from": 1, "price": 1}, {"from": 9, "price": 2}]}])]},
            "price_books[1].prices[1].tiers[2].price",
            "must not cost more than the first one",
        ),
        (
            {"price_books": [book([{"sku": "a", "kind": "formula", "formula": "1 +"}])]},
            "price_books[1].prices[1].formula",
            "column 4",
        ),
        (
            {"price_books": [book([{"sku": "a", "kind": "formula", "formula": "1", "inputs": {"quantity": 1}}])]},
            "price_books[1].prices[1].inputs",
            "cannot name an input",
        ),
        (
            {"price_books": [book([{"sku": "a", "kind": "percent", "percent": 5, "of": ["gone"]}])]},
            "price_books[1].prices[1].of[1]",
            "no sku and no family",
        ),
        ({"price_books": [book({"a": 1}, converts_to=["ZZZ"])]}, "price_books[1].converts_to[1]", "unknown currency"),
        (
            {"price_books": [book({"a": 1}, valid_from="2026-02-01", valid_until="2026-01-31")]},
            "price_books[1].valid_until",
            "before",
        ),
        ({"price_books": [book({"a": 1}), book({"b": 1}, name="two")]}, "price_books[2].priority", "could both price one quote"),
        ({"price_books": [book({"a": 1}), book({"a": 1}, priority=1)]}, "price_books[2].name", "is there already"),
        ({"constraints": [{"kind": "likes", "sku": "a"}]}, "constraints[1].kind", "must be one of requires"),
        ({"constraints": [{"kind": "requires", "sku": "a", "other": "a"}]}, "constraints[1].other", "to itself"),
        ({"constraints": [{"kind": "min_quantity", "sku": "a", "quantity": 0}]}, "constraints[1].quantity", "whole number from 1"),
        (
            {
                "constraints": [
                    {"kind": "excludes", "sku": "b", "other": "a"},
                    {"kind": "requires", "sku": "a", "other": "b"},
                ]
            },
            "constraints[2]",
            "no quote satisfies both",
        ),
        (
            {
                "constraints": [
                    {"kind": "max_quantity", "sku": "a", "quantity": 5},
                    {"kind": "min_quantity", "sku": "a", "quantity": 6},
                ]
            },
            "constraints[2]",
            "no quote satisfies both",
        ),
        ({"taxes": [{"region": "DE", "percent": 101}]}, "taxes[1].percent", "between 0 and 100"),
        ({"taxes": [{"region": "DE", "percent": 1}] * 2}, "taxes[2]", "holds for the same region"),
        ({"rates": [{"base": "USD", "currency": "USD", "rate": 1, "on": "2026-01-01"}]}, "rates[1].currency", "to itself"),
        ({"rates": [{"base": "USD", "currency": "EUR", "rate": 0, "on": "2026-01-01"}]}, "rates[1].rate", "above 0"),
        ({"rates": [{"base": "USD", "currency": "EUR", "rate": 1}]}, "rates[1].on", "needs its day"),
        ({"rates": [{"base": "USD", "currency": "EUR", "rate": 1, "on": "2026-01-01"}] * 2}, "rates[2].on", "already"),
    ],
)
def test_bad_data_is_a_problem_that_names_the_place(change: dict[str, Any], place: str, message: str) -> None:
    problems = found(document(**change))
    assert message in problems.get(place, ""), problems


@pytest.mark.parametrize("content", [None, [], "text", 1])
def test_what_is_no_table_is_refused(content: object) -> None:
    assert found(content) == {"": "a ruleset is a table"}


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(RulesetError, match="not valid TOML"):
        parse_ruleset_toml("name = ")


@pytest.mark.parametrize(
    "other",
    [
        {"segment": "smb"},
        {"region": "DE"},
        {"valid_from": "2026-01-01"},
        {"converts_to": ["USD"], "currency": "EUR"},
    ],
)
def test_two_books_that_could_price_one_quote_need_different_priorities(other: dict[str, Any]) -> None:
    general = book({"a": 1})
    assert list(found(document(price_books=[general, book({"a": 2}, name="two", **other)]))) == ["price_books[2].priority"]
    parse_ruleset(document(price_books=[general, book({"a": 2}, name="two", priority=1, **other)]))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"segment": "smb"}, {"segment": "large"}),
        ({"region": "DE"}, {"region": "JP"}),
        ({"valid_until": "2026-06-30"}, {"valid_from": "2026-07-01"}),
        ({}, {"currency": "EUR"}),
    ],
)
def test_books_that_never_meet_may_share_a_priority(one: dict[str, Any], two: dict[str, Any]) -> None:
    parse_ruleset(document(price_books=[book({"a": 1}, **one), book({"a": 2}, name="two", **two)]))


def test_a_document_of_nothing_but_text_is_read_too() -> None:
    price = {"sku": "a", "tiers": [{"from": "1", "price": "2"}]}
    rows = document(products=[product("a", cost="1.25", active="false")], price_books=[book([price])])
    assert parse_ruleset(rows).catalogue.products["a"].cost == Decimal("1.25")


def test_the_documented_ruleset_is_one(checkout: Path) -> None:
    text, bundle = re.findall(
        r"^```toml\n(.*?)^```$", (checkout / "docs" / "ruleset.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    rules = parse_ruleset_toml(text)
    eu = LineRequest("storage", 4, attributes=(("region", "eu"),))
    pricing = priced(ask(("starter", 6), eu, ("basic", 1), term=12, currency="EUR", priced_on=date(2026, 11, 21)), rules)
    assert [(line.bundle, line.sku, line.kind, str(line.list_amount)) for line in pricing.lines] == [
        ("starter", "basic", "slab", "6381.12"),  # (49 * 10 + 11 * 8) * 12 * 0.92
        ("starter", "care", "percent", "1258.34"),  # 20 % of 6062.06 + 119.23 + 110.40
        (None, "storage", "formula", "119.23"),
        (None, "basic", "slab", "110.40"),
    ]
    chosen = [product(sku) for sku in ("pro", "support", "premium", "sso")]
    assert "suite" in parse_ruleset(document(products=[*chosen, *tomllib.loads(bundle)["products"]])).catalogue.products


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document."""
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, child in below for found in places(child, (*path, key)))]


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**40,
        "",
        " ",
        "x",
        "a",
        "1e9",
        "nan",
        "2026-13-01",
        [],
        {},
        [None],
        [[]],
        {"a": {}},
        date(2026, 1, 1),
        b"x",
    ]
)


@given(st.sampled_from(places(FULL)[1:]), JUNK, st.booleans())
def test_altered_document_is_refused_or_prices_quotes_without_an_exception(path: tuple[Any, ...], junk: Any, remove: Any) -> None:
    content: Any = deepcopy(FULL)
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    if remove:
        del parent[path[-1]]
    else:
        parent[path[-1]] = junk
    try:
        rules = parse_ruleset(content)
    except RulesetError:
        return
    assert parse_ruleset(canonical_ruleset(rules)).hash == rules.hash
    for currency in ("USD", "EUR", "JPY"):
        request = ask(
            *((sku, 3) for sku in rules.catalogue.products),
            currency=currency,
            segment="smb",
            region="DE",
            priced_on=date(2026, 11, 21),
            with_tax=True,
        )
        assert price(request, rules)


def test_a_stored_ruleset_with_a_text_refused_today_is_read_and_gets_versions() -> None:
    content: Any = document(products=[product("a", name="Two\u2028lines"), product("b", name="New \U0001fa77 \ue000")])
    with pytest.raises(RulesetError, match="visible characters") as refused:
        parse_ruleset(content)
    assert [problem.place for problem in refused.value.problems] == ["products[1].name"]
    stored = parse_ruleset({**content, "products": [product("a", name="Two lines"), *content["products"][1:]]})
    text = json.dumps(canonical_ruleset(stored)).replace("Two lines", "Two\\u2028lines")
    tx: Any = SimpleNamespace(one=lambda *_, **__: {"document": text})
    read = rulesets.document(tx, 1)
    assert read.catalogue.products["a"].name == "Two\u2028lines"
    assert with_policy(renamed(read, "2"), POLICY, "3").version == "3"
    with pytest.raises(RulesetError, match="version"):
        renamed(read, "2\u2028")
    text = text.replace("u2028", "u202e")
    with pytest.raises(RulesetError, match="visible characters"):
        rulesets.document(tx, 1)
