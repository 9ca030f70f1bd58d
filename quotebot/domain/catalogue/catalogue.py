"""Catalogue of products with all their names. Customer prices are in the price books."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.pricing.formulas import NAME
from quotebot.domain.texts import composed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from quotebot.domain.catalogue.reader import Table

SKU = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
SUGGEST_CHARACTERS_MAX = 40  # difflib is quadratic; longer inputs are no typos
PRODUCTS_MAX = 10_000
COMPONENTS_MAX = 50
ATTRIBUTES_MAX = 20
COMPONENT_QUANTITY_MAX = 10_000
KINDS = ("simple", "configurable", "bundle")
BILLINGS = ("recurring", "one_time")
PRODUCT_KEYS = (
    *("sku", "name", "family", "kind", "unit", "billing", "cost", "active", "aliases", "attributes"),
    *("components", "choices", "bundle_discount_percent", "tax_category"),
)
BUNDLE_KEYS = ("components", "choices", "bundle_discount_percent")
NO_CHOICE = "none"  # the value of an optional choice without a product


@dataclass(frozen=True, slots=True)
class Attribute:
    """Attribute of a configurable product; without a `default` the request must choose a value."""

    name: str
    choices: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """Component of a bundle: the product and its units per bundle."""

    sku: str
    quantity: int


@dataclass(frozen=True, slots=True)
class BundleChoice:
    """Choice of a bundle: one of the products `of`, or none where it is `optional`, and its units per bundle."""

    name: str
    of: tuple[str, ...]
    default: str | None = None
    quantity: int = 1
    optional: bool = False

    @property
    def attribute(self) -> Attribute:
        """The choice as an attribute of the bundle, because a request makes both in the same way."""
        return Attribute(self.name, (*self.of, NO_CHOICE) if self.optional else self.of, self.default)

    def document(self) -> dict[str, object]:
        """Return the choice in the form of a ruleset document."""
        default = {} if self.default is None else {"default": self.default}
        optional = {"optional": True} if self.optional else {}
        return {"name": self.name, "of": list(self.of), **default, "quantity": self.quantity, **optional}


@dataclass(frozen=True, slots=True)
class Product:
    """One product for sale. `cost` is in the ruleset's currency, per unit and month when recurring, per unit when one-time.

    A bundle consists of components and of what is chosen in its `choices`, each priced separately, less `bundle_discount_percent`;
    it has no price and no cost itself. Its attributes are its choices.
    """

    sku: str
    name: str
    family: str
    unit: str
    billing: str  # "recurring" | "one_time"
    cost: Decimal
    aliases: tuple[str, ...] = ()
    kind: str = "simple"  # "simple" | "configurable" | "bundle"
    active: bool = True
    attributes: tuple[Attribute, ...] = ()
    components: tuple[Component, ...] = ()
    bundle_discount_percent: Decimal = Decimal(0)
    tax_category: str = ""  # defaults to the family's name
    choices: tuple[BundleChoice, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the complete product in the form of a ruleset document."""
        common: dict[str, object] = {
            "sku": self.sku,
            "name": self.name,
            "family": self.family,
            "kind": self.kind,
            "active": self.active,
            "aliases": list(self.aliases),
        }
        if self.kind == "bundle":
            components = [{"sku": row.sku, "quantity": row.quantity} for row in self.components]
            discount = money.trimmed(self.bundle_discount_percent)
            choices = {"choices": [row.document() for row in self.choices]} if self.choices else {}
            return {**common, "components": components, **choices, "bundle_discount_percent": discount}
        attributes = [
            {"name": row.name, "choices": list(row.choices), **({} if row.default is None else {"default": row.default})}
            for row in self.attributes
        ]
        sold = {"unit": self.unit, "billing": self.billing, "cost": money.trimmed(self.cost), "tax_category": self.tax_category}
        return {**common, **sold, **({"attributes": attributes} if attributes else {})}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All products by sku, and the sku for each name: sku, product name or alias."""

    products: Mapping[str, Product]  # by sku
    aliases: Mapping[str, str]  # folded sku, name or alias -> sku

    def find(self, text: str) -> Product | None:
        """Return the product named `text` (sku, name or alias; case and spacing are ignored), active or not; or None."""
        sku = self.aliases.get(fold(text))
        return None if sku is None else self.products[sku]

    def choice(self, product: Product, attribute: Attribute, text: str) -> str | None:
        """Return the choice of an attribute that a text names; a product that a bundle lets choose, also by its other names."""
        known = {each.casefold(): each for each in attribute.choices}
        named = self.find(text) if product.kind == "bundle" and text.casefold() not in known else None
        return known.get(text.casefold() if named is None else named.sku)

    def suggest(self, text: str) -> str | None:
        """Return the active sku with the name closest to `text`, or None when none is close."""
        names = [name for name, sku in self.aliases.items() if sku in self.products and self.products[sku].active]
        near = difflib.get_close_matches(fold(text[:SUGGEST_CHARACTERS_MAX]), names, n=1, cutoff=0.6)
        return self.aliases[near[0]] if near else None


def fold(text: str) -> str:
    """Return the form in which names are compared: NFC, case-folded, single spaces."""
    return " ".join(composed(text).casefold().split())


def read_catalogue(table: Table) -> Catalogue:
    """Read `products` of a ruleset's document; problems are recorded in the table."""
    products: dict[str, Product] = {}
    aliases: dict[str, str] = {}
    rows: list[tuple[Table, Product]] = []
    for row in table.tables("products", most=PRODUCTS_MAX, needed=True):
        product = _product(row)
        if product.sku in products:
            row.report(f"{product.sku!r} is there twice; a sku names one product", "give it another sku", "sku")
            continue
        products[product.sku] = product
        for name in (product.sku, product.name, *product.aliases):
            owner = aliases.setdefault(fold(name), product.sku) if name else product.sku
            if owner != product.sku:
                row.report(f"the name {name!r} already means {owner!r}; a name means one product", "choose another name", "name")
        rows.append((row, product))
    for row, product in rows:
        _check_components(row, product, products)
    return Catalogue(products, aliases)


