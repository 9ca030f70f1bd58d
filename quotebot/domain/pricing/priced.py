"""Stored form of a price: immutable lines with their trace, totals, and the request they were computed from.

A snapshot is its JSON-ready form that is stored, hashed and sent, by schema.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain import money
from quotebot.domain.language import N_, _, localized
from quotebot.domain.pricing.price_requests import PriceRequest, canonical_request, parse_request
from quotebot.domain.pricing.taxes import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


SNAPSHOT_SCHEMA = 2
ZERO = Decimal(0)
HUNDREDTH = Decimal("0.01")
LARGEST_REMAINDER = "largest_remainder"  # the header discount is rounded once and allocated, so that the sum is exact
_SLAB: Final = re.compile(r"([0-9,]+) in tier \S+ at ([0-9.]+)")  # the detail of a slab's step
PER_LINE = "per_line"  # each line's share of the header discount is rounded separately
# Details of steps. They are stored in English, whatever the language, so that a price computed again is the same to the byte.
FLAT_PRICE: Final = N_("flat price")
TIER: Final = N_("tier {tier}")
WHOLE_TIER: Final = N_("tier {tier} prices every unit")
BLOCK: Final = N_("the block {tier} as a whole")
SLAB: Final = N_("{units} in tier {tier} at {price}")
FORMULA_INPUTS: Final = N_("{formula} with {inputs}")
SURCHARGE: Final = N_("{attribute} = {choice}, per unit")
RATE: Final = N_("1 {base} = {rate} {currency} on {day}")
SHARES: Final = {  # by the basis, and whether lines are named
    ("net", False): N_("{percent}% of {amount}, the net of all other lines"),
    ("net", True): N_("{percent}% of {amount}, the net of {lines}"),
    ("list", False): N_("{percent}% of {amount}, the list of all other lines"),
    ("list", True): N_("{percent}% of {amount}, the list of {lines}"),
}
_DETAILS: Final = {
    "base": (FLAT_PRICE, TIER),
    "tier": (WHOLE_TIER,),
    "block": (BLOCK,),
    "slab": (SLAB,),
    "formula": (FORMULA_INPUTS,),
    "surcharge": (SURCHARGE,),
    "rate": (RATE,),
    "share": tuple(SHARES.values()),
}
_NUMBERS: Final = frozenset({"units", "price", "percent", "amount", "rate"})


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(text)))


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a line's price: its amount and its explanation."""

    name: str  # "base", "tier", "slab", "block", "formula", "share", "surcharge", "rate"
    amount: Decimal
    detail: str  # in English

    @property
    def words(self) -> str:
        """The explanation in the current language; the stored one if it has another form."""
        for text in _DETAILS.get(self.name, ()):
            found = _pattern(text).fullmatch(self.detail)
            if found is not None:
                return _(text, **{name: localized(row) if name in _NUMBERS else row for name, row in found.groupdict().items()})
        return self.detail


