"""Price books, which give a product's price by segment, region, day and currency, and the kinds of price in them.

The applicable book with the highest priority is used. Two books that could both apply to one request with the same priority are
refused when the ruleset is loaded, so the order is total.

The kinds are flat, range tiers, slab tiers, blocks, formulas, and percentages of other lines. The method `charge` returns the cost
of a quantity per month (recurring) or once, before any discount, with its steps. A percentage has no `charge`: it is priced from
the other lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

from quotebot.domain import money
from quotebot.domain.catalogue.reader import ALWAYS, PRICE_MAX, VALIDITY_KEYS, Table, Validity
from quotebot.domain.language import _, localized
from quotebot.domain.pricing import formulas
from quotebot.domain.pricing.priced import BLOCK, FLAT_PRICE, FORMULA_INPUTS, SLAB, TIER, WHOLE_TIER, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from quotebot.domain.catalogue.catalogue import Product


KINDS = ("flat", "range", "slab", "block", "formula", "percent")
KIND_KEYS = ("kind", "price", "tiers", "formula", "inputs", "percent", "of", "basis")
BASES = ("net", "list")
TIERS_MAX = 50
INPUTS_MAX = 20
UNITS_MAX = 1_000_000
UNIT_PRICE = Decimal("0.000001")  # precision of average and computed unit prices
OWN_INPUTS = ("quantity", "term_months")
BOOKS_MAX = 200
PRICES_MAX = 20_000
SURCHARGES_MAX = 100
PRIORITY_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Tier:
    """Tier with its `price`, from `start` units on."""

    start: int
    price: Decimal
    label: str  # "50-99", "100+"


@dataclass(frozen=True, slots=True)
class Charge:
    """Cost of a quantity per month, or once, in the book's currency, not rounded. `unit_price` may be an average."""

    amount: Decimal
    unit_price: Decimal
    tier: str | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Flat:
    """Flat price: every unit costs the same."""

    kind: ClassVar[str] = "flat"
    price: Decimal

    def charge(self, quantity: int, _inputs: Mapping[str, Decimal]) -> Charge:
        """Return quantity * price."""
        return Charge(money.product(self.price, quantity), self.price, None, (Step("base", self.price, FLAT_PRICE),))

    def document(self) -> dict[str, object]:
        """Return the price in the form of a ruleset document."""
        return {"kind": self.kind, "price": money.trimmed(self.price)}


@dataclass(frozen=True, slots=True)
class Tiered:
    """Tiered price in one of three modes.

    range: the reached tier prices every unit. slab: each unit has the price of its own tier. block: the reached tier's price
    covers the whole quantity.
    """

    kind: str  # "range" | "slab" | "block"
    tiers: tuple[Tier, ...]  # ascending, the first starts at 1

    def charge(self, quantity: int, _inputs: Mapping[str, Decimal]) -> Charge:
        """Return the cost of this quantity by the tiers."""
        tier = next(tier for tier in reversed(self.tiers) if tier.start <= quantity)
        base = Step("base", self.tiers[0].price, TIER.format(tier=self.tiers[0].label))
        if self.kind == "range":
            amount = money.product(tier.price, quantity)
            step = Step("tier", tier.price, WHOLE_TIER.format(tier=tier.label))
            return Charge(amount, tier.price, tier.label, (base, step))
        if self.kind == "block":
            step = Step("block", tier.price, BLOCK.format(tier=tier.label))
            return Charge(tier.price, _average(tier.price, quantity), tier.label, (step,))
        steps: list[Step] = [base]
        amount = Decimal(0)
        for number, row in enumerate(self.tiers):
            end = self.tiers[number + 1].start - 1 if number + 1 < len(self.tiers) else quantity
            units = min(end, quantity) - row.start + 1
            if units > 0:
                part = money.product(row.price, units)
                amount = money.EXACT.add(amount, part)
                detail = SLAB.format(units=f"{units:,}", tier=row.label, price=money.trimmed(row.price))
                steps.append(Step("slab", part, detail))
        return Charge(amount, _average(amount, quantity), tier.label, tuple(steps))

    def document(self) -> dict[str, object]:
        """Return the price in the form of a ruleset document."""
        return {"kind": self.kind, "tiers": [{"from": tier.start, "price": money.trimmed(tier.price)} for tier in self.tiers]}


