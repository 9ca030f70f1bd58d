"""Small rulesets for tests: a document of simple products with flat prices, which tests can change."""

from __future__ import annotations

from decimal import Decimal
from importlib.resources import files
from typing import Any

from quotebot.domain.catalogue.rulesets import Ruleset, parse_ruleset, parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, PricingProblem, price

SAMPLE = parse_ruleset_toml(files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8"))


def product(sku: str, **changes: Any) -> dict[str, Any]:
    """Return the table of one product, recurring, at a cost of 1."""
    common = {"sku": sku, "name": sku.title(), "family": "saas"}
    if changes.get("kind") == "bundle":
        return {**common, **changes}
    return {**common, "unit": "seat", "billing": "recurring", "cost": 1, **changes}


def book(prices: dict[str, Any] | list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Return the table of a price book in USD; a mapping gives flat prices by sku."""
    rows = [{"sku": sku, "price": amount} for sku, amount in prices.items()] if isinstance(prices, dict) else prices
    return {"name": "list", "currency": "USD", "prices": rows, **changes}


def document(**changes: Any) -> dict[str, Any]:
    """Return a valid document: products a and b at 10 and 20."""
    products = changes.get("products", [product("a"), product("b")])
    sold = [row["sku"] for row in products if isinstance(row, dict) and row.get("kind") != "bundle"]
    flat = {sku: 10 * number for number, sku in enumerate(sold, start=1)}
    return {"name": "t", "version": "1", "currency": "USD", "products": products, "price_books": [book(flat)], **changes}


def ruleset(**changes: Any) -> Ruleset:
    """Return the ruleset of `document`."""
    return parse_ruleset(document(**changes))


def ask(*lines: tuple[str, int] | LineRequest, term: int = 1, discount: str = "0", **changes: Any) -> PriceRequest:
    """Return a request for (sku, quantity) pairs, or whole lines."""
    rows = tuple(line if isinstance(line, LineRequest) else LineRequest(*line) for line in lines)
    return PriceRequest(rows, term, Decimal(discount), **changes)


def priced(request: PriceRequest, rules: Ruleset = SAMPLE) -> Pricing:
    """Return the price of a request that has one."""
    result = price(request, rules)
    assert isinstance(result, Pricing), result
    return result


def problems(request: PriceRequest, rules: Ruleset) -> tuple[PricingProblem, ...]:
    """Return why a request has no price."""
    result = price(request, rules)
    assert not isinstance(result, Pricing), "it has a price"
    return result