@dataclass(frozen=True, slots=True)
class PricedLine:
    """One line of the quote. Amounts are in the pricing's currency, rounded once, half up, to its exponent.

    `months` is the number of months charged (1 for a one-time product). net = list - discount, and discount = the bundle's + the
    line's own + the line's share of the header discount. A component of a bundle is a separate line that names the `bundle`.
    """

    position: int  # 1-based
    sku: str
    name: str
    family: str
    unit: str  # display name of one unit: "seat", "month", "once"
    billing: str  # "recurring" | "one_time"
    quantity: int
    months: int
    unit_price: Decimal  # per unit and month (recurring) or per unit (one time); not rounded; the average of a mixed price
    tier: str | None  # the tier that the quantity reached, e.g. "100+"; None when the price has none
    list_amount: Decimal
    discount_amount: Decimal
    net_amount: Decimal
    cost_amount: Decimal
    bundle: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    kind: str = "flat"  # the kind of price
    book: str = ""  # the price book used
    requested_percent: Decimal = ZERO  # on this line alone
    authorised_percent: Decimal = ZERO
    bundle_discount_amount: Decimal = ZERO
    line_discount_amount: Decimal = ZERO
    header_discount_amount: Decimal = ZERO
    tax_percent: Decimal | None = None  # None: no tax was requested
    tax_amount: Decimal = ZERO
    tax_estimated: bool = False
    trace: tuple[Step, ...] = ()
    # Not stored where they have these defaults, as in the snapshots of older builds.
    bundle_name: str = ""
    agreed_price: Decimal | None = None  # unit net price before the header discount, in place of the list price
    price_reason: str = ""
    floor_price: Decimal | None = None  # of the price book, per unit and before the header discount. Never shown to customers
    choice: str = ""  # of the bundle, by which this component was chosen

    @property
    def slabs(self) -> tuple[tuple[int, Decimal], ...]:
        """Parts of a slab price, as units and price per unit in the pricing's currency; empty for other kinds."""
        found = [_SLAB.fullmatch(step.detail) for step in self.trace if step.name == "slab"]
        added = [step.amount for step in self.trace if step.name == "surcharge"]
        rate = next((step.amount for step in self.trace if step.name == "rate"), Decimal(1))
        prices = ((int(row[1].replace(",", "")), Decimal(row[2])) for row in found if row is not None)
        return tuple((units, money.product(sum(added, start=price), rate)) for units, price in prices)

    @property
    def bundle_title(self) -> str:
        """Name of the bundle, or its sku in a snapshot of an older build; empty without one."""
        return self.bundle_name or self.bundle or ""

    @property
    def before_header(self) -> Decimal:
        """Net amount before the header discount."""
        return money.EXACT.add(self.net_amount, self.header_discount_amount)

    @property
    def full_name(self) -> str:
        """Name of the product, with that of its bundle."""
        return self.name if self.bundle is None else _("{name} (of {bundle})", name=self.name, bundle=self.bundle_title)


@dataclass(frozen=True, slots=True)
class Pricing:
    """The immutable price of one quote version under one ruleset. Totals are sums of rounded lines.

    total contract value = net = recurring + one time, before tax. annual contract value = the recurring part of twelve months (of
    the whole term when that is shorter). monthly recurring revenue = the recurring part of one month. Both are rounded once.
    """

    ruleset: str  # name and version of the ruleset
    currency: str  # ISO 4217
    term_months: int
    discount_percent: Decimal  # requested on the whole quote, 0..100
    lines: tuple[PricedLine, ...]
    list_total: Decimal
    discount_total: Decimal
    net_total: Decimal
    cost_total: Decimal
    authorised_percent: Decimal = ZERO  # of discount_percent
    recurring_total: Decimal = ZERO
    one_time_total: Decimal = ZERO
    annual_contract_value: Decimal = ZERO
    monthly_recurring_revenue: Decimal = ZERO
    tax_total: Decimal = ZERO
    gross_total: Decimal = ZERO  # net_total + tax_total
    tax_estimated: bool = False
    header_rule: str = LARGEST_REMAINDER
    rate: Rate | None = None  # from the ruleset's currency to the quote's; None when they are the same
    request: PriceRequest | None = None  # the priced request, with its day; None in snapshots of schema 1
    ruleset_hash: str = ""
    schema: int = SNAPSHOT_SCHEMA  # of the snapshot; a stored snapshot keeps its schema
    # Not stored where they have these defaults, as in the snapshots of older builds.
    options: tuple[PricedLine, ...] = ()  # optional lines, in no total
    segment_is_open: bool = False  # the ruleset lists the customer for the segment, or the CRM has it

    @property
    def every_line(self) -> tuple[PricedLine, ...]:
        """All lines, the optional ones last, by position."""
        return (*self.lines, *self.options)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the contract's special terms."""
        return () if self.request is None else self.request.terms

    @property
    def margin_percent(self) -> Decimal | None:
        """Margin in per cent, (net - cost) / net, rounded down to 2 decimals; None if net is 0. Never shown to customers."""
        return self._margin_of(self.net_total)

    @property
    def list_margin_percent(self) -> Decimal | None:
        """Margin in per cent without any discount, likewise."""
        return self._margin_of(self.list_total)

    def _margin_of(self, total: Decimal) -> Decimal | None:
        if total == 0:
            return None
        margin = money.multiply(money.EXACT.subtract(total, self.cost_total), money.HUNDRED)
        return money.floor_hundredths(money.EXACT.divide(margin, total))

    def granted_percent(self, line: PricedLine) -> Decimal:
        """Return a line's total discount in per cent: exact without a bundle or line discount, else to 2 decimals."""
        if not line.bundle_discount_amount and not line.authorised_percent:
            return self.authorised_percent
        if line.list_amount == 0:
            return ZERO
        percent = money.EXACT.divide(money.product(line.discount_amount, money.HUNDRED), line.list_amount)
        return percent.quantize(HUNDREDTH, context=money.EXACT)

    @property
    def discount_off_list_percent(self) -> Decimal:
        """Return the discount of the whole in per cent of the list price: to 2 decimals where a line or a bundle has its own."""
        if not any(line.bundle_discount_amount or line.line_discount_amount for line in self.lines):
            return self.discount_percent
        percent = money.EXACT.divide(money.product(self.discount_total, money.HUNDRED), self.list_total)
        return percent.quantize(HUNDREDTH, context=money.EXACT)

    @property
    def deepest_discount_percent(self) -> Decimal:
        """Largest requested discount of any line, its own and the header's combined; a bundle's discount is not counted.

        Optional lines count too, because the customer can choose them at that price. Equals `discount_percent` if no line has its
        own discount. A policy that checks the header alone would miss line discounts.
        """
        kept = money.EXACT.subtract(money.HUNDRED, self.discount_percent)
        own = max((line.requested_percent for line in self.every_line), default=ZERO)
        return money.EXACT.subtract(money.HUNDRED, money.multiply(kept, money.EXACT.subtract(money.HUNDRED, own), HUNDREDTH))


