"""Customer document of a quote: every value is already text. It never contains a cost, a margin or a Slack id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from adapters.pdf.renderer import DETAILED, DocumentLine, QuoteDocument
from quotebot.domain import money
from quotebot.domain.pricing.priced import ZERO
from quotebot.views.card import tax_rows, terms_row

if TYPE_CHECKING:
    from quotebot.domain.pricing.engine import PricedLine, Pricing
    from quotebot.domain.quotes.quote import Quote

ACCENT = "#1f4e79"
TITLE_CHARACTERS_MAX = 200
MONTHS_A_YEAR = 12
_SECTIONS = {"recurring": "Recurring charges", "one_time": "One-time charges"}
ROLE_WORDS = {
    "sales_manager": "Sales Manager",
    "deal_desk": "Deal Desk",
    "vp_sales": "VP Sales",
    "cfo": "CFO",
    "legal": "Legal",
}
TERMS = (
    "Prices are net of applicable taxes and valid until the date shown.",
    "Recurring charges are invoiced for the whole term unless agreed otherwise in writing.",
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
    return QuoteDocument(
        title="Quote",
        quote_id=quote.quote_id,
        version=str(quote.version),
        account=quote.account,
        issued_on=_day(quote.issued_at),
        valid_until=_day(quote.valid_until),
        prepared_by=prepared_by,
        approved_by=_approved_by(quote),
        currency=currency,
        term=_months(pricing.term_months),
        lines=tuple(
            _line(line, currency, money.format_percent(percent) if discounted else "", _SECTIONS[line.billing] if sections else "")
            for line, percent in zip(pricing.lines, percents, strict=True)
        ),
        list_total=money.format_amount(pricing.list_total, currency),
        discount_label="Discount" if len(set(percents)) > 1 else f"Discount ({money.format_percent(percents[0])})",
        discount_total=f"\u2212{money.format_amount(pricing.discount_total, currency)}" if discounted else "",
        net_total=money.format_amount(pricing.net_total, currency),
        tax_rows=tax_rows(pricing),
        assumptions=(f"All amounts are in {currency}.", f"Subscription term: {_months(pricing.term_months)}."),
        terms=(
            *seller.terms,
            *(f"{value[:1].upper()}{value[1:]} as agreed for this quote." for _, value in terms_row(pricing)),
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
    )


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


def _line(line: PricedLine, currency: str, percent: str, section: str) -> DocumentLine:
    billed = "per month" if line.billing == "recurring" else "billed once"
    part = "" if line.bundle is None else f"Part of {line.bundle} · "
    tier = "" if line.tier is None else f"Volume tier {line.tier} · "
    return DocumentLine(
        position=str(line.position),
        name=line.name,
        sku=line.sku,
        detail=f"{part}{tier}{billed}",
        quantity=f"{line.quantity:,}",
        term=_months(line.months) if line.billing == "recurring" else "one time",
        unit_price=money.format_unit_price(line.unit_price, currency).removesuffix(f" {currency}"),
        discount=percent,
        amount=money.format_number(line.net_amount, currency),
        section=section,
    )


def _approved_by(quote: Quote) -> str:
    approval = quote.approval
    if approval is None or approval.decided_at is None or approval.decided_role is None:
        return ""
    roles = " and ".join(ROLE_WORDS.get(role, role) for role in approval.decided_role.split(" + "))
    return f"{roles} on {_day(approval.decided_at)}"


def _months(count: int) -> str:
    return "1 month" if count == 1 else f"{count} months"


def _day(unix_ms: int) -> str:
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
