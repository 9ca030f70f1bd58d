"""Figures beside the lines of a price, as every surface says them: tax, the total with it, another currency, special terms.

Plain text: whoever puts it into a message escapes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.conversion import converted
from quotebot.domain.pricing.tax_lines import tax_lines

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.approvals.avoidance import Avoidance
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.pricing.engine import Pricing

Row = tuple[str, str]  # what, and how much


def tax_rows(pricing: Pricing) -> tuple[Row, ...]:
    """Return one row per rate of tax and one for the total with it; none when the price was asked for without tax."""
    rows = [
        (f"Tax {money.format_percent(line.percent)}{' (estimated)' if line.estimated else ''}", _amount(pricing, line.amount))
        for line in tax_lines(pricing)
    ]
    return (*rows, ("Total with tax", _amount(pricing, pricing.gross_total))) if rows else ()


def policy_row(pricing: Pricing, policy_currency: str) -> tuple[Row, ...]:
    """Return the total in the policy's currency with the rate it was converted by; nothing when it is the quote's own."""
    found = converted(pricing, policy_currency)
    return () if found is None else (("For the policy", found.words),)


def terms_row(pricing: Pricing) -> tuple[Row, ...]:
    """Return the special terms of the contract; nothing when there are none."""
    names = ", ".join(term_words(term) for term in pricing.terms)
    return (("Special terms", names),) if names else ()


def rows(pricing: Pricing, policy: ApprovalPolicy | None = None) -> tuple[Row, ...]:
    """Return all of them; with the policy also what it compares with its limits, which is nothing for the customer."""
    foreign = () if policy is None else policy_row(pricing, policy.currency)
    return (*tax_rows(pricing), *foreign, *terms_row(pricing))


def avoidance_rows(changes: tuple[Avoidance, ...], *, approver: bool = False) -> tuple[Row, ...]:
    """Return the changes that avoid an approval: one row when they need nobody then, else one that says who is still needed.

    Only an approver reads those that a margin decides.
    """
    changes = tuple(change for change in changes if approver or not change.by_margin)
    if not changes:
        return ()
    if not any(change.roles for change in changes):
        return (("Needs nobody with", "; or ".join(change.words for change in changes)),)
    return (("Needs less with", "; or ".join(f"{change.words} ({' and '.join(change.roles)})" for change in changes)),)


def margin_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[Row, ...]:
    """Return the margins that are under their floors, with figures. For approvers alone."""
    found = margin_figures(pricing, policy)
    return (("For approvers alone", "; ".join(found)),) if found else ()


def summary_row(summary: str | None) -> tuple[Row, ...]:
    """Return what a model said of the quote, which says so; nothing when it said nothing that may be shown."""
    return () if summary is None else (("Summary (by the model)", summary),)


def _amount(pricing: Pricing, amount: Decimal) -> str:
    return money.format_amount(amount, pricing.currency)
