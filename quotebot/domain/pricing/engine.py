"""Pricing engine: converts a request and a ruleset to one immutable Pricing, exact to the cent and explainable.

The price trace explains it in sentences. It omits costs and margins, because it is read in shared channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.catalogue.catalogue import fold
from quotebot.domain.language import N_, _, day_text, grouped, localized, ngettext
from quotebot.domain.pricing.charging import PERCENT, RECURRING, Charged, SelectedItem, Terms, charge, choose, terms_of
from quotebot.domain.pricing.commercial_terms import term_phrases
from quotebot.domain.pricing.price_requests import (
    BILLING_FREQUENCIES,
    LINES_MAX,
    LineRequest,
    PriceRequest,
    PricingProblem,
    as_of,
    as_stored,
    authorised,
    clipped,
    dated,
    find_problems,
    normalised,
)
from quotebot.domain.pricing.priced import PER_LINE, ZERO, PricedLine, Pricing, Step, canonical, from_canonical, from_stored
from quotebot.domain.pricing.taxes import Tax, find_tax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quotebot.domain.catalogue.rulesets import Ruleset


MONTHS_A_YEAR = 12
NO_SEGMENTS: Final[Mapping[str, str]] = MappingProxyType({})
# Inputs of a formula that no customer may learn. A value ends before a comma and a blank.
_INTERNAL = re.compile(r"(\w*(?:cost|margin)\w*) = [^\s;)]+?(?=,?(?:[\s;)]|$))", re.IGNORECASE)
MIXED = ("slab", "block")  # kinds whose unit price is an average
MONTHS = {"monthly": 1, "quarterly": 3, "annual": 12}  # "upfront" is the whole term
_KINDS = {
    "flat": N_("flat"),
    "range": N_("range"),
    "slab": N_("slab"),
    "block": N_("block"),
    "formula": N_("formula"),
    "percent": N_("percent"),
}
_STEPS = {
    "base": N_("base"),
    "tier": N_("tier"),
    "slab": N_("slab"),
    "block": N_("block"),
    "formula": N_("formula"),
    "share": N_("share"),
    "surcharge": N_("surcharge"),
    "rate": N_("rate"),
}
__all__ = [
    "LINES_MAX",
    "LineRequest",
    "PriceRequest",
    "PricedLine",
    "Pricing",
    "PricingProblem",
    "Step",
    "canonical",
    "clipped",
    "dated",
    "explain",
    "find_problems",
    "for_account",
    "from_canonical",
    "from_stored",
    "price",
    "renewed",
    "reprice",
    "request_of",
    "trace",
]


def explain(pricing: Pricing, position: int | None = None, *, bold: str = "") -> tuple[str, ...]:
    """Return the price trace of the whole quote, a sentence per line, or of one line (from 1), a sentence per step.

    `bold` marks a line's product and net amount on both sides: "*" in mrkdwn. Raises LookupError when the quote has no such line.
    """
    if position is not None:
        if not 1 <= position <= len(pricing.every_line):
            raise LookupError(f"there is no line {position}; the quote has {len(pricing.every_line)}")
        return tuple(_steps(pricing.every_line[position - 1], pricing, bold))
    return (*_opening(pricing), *(_sentence(line, pricing, bold) for line in pricing.every_line), *_totals(pricing))


def trace(pricing: Pricing, *, bold: str = "") -> tuple[str, ...]:
    """Return the whole price trace: each line's sentence, then its steps as list items; the totals are last. `bold` as above."""
    rows = [*_opening(pricing)]
    for line in pricing.every_line:
        sentence, *steps = _steps(line, pricing, bold)
        rows += [sentence, *(f"  \u2022 {step}" for step in steps)]
    return (*rows, *_totals(pricing))


def _opening(pricing: Pricing) -> Iterator[str]:
    percent = _granted(pricing)
    said = [_("Catalog {ruleset}", ruleset=pricing.ruleset), pricing.currency, months_text(pricing.term_months)]
    if pricing.discount_percent and pricing.header_rule == PER_LINE:
        said.append(_("{percent} off every line", percent=percent))
    elif pricing.discount_percent:
        said.append(_("{percent} off the whole quote", percent=percent))
    yield " \u00b7 ".join(said)
    decimals = money.exponent(pricing.currency)
    yield _("Line totals are rounded to {decimals} decimals. The total is their sum.", decimals=decimals)


