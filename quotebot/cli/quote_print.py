"""Output of `quotebot quote`: a list, a version's facts, a price with its lines; never the seller's costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quotebot.app.installation import load_rules
from quotebot.cli import dead_letter_tables, exits, tables
from quotebot.domain import money
from quotebot.domain.approvals.avoidance import avoidances
from quotebot.domain.quotes.quote import state_words
from quotebot.settings import load_settings
from quotebot.views import price_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.domain.pricing.engine import PricedLine, Pricing
    from quotebot.domain.quotes.quote import Quote
    from quotebot.store.versions import Page


def print_page(page: Page, *, json_output: bool) -> int:
    """Print one page of a list, as a table or as JSON; returns the exit status."""
    if json_output:
        quotes = [asdict(quote) for quote in page.quotes]
        dead_letter_tables.print_json({"schema_version": 1, "quotes": quotes, "page": page.number, "more": page.more})
        return exits.OK
    if not page.quotes:
        exits.complain("No quotes.")
        return exits.OK
    tables.print_table(
        ("Quote", "Version", "State", "Total", "Owner", "Created", "Valid until", "Customer"),
        [
            (
                quote.quote_id,
                f"v{quote.version}",
                state_words(quote.state),
                money.format_amount(quote.net_total, quote.currency),
                quote.requester_name or quote.requester,
                dead_letter_tables.time_words(quote.created_at),
                dead_letter_tables.time_words(quote.valid_until),
                quote.account,
            )
            for quote in page.quotes
        ],
    )
    if page.more:
        exits.complain(f"There are more: --page {page.number + 1}.")
    return exits.OK


def facts(quote: Quote) -> dict[str, Any]:
    """Return the facts of a version besides its price, with None for missing ones; times are Unix milliseconds."""
    approval, sent, closing = quote.approval, quote.sent, quote.closing
    return {
        "quote_id": quote.quote_id,
        "version": quote.version,
        "state": quote.state.value,
        "superseded": "yes" if quote.superseded else None,
        "account": quote.account,
        "requester": quote.requester,
        "channel": quote.channel,
        "created_at": quote.created_at,
        "revised_by": quote.revised_by,
        "revised_at": quote.revised_at,
        "valid_until_at": quote.valid_until,
        "approval_id": None if approval is None else approval.approval_id,
        "approval_state": None if approval is None else approval.state.value,
        "required_roles": [] if approval is None else list(approval.required_roles),
        "reasons": [] if approval is None else list(approval.reasons),
        "decided_by": None if approval is None else approval.decided_by,
        "decided_role": None if approval is None else approval.decided_role,
        "decided_at": None if approval is None else approval.decided_at,
        "decision_reason": None if approval is None else approval.decision_reason,
        "finalized_by": None if quote.frozen is None else quote.frozen.frozen_by,
        "finalized_at": None if quote.frozen is None else quote.frozen.frozen_at,
        "sent_to": None if sent is None else sent.recipient,
        "sent_by": None if sent is None else sent.sent_by,
        "sent_at": None if sent is None else sent.sent_at,
        "closing_reason": None if closing is None else closing.reason,
        "closed_by": None if closing is None else closing.closed_by,
        "closed_at": None if closing is None else closing.closed_at,
    }


def priced(pricing: Pricing) -> dict[str, Any]:
    """Return a price in its JSON form: amounts as text, without the seller's costs."""
    return {
        "currency": pricing.currency,
        "term_months": pricing.term_months,
        "discount_percent": str(pricing.discount_percent),
        "list_total": str(pricing.list_total),
        "discount_total": str(pricing.discount_total),
        "net_total": str(pricing.net_total),
        "tax_total": str(pricing.tax_total),
        "tax_estimated": pricing.tax_estimated,
        "gross_total": str(pricing.gross_total),
        "terms": list(pricing.terms),
        "lines": [_line(line) for line in pricing.lines],
    }


def _line(line: PricedLine) -> dict[str, Any]:
    return {
        "position": line.position,
        "sku": line.sku,
        "name": line.name,
        "quantity": line.quantity,
        "months": line.months,
        "unit_price": str(line.unit_price),
        "tier": line.tier,
        "list_amount": str(line.list_amount),
        "discount_amount": str(line.discount_amount),
        "net_amount": str(line.net_amount),
    }


def print_lines(pricing: Pricing) -> None:
    """Print the lines and totals of a price as a table, and below it tax, the total in the policy's currency and special terms."""
    currency = pricing.currency
    totals = (
        ("", "", "", "", f"list {money.format_number(pricing.list_total, currency)}", f"Total in {currency}"),
        ("", "", "", "", f"net {money.format_number(pricing.net_total, currency)}", money.format_percent(pricing.discount_percent)),
    )
    tables.print_table(
        ("Line", "Quantity", "Unit price", "Months", "Net", "Product"),
        [
            *(
                (
                    str(line.position),
                    f"{line.quantity:,}",
                    money.format_unit_price(line.unit_price, currency),
                    "once" if line.billing == "one_time" else str(line.months),
                    money.format_number(line.net_amount, currency),
                    f"{line.name} ({line.sku})",
                )
                for line in pricing.lines
            ),
            *totals,
        ],
    )
    print_figures(pricing)


def easier_ways(pricing: Pricing) -> tuple[Sequence[tuple[str, str]], list[dict[str, Any]]]:
    """Return the smallest changes that avoid an approval, as display rows and in their JSON form."""
    rules = load_rules(load_settings())
    found = tuple(change for change in avoidances(pricing, rules.ruleset, rules.policy) if not change.by_margin)
    told = [
        {"what": way.what, "sku": way.name or None, "before": str(way.before), "after": str(way.after), "roles": list(way.roles)}
        for way in found
    ]
    return price_rows.avoidance_rows(found), told


def print_figures(pricing: Pricing, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print the figures beside the lines: tax, the total in the policy's currency, special terms, and `more`."""
    for name, value in (*price_rows.rows(pricing, load_rules(load_settings()).policy), *more):
        print(f"{name}: {value}")
