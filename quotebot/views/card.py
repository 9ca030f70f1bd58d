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
from quotebot.domain.language import _
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
    option,
    plain,
    section,
    value_text,
)
from quotebot.views.pending_buttons import UNDELIVERED, PendingCommand, PendingEffect, command_buttons, effect_buttons

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
APPROVE_AT_ONCE: Final = "Approve & create PDF"
_LINK = re.compile(r"https?://[^\s<>|]{1,500}")  # contains no character that would end a Slack link early
GIVEN_MAX: Final = 5  # approvals shown while others are missing
_AFTER_APPROVAL: Final = "The PDF goes to the thread and the quote to Salesforce."
_TO_EDIT: Final = (QuoteState.DRAFT, QuoteState.REJECTED)
_TO_EDIT_HINT: Final = "Edit the quote to make a new version you can submit."


@dataclass(frozen=True, slots=True)
class _Move:
    """Button that moves a quote to `target`. It is shown if the table allows that transition."""

    action_id: str
    label: str
    target: QuoteState
    style: Literal["primary", "danger"] | None = None


_MOVES: Final = (
    _Move(FINALIZE, "Lock for sending", QuoteState.FINALIZED, "primary"),
    _Move(SEND, "Mark as sent", QuoteState.SENT, "primary"),
    _Move(ACCEPT, "Mark as won", QuoteState.ACCEPTED, "primary"),
    _Move(LOSE, "Mark as lost", QuoteState.LOST, "danger"),
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
        made.append(button(REVISE, "Edit", button_value(quote), style="primary" if quote.state in _TO_EDIT else None))
    if QuoteState.CANCELLED in after:
        made.append({**button(CANCEL_QUOTE, "Cancel quote", button_value(quote)), "confirm": _cancelling(quote)})
    assert len(made) <= VISIBLE_MAX  # noqa: S101 -- a table test covers every state
    return [*made, _menu(quote)]


def _asking(quote: Quote, decision: PolicyDecision | None) -> list[Json]:
    """Return Submit if an approval can be requested, or requested again after the last request expired undecided."""
    lapsed = quote.approval is not None and quote.approval.state is ApprovalState.EXPIRED
    again = lapsed and quote.state is QuoteState.PENDING_APPROVAL
    first = QuoteState.PENDING_APPROVAL in allowed(quote.state) and (decision is None or not decision.blocked)
    if not (again or first):
        return []
    if decision is None or not decision.automatic or again:
        return [button(SUBMIT, "Submit for approval", button_value(quote), style="primary")]
    sure = confirm("Create the PDF?", f"{_deal(quote)}. {_AFTER_APPROVAL}", APPROVE_AT_ONCE, "Go back")
    return [{**button(SUBMIT, APPROVE_AT_ONCE, button_value(quote), style="primary"), "confirm": sure}]


def deciding(quote: Quote) -> list[Json]:
    """Return Approve, Request changes and Reject while the quote waits for a decision."""
    approval = quote.approval
    if QuoteState.REJECTED not in allowed(quote.state) or approval is None or approval.state is not ApprovalState.PENDING:
        return []
    value = button_value(quote, approval)
    approve = {
        **button(APPROVE, "Approve", value, style="primary"),
        "confirm": confirm(
            "Approve this quote?",
            f"{_deal(quote)}{_off(quote)}. {_AFTER_APPROVAL}",
            "Approve",
            "Go back",
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
            "Cancel this quote?",
            f"{_deal(quote)}. You can't undo this, but you can clone it later.",
            "Cancel quote",
            "Keep quote",
        ),
        "style": "danger",
    }


def _menu(quote: Quote) -> Json:
    value = ButtonValue(quote.quote_id, quote.version, None)
    entries = [("Change discount", DISCOUNT)] if may_be_changed(quote.state) else []
    entries += [("How pricing works", EXPLAIN), ("Refresh", REFRESH)]
    return {
        "type": "overflow",
        "action_id": MORE,
        "options": [option(label, menu_text(deed, value)) for label, deed in entries],
    }


def _deal(quote: Quote) -> str:
    return f"{_account(quote)} · {messages.net(quote)}"


def _off(quote: Quote) -> str:
    percent = quote.pricing.discount_percent
    return f" · {money.format_percent(percent)} off" if percent else ""


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
    return () if found is None else ((f"Policy check in {policy_currency}", found.words),)


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
    """Return one row with the changes that avoid an approval; if any change still needs approvers, one row each with their roles.

    Changes that a margin decides are shown only to an approver.
    """
    changes = [change for change in changes if approver or not change.by_margin]
    if not changes:
        return ()
    if not any(change.roles for change in changes):
        return (("No approval needed with", " or ".join(change.words for change in changes)),)
    return tuple(
        (f"Only {messages.approver_words(change.roles)} approves with" if change.roles else "No approval needed with", change.words)
        for change in changes
    )


def margin_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[PriceRow, ...]:
    """Return the margins below their floors, with figures. For approvers only."""
    found = margin_figures(pricing, policy)
    return (("For approvers only", "; ".join(found)),) if found else ()


def margin_effect(pricing: Pricing) -> str | None:
    """Return the margin, and what it is without the discount; None for a quote of no value. For approvers only."""
    margin, without = pricing.margin_percent, pricing.list_margin_percent
    if margin is None:
        return None
    instead = "" if without is None or without == margin else f" ({money.format_percent(without)} without discount)"
    return f"margin {money.format_percent(margin)}{instead}"


def approver_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[PriceRow, ...]:
    """Return the row of an approver's private card: the margin effect, and the margins below their floors."""
    effect = margin_effect(pricing)
    found = (*(() if effect is None else (effect,)), *margin_figures(pricing, policy))
    return (("For approvers only", "; ".join(found)),) if found else ()


def summary_row(summary: str | None) -> tuple[PriceRow, ...]:
    """Return the model's summary of the quote, labelled as such; no row if there is none that may be shown."""
    return () if summary is None else (("AI summary", summary),)


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
    decided, ends = _decided(quote), _ends(quote)
    on_top = quote.state in _TO_EDIT
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": plain(_header(quote))},
        *([section(f"{decided}\n{_TO_EDIT_HINT}")] if decided is not None and on_top else []),
        section(_summary(quote)),
        *line_sections(pricing, owed),
        *figure_rows(figures),
        *(section(text) for text in _approval_texts(quote, approvers, away, decision, free_discount)),
        *figure_rows(easier, "💡 "),
        *(
            [{"type": "actions", "block_id": "quote.actions", "elements": actions(quote, decision, decides=decides)}]
            if buttons
            else []
        ),
        *([context([decided])] if decided is not None and not on_top else []),
        *([context(ends)] if ends else []),
        *([context([_waiting(command) for command in pending])] if pending else []),
        *(command_buttons(quote, command) for command in pending if command.offers),
        *_pending_effects_context(owed),
        *(effect_buttons(quote, effect) for effect in owed if effect.offers),
    ]
    return Card(text, blocks)


