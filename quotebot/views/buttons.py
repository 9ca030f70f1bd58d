"""Buttons of a card: exactly the transitions that the table allows from the quote's state, so that every button works.

At most five are visible. The menu beside them holds the entries that change nothing, and those that another form does better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, title
from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, Json, button, confirm, menu_text, option, value_text

if TYPE_CHECKING:
    from quotebot.domain.approvals.policy import PolicyDecision

SUBMIT, APPROVE, REJECT = "quote.submit", "approval.approve", "approval.reject"  # action_ids
REQUEST_CHANGES = "approval.request_changes"
APPROVE_WITH_REASON = "approval.approve_with_reason"  # opens a form: dual control requires a written reason
REVISE, FINALIZE, SEND = "quote.revise", "quote.finalize", "quote.send"
ACCEPT, LOSE, CANCEL = "quote.accept", "quote.lose", "quote.cancel"
MORE = "quote.more"  # the menu

REFRESH, EXPLAIN, DISCOUNT = "refresh", "explain", "discount"  # entries of the menu

VISIBLE_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 60  # at most 300 when every character is escaped


@dataclass(frozen=True, slots=True)
class _Move:
    """Button that moves a quote to `target`. It is shown if the table allows that transition."""

    action_id: str
    label: str
    target: QuoteState
    style: Literal["primary", "danger"] | None = None


_MOVES: Final = (
    _Move(FINALIZE, "Finalize", QuoteState.FINALIZED, "primary"),
    _Move(SEND, "Mark as sent", QuoteState.SENT, "primary"),
    _Move(ACCEPT, "Accepted", QuoteState.ACCEPTED, "primary"),
    _Move(LOSE, "Lost", QuoteState.LOST, "danger"),
)


def button_value(quote: Quote, approval: Approval | None = None) -> str:
    """Return the compact JSON value of the buttons and forms of `quote` in its current state."""
    return value_text(ButtonValue(quote.quote_id, quote.version, None if approval is None else approval.approval_id))


def actions(quote: Quote, decision: PolicyDecision | None) -> list[Json]:
    """Return the elements of the card's row of buttons. Submit is hidden if `decision` shows that it would be refused."""
    after = allowed(quote.state)
    made = [*_asking(quote, decision), *deciding(quote)]
    made += [button(move.action_id, move.label, button_value(quote), style=move.style) for move in _MOVES if move.target in after]
    if may_be_changed(quote.state):
        made.append(button(REVISE, "Edit", button_value(quote)))
    if QuoteState.CANCELLED in after:
        made.append({**button(CANCEL, "Cancel quote", button_value(quote)), "confirm": _cancelling(quote)})
    assert len(made) <= VISIBLE_MAX  # noqa: S101 -- a table test covers every state
    return [*made, _menu(quote)]


def _asking(quote: Quote, decision: PolicyDecision | None) -> list[Json]:
    """Return Submit if an approval can be requested, or requested again after the last request expired undecided."""
    lapsed = quote.approval is not None and quote.approval.state is ApprovalState.EXPIRED
    again = lapsed and quote.state is QuoteState.PENDING_APPROVAL
    first = QuoteState.PENDING_APPROVAL in allowed(quote.state) and (decision is None or not decision.blocked)
    return [button(SUBMIT, "Submit", button_value(quote), style="primary")] if again or first else []


def deciding(quote: Quote) -> list[Json]:
    """Return Approve, Request changes and Reject while the quote waits for a decision."""
    approval = quote.approval
    if QuoteState.REJECTED not in allowed(quote.state) or approval is None or approval.state is not ApprovalState.PENDING:
        return []
    value = button_value(quote, approval)
    approve = {
        **button(APPROVE, "Approve", value, style="primary"),
        "confirm": confirm(
            f"Approve {title(quote)}?",
            f"{messages.net(quote)} for {_account(quote)}. This creates the PDF and the CRM record.",
            "Approve",
            "Not yet",
        ),
    }
    if any(slot.dual_control and slot.is_open for slot in approval.slots):
        approve = button(APPROVE_WITH_REASON, "Approve", value, style="primary")
    return [
        approve,
        button(REQUEST_CHANGES, "Request changes", value),
        button(REJECT, "Reject", value, style="danger"),
    ]


def _cancelling(quote: Quote) -> dict[str, Any]:
    return {
        **confirm(
            f"Cancel {title(quote)}?",
            f"{messages.net(quote)} for {_account(quote)}. That is final: nothing more will happen to it.",
            "Cancel the quote",
            "Keep it",
        ),
        "style": "danger",
    }


def _menu(quote: Quote) -> Json:
    value = ButtonValue(quote.quote_id, quote.version, None)
    entries = [("Change the discount", DISCOUNT)] if may_be_changed(quote.state) else []
    entries += [("How it is priced", EXPLAIN), ("Refresh this card", REFRESH)]
    return {
        "type": "overflow",
        "action_id": MORE,
        "options": [option(label, menu_text(deed, value)) for label, deed in entries],
    }


def _account(quote: Quote) -> str:
    return clipped(messages.one_line(quote.account), NAME_CHARACTERS_MAX)
