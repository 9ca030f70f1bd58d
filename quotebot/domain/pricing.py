"""The price of a quote: lines in, one immutable Pricing out, to the cent and explainable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quotebot.domain import money

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue import Catalogue

SNAPSHOT_SCHEMA = 1
LINES_MAX = 400  # one all-or-nothing request to the CRM
QUANTITY_MAX = 1_000_000
TERM_MONTHS_MAX = 120
HUNDRED = Decimal(100)
DISCOUNT_DECIMALS_MAX = 2


@dataclass(frozen=True, slots=True)
class LineRequest:
    """What was asked for: a catalogue sku (lower case) and a whole quantity >= 1."""

    sku: str
    quantity: int


@dataclass(frozen=True, slots=True)
class PriceRequest:
    """All that is asked for and decides the price: products, months, and the discount on the whole quote in per cent."""

    lines: tuple[LineRequest, ...]
    term_months: int
    discount_percent: Decimal


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


@dataclass(frozen=True, slots=True)
class PricingProblem:
    """One reason why a request has no price. `message` says what is wrong, `suggestion` what to write instead."""

    code: str  # "unknown_sku", "quantity", "duplicate_sku", "line_count", "term", "discount"
    message: str
    suggestion: str


def find_problems(request: PriceRequest, catalogue: Catalogue) -> tuple[PricingProblem, ...]:
    """Return every reason, in reading order, why the request cannot be priced; empty when it can."""
    lines, term_months, discount_percent = request.lines, request.term_months, request.discount_percent
    found: list[PricingProblem] = []
    if 1 <= len(lines) <= LINES_MAX:
        found += [*_sku_problems(lines, catalogue), *_duplicate_problems(lines, catalogue)]
    else:
        hint = f"split the quote into several of at most {LINES_MAX} lines" if lines else "name at least one product, e.g. 10 pro"
        found.append(PricingProblem("line_count", f"a quote has 1 to {LINES_MAX} lines, not {len(lines)}", hint))
    if not 1 <= term_months <= TERM_MONTHS_MAX:
        message = f"a term is 1 to {TERM_MONTHS_MAX} months, not {clipped(str(term_months))}"
        found.append(PricingProblem("term", message, "e.g. term 12m"))
    if not _is_discount(discount_percent):
        message = f"a discount is 0 to 100 % with at most 2 decimals, not {clipped(str(discount_percent))} %"
        found.append(PricingProblem("discount", message, "e.g. discount 12.5%"))
    return tuple(found)


def price(request: PriceRequest, catalogue: Catalogue) -> Pricing | tuple[PricingProblem, ...]:
    """Price a request, or return every problem with it.

    Rule: list = unit price * quantity * months, rounded once; discount = percent of that rounded list, rounded once; net =
    list - discount; totals are sums of rounded lines. Both roundings are half up to the currency's exponent. So a line always
    adds up on paper, and so does every column. A float raises TypeError.
    """
    problems = find_problems(request, catalogue)
    if problems:
        return problems
    discount = money.exact(request.discount_percent)
    currency = catalogue.currency
    months = request.term_months
    priced = tuple(_price_line(position, line, months, discount, catalogue) for position, line in enumerate(request.lines, start=1))
    return Pricing(
        ruleset=catalogue.ruleset,
        currency=currency,
        term_months=months,
        discount_percent=discount,
        lines=priced,
        list_total=money.total(tuple(line.list_amount for line in priced), currency),
        discount_total=money.total(tuple(line.discount_amount for line in priced), currency),
        net_total=money.total(tuple(line.net_amount for line in priced), currency),
        cost_total=money.total(tuple(line.cost_amount for line in priced), currency),
    )


def explain(pricing: Pricing) -> tuple[str, ...]:
    """Return the price trace, one sentence per line. Costs stay out: the trace is read in shared channels."""
    currency = pricing.currency
    percent = money.format_percent(pricing.discount_percent)
    trace = [
        f"Priced by catalogue {pricing.ruleset} in {currency} for {pricing.term_months} months, {percent} discount on every line.",
        f"Each line is rounded once, half up, to {money.exponent(currency)} decimals; totals are sums of rounded lines.",
    ]
    for line in pricing.lines:
        tier = "flat price" if line.tier is None else f"tier {line.tier}"
        months = f" x {line.months} months" if line.billing == "recurring" else ", once"
        unit_price = money.format_unit_price(line.unit_price, currency)
        trace.append(
            f"{line.position}. {line.name}: {line.quantity:,} x {unit_price} ({tier}){months}"
            f" = {money.format_amount(line.list_amount, currency)} list"
            f" - {money.format_amount(line.discount_amount, currency)} = {money.format_amount(line.net_amount, currency)} net"
        )
    trace.append(
        f"Total: {money.format_amount(pricing.list_total, currency)} list"
        f" - {money.format_amount(pricing.discount_total, currency)} = {money.format_amount(pricing.net_total, currency)} net"
    )
    return tuple(trace)


def canonical(pricing: Pricing) -> dict[str, object]:
    """Return the JSON-ready snapshot: amounts as plain digits in text, whole numbers as numbers, its schema version as `v`."""
    return {"v": SNAPSHOT_SCHEMA, **_jsonable(pricing, skip=("lines",)), "lines": [_jsonable(line) for line in pricing.lines]}


def from_canonical(snapshot: Mapping[str, Any]) -> Pricing:
    """Rebuild the Pricing of `canonical`. Raises ValueError when the snapshot is of another schema or incomplete."""
    if snapshot.get("v") != SNAPSHOT_SCHEMA:
        raise ValueError(f"pricing snapshot schema {snapshot.get('v')!r} is unknown; this build reads {SNAPSHOT_SCHEMA}")
    try:
        lines = tuple(PricedLine(**_restored(PricedLine, line)) for line in snapshot["lines"])
        return Pricing(**_restored(Pricing, {**snapshot, "lines": lines}))
    except (KeyError, TypeError) as error:
        raise ValueError(f"pricing snapshot is incomplete or malformed: {error}") from error


def clipped(text: str, characters: int = 40) -> str:
    """Return `text`, cut with an ellipsis when it is longer than `characters`."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _price_line(position: int, line: LineRequest, term_months: int, discount: Decimal, catalogue: Catalogue) -> PricedLine:
    product = catalogue.products[line.sku]
    tier = product.tier_for(line.quantity)
    months = term_months if product.billing == "recurring" else 1
    currency = catalogue.currency
    list_amount = money.round_money(money.multiply(tier.price, line.quantity, months), currency)
    discount_amount = money.percent_of(discount, list_amount, currency)
    return PricedLine(
        position=position,
        sku=product.sku,
        name=product.name,
        family=product.family,
        unit=product.unit,
        billing=product.billing,
        quantity=line.quantity,
        months=months,
        unit_price=tier.price,
        tier=tier.label,
        list_amount=list_amount,
        discount_amount=discount_amount,
        net_amount=money.EXACT.subtract(list_amount, discount_amount),
        cost_amount=money.round_money(money.multiply(product.cost, line.quantity, months), currency),
    )


