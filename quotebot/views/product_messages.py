"""Products and list prices as a message in Slack. Costs are never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.catalogue.rulesets import price_words
from quotebot.domain.pricing.price_books import Flat, Tiered, books_for
from quotebot.views import messages

if TYPE_CHECKING:
    from datetime import date

    from quotebot.domain.catalogue.catalogue import Product
    from quotebot.domain.catalogue.rulesets import Ruleset

PRODUCTS_SHOWN_MAX: Final = 20
PRICE_CHARACTERS_MAX: Final = 200


def products_text(ruleset: Ruleset, search: str, day: date) -> str:
    """Return the products on sale whose name, SKU, alias or family contains `search`, by family, with their list prices.

    The prices are those in the ruleset's currency, on this day, without a segment or region.
    """
    wanted = search.casefold()
    found = [product for product in ruleset.catalogue.products.values() if product.active and _matches(product, wanted)]
    if not found:
        near = ruleset.catalogue.suggest(search)
        hint = f" Did you mean `/quote products {near}`?" if near else " `/quote products` shows all."
        return f'No product matches "{messages.short(search, 60)}".{hint}'
    found.sort(key=lambda product: (product.family, product.name))
    shown = found[:PRODUCTS_SHOWN_MAX]
    lines: list[str] = []
    family = ""
    for product in shown:
        if product.family != family:
            family = product.family
            lines.append(f"*{messages.escape(family)}*")
        lines.append(f"\u2022 {_described(product, ruleset, day)}")
    if len(found) > len(shown):
        lines.append(f"{len(found) - len(shown):,} more: add a part of the name, e.g. `/quote products {shown[0].sku}`.")
    lines.append("`/quote price 10 pro` prices a quantity, without a quote.")
    return "\n".join(lines)


def _matches(product: Product, wanted: str) -> bool:
    return any(wanted in name.casefold() for name in (product.sku, product.name, product.family, *product.aliases))


def _described(product: Product, ruleset: Ruleset, day: date) -> str:
    name = f"*{messages.short(product.name, 60)}* `{product.sku}`"
    if product.kind == "bundle":
        parts = ", ".join(f"{component.quantity:,} {component.sku}" for component in product.components)
        less = product.bundle_discount_percent
        return f"{name}: {messages.short(parts, PRICE_CHARACTERS_MAX)}" + (f", {money.format_percent(less)} off" if less else "")
    options = "; ".join(
        f"{each.name} {' | '.join(each.choices)}" + (f" (default {each.default})" if each.default else "")
        for each in product.attributes
    )
    said = f"{name}: {_price(product, ruleset, day)}"
    return f"{said}; {messages.short(options, PRICE_CHARACTERS_MAX)}" if options else said


def _per(product: Product) -> str:
    """Return the unit of a price in words: "per seat and month", "per month", "per day, once" or "once"."""
    unit = "" if product.unit in ("once", "month") else f"per {messages.escape(product.unit)}"
    if product.billing == "recurring":
        return f"{unit} and month" if unit else "per month"
    return f"{unit}, once" if unit else "once"


def _price(product: Product, ruleset: Ruleset, day: date) -> str:
    currency = ruleset.currency
    books = books_for(ruleset.books, currency, None, None, day)
    entry = next((book.prices[product.sku] for book in books if product.sku in book.prices), None)
    if entry is None:
        return f"no list price in {currency}"
    per = _per(product)
    kind = entry.kind
    if isinstance(kind, Flat):
        return f"{money.format_unit_price(kind.price, currency)} {per}"
    if isinstance(kind, Tiered) and kind.kind != "block":
        first, *rest = kind.tiers
        tiers = "".join(f", {money.format_unit_price(tier.price, currency)} from {tier.start:,}" for tier in rest)
        each = " (each part at its own price)" if kind.kind == "slab" and rest else ""
        return f"{money.format_unit_price(first.price, currency)} {per}{tiers}{each}"
    return messages.short(price_words(kind.document()), PRICE_CHARACTERS_MAX)