def _state(state: QuoteState) -> str:
    return f"{STATE_ICONS[state]} {state_words(state).capitalize()}"


def _header(quote: Quote) -> str:
    """Return "Acme · Q-2026-0042 v2"; a long customer's name is cut, the number never."""
    room = HEADER_CHARACTERS_MAX - len(title(quote)) - len(" · ")
    return f"{clipped(messages.one_line(quote.account), room)} · {title(quote)}"


def _summary(quote: Quote) -> str:
    pricing = quote.pricing
    listed = money.format_amount(pricing.list_total, pricing.currency)
    percent = pricing.discount_percent
    off = f"{money.format_percent(percent)} off {listed}" if percent else f"list price {listed}"
    facts = (
        _state(quote.state),
        f"*{messages.net(quote)}*",
        *((off,) if pricing.discount_total else ()),
        "1 month" if pricing.term_months == 1 else f"{pricing.term_months} months",
        messages.mention(quote.requester),
    )
    return " · ".join(facts)


def line_sections(pricing: Pricing, owed: tuple[PendingEffect, ...] = ()) -> list[Json]:
    """Return the lines of a quote, and the optional ones below them."""
    options = [section("\n".join(messages.option_rows(pricing)))] if pricing.options else []
    return [section(_table(pricing, owed)), *options]


