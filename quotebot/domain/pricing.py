"""The price of a quote: lines in, one immutable Pricing out, to the cent and explainable."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class LineRequest:
    """What was asked for: a catalogue sku (lower case) and a whole quantity >= 1."""

    sku: str
    quantity: int


@dataclass(frozen=True, slots=True)
class PricedLine:
    """One line of the quote. Amounts are in the pricing's currency, rounded once, half up, to its exponent.

    `months` is the number of months charged (1 for a one-time product). list = unit_price * quantity * months, except for a flat
    price, which ignores nothing: quantity still multiplies it. net = list - discount.
    """

    position: int  # 1-based
    sku: str
    name: str
    family: str
    unit: str  # "seat", "month", "once": what one unit is, for people
    billing: str  # "recurring" | "one_time"
    quantity: int
    months: int
    unit_price: Decimal  # per unit and month (recurring) or per unit (one time); not rounded
    tier: str | None  # the tier that set the unit price, e.g. "100+"; None when the price is flat
    list_amount: Decimal
    discount_amount: Decimal
    net_amount: Decimal
    cost_amount: Decimal


@dataclass(frozen=True, slots=True)
class Pricing:
    """The immutable price of one quote version under one ruleset. Totals are sums of rounded lines."""

    ruleset: str  # catalogue name and version that priced it
    currency: str  # ISO 4217
    term_months: int
    discount_percent: Decimal  # requested on the whole quote, 0..100
    lines: tuple[PricedLine, ...]
    list_total: Decimal
    discount_total: Decimal
    net_total: Decimal
    cost_total: Decimal
