from __future__ import annotations

from quotebot.domain.catalogue.rulesets import lint
from tests.quotebot.domain.ruleset_parts import SAMPLE, book, product, ruleset


def test_the_sample_leaves_no_doubt() -> None:
    assert lint(SAMPLE) == ()


def test_every_doubt_is_one_sentence_in_a_fixed_order() -> None:
    rules = ruleset(
        products=[
            product("a", cost=5),
            product("b"),
            product("old", active=False),
            product("set", kind="bundle", components=[{"sku": "old", "quantity": 1}]),
            product("kit", kind="bundle", components=[{"sku": "a"}], choices=[{"name": "more", "of": ["b", "old"]}]),
        ],
        price_books=[
            book([{"sku": "a", "tiers": [{"from": 1, "price": 6}, {"from": 9, "price": "4.5"}]}], converts_to=["EUR"]),
            book({"a": 1}, name="yen", currency="JPY"),
        ],
        rates=[{"base": "USD", "currency": "JPY", "rate": 150, "on": "2026-01-01"}],
    )
    assert lint(rules) == (
        "b is on sale but has no price in any book",
        "kit is on sale but offers old as more, which is not",
        "set is on sale but holds old, which is not",
        "a is sold at 4.5 in list, below its cost of 5",
        "list serves EUR, but there is no rate from USD: nothing can be quoted in it",
    )
