"""A price as it is kept: immutable lines with their trace, totals, and what they were worked out from."""

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
LARGEST_REMAINDER = "largest_remainder"  # the header's discount is rounded once and shared out, so that the sum is exact
PER_LINE = "per_line"  # each line's share of the header's discount is rounded on its own


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a line's price: what it came to, and how."""

    name: str  # "base", "tier", "slab", "block", "formula", "share", "surcharge", "rate", ...
    amount: Decimal
    detail: str


@dataclass(frozen=True, slots=True)
class PricedLine:
    """One line of the quote. Amounts are in the pricing's currency, rounded once, half up, to its exponent.

    `months` is the number of months charged (1 for a one-time product). net = list - discount, and discount = the bundle's + the
    line's own + the line's share of the header's. A component of a bundle is a line of its own that names the `bundle`.
    """

    position: int  # 1-based
    sku: str
    name: str
    family: str
    unit: str  # "seat", "month", "once": what one unit is, for people
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
    book: str = ""  # the price book it came from
    requested_percent: Decimal = ZERO  # on this line alone
    authorised_percent: Decimal = ZERO
    bundle_discount_amount: Decimal = ZERO
    line_discount_amount: Decimal = ZERO
    header_discount_amount: Decimal = ZERO
    tax_percent: Decimal | None = None  # None: no tax was asked for
    tax_amount: Decimal = ZERO
    tax_estimated: bool = False
    trace: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Pricing:
    """The immutable price of one quote version under one ruleset. Totals are sums of rounded lines.

    total contract value = net = recurring + one time, before tax. annual contract value = the recurring part of twelve months (of
    the whole term when that is shorter). monthly recurring revenue = the recurring part of one month. Both are rounded once.
    """

    ruleset: str  # name and version of what priced it
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
    request: PriceRequest | None = None  # what was asked for, with its day; None in snapshots of schema 1
    ruleset_hash: str = ""
    schema: int = SNAPSHOT_SCHEMA  # of the stored snapshot; one that was stored keeps its own

    @property
    def total_contract_value(self) -> Decimal:
        """All that the contract brings, before tax."""
        return self.net_total

    @property
    def terms(self) -> tuple[str, ...]:
        """The special terms that the contract is to hold, by name."""
        return () if self.request is None else self.request.terms

    @property
    def margin_percent(self) -> Decimal | None:
        """(net - cost) / net, rounded down to 2 decimals; None when nothing is charged. Never for the customer."""
        if self.net_total == 0:
            return None
        margin = money.multiply(money.EXACT.subtract(self.net_total, self.cost_total), HUNDRED)
        return money.floor_hundredths(money.EXACT.divide(margin, self.net_total))

    def granted_percent(self, line: PricedLine) -> Decimal:
        """Return the discount that a line was given in all, in per cent: exact when it has none of its own, else to 2 decimals."""
        if not line.bundle_discount_amount and not line.authorised_percent:
            return self.authorised_percent
        if line.list_amount == 0:
            return ZERO
        percent = money.EXACT.divide(money.product(line.discount_amount, HUNDRED), line.list_amount)
        return percent.quantize(HUNDREDTH, context=money.EXACT)

    @property
    def deepest_discount_percent(self) -> Decimal:
        """The largest discount that any line is asked to give, its own and the header's together; a bundle's is part of the list.

        Equal to `discount_percent` when no line has one of its own. A policy that looked at the header alone would miss the others.
        """
        kept = money.EXACT.subtract(HUNDRED, self.discount_percent)
        own = max((line.requested_percent for line in self.lines), default=ZERO)
        left = money.multiply(kept, money.EXACT.subtract(HUNDRED, own), HUNDREDTH)
        return money.EXACT.subtract(HUNDRED, left)