def _product(row: Table) -> Product:
    row.only(*PRODUCT_KEYS)
    sku = row.text("sku")
    if sku and not SKU.fullmatch(sku):
        row.report(f"{sku!r} must be lower-case letters, digits, - or _, at most 40", "e.g. pro-plus", "sku")
    family = row.text("family")
    kind = row.choice("kind", KINDS, "simple")
    bundle = kind == "bundle"
    for key in ("unit", "billing", "cost", "tax_category", "attributes") if bundle else BUNDLE_KEYS:
        if key in row.entries:
            row.report(f"a {kind} product has no {key}", "remove it, or correct the kind", key)
    if kind != "configurable" and not bundle and row.entries.get("attributes"):
        row.report("only a configurable product has attributes", 'write kind = "configurable"', "kind")
    choices = _choices(row) if bundle else ()
    return Product(
        sku=sku,
        name=row.text("name"),
        family=family,
        unit="bundle" if bundle else row.text("unit"),
        billing=BILLINGS[0] if bundle else row.choice("billing", BILLINGS),
        cost=Decimal(0) if bundle else row.amount("cost"),
        aliases=row.texts("aliases"),
        kind=kind,
        active=row.flag("active", default=True),
        attributes=tuple(each.attribute for each in choices) if bundle else _attributes(row, needed=kind == "configurable"),
        components=_components(row, choices) if bundle else (),
        bundle_discount_percent=row.amount("bundle_discount_percent", Decimal(0), most=Decimal(100), decimals=2)
        if bundle
        else Decimal(0),
        tax_category=family if bundle or "tax_category" not in row.entries else row.text("tax_category"),
        choices=choices,
    )


