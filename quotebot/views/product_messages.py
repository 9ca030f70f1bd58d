"""Products and list prices in words: as a message in Slack, and for the menu of products. Costs are never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.catalogue import rulesets
from quotebot.domain.language import N_, _, grouped
from quotebot.domain.pricing.engine import without_costs
from quotebot.domain.pricing.price_books import Flat, Share, Tiered, books_for
from quotebot.domain.pricing.price_requests import clipped
from quotebot.views import messages

if TYPE_CHECKING:
    from datetime import date

    from quotebot.domain.catalogue.catalogue import Attribute, BundleChoice, Product
    from quotebot.domain.catalogue.rulesets import Ruleset

PRODUCTS_SHOWN_MAX: Final = 20
PRICE_CHARACTERS_MAX: Final = 200
_BASES: Final = {"net": N_("net"), "list": N_("list")}


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
        parts = [f"{grouped(part.quantity)} {part.sku}" for part in product.components]
        parts += [_choice_words(choice, brief=brief) for choice in product.choices]
        return clipped(", ".join(parts), PRICE_CHARACTERS_MAX)
    books = books_for(ruleset.books, ruleset.currency, None, None, day)
    kind = next((book.prices[product.sku].kind for book in books if product.sku in book.prices), None)
    if kind is None:
        return _("no list price in {currency}", currency=ruleset.currency)
    if isinstance(kind, Share):
        percent = money.format_percent(kind.percent)
        of = {"percent": percent, "products": ", ".join(kind.of)}
        share = _("{percent} of {products}", **of) if kind.of else _("{percent} of everything else", percent=percent)
        return share if brief else f"{share} ({_(_BASES[kind.basis])})"
    if isinstance(kind, Flat) or (isinstance(kind, Tiered) and kind.kind != "block"):
        return _unit_price(kind, product, ruleset.currency, brief=brief)
    return _("price by quantity") if brief else clipped(without_costs(rulesets.price_words(kind.document())), PRICE_CHARACTERS_MAX)


def _unit_price(kind: Flat | Tiered, product: Product, currency: str, *, brief: bool) -> str:
    first, *rest = [(1, kind.price)] if isinstance(kind, Flat) else [(tier.start, tier.price) for tier in kind.tiers]
    if brief and rest:
        lowest = min(price for _start, price in (first, *rest))
        return _("from {price} {per}", price=money.format_unit_price(lowest, currency), per=_per(product))
    said = [f"{money.format_unit_price(first[1], currency)} {_per(product)}"]
    said += [_("{price} from {n}", price=money.format_unit_price(price, currency), n=grouped(start)) for start, price in rest]
    prices = ", ".join(said)
    return _("{prices} (each part at its own price)", prices=prices) if kind.kind == "slab" and rest else prices


def products_text(ruleset: Ruleset, search: str, day: date) -> str:
    """Return the products on sale that a text finds, by family, with their list prices on this day."""
    found = on_sale(ruleset, search)
    if not found:
        near = ruleset.catalogue.suggest(search)
        hint = N_("Did you mean `/quote products {sku}`?") if near else N_("`/quote products` shows all.")
        said = _('No product matches "{text}".', text=messages.short(search, 60))
        return f"{said} {_(hint, sku=near)}"
    shown = found[:PRODUCTS_SHOWN_MAX]
    lines: list[str] = []
    family = ""
    for product in shown:
        if product.family != family:
            family = product.family
            lines.append(f"*{messages.escape(family)}*")
        lines.append(f"\u2022 {_described(product, ruleset, day)}")
    if len(found) > len(shown):
        more = N_("{n} more: add a part of the name, e.g. `/quote products {sku}`.")
        lines.append(_(more, n=grouped(len(found) - len(shown)), sku=shown[0].sku))
    lines.append(_("`/quote price 10 pro` prices a quantity, without a quote."))
    return "\n".join(lines)


def _described(product: Product, ruleset: Ruleset, day: date) -> str:
    name = f"*{messages.short(product.name, 60)}* `{product.sku}`"
    said = f"{name}: {messages.escape(messages.one_line(price_words(product, ruleset, day)))}"
    if product.kind == "bundle":
        less = product.bundle_discount_percent
        return ", ".join((said, _("{percent} off", percent=money.format_percent(less)))) if less else said
    options = "; ".join(map(_choices, product.attributes))
    return f"{said}; {messages.short(options, PRICE_CHARACTERS_MAX)}" if options else said


def _choice_words(choice: BundleChoice, *, brief: bool) -> str:
    """Return what a bundle lets choose: "support: 1 basic | 1 premium (default basic)"; `brief`: without the default."""
    options = [f"{grouped(choice.quantity)} {sku}" for sku in choice.of]
    choices = f"{choice.name}: {' | '.join((*options, *choice.attribute.choices[len(options) :]))}"
    return choices if brief else _with_default(choices, choice.default)


def _choices(attribute: Attribute) -> str:
    """Return the choices of an attribute: "region eu | us (default eu)"."""
    return _with_default(f"{attribute.name} {' | '.join(attribute.choices)}", attribute.default)


def _with_default(choices: str, default: str | None) -> str:
    return _("{choices} (default {choice})", choices=choices, choice=default) if default else choices


def _per(product: Product) -> str:
    """Return the unit of a price in words: "per seat and month", "per month", "per day, one-time" or "one-time"."""
    unit = "" if product.unit in ("once", "month") else messages.one_line(product.unit)
    if product.billing == "recurring":
        return _("per {unit} and month", unit=unit) if unit else _("per month")
    return _("per {unit}, one-time", unit=unit) if unit else _("one-time")