def _granted(pricing: Pricing) -> str:
    requested, granted = money.format_percent(pricing.discount_percent), money.format_percent(pricing.authorised_percent)
    return requested if requested == granted else _("{granted} (of {requested} requested)", granted=granted, requested=requested)


def _sentence(line: PricedLine, pricing: Pricing, bold: str) -> str:
    """Return "SSO 150 \u00d7 $2.00 \u00d7 12 months = $3,600.00, less 12% = $3,168.00"."""
    currency = pricing.currency
    listed, net = money.format_amount(line.list_amount, currency), f"{bold}{money.format_amount(line.net_amount, currency)}{bold}"
    shown = {"name": f"{bold}{line.full_name}{bold}", "units": _unit_prices(line, currency), "net": net}
    if not line.discount_amount:
        once, monthly = N_("{name} {units}, once = {net}"), N_("{name} {units} \u00d7 {months} = {net}")
    else:
        once = N_("{name} {units}, once = {listed}, less {discount} = {net}")
        monthly = N_("{name} {units} \u00d7 {months} = {listed}, less {discount} = {net}")
    percent = pricing.granted_percent(line)  # rounded: zero of a discount of a cent
    discount = money.format_percent(percent) if percent else money.format_amount(line.discount_amount, currency)
    text = monthly if line.billing == RECURRING else once
    return _(text, **shown, months=months_text(line.months), listed=listed, discount=discount)


def _unit_prices(line: PricedLine, currency: str) -> str:
    """Return the quantity with its price per unit; of a mixed price every part of it, because no unit costs the average."""
    if line.kind in MIXED:
        parts = [step.words for step in line.trace if step.name in ("slab", "rate")]
        parts += [
            _("{amount} for {what}", amount=localized(money.trimmed(step.amount)), what=step.words)
            for step in line.trace
            if step.name in ("block", "surcharge")
        ]
        return f"{grouped(line.quantity)} ({'; '.join(parts)})"
    return f"{grouped(line.quantity)} \u00d7 {money.format_unit_price(line.unit_price, currency)}"


def months_text(months: int) -> str:
    """Return "1 month" or "12 months"."""
    return ngettext("{n} month", "{n} months", months)


def _totals(pricing: Pricing) -> Iterator[str]:
    currency = pricing.currency
    if pricing.one_time_total and pricing.recurring_total:
        recurring, once = (money.format_amount(row, currency) for row in (pricing.recurring_total, pricing.one_time_total))
        yield _("Recurring {recurring}, one time {once}.", recurring=recurring, once=once)
    if pricing.options:
        yield _("Optional, in no total: {names}.", names=", ".join(line.full_name for line in pricing.options))
    if pricing.rate is not None:
        rate = pricing.rate
        yield _(
            "1 {base} = {rate} {currency} on {day}.",
            base=rate.base,
            rate=localized(money.trimmed(rate.rate)),
            currency=rate.currency,
            day=day_text(rate.on),
        )
    frequency = BILLING_FREQUENCIES[0] if pricing.request is None else pricing.request.billing_frequency
    if frequency != BILLING_FREQUENCIES[0]:
        due = instalments(pricing, frequency)
        yield _(
            "Billed {frequency}: {count} instalments, the first {amount}.",
            frequency=_(frequency),
            count=len(due),
            amount=money.format_amount(due[0].amount, currency),
        )
    if pricing.request is not None and pricing.segment_is_open:
        listed = N_("The segment {segment} is open to the customer: the catalog lists it.")
        in_crm = N_('The segment {segment} is open to the customer: its account in Salesforce is "{value}".')
        segment, value = pricing.request.segment, pricing.request.segment_value
        yield _(listed if value is None else in_crm, segment=segment, value=value)
    if pricing.request is not None and (agreed := term_phrases(pricing.request.commercial)):
        yield _("Agreed: {terms}.", terms="; ".join(agreed))
    if pricing.request is not None and pricing.request.with_tax:
        tax, gross = (money.format_amount(row, currency) for row in (pricing.tax_total, pricing.gross_total))
        estimated = N_("Tax (estimated): {tax}, {gross} with it.")
        yield _(estimated if pricing.tax_estimated else N_("Tax: {tax}, {gross} with it."), tax=tax, gross=gross)
    totals = (pricing.list_total, pricing.discount_total, pricing.net_total)
    listed, discount, net = (money.format_amount(amount, currency) for amount in totals)
    if pricing.discount_total:
        yield _("Total: {listed} list \u2212 {discount} = {net} net", listed=listed, discount=discount, net=net)
    else:
        yield _("Total: {net}", net=net)


