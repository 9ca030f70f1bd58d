"""Price rows beside the lines, the same on every surface: tax, total with tax, policy currency, special terms.

The values are plain text: the caller escapes them for a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.conversion import converted
from quotebot.domain.pricing.tax_lines import tax_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from quotebot.domain.approvals.advice import EasierChange
    from quotebot.domain.approvals.avoidance import Avoidance
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.pricing.engine import Pricing

Row = tuple[str, str]  # name and value


def tax_rows(pricing: Pricing) -> tuple[Row, ...]:
    """Return one row per tax rate and one for the total with tax; none if the price was requested without tax."""
    rows = [
        (f"Tax {money.format_percent(line.percent)}{' (estimated)' if line.estimated else ''}", _amount(pricing, line.amount))
        for line in tax_lines(pricing)
    ]
    return (*rows, ("Total with tax", _amount(pricing, pricing.gross_total))) if rows else ()


def policy_row(pricing: Pricing, policy_currency: str) -> tuple[Row, ...]:
    """Return the total in the policy's currency with the conversion rate; none if the quote has the same currency."""
    found = converted(pricing, policy_currency)
    return () if found is None else (("For the policy", found.words),)


def terms_row(pricing: Pricing) -> tuple[Row, ...]:
    """Return the special terms of the contract; no row if there are none."""
    names = ", ".join(term_words(term) for term in pricing.terms)
    return (("Special terms", names),) if names else ()


def rows(pricing: Pricing, policy: ApprovalPolicy | None = None) -> tuple[Row, ...]:
    """Return all price rows. With `policy`, also the total that it compares with its limits, which is not for the customer."""
    foreign = () if policy is None else policy_row(pricing, policy.currency)
    return (*tax_rows(pricing), *foreign, *terms_row(pricing))


def avoidance_rows(changes: Sequence[Avoidance | EasierChange], *, approver: bool = False) -> tuple[Row, ...]:
    """Return one row with the changes that avoid an approval; if any change still needs approvers, the row names their roles.

    Changes that a margin decides are shown only to an approver.
    """
    changes = [change for change in changes if approver or not change.by_margin]
    if not changes:
        return ()
    if not any(change.roles for change in changes):
        return (("Needs nobody with", "; or ".join(change.words for change in changes)),)
    return (("Needs less with", "; or ".join(f"{change.words} ({' and '.join(change.roles)})" for change in changes)),)


def margin_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[Row, ...]:
    """Return the margins below their floors, with figures. For approvers only."""
    found = margin_figures(pricing, policy)
    return (("For approvers alone", "; ".join(found)),) if found else ()


def summary_row(summary: str | None) -> tuple[Row, ...]:
    """Return the model's summary of the quote, labelled as such; no row if there is none that may be shown."""
    return () if summary is None else (("Summary (by the model)", summary),)


def _amount(pricing: Pricing, amount: Decimal) -> str:
    return money.format_amount(amount, pricing.currency)
