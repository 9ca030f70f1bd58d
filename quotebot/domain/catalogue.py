"""What is sold and for how much: products, their tiered prices and unit costs, parsed from one TOML text.

The text is checked whole when it is parsed: an unclear price never waits for a customer to find it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quotebot.domain import money

if TYPE_CHECKING:
    from collections.abc import Mapping

SKU = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
NAME_CHARACTERS_MAX = 80
SUGGEST_CHARACTERS_MAX = 40  # difflib is quadratic; nobody mistypes longer than this
PRICE_MAX = Decimal("1e9")
BILLINGS = ("recurring", "one_time")


class CatalogueError(ValueError):
    """The catalogue text cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Tier:
    """All units cost `price` from `start` units on (range tiers: the reached tier prices every unit)."""

    start: int
    price: Decimal
    label: str | None  # "50-99", "100+"; None for a flat price


@dataclass(frozen=True, slots=True)
class Product:
    """One thing to sell. `price` and `cost` are per unit and month when recurring, per unit when one-time."""

    sku: str
    name: str
    family: str
    unit: str
    billing: str  # "recurring" | "one_time"
    cost: Decimal
    tiers: tuple[Tier, ...]  # ascending, the first starts at 1
    aliases: tuple[str, ...]

    def tier_for(self, quantity: int) -> Tier:
        """Return the tier that prices `quantity` units; quantity >= 1."""
        return next(tier for tier in reversed(self.tiers) if tier.start <= quantity)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every product, and every name a person may call it by."""

    name: str
    version: str
    currency: str
    products: Mapping[str, Product]  # by sku
    aliases: Mapping[str, str]  # folded sku, name or alias -> sku

    @property
    def ruleset(self) -> str:
        """Name and version, as recorded in each pricing."""
        return f"{self.name} {self.version}"

    def find(self, text: str) -> Product | None:
        """Return the product called `text` (sku, name or alias; case and spacing do not matter)."""
        sku = self.aliases.get(fold(text))
        return None if sku is None else self.products[sku]

    def suggest(self, text: str) -> str | None:
        """Return the sku whose names come nearest to `text`, or None when none is near."""
        near = difflib.get_close_matches(fold(text[:SUGGEST_CHARACTERS_MAX]), list(self.aliases), n=1, cutoff=0.6)
        return self.aliases[near[0]] if near else None


def fold(text: str) -> str:
    """Return the form under which names are compared: NFC, case folded, single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def parse_catalogue(toml_text: str) -> Catalogue:
    """Build a catalogue from TOML. Raises CatalogueError naming the first bad place."""
    try:
        data = tomllib.loads(toml_text, parse_float=Decimal)
    except ValueError as error:
        raise CatalogueError(f"the catalogue is not valid TOML: {error}") from error
    currency = _text(data, "currency", "catalogue")
    try:
        money.exponent(currency)
    except ValueError as error:
        raise CatalogueError(f"catalogue.currency: {error}") from error
    entries = data.get("products")
    if not isinstance(entries, list) or not entries:
        raise CatalogueError("catalogue.products: at least one [[products]] table is needed")
    products: dict[str, Product] = {}
    aliases: dict[str, str] = {}
    for number, entry in enumerate(entries, start=1):
        product = _product(entry, f"products[{number}]")
        if product.sku in products:
            raise CatalogueError(f"products[{number}].sku: {product.sku!r} is there twice; a sku names one product")
        products[product.sku] = product
        _claim_names(product, aliases, f"products[{number}]")
    return Catalogue(_text(data, "name", "catalogue"), _text(data, "version", "catalogue"), currency, products, aliases)


def _claim_names(product: Product, aliases: dict[str, str], place: str) -> None:
    for name in (product.sku, product.name, *product.aliases):
        owner = aliases.setdefault(fold(name), product.sku)
        if owner != product.sku:
            raise CatalogueError(f"{place}: the name {name!r} already means {owner!r}; a name means one product")


def _product(entry: Any, place: str) -> Product:
    if not isinstance(entry, dict):
        raise CatalogueError(f"{place}: must be a table")
    known = {"sku", "name", "family", "unit", "billing", "cost", "price", "tiers", "aliases"}
    unknown = sorted(set(entry) - known)
    if unknown:
        raise CatalogueError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    sku = _text(entry, "sku", place)
    if not SKU.fullmatch(sku):
        raise CatalogueError(f"{place}.sku: {sku!r} must be lower-case letters, digits, - or _, at most 40")
    billing = _text(entry, "billing", place)
    if billing not in BILLINGS:
        raise CatalogueError(f"{place}.billing: {billing!r} must be one of {', '.join(BILLINGS)}")
    aliases = entry.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
        raise CatalogueError(f"{place}.aliases: must be a list of non-empty texts")
    return Product(
        sku=sku,
        name=_text(entry, "name", place),
        family=_text(entry, "family", place),
        unit=_text(entry, "unit", place),
        billing=billing,
        cost=_amount(entry.get("cost"), f"{place}.cost"),
        tiers=_tiers(entry, place),
        aliases=tuple(aliases),
    )


def _tiers(entry: dict[str, Any], place: str) -> tuple[Tier, ...]:
    if ("price" in entry) == ("tiers" in entry):
        raise CatalogueError(f"{place}: give either a flat `price` or `tiers`")
    if "price" in entry:
        return (Tier(1, _amount(entry["price"], f"{place}.price"), None),)
    rows = entry["tiers"]
    if not isinstance(rows, list) or not rows:
        raise CatalogueError(f"{place}.tiers: must be a non-empty list of {{ from, price }}")
    starts: list[int] = []
    prices: list[Decimal] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or set(row) != {"from", "price"}:
            raise CatalogueError(f"{place}.tiers[{number}]: must be {{ from, price }}")
        start = row["from"]
        whole = isinstance(start, int) and not isinstance(start, bool)
        if not whole or (start <= starts[-1] if starts else start != 1):
            raise CatalogueError(
                f"{place}.tiers[{number}].from: {start!r} must be a whole number; the first is 1, each next larger"
            )
        starts.append(start)
        prices.append(_amount(row["price"], f"{place}.tiers[{number}].price"))
    ends = [*(f"-{following - 1}" for following in starts[1:]), "+"]
    return tuple(Tier(start, price, f"{start}{end}") for start, price, end in zip(starts, prices, ends, strict=True))


def _amount(value: Any, place: str) -> Decimal:
    try:
        amount = money.exact(value)
    except (TypeError, ValueError) as error:
        raise CatalogueError(f"{place}: {value!r} must be an amount such as 10 or 0.40") from error
    if not 0 <= amount <= PRICE_MAX or int(amount.as_tuple().exponent) < -6:  # noqa: PLR2004 -- said in the message
        raise CatalogueError(f"{place}: {value!r} must be between 0 and {PRICE_MAX:,f} with at most 6 decimals")
    return amount


def _text(table: dict[str, Any], key: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip() or len(value) > NAME_CHARACTERS_MAX:
        raise CatalogueError(f"{place}.{key}: {value!r} must be a non-empty text of at most {NAME_CHARACTERS_MAX} characters")
    return value