def without_costs(text: str) -> str:
    """Return the words of a formula without the figures of the inputs that no customer may learn."""
    return _INTERNAL.sub(lambda found: _("{name} = (internal)", name=found[1]), text)


def _steps(line: PricedLine, pricing: Pricing, bold: str) -> Iterator[str]:
    currency = pricing.currency
    yield _sentence(line, pricing, bold)
    if line.book:
        yield _("Price book: {book}, kind {kind}.", book=line.book, kind=_(_KINDS.get(line.kind, line.kind)))
    if line.attributes:
        yield _("Configured: {choices}.", choices=", ".join(f"{name} = {choice}" for name, choice in line.attributes))
    if line.choice:
        yield _("Chosen as {name}.", name=line.choice)
    for step in line.trace:
        detail = without_costs(step.words)
        yield f"{_(_STEPS.get(step.name, step.name))}: {localized(money.trimmed(step.amount))} ({detail})"
    yield _("list: {amount}", amount=money.format_amount(line.list_amount, currency))
    if line.bundle_discount_amount:
        amount = money.format_amount(line.bundle_discount_amount, currency)
        yield _("discount of the bundle {bundle}: {amount}", bundle=line.bundle_title, amount=amount)
    requested, granted = money.format_percent(line.requested_percent), money.format_percent(line.authorised_percent)
    amount = money.format_amount(line.line_discount_amount, currency)
    if line.agreed_price is not None:
        yield _(
            "agreed price: {agreed} instead of {listed} ({reason}), {amount}, {percent}",
            agreed=money.format_unit_price(line.agreed_price, currency),
            listed=money.format_unit_price(line.unit_price, currency),
            reason=line.price_reason,
            amount=amount,
            percent=requested,
        )
    elif line.requested_percent:
        yield _(
            "discount on this line: {requested} requested, {granted} authorized, {amount}",
            requested=requested,
            granted=granted,
            amount=amount,
        )
    if pricing.discount_percent:
        share = money.format_amount(line.header_discount_amount, currency)
        yield _("discount on the whole: {percent}, this line's share {amount}", percent=_granted(pricing), amount=share)
    yield _("net: {amount}", amount=money.format_amount(line.net_amount, currency))
    if line.tax_percent is not None:
        tax = N_("tax: {percent}, estimated, {amount}") if line.tax_estimated else N_("tax: {percent}, {amount}")
        amount = money.format_amount(line.tax_amount, currency)
        yield _(tax, percent=money.format_percent(line.tax_percent), amount=amount)


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


def price(request: PriceRequest, ruleset: Ruleset) -> Pricing | tuple[PricingProblem, ...]:
    """Price a request, or return every problem with it. A float raises TypeError.

    Rule: list = the price of the quantity * months, rounded once. Deducted from it in turn are the bundle's discount and the line's
    own, each a rounded percentage of the remainder, and the line's share of the header discount, which is rounded once as a whole
    and allocated by largest remainder. Rounding is half up to the currency's exponent, tax is a rounded percentage of each line's
    net, and totals are sums of rounded lines, so every line and every column adds up.

    Optional lines are priced beside the others: each with its own rounded header discount, a percentage of other lines from the
    lines that are not optional, and constraints checked as if that line alone were chosen.
    """
    problems = find_problems(request, ruleset.catalogue)
    if problems:
        return problems
    request = normalised(request)
    chosen, terms = choose(request, ruleset), terms_of(request, ruleset)
    items = [row for row in chosen if isinstance(row, SelectedItem)]
    found = [row for row in chosen if isinstance(row, PricingProblem)]
    if isinstance(terms, PricingProblem):
        return (*found, terms)
    kept = [item for item in items if not item.line.optional]
    items = [*kept, *(item for item in items if item.line.optional)]
    charged = list(charge(kept, terms))
    if len(items) > len(kept):
        charged += charge(items[len(kept) :], terms, [row for row in charged if isinstance(row, Charged)])
    found += [row for row in charged if isinstance(row, PricingProblem)]
    taxes = [_tax(item, terms) for item in items] if request.with_tax else [None for _ in items]
    found += dict.fromkeys(row for row in taxes if isinstance(row, PricingProblem))
    if found:
        return tuple(found)
    rows = [row for row in charged if isinstance(row, Charged)]
    shares = (*_header_shares(rows[: len(kept)], terms), *(_own_header_share(row, terms) for row in rows[len(kept) :]))
    due = [row for row in taxes if not isinstance(row, PricingProblem)]
    priced = enumerate(zip(rows, shares, due, strict=True), start=1)
    lines = tuple(_line(position, row, share, tax, terms) for position, (row, share, tax) in priced)
    return _pricing(lines[: len(kept)], lines[len(kept) :], terms)


