"""Forms about an approval decision. A form's private_metadata holds the value of the button that opened it."""

from __future__ import annotations

from typing import Any

from quotebot.domain import money
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Approval, Quote, title
from quotebot.views import messages
from quotebot.views.approval_messages import INCIDENT_EXAMPLE
from quotebot.views.blocks import modal, section, text_input
from quotebot.views.buttons import button_value

REJECT_CALLBACK = "approval.reject"
CHANGES_CALLBACK = "approval.request_changes"
APPROVE_CALLBACK = "approval.approve"
REASON = "reason"  # block_id and action_id of the one input
REASON_CHARACTERS_MAX = 500
ACCOUNT_CHARACTERS_MAX = 100


def reject_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the reason of a rejection."""
    return _reason_modal(REJECT_CALLBACK, "Reject quote", "Reject", "Why? The requester reads this.", quote, approval)


def changes_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the changes required for approval."""
    return _reason_modal(
        CHANGES_CALLBACK, "Request changes", "Send back", "What should change? The requester reads this.", quote, approval
    )


def approve_modal(quote: Quote, approval: Approval) -> dict[str, Any]:
    """Return the view that asks for the written reason of an approval under dual control."""
    return _reason_modal(
        APPROVE_CALLBACK,
        "Approve quote",
        "Approve",
        f"Why, and under which incident (such as {INCIDENT_EXAMPLE})?",
        quote,
        approval,
    )


def _reason_modal(callback_id: str, head: str, submit: str, question: str, quote: Quote, approval: Approval) -> dict[str, Any]:
    net = money.format_amount(quote.pricing.net_total, quote.pricing.currency)
    account = messages.escape(clipped(messages.one_line(quote.account), ACCOUNT_CHARACTERS_MAX))
    summary = f"*{title(quote)}* for {account}, {net}, asked for by {messages.mention(approval.requested_by)}"
    field = text_input(REASON, question, length_max=REASON_CHARACTERS_MAX, multiline=True)
    return modal(callback_id, head, submit, button_value(quote, approval), [section(summary), field])


def parse_rejection(view_state_values: Any) -> str | None:
    """Return the reason from a submitted view's `state.values`, or None if it is empty or longer than 500 characters."""
    found = view_state_values
    for key in (REASON, REASON, "value"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or len(found) > REASON_CHARACTERS_MAX:
        return None
    whole = found.encode("utf-8", "ignore").decode()  # drops lone surrogates
    lines = (messages.one_line(line) for line in whole.splitlines())
    reason = "\n".join(line for line in lines if line)
    return reason if 1 <= len(reason) <= REASON_CHARACTERS_MAX else None