def _is_discount(percent: Decimal) -> bool:
    try:
        value = money.exact(percent)
    except ValueError:
        return False
    return 0 <= value <= HUNDRED and len(money.trimmed(value).partition(".")[2]) <= DISCOUNT_DECIMALS_MAX


def _sku_problems(lines: tuple[LineRequest, ...], catalogue: Catalogue) -> Iterator[PricingProblem]:
    suggestions: dict[str, str] = {}  # a text full of the same unknown word costs one search
    for line in lines:
        if line.sku not in catalogue.products:
            if line.sku not in suggestions:
                near = catalogue.suggest(line.sku)
                suggestions[line.sku] = f"did you mean {near}?" if near else f"known are {', '.join(catalogue.products)}"
            yield PricingProblem("unknown_sku", f'"{clipped(line.sku)}" is not in the catalogue', suggestions[line.sku])
        if not 1 <= line.quantity <= QUANTITY_MAX:
            message = f"the quantity of {clipped(line.sku)} is 1 to {QUANTITY_MAX:,}, not {clipped(str(line.quantity))}"
            yield PricingProblem("quantity", message, f"e.g. 10 {clipped(line.sku)}")


def _duplicate_problems(lines: tuple[LineRequest, ...], catalogue: Catalogue) -> Iterator[PricingProblem]:
    counts: dict[str, list[int]] = {}
    for line in lines:
        counts.setdefault(line.sku, []).append(line.quantity)
    for sku, quantities in counts.items():
        if sku in catalogue.products and len(quantities) > 1:
            message = f"{sku} is there {len(quantities)} times; a product has one line"
            yield PricingProblem("duplicate_sku", message, f"combine them: {clipped(str(sum(quantities)))} {sku}")


def _jsonable(row: Pricing | PricedLine, skip: tuple[str, ...] = ()) -> dict[str, object]:
    plain: dict[str, object] = {}
    for field in fields(row):
        if field.name in skip:
            continue
        value = getattr(row, field.name)
        plain[field.name] = format(value, "f") if isinstance(value, Decimal) else value
    return plain


def _restored(row: type[Pricing | PricedLine], stored: Mapping[str, Any]) -> dict[str, Any]:
    # Annotations are text in this module, so the declared type is compared by name.
    return {field.name: money.exact(stored[field.name]) if field.type == "Decimal" else stored[field.name] for field in fields(row)}