def request_of(pricing: Pricing) -> PriceRequest:
    """Return the request of a price, with its day: pricing it again under the same ruleset gives the same price.

    For a snapshot of schema 1 the request is rebuilt from the lines; it has no day.
    """
    if pricing.request is not None:
        return as_stored(pricing.request)
    lines = tuple(LineRequest(line.sku, line.quantity) for line in pricing.lines)
    return PriceRequest(lines, pricing.term_months, pricing.discount_percent, currency=pricing.currency)


def for_account(request: PriceRequest, account: str, segments: Mapping[str, str] = NO_SEGMENTS) -> PriceRequest:
    """Return the request of this customer. Only a segment depends on the customer, so without one no customer is recorded.

    `segments` are those of the customer's account in the CRM by their folded names, each with the value that names it.
    """
    if request.segment is None:
        return replace(request, account=None, segment_value=None)
    return replace(request, account=account, segment_value=segments.get(fold(request.segment)))


def renewed(pricing: Pricing, unix_ms: int) -> PriceRequest:
    """Return the request of a price, dated on the UTC day of `unix_ms`, for a revision or a clone."""
    return as_of(request_of(pricing), unix_ms)


def reprice(stored: Pricing, ruleset: Ruleset) -> tuple[str, ...]:
    """Price a stored request again and return every difference in words; empty if the snapshot is identical."""
    rules = ruleset if stored.schema > 1 else replace(ruleset, header_rule=PER_LINE)  # the allocation of discounts in schema 1
    again = price(request_of(stored), rules)
    if not isinstance(again, Pricing):
        return tuple(f"it has no price any more: {problem.message}" for problem in again)
    if stored.schema == 1 and again.discount_percent == stored.discount_percent:
        again = replace(again, discount_percent=stored.discount_percent)  # schema 1 stored it as typed: 15.00
    if not any(line.bundle_name for line in stored.lines):  # an older build did not store it
        again = replace(again, lines=tuple(replace(line, bundle_name="") for line in again.lines))
    before, after = canonical(stored), canonical(replace(again, schema=stored.schema))
    return tuple(_differences("", before, after))


def _differences(place: str, before: object, after: object) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        names = dict.fromkeys((*before, *after))
        return [row for name in names for row in _differences(f"{place}.{name}", before.get(name), after.get(name))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True), start=1)
        return [row for number, (old, new) in pairs for row in _differences(f"{place}[{number}]", old, new)]
    return [] if before == after else [f"{place.removeprefix('.')}: {clipped(str(before))} is now {clipped(str(after))}"]


def _own_header_share(row: Charged, terms: Terms) -> Decimal:
    request = terms.request
    return terms.rounded(row.before_header, authorised(request.discount_percent, request.discount_limit_percent), PERCENT)


def _header_shares(rows: Sequence[Charged], terms: Terms) -> tuple[Decimal, ...]:
    request = terms.request
    percent = authorised(request.discount_percent, request.discount_limit_percent)
    if terms.ruleset.header_rule == PER_LINE:
        return tuple(_own_header_share(row, terms) for row in rows)
    whole = terms.rounded(money.total(tuple(row.before_header for row in rows), terms.currency), percent, PERCENT)
    return money.allocate(whole, [(row.before_header, row.item.name) for row in rows], terms.smallest)