def _table(pricing: Pricing, owed: tuple[PendingEffect, ...]) -> str:
    rows: list[str] = []
    size = 0
    for line in pricing.lines[:LINES_SHOWN_MAX]:
        row = _row(line, pricing)
        size += len(row) + 1
        if size > TABLE_CHARACTERS_MAX:
            break
        rows.append(row)
    rest = pricing.lines[len(rows) :]
    if rest:
        net = money.total(tuple(line.net_amount for line in rest), pricing.currency)
        what = f"{len(rest)} more {'line' if len(rest) == 1 else 'lines'}"
        pdf = next((effect for effect in owed if effect.label == "PDF" and effect.state == "delivered"), None)
        where = "" if pdf is None else f". {linked('See all in the PDF', pdf.link)}"
        rows.append(f"+ {what}, {money.format_amount(net, pricing.currency)}{where}")
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


def _row(line: PricedLine, pricing: Pricing) -> str:
    currency = pricing.currency
    part = "" if line.bundle is None else f" (of {messages.short(line.bundle_title, NAME_CHARACTERS_MAX)})"
    name = f"*{messages.short(line.name, NAME_CHARACTERS_MAX)}* × {line.quantity:,}{messages.line_options(line, currency)}{part}"  # noqa: RUF001 -- a product
    net = f"*{money.format_amount(line.net_amount, currency)}*"
    before = f" ~{money.format_amount(line.list_amount, currency)}~" if line.discount_amount else ""
    return f"{name} · {_unit(line, pricing)} · {net}{before}"


def _unit(line: PricedLine, pricing: Pricing) -> str:
    """Return the price of one unit: "$6.00/month", with the months if they are not the quote's; "one-time" for a single one."""
    price = money.format_unit_price(line.unit_price, pricing.currency)
    if line.billing == "one_time":
        return "one-time" if line.quantity == 1 else f"{price} one-time"
    if line.months == pricing.term_months:
        return f"{price}/month"
    return f"{price}/month for {line.months} {'month' if line.months == 1 else 'months'}"


def _approval_texts(
    quote: Quote,
    approvers: tuple[str, ...],
    away: tuple[Delegation, ...],
    decision: PolicyDecision | None,
    free_discount: Decimal | None,
) -> list[str]:
    """Return what a submission would need, or what the open request waits for; nothing in the other states."""
    if quote.state is QuoteState.PRICED and decision is not None:
        hint = "" if free_discount is None else f"\n💡 No approval needed up to {money.format_percent(free_discount)} discount"
        return [f"{_preview(decision)}{hint}"]
    approval = quote.approval
    if quote.state is not QuoteState.PENDING_APPROVAL or approval is None:
        return []
    if approval.state is not ApprovalState.PENDING:
        return ["⌛ Approval request expired with no decision. Submit to ask again."]
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    given = [f"✅ {slot_words(slot)}" for slot in approval.slots if slot.state is SlotState.APPROVED]
    progress = [*given[:GIVEN_MAX], *([f"Waiting for {approval_messages.waiting_for(asked, away)}"] if asked else [])]
    needs = f"⏳ {needs_text(approval.required_roles, approval.reasons)}"
    return [needs, "\n".join(progress)] if progress else [needs]


def _preview(decision: PolicyDecision) -> str:
    if decision.blocked:
        return f"🚫 Can't be submitted: {_reasons(decision.hits)}. Edit the quote to continue."
    if decision.automatic:
        return "✅ No approval needed. The PDF is created right away."
    return f"🔎 {needs_text(decision.required_roles, decision.hits)}"


def needs_text(roles: tuple[str, ...], reasons: tuple[str, ...]) -> str:
    """Return the roles with the only reason beside them, or with each of several reasons on a line of its own."""
    if len(reasons) > 1:
        listed = "\n".join(f"• {reason[:1].upper()}{reason[1:]}" for reason in map(messages.one_line, reasons))
        return f"*Needs approval from {messages.approver_words(roles)}*\n{messages.escape(clipped(listed, REASONS_CHARACTERS_MAX))}"
    return f"Needs approval: *{messages.approver_words(roles)}*" + (f" · {_reasons(reasons)}" if reasons else "")


