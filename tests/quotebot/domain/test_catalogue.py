from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from quotebot.domain.catalogue.rulesets import Ruleset, parse_ruleset, parse_ruleset_toml
from quotebot.domain.pricing.price_books import Flat, Tiered
from tests.quotebot.domain.ruleset_parts import document, product

if TYPE_CHECKING:
    from quotebot.domain.catalogue.catalogue import Catalogue

SAMPLE = files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8")


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return parse_ruleset_toml(SAMPLE)


@pytest.fixture(scope="module")
def catalogue(ruleset: Ruleset) -> Catalogue:
    return ruleset.catalogue


def test_the_sample_tiers_flat_prices_and_costs_are_those_of_the_specification(ruleset: Ruleset) -> None:
    (book,) = ruleset.books
    kinds = {sku: entry.kind for sku, entry in book.prices.items()}
    tiers = {sku: kind.tiers for sku, kind in kinds.items() if isinstance(kind, Tiered)}
    tiered = {sku: [(tier.label, str(tier.price)) for tier in rows] for sku, rows in tiers.items()}
    flat = {sku: str(kind.price) for sku, kind in kinds.items() if isinstance(kind, Flat)}
    assert tiered == {
        "pro": [("1-49", "10"), ("50-99", "8"), ("100+", "6")],
        "enterprise": [("1-49", "18"), ("50-99", "15"), ("100+", "12")],
    }
    assert flat == {"sso": "2", "support": "500", "onboarding": "5000"}
    assert ruleset.label == "sample 1"


def test_the_sample_costs_families_and_billing_are_those_of_the_specification(catalogue: Catalogue) -> None:
    facts = {sku: (str(row.cost), row.family, row.billing, row.unit) for sku, row in catalogue.products.items()}
    assert facts == {
        "pro": ("2", "saas", "recurring", "seat"),
        "enterprise": ("4", "saas", "recurring", "seat"),
        "sso": ("0.40", "saas", "recurring", "seat"),
        "support": ("150", "services", "recurring", "month"),
        "onboarding": ("2500", "services", "one_time", "once"),
    }


@pytest.mark.parametrize(
    ("text", "sku"),
    [("pro", "pro"), ("PRO", "pro"), (" Pro   Plan ", "pro"), ("premium support", "support"), ("Single Sign-On", "sso")],
)
def test_a_product_is_found_by_sku_name_or_alias_whatever_case_and_spacing(catalogue: Catalogue, text: str, sku: str) -> None:
    found = catalogue.find(text)
    assert found is not None
    assert found.sku == sku


@pytest.mark.parametrize(
    ("text", "sku"), [("prp", "pro"), ("entreprise", "enterprise"), ("premum suport", "support"), ("zebra", None), ("", None)]
)
def test_a_near_name_is_suggested_and_a_far_one_is_not(catalogue: Catalogue, text: str, sku: str | None) -> None:
    assert catalogue.find(text) is None
    assert catalogue.suggest(text) == sku


def test_a_product_that_is_no_longer_sold_is_found_but_not_suggested() -> None:
    catalogue = parse_ruleset(document(products=[product("alpha", active=False), product("beta")])).catalogue
    found = catalogue.find("alpha")
    assert found is not None
    assert not found.active
    assert catalogue.suggest("alphb") is None
