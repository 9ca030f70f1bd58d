"""Lint of a ruleset before activation: valid but probably unintended content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.pricing.price_kinds import Flat, Tiered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_books import PriceEntry


def lint(ruleset: Ruleset) -> tuple[str, ...]:
    """Return every finding as one sentence, in a fixed order; empty without findings."""
    return (*_unpriced(ruleset), *_unsold_components(ruleset), *_below_cost(ruleset), *_unconvertible(ruleset))


def _unpriced(ruleset: Ruleset) -> Iterator[str]:
    priced = {sku for book in ruleset.books for sku in book.prices}
    for sku, product in sorted(ruleset.catalogue.products.items()):
        if product.active and product.kind != "bundle" and sku not in priced:
            yield f"{sku} is on sale but has no price in any book"


def _unsold_components(ruleset: Ruleset) -> Iterator[str]:
    products = ruleset.catalogue.products
    for sku, product in sorted(products.items()):
        for component in product.components:
            if product.active and not products[component.sku].active:
                yield f"{sku} is on sale but holds {component.sku}, which is not"


def _below_cost(ruleset: Ruleset) -> Iterator[str]:
    for book in sorted(ruleset.books, key=lambda row: row.name):
        for sku, entry in sorted(book.prices.items()):
            lowest, cost = _lowest(entry), ruleset.catalogue.products[sku].cost
            if book.currency == ruleset.currency and lowest is not None and lowest < cost:
                yield f"{sku} is sold at {money.trimmed(lowest)} in {book.name}, below its cost of {money.trimmed(cost)}"


def _lowest(entry: PriceEntry) -> Decimal | None:
    """Return the lowest unit price if the entry states one; None for other kinds of price."""
    if isinstance(entry.kind, Flat):
        return entry.kind.price
    if isinstance(entry.kind, Tiered) and entry.kind.mode != "block":
        return min(tier.price for tier in entry.kind.tiers)
    return None


def _unconvertible(ruleset: Ruleset) -> Iterator[str]:
    known = {(rate.base, rate.currency) for rate in ruleset.rates}
    for book in sorted(ruleset.books, key=lambda row: row.name):
        for currency in sorted({book.currency, *book.converts_to}):
            for base in sorted({book.currency, ruleset.currency} - {currency}):
                if (base, currency) not in known:
                    yield f"{book.name} serves {currency}, but there is no rate from {base}: nothing can be quoted in it"
