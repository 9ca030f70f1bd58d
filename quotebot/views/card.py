"""Status card of a quote: one message, rendered completely from the current state, so that rendering it twice changes nothing.

Its buttons are exactly the transitions that the table allows from the quote's state, so that every button works. At most five are
visible; the menu beside them holds the entries that change nothing, and those that another form does better. Its price rows (tax,
policy currency, special terms) are plain text and the same on every surface.

Block Kit limits hold by construction: every text is cut to its limit and long quotes are summarised. Text from people and vendors
is escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from quotebot.domain import money
from quotebot.domain.approvals.decisions import decided_words, slot_words
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.commercial_terms import term_rows
from quotebot.domain.pricing.conversion import converted
from quotebot.domain.pricing.engine import PricedLine, Pricing, clipped, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.pricing.tax_lines import tax_lines
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, SlotState, local_time, state_words, title
from quotebot.views import approval_messages, messages
from quotebot.views.blocks import (
    ButtonValue,
    Json,
    button,
    confirm,
    context,
    menu_text,
    mrkdwn,
    option,
    plain,
    section,
    value_text,
)
from quotebot.views.pending_buttons import PendingCommand, PendingEffect, command_buttons, effect_buttons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from quotebot.domain.approvals.advice import Avoidance, EasierChange
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision

SUBMIT, APPROVE, REJECT = "quote.submit", "approval.approve", "approval.reject"  # action_ids
REQUEST_CHANGES = "approval.request_changes"
APPROVE_WITH_REASON = "approval.approve_with_reason"  # opens a form: dual control requires a written reason
REVISE, FINALIZE, SEND = "quote.revise", "quote.finalize", "quote.send"
ACCEPT, LOSE, CANCEL_QUOTE = "quote.accept", "quote.lose", "quote.cancel"
MORE = "quote.more"  # the menu

REFRESH, EXPLAIN, DISCOUNT = "refresh", "explain", "discount"  # entries of the menu

VISIBLE_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 60  # at most 300 when every character is escaped

PriceRow = tuple[str, str]  # name and value

HEADER_CHARACTERS_MAX = 150
SECTION_CHARACTERS_MAX = 3_000
TABLE_CHARACTERS_MAX = 2_800  # leaves room for the line that summarises the rest
CONTEXT_ELEMENTS_MAX = 10
LINES_SHOWN_MAX = 20
DETAIL_CHARACTERS_MAX = 200
FIGURE_CHARACTERS_MAX = 300
REASONS_CHARACTERS_MAX = 500

STATE_ICONS = {  # the state's name is always shown beside it
    QuoteState.DRAFT: "✏️",
    QuoteState.VALIDATED: "☑️",
    QuoteState.PRICED: "📝",
    QuoteState.PENDING_APPROVAL: "⏳",
    QuoteState.APPROVED: "✅",
    QuoteState.REJECTED: "⛔",
    QuoteState.FINALIZED: "🔒",
    QuoteState.SENT: "📤",
    QuoteState.ACCEPTED: "🏆",
    QuoteState.LOST: "⚪",
    QuoteState.CANCELLED: "🚫",
    QuoteState.EXPIRED: "⌛",
}
_DECIDED_ICONS = {
    ApprovalState.APPROVED: "✅",
    ApprovalState.REJECTED: "⛔",
    ApprovalState.CHANGES_REQUESTED: "✏️",
    ApprovalState.EXPIRED: "⌛",
    ApprovalState.INVALIDATED: "🚫",
}
_LINK = re.compile(r"https?://[^\s<>|]{1,500}")  # contains no character that would end a Slack link early
_OWED_ICONS = {"pending": "⏳", "retrying": "⏳", "in doubt": "❔", "failed": "⚠️", "cancelled": "🚫"}
_OWED_WORDS = {"retrying": "pending retry", "in doubt": "in doubt, it is being looked for"}
_AFTER_THE_PAUSE = {
    "CRM": "it is written to Salesforce when the pause is over",
    "CRM status": "its status is written to Salesforce when the pause is over",
    "CRM amount": "its amount is written to Salesforce when the pause is over",
    "CRM stage": "its stage is written to Salesforce when the pause is over",
    "CRM PDF": "its PDF is attached in Salesforce when the pause is over",
    "PDF": "its PDF follows when the pause is over",
}


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


def actions(quote: Quote, decision: PolicyDecision | None, *, decides: bool = True) -> list[Json]:
    """Return the elements of the card's row of buttons. Submit is hidden if `decision` shows that it would be refused."""
    after = allowed(quote.state)
    made = [*_asking(quote, decision), *(deciding(quote) if decides else ())]
    made += [button(move.action_id, move.label, button_value(quote), style=move.style) for move in _MOVES if move.target in after]
    if may_be_changed(quote.state):
        made.append(button(REVISE, "Edit", button_value(quote)))
    if QuoteState.CANCELLED in after:
        made.append({**button(CANCEL_QUOTE, "Cancel quote", button_value(quote)), "confirm": _cancelling(quote)})
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


