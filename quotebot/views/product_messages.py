"""Products and list prices in words: as a message in Slack, and for the menu of products. Costs are never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.catalogue import rulesets
from quotebot.domain.pricing.price_books import Flat, Share, Tiered, books_for
from quotebot.domain.pricing.price_requests import clipped
from quotebot.views import messages

if TYPE_CHECKING:
    from datetime import date

    from quotebot.domain.catalogue.catalogue import Product
    from quotebot.domain.catalogue.rulesets import Ruleset

PRODUCTS_SHOWN_MAX: Final = 20
PRICE_CHARACTERS_MAX: Final = 200


def on_sale(ruleset: Ruleset, typed: str) -> list[Product]:
    """Return the products on sale whose SKU, name, alias or family contains the typed text, by family and name."""
    wanted = typed.strip().casefold()
    found = [
        product
        for product in ruleset.catalogue.products.values()
        if product.active
        and any(wanted in name.casefold() for name in (product.sku, product.name, product.family, *product.aliases))
    ]
    return sorted(found, key=lambda product: (product.family, product.name))


def price_words(product: Product, ruleset: Ruleset, day: date, *, brief: bool = False) -> str:
    """Return a product's list price in the ruleset's currency and its unit as plain text: "6.00 USD per seat and month".

    The price is that of this day, without a segment or region. `brief`: with the lowest price for all tiers, and no formula.
    """
    if product.kind == "bundle":
        return clipped(", ".join(f"{part.quantity:,} {part.sku}" for part in product.components), PRICE_CHARACTERS_MAX)
    books = books_for(ruleset.books, ruleset.currency, None, None, day)
    kind = next((book.prices[product.sku].kind for book in books if product.sku in book.prices), None)
    if kind is None:
        return f"no list price in {ruleset.currency}"
    if isinstance(kind, Share):
        share = f"{money.format_percent(kind.percent)} of {', '.join(kind.of) or 'everything else'}"
        return share if brief else f"{share} ({kind.basis})"
    if isinstance(kind, Flat) or (isinstance(kind, Tiered) and kind.kind != "block"):
        return _unit_price(kind, product, ruleset.currency, brief=brief)
    return "price by quantity" if brief else clipped(rulesets.price_words(kind.document()), PRICE_CHARACTERS_MAX)


def _unit_price(kind: Flat | Tiered, product: Product, currency: str, *, brief: bool) -> str:
    first, *rest = [(1, kind.price)] if isinstance(kind, Flat) else [(tier.start, tier.price) for tier in kind.tiers]
    if brief and rest:
        lowest = min(price for _, price in (first, *rest))
        return f"from {money.format_unit_price(lowest, currency)} {_per(product)}"
    tiers = "".join(f", {money.format_unit_price(price, currency)} from {start:,}" for start, price in rest)
    each = " (each part at its own price)" if kind.kind == "slab" and rest else ""
    return f"{money.format_unit_price(first[1], currency)} {_per(product)}{tiers}{each}"


def products_text(ruleset: Ruleset, search: str, day: date) -> str:
    """Return the products on sale that a text finds, by family, with their list prices on this day."""
    found = on_sale(ruleset, search)
    if not found:
        near = ruleset.catalogue.suggest(search)
        hint = f" Did you mean `/quote products {near}`?" if near else " `/quote products` shows all."
        return f'No product matches "{messages.short(search, 60)}".{hint}'
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


def _described(product: Product, ruleset: Ruleset, day: date) -> str:
    name = f"*{messages.short(product.name, 60)}* `{product.sku}`"
    said = f"{name}: {messages.escape(messages.one_line(price_words(product, ruleset, day)))}"
    if product.kind == "bundle":
        less = product.bundle_discount_percent
        return f"{said}, {money.format_percent(less)} off" if less else said
    options = "; ".join(
        f"{each.name} {' | '.join(each.choices)}" + (f" (default {each.default})" if each.default else "")
        for each in product.attributes
    )
    return f"{said}; {messages.short(options, PRICE_CHARACTERS_MAX)}" if options else said


def _per(product: Product) -> str:
    """Return the unit of a price in words: "per seat and month", "per month", "per day, one-time" or "one-time"."""
    unit = "" if product.unit in ("once", "month") else f"per {messages.one_line(product.unit)}"
    if product.billing == "recurring":
        return f"{unit} and month" if unit else "per month"
    return f"{unit}, one-time" if unit else "one-time"