REMEMBERED: Final = 32  # prices in use at a time; a large one takes a few hundred kilobytes
_LATER_WHOLE: Final = ("options", "segment_is_open")  # the same of a pricing
# Fields of a line that schema 2 got later, with their defaults: left out of the snapshot where equal to them.
_LATER: Final[Mapping[str, object]] = {
    "bundle_name": "",
    "agreed_price": None,
    "price_reason": "",
    "floor_price": None,
    "choice": "",
}
# Schema 1 has only these fields of a pricing and of a line.
_FIRST_PRICING = (
    *("ruleset", "currency", "term_months", "discount_percent"),
    *("list_total", "discount_total", "net_total", "cost_total"),
)
_FIRST_LINE = (
    *("position", "sku", "name", "family", "unit", "billing", "quantity", "months", "unit_price", "tier"),
    *("list_amount", "discount_amount", "net_amount", "cost_amount"),
)


def canonical(pricing: Pricing) -> dict[str, object]:
    """Return the JSON-ready snapshot: amounts as text in plain digits, whole numbers as numbers, the schema version as `v`.

    A pricing stored under an older schema gives exactly the stored content.
    """
    if pricing.schema == 1:
        lines = [{name: _plain(getattr(line, name)) for name in _FIRST_LINE} for line in pricing.lines]
        return {"v": 1, **{name: _plain(getattr(pricing, name)) for name in _FIRST_PRICING}, "lines": lines}
    names = (name for name in _PRICING_TYPES if name != "schema" and (name not in _LATER_WHOLE or getattr(pricing, name)))
    return {"v": pricing.schema, **{name: _plain(getattr(pricing, name)) for name in names}}