@dataclass(frozen=True, slots=True)
class Computed:
    """Unit price computed by a formula, to six decimals."""

    kind: ClassVar[str] = "formula"
    formula: formulas.Formula
    inputs: tuple[tuple[str, Decimal], ...]

    def charge(self, quantity: int, inputs: Mapping[str, Decimal]) -> Charge:
        """Return quantity * formula. Raises FormulaError when it has no value, or one below 0 or above the highest price."""
        values = {**inputs, **dict(self.inputs)}
        price = formulas.evaluate(self.formula, values).quantize(UNIT_PRICE, context=money.EXACT)
        if not 0 <= price <= PRICE_MAX:
            raise formulas.FormulaError(_("its value {value} is no price", value=localized(money.trimmed(price))))
        used = ", ".join(f"{name} = {money.trimmed(values[name])}" for name in self.formula.names)
        detail = FORMULA_INPUTS.format(formula=self.formula.text, inputs=used) if used else self.formula.text
        step = Step("formula", price, detail)
        return Charge(money.product(price, quantity), price, None, (step,))

    def document(self) -> dict[str, object]:
        """Return the price in the form of a ruleset document."""
        inputs = {name: money.trimmed(value) for name, value in sorted(self.inputs)}
        return {"kind": self.kind, "formula": self.formula.text, "inputs": inputs}


@dataclass(frozen=True, slots=True)
class Share:
    """Percentage of the other lines' amounts: `of` names skus or families, empty for every line that is not a share itself."""

    kind: ClassVar[str] = "percent"
    percent: Decimal
    of: tuple[str, ...]
    basis: str  # "net": after the lines' own discounts, before the header's; "list": before any

    def document(self) -> dict[str, object]:
        """Return the price in the form of a ruleset document."""
        return {"kind": self.kind, "percent": money.trimmed(self.percent), "of": list(self.of), "basis": self.basis}


PriceKind = Flat | Tiered | Computed | Share


def read_kind(row: Table, product: Product, products: Mapping[str, Product]) -> PriceKind:
    """Read the price of one entry of a book."""
    kind = row.choice("kind", KINDS, "range" if "tiers" in row.entries else "flat")
    wanted = {"flat": ("price",), "formula": ("formula", "inputs"), "percent": ("percent", "of", "basis")}.get(kind, ("tiers",))
    for key in KIND_KEYS[1:]:
        if key in row.entries and key not in wanted:
            row.report(f"a price of the kind {kind} has no {key}", "remove it, or correct the kind", key)
    if kind == "flat":
        return Flat(row.amount("price"))
    if kind == "formula":
        return _computed(row, product)
    if kind == "percent":
        return _share(row, products)
    return Tiered(kind, _tiers(row, kind))


def _tiers(entry: Table, mode: str) -> tuple[Tier, ...]:
    starts: list[int] = []
    prices: list[Decimal] = []
    for row in entry.tables("tiers", most=TIERS_MAX, needed=True):
        row.only("from", "price")
        start, price = row.whole("from", 1, UNITS_MAX), row.amount("price")
        if start <= starts[-1] if starts else start != 1:
            row.report(f"{start} is not in order; the first is 1, each next larger", "sort the tiers", "from")
        if mode != "block" and prices and price > prices[0]:
            row.report("a tier must not cost more than the first one, the base", "correct the price", "price")
        starts.append(start)
        prices.append(price)
    if not starts:
        return (Tier(1, Decimal(0), "1+"),)
    ends = [*(f"-{following - 1}" for following in starts[1:]), "+"]
    return tuple(Tier(start, price, f"{start}{end}") for start, price, end in zip(starts, prices, ends, strict=True))