def _tax(item: SelectedItem, terms: Terms) -> Tax | PricingProblem:
    request, category = terms.request, item.product.tax_category
    if request.region is None:
        return PricingProblem("no_tax", _("tax depends on the customer's region, which is not named"), _("name the region"))
    tax = find_tax(terms.ruleset.taxes, request.region, category, request.priced_on)
    if tax is not None:
        return tax
    region, day = clipped(request.region), request.priced_on
    return PricingProblem(
        "no_tax",
        _("the tax table has no row for {category} in {region} without a day", category=category, region=region)
        if day is None
        else _("the tax table has no row for {category} in {region} on {day}", category=category, region=region, day=day),
        _("quote without tax, or add the row"),
    )


def _line(position: int, charged: Charged, header_discount: Decimal, tax: Tax | None, terms: Terms) -> PricedLine:
    item, net = charged.item, money.EXACT.subtract(charged.before_header, header_discount)
    return PricedLine(
        position=position,
        sku=item.product.sku,
        name=item.product.name,
        family=item.product.family,
        unit=item.product.unit,
        billing=item.product.billing,
        quantity=item.quantity,
        months=terms.months(item),
        unit_price=charged.unit_price,
        tier=charged.tier,
        list_amount=charged.list_amount,
        discount_amount=money.EXACT.subtract(charged.list_amount, net),
        net_amount=net,
        cost_amount=charged.cost_amount,
        bundle=None if item.bundle is None else item.bundle.sku,
        bundle_name="" if item.bundle is None else item.bundle.name,
        attributes=tuple(sorted(item.attributes.items())),
        kind=charged.kind,
        book=charged.book,
        requested_percent=charged.requested_percent,
        authorised_percent=charged.authorised_percent,
        bundle_discount_amount=charged.bundle_discount,
        line_discount_amount=charged.line_discount,
        header_discount_amount=header_discount,
        tax_percent=None if tax is None else tax.percent,
        tax_amount=terms.rounded(net, ZERO if tax is None else tax.percent, PERCENT),
        tax_estimated=tax is not None and tax.estimated,
        trace=charged.steps,
        agreed_price=item.line.agreed_price,
        price_reason=item.line.price_reason,
        floor_price=charged.floor,
        choice=item.choice,
    )


def _pricing(lines: tuple[PricedLine, ...], options: tuple[PricedLine, ...], terms: Terms) -> Pricing:
    request, ruleset, currency, term = terms.request, terms.ruleset, terms.currency, terms.request.term_months
    recurring = money.total(tuple(line.net_amount for line in lines if line.billing == RECURRING), currency)
    net = money.total(tuple(line.net_amount for line in lines), currency)
    tax = money.total(tuple(line.tax_amount for line in lines), currency)
    monthly = money.EXACT.divide(recurring, Decimal(term))
    discount = request.discount_percent
    return Pricing(
        ruleset=ruleset.label,
        currency=currency,
        term_months=term,
        discount_percent=discount,
        lines=lines,
        list_total=money.total(tuple(line.list_amount for line in lines), currency),
        discount_total=money.total(tuple(line.discount_amount for line in lines), currency),
        net_total=net,
        cost_total=money.total(tuple(line.cost_amount for line in lines), currency),
        authorised_percent=authorised(discount, request.discount_limit_percent),
        recurring_total=recurring,
        one_time_total=money.total(tuple(line.net_amount for line in lines if line.billing != RECURRING), currency),
        annual_contract_value=recurring if term <= MONTHS_A_YEAR else _yearly(recurring, term, terms),
        monthly_recurring_revenue=monthly.quantize(terms.smallest, context=money.EXACT),
        tax_total=tax,
        gross_total=money.EXACT.add(net, tax),
        tax_estimated=any(line.tax_estimated for line in lines),
        header_rule=ruleset.header_rule,
        rate=terms.cost_rate,
        request=request,
        ruleset_hash=ruleset.hash,
        options=options,
        segment_is_open=request.segment_value is not None or ruleset.is_open(request.segment, request.account),
    )


def _yearly(recurring: Decimal, term_months: int, terms: Terms) -> Decimal:
    months = money.EXACT.multiply(recurring, MONTHS_A_YEAR)
    return money.EXACT.divide(months, Decimal(term_months)).quantize(terms.smallest, context=money.EXACT)