def from_canonical(snapshot: Mapping[str, Any]) -> Pricing:
    """Rebuild the Pricing of `canonical`. Raises ValueError for an unknown schema or an incomplete snapshot."""
    schema = snapshot.get("v")
    if schema not in range(1, SNAPSHOT_SCHEMA + 1):
        raise ValueError(f"pricing snapshot schema {schema!r} is unknown; this build reads 1 to {SNAPSHOT_SCHEMA}")
    try:
        if schema == 1:
            return _first(snapshot)
        lines = tuple(_restored(PricedLine, line) for line in snapshot["lines"])
        options = tuple(_restored(PricedLine, line) for line in snapshot.get("options", ()))
        stored = (name for name in _PRICING_TYPES if name not in ("schema", "lines", *_LATER_WHOLE))
        values = {**{name: snapshot[name] for name in stored}, "segment_is_open": bool(snapshot.get("segment_is_open", False))}
        pricing: Pricing = _restored(Pricing, {**values, "lines": lines, "options": options, "schema": schema})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"pricing snapshot is incomplete or malformed: {error}") from error
    return pricing


@functools.lru_cache(maxsize=REMEMBERED)
def from_stored(text: str) -> Pricing:
    """Rebuild the Pricing of a stored snapshot. Raises as `from_canonical` does.

    Results are cached: a quote is read a dozen times during its processing, and prices are immutable.
    """
    return from_canonical(json.loads(text))


def _first(snapshot: Mapping[str, Any]) -> Pricing:
    lines = tuple(
        PricedLine(
            **{name: _decoded(_LINE_TYPES[name], line[name]) for name in _FIRST_LINE},
            header_discount_amount=money.exact(line["discount_amount"]),
        )
        for line in snapshot["lines"]
    )
    values = {name: _decoded(_PRICING_TYPES[name], snapshot[name]) for name in _FIRST_PRICING}
    recurring, once = (
        tuple(line.net_amount for line in lines if (line.billing == "recurring") is wanted) for wanted in (True, False)
    )
    return Pricing(
        **values,
        lines=lines,
        authorised_percent=values["discount_percent"],
        recurring_total=money.total(recurring, values["currency"]),
        one_time_total=money.total(once, values["currency"]),
        gross_total=values["net_total"],
        header_rule=PER_LINE,
        schema=1,
    )


def _plain(value: Any) -> Any:
    """Return the JSON form of a value."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, tuple):
        return [_plain(row) for row in value]
    if isinstance(value, PricedLine | Step):
        names = _LINE_TYPES if isinstance(value, PricedLine) else _STEP_NAMES
        return {name: _plain(getattr(value, name)) for name in names if name not in _LATER or getattr(value, name) != _LATER[name]}
    if isinstance(value, Rate):
        return value.document()
    return canonical_request(value)


def _restored(row: type[Any], stored: Mapping[str, Any]) -> Any:
    types = _PRICING_TYPES if row is Pricing else _LINE_TYPES
    names = (name for name in types if name not in _LATER or name in stored)
    return row(**{name: _decoded(types[name], stored[name]) for name in names})


def _decoded(declared: str, value: Any) -> Any:
    decode = _DECODERS.get(declared)
    return value if decode is None else decode(value)


def _rate(stored: Mapping[str, Any]) -> Rate:
    return Rate(stored["base"], stored["currency"], money.exact(stored["rate"]), date.fromisoformat(stored["on"]))


# Annotations are text in those modules, so a field's declared type is compared by name.
_PRICING_TYPES = {field.name: str(field.type) for field in fields(Pricing)}
_LINE_TYPES = {field.name: str(field.type) for field in fields(PricedLine)}
_STEP_NAMES = tuple(field.name for field in fields(Step))
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "Decimal": money.exact,
    "Decimal | None": lambda value: None if value is None else money.exact(value),
    "tuple[tuple[str, str], ...]": lambda value: tuple((str(name), str(choice)) for name, choice in value),
    "tuple[Step, ...]": lambda value: tuple(
        Step(str(row["name"]), money.exact(row["amount"]), str(row["detail"])) for row in value
    ),
    "Rate | None": lambda value: None if value is None else _rate(value),
    "PriceRequest | None": lambda value: None if value is None else parse_request(value),
}
