"""Price books: a product's price by segment, region, day and currency.

The applicable book with the highest priority is used. Two books that could both apply to one request with the same priority are
refused when the ruleset is loaded, so the order is total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.catalogue.reader import ALWAYS, VALIDITY_KEYS, Table, Validity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from decimal import Decimal

    from quotebot.domain.catalogue.catalogue import Product

from quotebot.domain.pricing.price_kinds import KIND_KEYS, PriceKind, read_kind

BOOKS_MAX = 200
PRICES_MAX = 20_000
SURCHARGES_MAX = 100
PRIORITY_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Surcharge:
    """Amount that a choice adds to the unit price, per month when the product is recurring."""

    attribute: str
    choice: str
    amount: Decimal

    def document(self) -> dict[str, object]:
        """Return the surcharge in the form of a ruleset document."""
        return {"attribute": self.attribute, "choice": self.choice, "amount": money.trimmed(self.amount)}


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """Price of one product in one book."""

    sku: str
    kind: PriceKind
    surcharges: tuple[Surcharge, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the entry in the form of a ruleset document."""
        surcharges = [row.document() for row in self.surcharges]
        return {"sku": self.sku, **self.kind.document(), **({"surcharges": surcharges} if surcharges else {})}


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices in one currency. `segment` or `region` None applies to all.

    `converts_to` names further currencies that the book may price at the dated rate, as its maintainer decides explicitly.
    """

    name: str
    currency: str
    prices: Mapping[str, PriceEntry]  # by sku
    segment: str | None = None
    region: str | None = None
    validity: Validity = ALWAYS
    priority: int = 0
    converts_to: tuple[str, ...] = ()

    def holds(self, currency: str, segment: str | None, region: str | None, day: date | None) -> bool:
        """Return whether the book applies to a request of this currency, segment, region and day."""
        return (
            (self.currency == currency or currency in self.converts_to)
            and self.segment in (None, segment)
            and self.region in (None, region)
            and self.validity.covers(day)
        )

    def rivals(self, other: PriceBook) -> bool:
        """Return whether both books could apply to one request with the same priority."""
        currencies = {self.currency, *self.converts_to} & {other.currency, *other.converts_to}
        return (
            self.priority == other.priority
            and bool(currencies)
            and (self.segment is None or other.segment is None or self.segment == other.segment)
            and (self.region is None or other.region is None or self.region == other.region)
            and self.validity.overlaps(other.validity)
        )

    def document(self) -> dict[str, object]:
        """Return the book in the form of a ruleset document, prices sorted by sku."""
        whom = {"segment": self.segment, "region": self.region}
        return {
            "name": self.name,
            "currency": self.currency,
            **{key: value for key, value in whom.items() if value is not None},
            **self.validity.document(),
            "priority": self.priority,
            "converts_to": list(self.converts_to),
            "prices": [self.prices[sku].document() for sku in sorted(self.prices)],
        }


def books_for(
    books: Sequence[PriceBook], currency: str, segment: str | None, region: str | None, day: date | None
) -> tuple[PriceBook, ...]:
    """Return the books that apply to a request, highest priority first."""
    holding = [book for book in books if book.holds(currency, segment, region, day)]
    return tuple(sorted(holding, key=lambda book: -book.priority))


def read_books(table: Table, products: Mapping[str, Product]) -> tuple[PriceBook, ...]:
    """Read `price_books` of a ruleset's document; problems are recorded in the table."""
    found: list[PriceBook] = []
    for row in table.tables("price_books", most=BOOKS_MAX, needed=True):
        row.only("name", "currency", "segment", "region", "priority", "converts_to", "prices", *VALIDITY_KEYS)
        book = PriceBook(
            name=row.text("name"),
            currency=row.currency("currency"),
            prices=_prices(row, products),
            segment=row.optional_text("segment"),
            region=row.optional_text("region"),
            validity=row.validity(),
            priority=row.whole("priority", 0, PRIORITY_MAX, default=0),
            converts_to=_converts_to(row),
        )
        for other in found:
            if other.name == book.name:
                row.report(f"a book named {book.name!r} is there already", "give it another name", "name")
            if book.rivals(other):
                row.report(
                    f"{book.name!r} and {other.name!r} could both price one quote, with the same priority {book.priority}",
                    "give one of them another priority",
                    "priority",
                )
        found.append(book)
    return tuple(found)


def _converts_to(row: Table) -> tuple[str, ...]:
    codes = row.texts("converts_to")
    for index, code in enumerate(codes):
        try:
            money.exponent(code)
        except ValueError as error:
            row.report(str(error), "e.g. EUR", "converts_to", index)
    return codes


def _prices(book: Table, products: Mapping[str, Product]) -> dict[str, PriceEntry]:
    found: dict[str, PriceEntry] = {}
    for row in book.tables("prices", most=PRICES_MAX, needed=True):
        row.only("sku", "surcharges", *KIND_KEYS)
        sku = row.text("sku")
        product = products.get(sku)
        if product is None or product.kind == "bundle":
            what = "is not in the catalogue" if product is None else "is a bundle: its components have the prices"
            row.report(f"{sku!r} {what}", "name a product that has a price of its own", "sku")
            continue
        if sku in found:
            row.report(f"{sku!r} is in this book twice", "keep one price", "sku")
        found[sku] = PriceEntry(sku, read_kind(row, product, products), _surcharges(row, product))
    return found


def _surcharges(entry: Table, product: Product) -> tuple[Surcharge, ...]:
    choices = {attribute.name: attribute.choices for attribute in product.attributes}
    found: dict[tuple[str, str], Surcharge] = {}
    for row in entry.tables("surcharges", most=SURCHARGES_MAX):
        row.only("attribute", "choice", "amount")
        surcharge = Surcharge(row.text("attribute"), row.text("choice"), row.amount("amount"))
        if surcharge.choice not in choices.get(surcharge.attribute, ()):
            row.report(f"{product.sku} has no {surcharge.attribute} = {surcharge.choice}", "name a choice it has", "choice")
        if (surcharge.attribute, surcharge.choice) in found:
            row.report("this choice has a surcharge already", "keep one", "choice")
        found[(surcharge.attribute, surcharge.choice)] = surcharge
    return tuple(found.values())