def _computed(row: Table, product: Product) -> PriceKind:
    text = row.text("formula", most=formulas.CHARACTERS_MAX)
    inputs = _inputs(row)
    try:
        formula = formulas.parse_formula(text)
    except formulas.FormulaError as error:
        if text:
            row.report(str(error), "e.g. max(10, base - quantity * 0.01)", "formula")
        return Flat(Decimal(0))
    known = {*OWN_INPUTS, *inputs, *numeric_attributes(product)}
    for name in formula.names:
        if name not in known:
            row.report(f"{name!r} is no input of this formula", f"known are {', '.join(sorted(known))}", "formula")
    return Computed(formula, tuple(sorted(inputs.items())))


def _inputs(row: Table) -> dict[str, Decimal]:
    value = row.entries.get("inputs", {})
    if not isinstance(value, dict) or len(value) > INPUTS_MAX:
        row.report(f"must be at most {INPUTS_MAX} names with numbers", "e.g. { base = 12 }", "inputs")
        return {}
    table = type(row)(value, (*row.path, "inputs"), row.problems)
    for name in value:
        if not isinstance(name, str) or not formulas.NAME.fullmatch(name) or name in (*OWN_INPUTS, *formulas.FUNCTIONS):
            table.report(f"{str(name)[:40]!r} cannot name an input", "lower-case letters, digits and _, no word of the grammar")
    return {str(name): table.amount(str(name)) for name in value}


def _share(row: Table, products: Mapping[str, Product]) -> Share:
    of = row.texts("of")
    families = {product.family for product in products.values()}
    for index, name in enumerate(of):
        if name not in products and name not in families:
            row.report(f"{name!r} is no sku and no family of the catalogue", "correct the name", "of", index)
    return Share(row.amount("percent", most=Decimal(100), decimals=4), of, row.choice("basis", BASES, "net"))


def numeric_attributes(product: Product) -> tuple[str, ...]:
    """Return the attributes with numeric choices only, which a formula may use."""
    return tuple(row.name for row in product.attributes if all(_is_number(choice) for choice in row.choices))


def _is_number(text: str) -> bool:
    try:
        money.exact(text)
    except ValueError:
        return False
    return True


def _average(amount: Decimal, quantity: int) -> Decimal:
    return money.EXACT.divide(amount, Decimal(quantity)).quantize(UNIT_PRICE, context=money.EXACT)


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
    """Price of one product in one book, in the book's currency."""

    sku: str
    kind: PriceKind
    surcharges: tuple[Surcharge, ...] = ()
    floor: Decimal | None = None  # unit net price before the header discount, under which the policy decides

    def document(self) -> dict[str, object]:
        """Return the entry in the form of a ruleset document."""
        surcharges = [row.document() for row in self.surcharges]
        floor = {} if self.floor is None else {"floor": money.trimmed(self.floor)}
        return {"sku": self.sku, **self.kind.document(), **({"surcharges": surcharges} if surcharges else {}), **floor}


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
        row.only("sku", "surcharges", "floor", *KIND_KEYS)
        sku = row.text("sku")
        product = products.get(sku)
        if product is None or product.kind == "bundle":
            what = "is not in the catalogue" if product is None else "is a bundle: its components have the prices"
            row.report(f"{sku!r} {what}", "name a product that has a price of its own", "sku")
            continue
        if sku in found:
            row.report(f"{sku!r} is in this book twice", "keep one price", "sku")
        kind = read_kind(row, product, products)
        floor = row.amount("floor") if "floor" in row.entries else None
        if floor is not None and isinstance(kind, Share):
            row.report("a percentage of other lines has no floor", "remove it", "floor")
        found[sku] = PriceEntry(sku, kind, _surcharges(row, product), floor)
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