def tax_rows(pricing: Pricing) -> tuple[PriceRow, ...]:
    """Return one row per tax rate and one for the total with tax; none if the price was requested without tax."""
    price_rows = [
        (f"Tax {money.format_percent(line.percent)}{' (estimated)' if line.estimated else ''}", _amount(pricing, line.amount))
        for line in tax_lines(pricing)
    ]
    return (*price_rows, ("Total with tax", _amount(pricing, pricing.gross_total))) if price_rows else ()


def policy_row(pricing: Pricing, policy_currency: str) -> tuple[PriceRow, ...]:
    """Return the total in the policy's currency with the conversion rate; none if the quote has the same currency."""
    found = converted(pricing, policy_currency)
    return () if found is None else (("For the policy", found.words),)


def terms_row(pricing: Pricing) -> tuple[PriceRow, ...]:
    """Return the special terms of the contract; no row if there are none."""
    names = ", ".join(term_words(term) for term in pricing.terms)
    return (("Special terms", names),) if names else ()


def sale_rows(pricing: Pricing) -> tuple[PriceRow, ...]:
    """Return the segment, the billing frequency and the commercial terms; no row where they are the usual ones."""
    request = request_of(pricing)
    billing = request.billing_frequency
    rows = (("Segment", request.segment), ("Billing", None if billing == BILLING_FREQUENCIES[0] else billing))
    return (*((name, value) for name, value in rows if value is not None), *term_rows(request.commercial))


def price_rows(pricing: Pricing, policy: ApprovalPolicy | None = None) -> tuple[PriceRow, ...]:
    """Return all price rows. With `policy`, also the total that it compares with its limits, which is not for the customer."""
    foreign = () if policy is None else policy_row(pricing, policy.currency)
    return (*tax_rows(pricing), *foreign, *sale_rows(pricing), *terms_row(pricing))


def avoidance_rows(changes: Sequence[Avoidance | EasierChange], *, approver: bool = False) -> tuple[PriceRow, ...]:
    """Return one row with the changes that avoid an approval; if any change still needs approvers, the row names their roles.

    Changes that a margin decides are shown only to an approver.
    """
    changes = [change for change in changes if approver or not change.by_margin]
    if not changes:
        return ()
    if not any(change.roles for change in changes):
        return (("Needs nobody with", "; or ".join(change.words for change in changes)),)
    return (("Needs less with", "; or ".join(f"{change.words} ({messages.approver_words(change.roles)})" for change in changes)),)


def margin_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[PriceRow, ...]:
    """Return the margins below their floors, with figures. For approvers only."""
    found = margin_figures(pricing, policy)
    return (("For approvers alone", "; ".join(found)),) if found else ()