def _reasons(reasons: tuple[str, ...]) -> str:
    return messages.escape(clipped("; ".join(messages.one_line(reason) for reason in reasons), REASONS_CHARACTERS_MAX))


def _decided(quote: Quote) -> str | None:
    """Return the decision of the last request with its reason; None while it is open, or if there is none."""
    approval = quote.approval
    if approval is None or approval.state is ApprovalState.PENDING:
        return None
    sentence = decided_words(approval)
    reason = (
        ""
        if approval.decision_reason is None
        else f"\n{messages.quoted(clipped(approval.decision_reason, REASONS_CHARACTERS_MAX))}"
    )
    return f"{_DECIDED_ICONS[approval.state]} {sentence[:1].upper()}{sentence[1:]}{reason}"


def _ends(quote: Quote) -> list[str]:
    """Return the lines on the quote's lock, its recipient and its end."""
    lines = []
    if quote.frozen is not None:
        lines.append(f"🔒 Locked by {messages.mention(quote.frozen.frozen_by)}, {local_time(quote.frozen.frozen_at)}")
    if quote.sent is not None:
        recipient = messages.short(quote.sent.recipient, DETAIL_CHARACTERS_MAX)
        lines.append(f"📤 Sent to {recipient} by {messages.mention(quote.sent.sent_by)}, {local_time(quote.sent.sent_at)}")
    if quote.closing is not None:
        closing = quote.closing
        reason = "" if closing.reason is None else f"\n{messages.quoted(clipped(closing.reason, REASONS_CHARACTERS_MAX))}"
        lines.append(f"{_state(quote.state)} · {messages.mention(closing.closed_by)}, {local_time(closing.closed_at)}{reason}")
    return lines


def _waiting(command: PendingCommand) -> str:
    if command.retried_at is None:
        return f"⏳ {command.name}: {_(messages.OPERATION_PENDING)}"
    return f"⏳ {command.name}: {messages.retry_pending(command.retried_at)}"


def _pending_effects_context(owed: tuple[PendingEffect, ...]) -> list[Json]:
    """Return the lines on a quote's effects: one for each that is not delivered, and one for all others."""
    done = " · ".join(_delivered(effect) for effect in owed if effect.state == "delivered")
    open_lines = [_undelivered(effect) for effect in owed if effect.state != "delivered"]
    lines = [*open_lines[: CONTEXT_ELEMENTS_MAX - 1], *([done] if done else [])]
    return [context(lines)] if lines else []


def _delivered(effect: PendingEffect) -> str:
    if effect.label == "PDF":
        return linked("PDF", effect.link) if effect.link is not None else "PDF in this thread"
    return linked("Open in Salesforce", effect.link) if effect.link is not None else "In Salesforce"


def linked(text: str, link: str | None) -> str:
    """Return the text as a Slack link, or unchanged if `link` is None or cannot be written as one."""
    return text if link is None or not _LINK.fullmatch(link) else f"<{link}|{text}>"


def _undelivered(effect: PendingEffect) -> str:
    """Return the line of an effect that is not delivered: what happens with it, and whether anything is needed."""
    words = UNDELIVERED[effect.label]
    if effect.state == "paused":
        return f"⏸️ {words.paused}"
    if effect.state == "failed":
        return f"⚠️ {words.missing}. Our ops team has been notified; no action needed from you. Ref {messages.escape(effect.ref)}"
    if effect.state == "cancelled":
        why = f": {messages.short(effect.detail, DETAIL_CHARACTERS_MAX)}" if effect.detail else ""
        return f"🚫 {words.name} skipped{why}"
    if effect.state == "in doubt":
        return f"❔ Checking whether {words.received}"
    return f"⏳ {words.retrying} Retrying automatically." if effect.state == "retrying" else f"⏳ {words.doing}…"
