"""Stored form of a price: immutable lines with their trace, totals, and the request they were computed from."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money

if TYPE_CHECKING:
    from quotebot.domain.pricing.price_requests import PriceRequest
    from quotebot.domain.pricing.taxes import Rate

SNAPSHOT_SCHEMA = 2
ZERO = Decimal(0)
HUNDRED = Decimal(100)
HUNDREDTH = Decimal("0.01")
LARGEST_REMAINDER = "largest_remainder"  # the header discount is rounded once and allocated, so that the sum is exact
PER_LINE = "per_line"  # each line's share of the header discount is rounded separately


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a line's price: its amount and its explanation."""

    name: str  # "base", "tier", "slab", "block", "formula", "share", "surcharge", "rate", ...
    amount: Decimal
    detail: str


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

    @property
    def total_contract_value(self) -> Decimal:
        """Total value of the contract, before tax."""
        return self.net_total

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the contract's special terms."""
        return () if self.request is None else self.request.terms

    @property
    def margin_percent(self) -> Decimal | None:
        """Margin in per cent, (net - cost) / net, rounded down to 2 decimals; None if net is 0. Never shown to customers."""
        if self.net_total == 0:
            return None
        margin = money.multiply(money.EXACT.subtract(self.net_total, self.cost_total), HUNDRED)
        return money.floor_hundredths(money.EXACT.divide(margin, self.net_total))

    def granted_percent(self, line: PricedLine) -> Decimal:
        """Return a line's total discount in per cent: exact without a bundle or line discount, else to 2 decimals."""
        if not line.bundle_discount_amount and not line.authorised_percent:
            return self.authorised_percent
        if line.list_amount == 0:
            return ZERO
        percent = money.EXACT.divide(money.product(line.discount_amount, HUNDRED), line.list_amount)
        return percent.quantize(HUNDREDTH, context=money.EXACT)

    @property
    def deepest_discount_percent(self) -> Decimal:
        """Largest requested discount of any line, its own and the header's combined; a bundle's discount is not counted.

        Equals `discount_percent` if no line has its own discount. A policy that checks the header alone would miss line discounts.
        """
        kept = money.EXACT.subtract(HUNDRED, self.discount_percent)
        own = max((line.requested_percent for line in self.lines), default=ZERO)
        return money.EXACT.subtract(HUNDRED, money.multiply(kept, money.EXACT.subtract(HUNDRED, own), HUNDREDTH))