def margin_effect(pricing: Pricing) -> str | None:
    """Return the margin, and what it is without the discount; None for a quote of no value. For approvers only."""
    margin, without = pricing.margin_percent, pricing.list_margin_percent
    if margin is None:
        return None
    instead = "" if without is None or without == margin else f" instead of {money.format_percent(without)} without discount"
    return f"margin {money.format_percent(margin)}{instead}"


def approver_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[PriceRow, ...]:
    """Return the row of an approver's private card: the margin effect, and the margins below their floors."""
    effect = margin_effect(pricing)
    found = (*(() if effect is None else (effect,)), *margin_figures(pricing, policy))
    return (("For approvers alone", "; ".join(found)),) if found else ()


def summary_row(summary: str | None) -> tuple[PriceRow, ...]:
    """Return the model's summary of the quote, labelled as such; no row if there is none that may be shown."""
    return () if summary is None else (("Summary (by the model)", summary),)


def _amount(pricing: Pricing, amount: Decimal) -> str:
    return money.format_amount(amount, pricing.currency)


@dataclass(frozen=True, slots=True)
class Card:
    """Message: `text` for notifications and screen readers, `blocks` as Block Kit JSON."""

    text: str
    blocks: list[dict[str, Any]]


def status_card(
    quote: Quote,
    owed: tuple[PendingEffect, ...],
    *,
    approvers: tuple[str, ...] = (),
    away: tuple[Delegation, ...] = (),
    decision: PolicyDecision | None = None,
    free_discount: Decimal | None = None,
    figures: tuple[PriceRow, ...] = (),
    easier: tuple[PriceRow, ...] = (),
    pending: tuple[PendingCommand, ...] = (),
    buttons: bool = True,
    decides: bool = True,
) -> Card:
    """Render the card.

    `approvers` are the user ids to name while approval is pending; `away` are the delegations that may apply to them. `decision`
    is the policy's preview before submission; `free_discount` is the largest discount in per cent that needs no approval.
    `figures` are (name, value) rows below the lines; `easier` are rows below the required approvers, with changes that would need
    fewer approvals. `pending` are the commands that wait for a retry, or have not ended for a while. `decides` is false where
    an approval is decided elsewhere.
    """
    pricing = quote.pricing
    account, net = messages.one_line(quote.account), messages.net(quote)
    text = f"Quote {title(quote)} for {messages.escape(clipped(account, HEADER_CHARACTERS_MAX))}: {_state(quote.state)}, {net}"
    approval_text = _approval_text(quote, approvers, away, decision, free_discount)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": plain(clipped(f"Quote {title(quote)} · {account}", HEADER_CHARACTERS_MAX))},
        {"type": "section", "fields": _fields(quote)},
        section(_table(pricing, owed)),
        *([section("\n".join(messages.option_rows(pricing)))] if pricing.options else []),
        *figure_rows(figures),
        *([] if approval_text is None else [section(approval_text)]),
        *figure_rows(easier, "💡 "),
        *(
            [{"type": "actions", "block_id": "quote.actions", "elements": actions(quote, decision, decides=decides)}]
            if buttons
            else []
        ),
        *_decided_context(quote),
        *_end_context(quote),
        *([context([_waiting(command) for command in pending])] if pending else []),
        *(command_buttons(quote, command) for command in pending if command.offers),
        *_pending_effects_context(owed),
        *(effect_buttons(quote, effect) for effect in owed if effect.offers),
    ]
    return Card(text, blocks)


def _state(state: QuoteState) -> str:
    return f"{STATE_ICONS[state]} {state_words(state).capitalize()}"


def _fields(quote: Quote) -> list[dict[str, Any]]:
    pricing = quote.pricing
    percent = money.format_percent(pricing.discount_percent)
    facts = {
        "Status": _state(quote.state),
        "Total": f"*{messages.net(quote)}*",
        "List": money.format_amount(pricing.list_total, pricing.currency),
        "Discount": f"{percent} ({money.format_amount(pricing.discount_total, pricing.currency)})",
        "Term": "1 month" if pricing.term_months == 1 else f"{pricing.term_months} months",
        "Requested by": messages.mention(quote.requester),
    }
    return [mrkdwn(f"*{name}*\n{fact}") for name, fact in facts.items()]


