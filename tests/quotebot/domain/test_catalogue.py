from __future__ import annotations

from decimal import Decimal
from importlib.resources import files

import pytest

from quotebot.domain.catalogue import Catalogue, CatalogueError, parse_catalogue

SAMPLE = files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8")
HEAD = 'name = "t"\nversion = "1"\ncurrency = "USD"\n'
GOOD = '[[products]]\nsku = "a"\nname = "A"\nfamily = "saas"\nunit = "seat"\nbilling = "recurring"\ncost = 1\n'


@pytest.fixture
def catalogue() -> Catalogue:
    return parse_catalogue(SAMPLE)


@pytest.mark.parametrize(
    ("sku", "quantity", "price", "label"),
    [
        ("pro", 1, "10", "1-49"),
        ("pro", 49, "10", "1-49"),
        ("pro", 50, "8", "50-99"),
        ("pro", 99, "8", "50-99"),
        ("pro", 100, "6", "100+"),
        ("pro", 1_000_000, "6", "100+"),
        ("enterprise", 49, "18", "1-49"),
        ("enterprise", 50, "15", "50-99"),
        ("enterprise", 100, "12", "100+"),
        ("sso", 1, "2", None),
        ("sso", 5000, "2", None),
        ("support", 1, "500", None),
        ("onboarding", 3, "5000", None),
    ],
)
def test_the_sample_tiers_hold_at_each_boundary(
    catalogue: Catalogue, sku: str, quantity: int, price: str, label: str | None
) -> None:
    tier = catalogue.products[sku].tier_for(quantity)
    assert (tier.price, tier.label) == (Decimal(price), label)


def test_the_sample_costs_families_and_billing_are_those_of_the_specification(catalogue: Catalogue) -> None:
    facts = {sku: (str(row.cost), row.family, row.billing, row.unit) for sku, row in catalogue.products.items()}
    assert facts == {
        "pro": ("2", "saas", "recurring", "seat"),
        "enterprise": ("4", "saas", "recurring", "seat"),
        "sso": ("0.40", "saas", "recurring", "seat"),
        "support": ("150", "services", "recurring", "month"),
        "onboarding": ("2500", "services", "one_time", "once"),
    }
    assert catalogue.ruleset == "sample 1"


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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name = ", "not valid TOML"),
        ('name = "t"\nversion = "1"\ncurrency = "ZZZ"\n', "catalogue.currency"),
        ('version = "1"\ncurrency = "USD"\n' + GOOD + "price = 1\n", "catalogue.name"),
        (HEAD, "catalogue.products"),
        (HEAD + GOOD, r"products\[1\]: give either"),
        (HEAD + GOOD + "price = 1\ntiers = [{ from = 1, price = 1 }]\n", r"products\[1\]: give either"),
        (HEAD + GOOD + "price = -1\n", r"products\[1\].price"),
        (HEAD + GOOD + "price = nan\n", r"products\[1\].price"),
        (HEAD + GOOD + "price = true\n", r"products\[1\].price"),
        (HEAD + GOOD + "price = 1e10\n", r"products\[1\].price"),
        (HEAD + GOOD + "price = 0.0000001\n", r"products\[1\].price"),
        (HEAD + GOOD + "tiers = []\n", r"products\[1\].tiers"),
        (HEAD + GOOD + "tiers = [{ from = 2, price = 1 }]\n", r"products\[1\].tiers\[1\].from"),
        (HEAD + GOOD + "tiers = [{ from = 1, price = 1 }, { from = 1, price = 2 }]\n", r"products\[1\].tiers\[2\].from"),
        (HEAD + GOOD + "tiers = [{ from = 1 }]\n", r"products\[1\].tiers\[1\]"),
        (HEAD + GOOD + "tiers = [{ from = 1, price = 'x' }]\n", r"products\[1\].tiers\[1\].price"),
        (HEAD + GOOD + "price = 1\ncolour = 'red'\n", r"products\[1\]: unknown key 'colour'"),
        (HEAD + GOOD + "price = 1\naliases = [1]\n", r"products\[1\].aliases"),
        (HEAD + GOOD.replace('"a"', '"A B"') + "price = 1\n", r"products\[1\].sku"),
        (HEAD + GOOD.replace("recurring", "weekly") + "price = 1\n", r"products\[1\].billing"),
        (HEAD + GOOD + "price = 1\n" + GOOD + "price = 1\n", r"products\[2\].sku: 'a' is there twice"),
        (
            HEAD + GOOD + "price = 1\n" + GOOD.replace('"a"', '"b"') + "price = 1\n",
            r"products\[2\]: the name 'A' already means 'a'",
        ),
        (HEAD + "products = [1]\n", r"products\[1\]: must be a table"),
    ],
)
def test_bad_data_is_an_error_that_names_the_place(text: str, place: str) -> None:
    with pytest.raises(CatalogueError, match=place):
        parse_catalogue(text)