def _attributes(row: Table, *, needed: bool) -> tuple[Attribute, ...]:
    found: dict[str, Attribute] = {}
    for entry in row.tables("attributes", most=ATTRIBUTES_MAX, needed=needed):
        entry.only("name", "choices", "default")
        name, choices, default = _choice_name(entry, found), entry.texts("choices"), entry.optional_text("default")
        if not choices or len(set(choices)) != len(choices):
            entry.report("an attribute needs at least one choice, each once", 'e.g. ["eu", "us"]', "choices")
        if default is not None and default not in choices:
            entry.report(f"{default!r} is none of its choices", f"one of {', '.join(choices)}", "default")
        found[name] = Attribute(name, choices, default)
    return tuple(found.values())


def _choice_name(entry: Table, earlier: Collection[str]) -> str:
    name = entry.text("name")
    if name and not NAME.fullmatch(name):
        entry.report(f"{name!r} must be lower-case letters, digits or _, at most 40", "e.g. storage_gb", "name")
    if name in earlier:
        entry.report(f"the attribute {name!r} is there twice", "combine the choices", "name")
    return name


def _choices(row: Table) -> tuple[BundleChoice, ...]:
    found: dict[str, BundleChoice] = {}
    for entry in row.tables("choices", most=ATTRIBUTES_MAX):
        entry.only("name", "of", "default", "quantity", "optional")
        name, of, optional = _choice_name(entry, found), entry.texts("of"), entry.flag("optional", default=False)
        default = entry.optional_text("default") or (NO_CHOICE if optional else None)
        quantity = entry.whole("quantity", 1, COMPONENT_QUANTITY_MAX, default=1)
        choice = BundleChoice(name, of, default, quantity, optional)
        if not of or len(set(of)) != len(of):
            entry.report("a choice needs at least one product, each once", 'e.g. ["support", "premium"]', "of")
        if default is not None and default not in choice.attribute.choices:
            entry.report(f"{default!r} is none of its products", f"one of {', '.join(choice.attribute.choices)}", "default")
        found[name] = choice
    return tuple(found.values())


def _components(row: Table, choices: tuple[BundleChoice, ...]) -> tuple[Component, ...]:
    found: list[Component] = []
    for entry in row.tables("components", most=COMPONENTS_MAX, needed=all(each.optional for each in choices)):
        entry.only("sku", "quantity")
        component = Component(entry.text("sku"), entry.whole("quantity", 1, COMPONENT_QUANTITY_MAX, default=1))
        if any(component.sku == other.sku for other in found):
            entry.report(f"{component.sku!r} is in the bundle twice", "add the quantities", "sku")
        found.append(component)
    return tuple(found)


def _check_components(row: Table, bundle: Product, products: Mapping[str, Product]) -> None:
    earlier = {component.sku for component in bundle.components}
    for index, component in enumerate(bundle.components):
        _check_part(row, component.sku, products, ("components", index, "sku"))
    for index, choice in enumerate(bundle.choices):
        for number, sku in enumerate(choice.of):
            place = ("choices", index, "of", number)
            if sku == NO_CHOICE:
                row.report(f"{NO_CHOICE!r} means no product", "write optional = true", *place)
            elif sku in earlier:
                row.report(f"{sku!r} is in the bundle already", "name it once", *place)
            else:
                _check_part(row, sku, products, place)
        earlier.update(choice.of)


def _check_part(row: Table, sku: str, products: Mapping[str, Product], place: tuple[str | int, ...]) -> None:
    part = products.get(sku)
    if part is None:
        row.report(f"{sku!r} is not in the catalogue", "name a product that is", *place)
    elif part.kind == "bundle":
        row.report(f"{sku!r} is a bundle itself; bundles do not nest", "list its components", *place)
    elif any(attribute.default is None for attribute in part.attributes):
        row.report(f"{sku!r} has to be configured", "give its attributes defaults", *place)