def _table(pricing: Pricing, owed: tuple[PendingEffect, ...]) -> str:
    rows: list[str] = []
    size = 0
    for line in pricing.lines[:LINES_SHOWN_MAX]:
        row = _row(line, pricing.currency)
        size += len(row) + 1
        if size > TABLE_CHARACTERS_MAX:
            break
        rows.append(row)
    rest = pricing.lines[len(rows) :]
    if rest:
        net = money.total(tuple(line.net_amount for line in rest), pricing.currency)
        what = f"{len(rest)} more {'line' if len(rest) == 1 else 'lines'}"
        pdf = next((effect for effect in owed if effect.label == "PDF" and effect.state == "delivered"), None)
        where = "" if pdf is None else f"; all of them are in the {_linked('PDF', pdf.link)} in this thread"
        rows.append(f"… and {what}, {money.format_amount(net, pricing.currency)} together{where}")
    return "\n".join(rows)


def figure_rows(figures: tuple[PriceRow, ...], sign: str = "") -> list[dict[str, Any]]:
    """Return a paragraph of (name, value) rows; none without rows."""
    rows = [f"{sign}{messages.escape(name)}: *{messages.escape(clipped(value, FIGURE_CHARACTERS_MAX))}*" for name, value in figures]
    paragraphs: list[str] = []
    for row in rows:
        if paragraphs and len(paragraphs[-1]) + len(row) < SECTION_CHARACTERS_MAX:
            paragraphs[-1] += f"\n{row}"
        else:
            paragraphs.append(row)
    return [section(paragraph) for paragraph in paragraphs]


def _row(line: PricedLine, currency: str) -> str:
    name = messages.short(line.name, NAME_CHARACTERS_MAX)
    months = "once" if line.billing == "one_time" else f"× {line.months} {'month' if line.months == 1 else 'months'}"  # noqa: RUF001 -- a product
    unit_price = money.format_unit_price(line.unit_price, currency)
    before = f"{money.format_number(line.list_amount, currency)} → " if line.discount_amount else ""
    part = "" if line.bundle is None else f" (of {messages.short(line.bundle_title, NAME_CHARACTERS_MAX)})"
    name = f"*{name}*{messages.line_options(line)}{part}"
    net = f"{before}*{money.format_amount(line.net_amount, currency)}*"
    return f"• {line.quantity:,} × {name} · {unit_price} {months}: {net}"  # noqa: RUF001 -- a product


def _approval_text(
    quote: Quote,
    approvers: tuple[str, ...],
    away: tuple[Delegation, ...],
    decision: PolicyDecision | None,
    free_discount: Decimal | None,
) -> str | None:
    if quote.state is QuoteState.PRICED and decision is not None:
        hint = "" if free_discount is None else f"\n💡 Up to {money.format_percent(free_discount)} discount it needs nobody"
        return f"{_preview(decision)}{hint}"
    approval = quote.approval
    if quote.state is not QuoteState.PENDING_APPROVAL or approval is None:
        return None
    if approval.state is not ApprovalState.PENDING:
        return "⌛ Nobody decided in time. Submit it to ask again"
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    waiting = f"\nWaiting for {approval_messages.waiting_for(asked, away)}" if asked else ""
    given = "".join(f"\n✅ {slot_words(slot)}" for slot in approval.slots if slot.state is SlotState.APPROVED)
    return f"⏳ {_needs(approval.required_roles, approval.reasons)}{given}{waiting}"


def _preview(decision: PolicyDecision) -> str:
    if decision.blocked:
        return f"🚫 Blocked by policy: {_reasons(decision.hits)}. Create a quote that keeps to the limit."
    if decision.automatic:
        return "✅ Needs no approval: submitting approves it at once"
    return f"🔎 {_needs(decision.required_roles, decision.hits)}"


