"""Customer document of a quote: every value is already text. It never contains a cost, a margin or a Slack id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from adapters.pdf.renderer import DETAILED, DocumentLine, QuoteDocument
from quotebot.domain import money
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.charging import RECURRING
from quotebot.domain.pricing.engine import MIXED, instalments, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.pricing.priced import ZERO
from quotebot.views.card import tax_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quotebot.domain.pricing.engine import PricedLine, Pricing
    from quotebot.domain.quotes.quote import Quote

ACCENT = "#1f4e79"
TITLE_CHARACTERS_MAX = 200
MONTHS_A_YEAR = 12
_SECTIONS = {"recurring": "Recurring charges", "one_time": "One-time charges"}
SLABS_MAX = 6  # listed in a row
_RECURRING_TERM = "Recurring charges are invoiced for the whole term unless agreed otherwise in writing."
TERMS = (
    "Prices are net of applicable taxes and valid until the date shown.",
    _RECURRING_TERM,
    "This quote becomes binding when the customer's signed copy reaches the seller.",
)


@dataclass(frozen=True, slots=True)
class Seller:
    """Seller of the quote, with the layout of their documents."""

    name: str
    lines: tuple[str, ...]
    accent: str = ACCENT
    footer: str = ""
    terms: tuple[str, ...] = TERMS
    logo: bytes = b""  # a PNG file
    template: str = DETAILED


def quote_document(quote: Quote, seller: Seller, prepared_by: str) -> QuoteDocument:
    """Return the document of an approved quote. Its dates come from the quote, so that rendering it twice gives the same bytes."""
    pricing = quote.pricing
    currency = pricing.currency
    sections = _sections(pricing)
    percents = [pricing.granted_percent(line) for line in pricing.lines]
    discounted = pricing.discount_total > 0
    term = _months(pricing.term_months) if _is_recurring(pricing) else ""
    invoicing = _invoicing(pricing)
    return QuoteDocument(
        title="Quote",
        quote_id=quote.quote_id,
        version=str(quote.version),
        account=quote.account,
        issued_on=_day(quote.issued_at),
        valid_until=_day(quote.valid_until),
        prepared_by=prepared_by,
        approved_by=_approved_by(quote, seller),
        currency=currency,
        term=term,
        lines=tuple(_rows(pricing, [money.format_percent(percent) if discounted else "" for percent in percents], sections)),
        list_total=money.format_amount(pricing.list_total, currency),
        discount_label="Discount" if len(set(percents)) > 1 else f"Discount ({money.format_percent(percents[0])})",
        discount_total=f"\u2212{money.format_amount(pricing.discount_total, currency)}" if discounted else "",
        net_total=money.format_amount(pricing.net_total, currency),
        tax_rows=tax_rows(pricing),
        assumptions=(f"All amounts are in {currency}.", *([f"Subscription term: {term}."] if term else [])),
        terms=(
            *(text for text in seller.terms if text != _RECURRING_TERM or (term and not invoicing)),
            *invoicing,
            *(_special_term(name) for name in pricing.terms),
        ),
        seller_name=seller.name,
        seller_lines=seller.lines,
        accent=seller.accent,
        created_at=datetime.fromtimestamp(quote.issued_at // 1000, tz=UTC).isoformat(),
        template=seller.template,
        sections=sections,
        key_figures=(*_key_figures(pricing), ("Valid until", _day(quote.valid_until))),
        footer=seller.footer,
        logo=seller.logo,
        options=tuple((_option(line, currency), money.format_amount(line.net_amount, currency)) for line in pricing.options),
    )


def _option(line: PricedLine, currency: str) -> str:
    row = _line(line, currency, "", "", with_term=True)
    return f"{row.quantity} {row.name}{f', {row.detail}' if row.detail else ''}, {row.term}"


def file_title(quote: Quote) -> str:
    """Return the title of a quote's file, always with its version: "Q-2026-0042 v1 - Acme"; at most 200 characters."""
    return f"{quote.quote_id} v{quote.version} - {quote.account}"[:TITLE_CHARACTERS_MAX]


def _sections(pricing: Pricing) -> tuple[tuple[str, str], ...]:
    """Return the sections with their subtotals; none if all lines have the same billing."""
    if len({line.billing for line in pricing.lines}) == 1:
        return ()
    subtotals = {
        billing: money.total(tuple(line.net_amount for line in pricing.lines if line.billing == billing), pricing.currency)
        for billing in _SECTIONS
    }
    return tuple((name, money.format_number(subtotals[billing], pricing.currency)) for billing, name in _SECTIONS.items())


