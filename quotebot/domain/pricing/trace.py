"""Price trace in sentences. It omits costs and margins, because it is read in shared channels."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.pricing.charging import RECURRING
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.pricing.priced import PER_LINE, PricedLine, Pricing

if TYPE_CHECKING:
    from collections.abc import Iterator


def explain(pricing: Pricing, position: int | None = None) -> tuple[str, ...]:
    """Return the price trace of the whole quote, a sentence per line, or of one line (from 1), a sentence per step.

    Raises LookupError when the quote has no such line.
    """
    if position is not None:
        if not 1 <= position <= len(pricing.lines):
            raise LookupError(f"there is no line {position}; the quote has {len(pricing.lines)}")
        return tuple(_steps(pricing.lines[position - 1], pricing))
    return (*_opening(pricing), *(_sentence(line, pricing.currency) for line in pricing.lines), *_totals(pricing))


def _opening(pricing: Pricing) -> Iterator[str]:
    percent = _granted(pricing)
    how = "on every line" if pricing.header_rule == PER_LINE else "on the whole"
    months = "1 month" if pricing.term_months == 1 else f"{pricing.term_months} months"
    yield f"Priced by catalogue {pricing.ruleset} in {pricing.currency} for {months}, {percent} discount {how}."
    decimals = money.exponent(pricing.currency)
    rule = f"Each line is rounded once, half up, to {decimals} decimals; totals are sums of rounded lines."
    yield rule if pricing.header_rule == PER_LINE else f"{rule} The discount on the whole is shared out to the last unit."


def _granted(pricing: Pricing) -> str:
    requested, granted = money.format_percent(pricing.discount_percent), money.format_percent(pricing.authorised_percent)
    return requested if requested == granted else f"{granted} (of {requested} requested)"


def _sentence(line: PricedLine, currency: str) -> str:
    kind = "flat price" if line.kind == "flat" and line.tier is None else f"tier {line.tier}" if line.tier else line.kind
    months = f" x {line.months} months" if line.billing == RECURRING else ", once"
    unit_price = money.format_unit_price(line.unit_price, currency)
    part = "" if line.bundle is None else f" (of {line.bundle})"
    return (
        f"{line.position}. {line.name}{part}: {line.quantity:,} x {unit_price} ({kind}){months}"
        f" = {money.format_amount(line.list_amount, currency)} list"
        f" - {money.format_amount(line.discount_amount, currency)} = {money.format_amount(line.net_amount, currency)} net"
    )


def _totals(pricing: Pricing) -> Iterator[str]:
    currency = pricing.currency
    if pricing.one_time_total and pricing.recurring_total:
        recurring, once = (money.format_amount(row, currency) for row in (pricing.recurring_total, pricing.one_time_total))
        yield f"Recurring {recurring}, one time {once}."
    if pricing.rate is not None:
        rate = pricing.rate
        yield f"1 {rate.base} = {money.trimmed(rate.rate)} {rate.currency} on {rate.on.isoformat()}."
    frequency = BILLING_FREQUENCIES[0] if pricing.request is None else pricing.request.billing_frequency
    if frequency != BILLING_FREQUENCIES[0]:
        due = instalments(pricing, frequency)
        yield f"Billed {frequency}: {len(due)} instalments, the first {money.format_amount(due[0].amount, currency)}."
    if pricing.request is not None and pricing.request.with_tax:
        tax, gross = (money.format_amount(row, currency) for row in (pricing.tax_total, pricing.gross_total))
        yield f"Tax{' (estimated)' if pricing.tax_estimated else ''}: {tax}, {gross} with it."
    yield (
        f"Total: {money.format_amount(pricing.list_total, currency)} list"
        f" - {money.format_amount(pricing.discount_total, currency)} = {money.format_amount(pricing.net_total, currency)} net"
    )


def _steps(line: PricedLine, pricing: Pricing) -> Iterator[str]:
    currency = pricing.currency
    yield _sentence(line, currency)
    if line.book:
        yield f"Price book: {line.book}, kind {line.kind}."
    if line.attributes:
        yield f"Configured: {', '.join(f'{name} = {choice}' for name, choice in line.attributes)}."
    for step in line.trace:
        yield f"{step.name}: {money.trimmed(step.amount)} ({step.detail})"
    yield f"list: {money.format_amount(line.list_amount, currency)}"
    if line.bundle_discount_amount:
        yield f"discount of the bundle {line.bundle}: {money.format_amount(line.bundle_discount_amount, currency)}"
    if line.requested_percent:
        requested, granted = money.format_percent(line.requested_percent), money.format_percent(line.authorised_percent)
        amount = money.format_amount(line.line_discount_amount, currency)
        yield f"discount on this line: {requested} requested, {granted} authorised, {amount}"
    if pricing.discount_percent:
        share = money.format_amount(line.header_discount_amount, currency)
        yield f"discount on the whole: {_granted(pricing)}, this line's share {share}"
    yield f"net: {money.format_amount(line.net_amount, currency)}"
    if line.tax_percent is not None:
        estimated = ", estimated" if line.tax_estimated else ""
        yield f"tax: {money.format_percent(line.tax_percent)}{estimated}, {money.format_amount(line.tax_amount, currency)}"


MONTHS = {"monthly": 1, "quarterly": 3, "annual": 12}  # "upfront" is the whole term


@dataclass(frozen=True, slots=True)
class Instalment:
    """Amount due at the start of `first_month` (from 1) for `months` months; before tax, in the pricing's currency."""

    number: int
    first_month: int
    months: int
    amount: Decimal


def instalments(pricing: Pricing, frequency: str) -> tuple[Instalment, ...]:
    """Return the instalments; their sum is exactly the net total. One-time charges are due with the first."""
    term = pricing.term_months
    step = MONTHS.get(frequency, term)
    starts = range(1, term + 1, step)
    lengths = [min(step, term - start + 1) for start in starts]
    weights = [(Decimal(months), f"{start:03}") for start, months in zip(starts, lengths, strict=True)]
    amounts = list(money.allocate(pricing.recurring_total, weights, money.quantum(pricing.currency)))
    amounts[0] = money.EXACT.add(amounts[0], pricing.one_time_total)
    rows = zip(starts, lengths, amounts, strict=True)
    return tuple(Instalment(number, start, months, amount) for number, (start, months, amount) in enumerate(rows, start=1))