def _needs(roles: tuple[str, ...], reasons: tuple[str, ...]) -> str:
    why = f": {_reasons(reasons)}" if reasons else ""
    return f"Needs approval by *{messages.approver_words(roles)}*{why}"


def _reasons(reasons: tuple[str, ...]) -> str:
    return messages.escape(clipped("; ".join(messages.one_line(reason) for reason in reasons), REASONS_CHARACTERS_MAX))


def _decided_context(quote: Quote) -> list[dict[str, Any]]:
    approval = quote.approval
    if approval is None or approval.state is ApprovalState.PENDING:
        return []
    icon = _DECIDED_ICONS[approval.state]
    sentence = decided_words(approval)
    reason = (
        ""
        if approval.decision_reason is None
        else f"\n{messages.quoted(clipped(approval.decision_reason, REASONS_CHARACTERS_MAX))}"
    )
    return [context([f"{icon} {sentence[:1].upper()}{sentence[1:]}{reason}"])]


def _end_context(quote: Quote) -> list[dict[str, Any]]:
    """Return the lines on the quote's finalization, its recipient and its end."""
    lines = []
    if quote.frozen is not None:
        lines.append(f"🔒 Finalized by {messages.mention(quote.frozen.frozen_by)}, {local_time(quote.frozen.frozen_at)}")
    if quote.sent is not None:
        recipient = messages.short(quote.sent.recipient, DETAIL_CHARACTERS_MAX)
        lines.append(f"📤 Sent to {recipient} by {messages.mention(quote.sent.sent_by)}, {local_time(quote.sent.sent_at)}")
    if quote.closing is not None:
        closing = quote.closing
        reason = "" if closing.reason is None else f"\n{messages.quoted(clipped(closing.reason, REASONS_CHARACTERS_MAX))}"
        lines.append(f"{_state(quote.state)} by {messages.mention(closing.closed_by)}, {local_time(closing.closed_at)}{reason}")
    return [context(lines)] if lines else []


def _waiting(command: PendingCommand) -> str:
    if command.retried_at is None:
        return f"⏳ {command.name}: {messages.OPERATION_PENDING}"
    return f"⏳ {command.name}: {messages.retry_pending(command.retried_at)}"


def _pending_effects_context(owed: tuple[PendingEffect, ...]) -> list[dict[str, Any]]:
    done = " · ".join(_delivered(effect) for effect in owed if effect.state == "delivered")
    open_lines = [_undelivered(effect) for effect in owed if effect.state != "delivered"]
    lines = [*open_lines[: CONTEXT_ELEMENTS_MAX - 1], *([done] if done else [])]
    return [context(lines)] if lines else []


def _delivered(effect: PendingEffect) -> str:
    if effect.label == "PDF":
        return "PDF in this thread"
    return f"Salesforce {messages.short(effect.detail, DETAIL_CHARACTERS_MAX)}" if effect.detail else "Salesforce updated"


def _linked(text: str, link: str | None) -> str:
    """Return the text as a Slack link, or unchanged if `link` is None or cannot be written as one."""
    return text if link is None or not _LINK.fullmatch(link) else f"<{link}|{text}>"


def _undelivered(effect: PendingEffect) -> str:
    why = f": {messages.short(effect.detail, DETAIL_CHARACTERS_MAX)}" if effect.detail else ""
    if effect.state == "paused":
        since = "" if effect.since is None else f" since {local_time(effect.since)}"
        safe = f"{why.rstrip('.')}. Your quote is safe: {_AFTER_THE_PAUSE[effect.label]}"
        return f"⏸️ {effect.label} paused{since}, ref {messages.escape(effect.ref)}{safe}"
    state = _OWED_WORDS.get(effect.state, effect.state)
    return f"{_OWED_ICONS[effect.state]} {effect.label} {state}, ref {messages.escape(effect.ref)}{why}"