def _key_figures(pricing: Pricing) -> tuple[tuple[str, str], ...]:
    """Return the total and the other main amounts; omits those that are zero or that a snapshot of an older schema lacks."""
    figures_by_name = {
        "Total before tax": pricing.net_total,
        "Per month": pricing.monthly_recurring_revenue,
        "Per year": pricing.annual_contract_value if pricing.term_months > MONTHS_A_YEAR else ZERO,
        "One time": pricing.one_time_total if pricing.recurring_total else ZERO,
    }
    return tuple(
        (name, money.format_amount(amount, pricing.currency))
        for name, amount in figures_by_name.items()
        if amount or name == "Total before tax"
    )


def _invoicing(pricing: Pricing) -> tuple[str, ...]:
    """Return the sentence on the instalments of a quote that is not billed upfront."""
    frequency = request_of(pricing).billing_frequency
    if frequency == BILLING_FREQUENCIES[0]:
        return ()
    first, *others = (money.format_amount(row.amount, pricing.currency) for row in instalments(pricing, frequency))
    rest = f", each of the others {others[0]}" if others and len(set(others)) == 1 else ""
    count = f"{len(others) + 1} instalments" if others else "one instalment"
    return (f"The total is invoiced {frequency}, in {count}: the first is {first}{rest}, before tax.",)


def _is_recurring(pricing: Pricing) -> bool:
    return any(line.billing == RECURRING for line in pricing.lines)


def _special_term(name: str) -> str:
    """Return the sentence that the customer signs for a special term."""
    return f"Special term \u201c{term_words(name)}\u201d: it applies as agreed in writing, and goes before the terms above."


def _rows(pricing: Pricing, percents: Sequence[str], sections: tuple[tuple[str, str], ...]) -> Iterator[DocumentLine]:
    """Yield each line; above the items of a bundle, in each section that has some, the row of the bundle."""
    ordered = {line.sku: line.quantity for line in request_of(pricing).lines}
    headed: set[tuple[str, str]] = set()
    with_term = _is_recurring(pricing)
    for line, percent in zip(pricing.lines, percents, strict=True):
        section = _SECTIONS[line.billing] if sections else ""
        if line.bundle is not None and (line.bundle, section) not in headed:
            headed.add((line.bundle, section))
            quantity = f"{ordered[line.bundle]:,}" if line.bundle in ordered else ""
            heading = "Bundle of the items below"
            yield DocumentLine("", line.bundle_title, line.bundle, heading, quantity, "", "", "", "", section, kind="bundle")
        yield _line(line, pricing.currency, percent, section, with_term=with_term)


def _line(line: PricedLine, currency: str, percent: str, section: str, *, with_term: bool) -> DocumentLine:
    recurring = line.billing == RECURRING
    details = (
        f"Part of {line.bundle_title}" if line.bundle is not None else "",
        ", ".join(f"{name}: {choice}" for name, choice in line.attributes),
        _tier(line, currency),
        "" if line.agreed_price is None else f"Agreed price {money.format_rounded_price(line.agreed_price, currency)}",
        "per month" if recurring else "billed once",
    )
    return DocumentLine(
        position=str(line.position),
        name=line.name,
        sku=line.sku,
        detail=" \u00b7 ".join(filter(None, details)),
        quantity=f"{line.quantity:,}",
        term="" if not with_term else _months(line.months) if recurring else "one time",
        unit_price="" if line.kind in MIXED else money.format_rounded_price(line.unit_price, currency),
        discount=percent,
        amount=money.format_number(line.net_amount, currency),
        section=section,
    )


def _tier(line: PricedLine, currency: str) -> str:
    """Return what the quantity does to the price: the tier of all units, or every slab with its price."""
    if line.kind == "block":
        blocks = [step.detail for step in line.trace if step.name == "block"]
        return "".join(block[:1].upper() + block[1:] for block in blocks)
    if line.kind == "slab":
        parts = line.slabs
        if len(parts) > SLABS_MAX:
            return f"priced in {len(parts)} tiers"
        return ", ".join(f"{units:,} at {money.format_rounded_price(price, currency)}" for units, price in parts)
    return "" if line.tier is None else f"Volume tier {line.tier}"


def _approved_by(quote: Quote, seller: Seller) -> str:
    """Return the approving company and the day. Who of it approved is internal."""
    approval = quote.approval
    if approval is None or approval.decided_at is None or approval.decided_role is None:
        return ""
    return f"{seller.name} on {_day(approval.decided_at)}"


def _months(count: int) -> str:
    return "1 month" if count == 1 else f"{count} months"


def _day(unix_ms: int) -> str:
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
