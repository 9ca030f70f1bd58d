"""Status card of a quote: one message, rendered completely from the current state, so that rendering it twice changes nothing.

Its buttons are exactly the transitions that the table allows from the quote's state, so that every button works. At most four are
visible; the menu beside them holds the entries that change nothing, those that another form does better, and Edit and Cancel quote
where the buttons of a decision take their room. Its price rows (tax,
policy currency, special terms) are plain text and the same on every surface. After a final state it shows its summary only, and a
button that sends the whole card to one person.

Block Kit limits hold by construction: every text is cut to its limit and long quotes are summarised. Text from people and vendors
is escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from quotebot.domain import money
from quotebot.domain.approvals.decisions import decided_words, slot_words
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.language import N_, _, either, grouped, initial_capital, ngettext
from quotebot.domain.pricing.commercial_terms import term_rows
from quotebot.domain.pricing.conversion import converted
from quotebot.domain.pricing.engine import PricedLine, Pricing, clipped, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.pricing.tax_lines import tax_rows
from quotebot.domain.quotes.lifecycle import allowed, is_final, may_be_changed
from quotebot.domain.quotes.quote import (
    Approval,
    ApprovalState,
    Quote,
    QuoteState,
    SlotState,
    local_age,
    local_day,
    local_time,
    reason_words,
    state_words,
    title,
)
from quotebot.views import approval_messages, messages
from quotebot.views.blocks import (
    ButtonValue,
    Json,
    button,
    confirm,
    context,
    linked,
    menu_text,
    option,
    plain,
    section,
    value_text,
)
from quotebot.views.confirmations import SHOW
from quotebot.views.pending_buttons import (
    EFFECT_TEXTS,
    PendingCommand,
    PendingEffect,
    command_buttons,
    effect_buttons,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from quotebot.domain.approvals.advice import Avoidance, EasierChange
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision
    from quotebot.domain.approvals.roles import Roles

SUBMIT, APPROVE, REJECT = "quote.submit", "approval.approve", "approval.reject"  # action_ids
REQUEST_CHANGES, REMIND = "approval.request_changes", "approval.remind"
APPROVE_WITH_REASON = "approval.approve_with_reason"  # opens a form: dual control requires a written reason
REVISE, RESUBMIT, FINALIZE, SEND = "quote.revise", "quote.resubmit", "quote.finalize", "quote.send"
ACCEPT, LOSE, CANCEL_QUOTE = "quote.accept", "quote.lose", "quote.cancel"
MORE = "quote.more"  # the menu

REFRESH, EXPLAIN, DISCOUNT, CANCEL_BY_FORM = "refresh", "explain", "discount", "cancel"  # entries of the menu

VISIBLE_MAX: Final = 4
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
GIVEN_MAX: Final = 5  # approvals shown while others are missing
_TO_EDIT: Final = (QuoteState.DRAFT, QuoteState.REJECTED)


@dataclass(frozen=True, slots=True)
class _Move:
    """Button that moves a quote to `target`. It is shown if the table allows that transition."""

    action_id: str
    label: str
    target: QuoteState
    style: Literal["primary", "danger"] | None = None


_MOVES: Final = (
    _Move(FINALIZE, N_("Lock for sending"), QuoteState.FINALIZED, "primary"),
    _Move(SEND, N_("Mark as sent"), QuoteState.SENT, "primary"),
    _Move(ACCEPT, N_("Mark as won"), QuoteState.ACCEPTED, "primary"),
    _Move(LOSE, N_("Mark as lost"), QuoteState.LOST, "danger"),
)


def button_value(quote: Quote, approval: Approval | None = None) -> str:
    """Return the compact JSON value of the buttons and forms of `quote` in its current state."""
    return value_text(ButtonValue(quote.quote_id, quote.version, None if approval is None else approval.approval_id))


def actions(quote: Quote, decision: PolicyDecision | None, *, decides: bool = True, folded: bool = False) -> list[Json]:
    """Return the elements of the card's row of buttons. Submissions that `decision` shows to be refused are hidden."""
    after = allowed(quote.state)
    made = [button(SHOW, _("Show lines"), button_value(quote))] if folded else []
    waits = deciding(quote)
    made += [*_asking(quote, decision), *(waits if decides else ())]
    made += [button(REMIND, _("Remind"), button_value(quote, quote.approval))] if waits else []
    made += [
        button(move.action_id, _(move.label), button_value(quote), style=move.style) for move in _MOVES if move.target in after
    ]
    narrow = decides and bool(waits)
    if may_be_changed(quote.state) and not narrow:
        made.append(button(REVISE, _("Edit"), button_value(quote), style="primary" if quote.state in _TO_EDIT else None))
    if quote.sent_back and (decision is None or not (decision.blocked or decision.automatic)):
        made.append(button(RESUBMIT, _("Resubmit as is with a note"), button_value(quote, quote.approval)))
    if QuoteState.CANCELLED in after and not narrow:
        made.append({**button(CANCEL_QUOTE, _("Cancel quote"), button_value(quote)), "confirm": _cancelling(quote)})
    assert len(made) <= VISIBLE_MAX  # noqa: S101 -- a table test covers every state
    return [*made, _menu(quote, narrow=narrow)]


def _asking(quote: Quote, decision: PolicyDecision | None) -> list[Json]:
    """Return Submit if an approval can be requested, or requested again after the last request expired undecided."""
    lapsed = quote.approval is not None and quote.approval.state is ApprovalState.EXPIRED
    again = lapsed and quote.state is QuoteState.PENDING_APPROVAL
    first = quote.state is QuoteState.PRICED and (decision is None or not decision.blocked)
    if not (again or first):
        return []
    if decision is None or not decision.automatic or again:
        return [button(SUBMIT, _("Submit for approval"), button_value(quote), style="primary")]
    label = _("Approve & create PDF")
    sure = confirm(_("Create the PDF?"), _after_approval(_deal(quote)), label, _("Go back"))
    return [{**button(SUBMIT, label, button_value(quote), style="primary"), "confirm": sure}]


def deciding(quote: Quote) -> list[Json]:
    """Return Approve, Request changes and Reject while the quote waits for a decision."""
    approval = quote.approval
    if QuoteState.REJECTED not in allowed(quote.state) or approval is None or approval.state is not ApprovalState.PENDING:
        return []
    value = button_value(quote, approval)
    approve = {
        **button(APPROVE, _("Approve"), value, style="primary"),
        "confirm": confirm(_("Approve this quote?"), _after_approval(f"{_deal(quote)}{_off(quote)}"), _("Approve"), _("Go back")),
    }
    if any(slot.dual_control and slot.is_open for slot in approval.slots):
        approve = button(APPROVE_WITH_REASON, _("Approve"), value, style="primary")
    return [
        approve,
        button(REQUEST_CHANGES, _("Request changes"), value),
        button(REJECT, _("Reject"), value, style="danger"),
    ]


def _cancelling(quote: Quote) -> dict[str, Any]:
    return {
        **confirm(
            _("Cancel this quote?"),
            _("{quote}. You can't undo this, but you can clone it later.", quote=_deal(quote)),
            _("Cancel quote"),
            _("Keep quote"),
        ),
        "style": "danger",
    }


def _menu(quote: Quote, *, narrow: bool) -> Json:
    """Return the menu. With `narrow` it holds what has no room beside the buttons of a decision."""
    value = ButtonValue(quote.quote_id, quote.version, None)
    entries = [(_("Edit"), REVISE)] if narrow else []
    entries += [(_("Change discount"), DISCOUNT)] if may_be_changed(quote.state) else []
    entries += [(_("How pricing works"), EXPLAIN), (_("Refresh"), REFRESH)]
    entries += [(_("Cancel quote"), CANCEL_BY_FORM)] if narrow else []
    return {
        "type": "overflow",
        "action_id": MORE,
        "options": [option(label, menu_text(deed, value)) for label, deed in entries],
    }


def _deal(quote: Quote) -> str:
    return f"{_account(quote)} · {messages.net(quote)}"


def _after_approval(quote: str) -> str:
    return _("{quote}. The PDF goes to the thread and the quote to Salesforce.", quote=quote)


def _off(quote: Quote) -> str:
    percent = quote.pricing.discount_percent
    return " · " + _("{percent} off", percent=money.format_percent(percent)) if percent else ""


def _account(quote: Quote) -> str:
    return clipped(messages.one_line(quote.account), NAME_CHARACTERS_MAX)


def policy_row(pricing: Pricing, policy_currency: str) -> tuple[PriceRow, ...]:
    """Return the total in the policy's currency with the conversion rate; none if the quote has the same currency."""
    found = converted(pricing, policy_currency)
    return () if found is None else ((_("Policy check in {currency}", currency=policy_currency), found.words),)


def terms_row(pricing: Pricing, policy: ApprovalPolicy | None = None) -> tuple[PriceRow, ...]:
    """Return the special terms of the contract, by their names in `policy`; no row if there are none."""
    names = ", ".join(map(term_words if policy is None else policy.term_words, pricing.terms))
    return ((_("Special terms"), names),) if names else ()


def sale_rows(pricing: Pricing) -> tuple[PriceRow, ...]:
    """Return the segment, the billing frequency and the commercial terms; no row where they are the usual ones."""
    request = request_of(pricing)
    billing = request.billing_frequency
    rows = ((_("Segment"), request.segment), (_("Billing"), None if billing == BILLING_FREQUENCIES[0] else _(billing)))
    return (*((name, value) for name, value in rows if value is not None), *term_rows(request.commercial))


def price_rows(pricing: Pricing, policy: ApprovalPolicy | None = None) -> tuple[PriceRow, ...]:
    """Return all price rows. With `policy`, also the total that it compares with its limits, which is not for the customer."""
    foreign = () if policy is None else policy_row(pricing, policy.currency)
    return (*tax_rows(pricing), *foreign, *sale_rows(pricing), *terms_row(pricing, policy))


def avoidance_rows(changes: Sequence[Avoidance | EasierChange], roles: Roles, *, approver: bool = False) -> tuple[PriceRow, ...]:
    """Return one row with the changes that avoid an approval; if any change still needs approvers, one row each with their roles.

    Changes that a margin decides are shown only to an approver.
    """
    changes = [change for change in changes if approver or not change.by_margin]
    if not changes:
        return ()
    if not any(change.roles for change in changes):
        return ((_("No approval needed with"), either([change.words for change in changes])),)
    return tuple(
        (
            _("Only {roles} approves with", roles=messages.approver_words(change.roles, roles))
            if change.roles
            else _("No approval needed with"),
            change.words,
        )
        for change in changes
    )


def summary_row(summary: str | None) -> tuple[PriceRow, ...]:
    """Return the model's summary of the quote, labelled as such; no row if there is none that may be shown."""
    return () if summary is None else ((_("AI summary"), summary),)


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
    whole: bool = False,
) -> Card:
    """Render the card.

    `approvers` are the user ids to name while approval is pending; `away` are the delegations that may apply to them. `decision`
    is the policy's preview before submission; `free_discount` is the largest discount in per cent that needs no approval.
    `figures` are (name, value) rows below the lines; `easier` are rows below the required approvers, with changes that would need
    fewer approvals. `pending` are the commands that wait for a retry, or have not ended for a while. `decides` is false where
    an approval is decided elsewhere. `whole` shows the lines after a final state too, as does a card without buttons.
    """
    folded = is_final(quote.state) and buttons and not whole
    account, net = messages.one_line(quote.account), messages.net(quote)
    text = _(
        "Quote {quote} for {customer}: {state}, {amount}",
        quote=title(quote),
        customer=messages.escape(clipped(account, HEADER_CHARACTERS_MAX)),
        state=_state(quote.state),
        amount=net,
    )
    decided, ends = _decided(quote), _ends(quote)
    on_top = quote.state in _TO_EDIT
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": plain(_header(quote))},
        *(
            [section(f"{decided}\n" + _("Edit the quote to make a new version you can submit."))]
            if decided is not None and on_top
            else []
        ),
        section(summary_line(quote)),
        *([] if folded else (*line_sections(quote.pricing, owed), *figure_rows(figures))),
        *(section(text) for text in _approval_texts(quote, approvers, away, decision, free_discount)),
        *figure_rows(easier, "💡 "),
        *(
            [{"type": "actions", "block_id": "quote.actions", "elements": actions(quote, decision, decides=decides, folded=folded)}]
            if buttons
            else []
        ),
        *([context([decided])] if decided is not None and not on_top else []),
        *([context(ends)] if ends else []),
        *([context([_waiting(command) for command in pending])] if pending else []),
        *(command_buttons(quote, command) for command in pending if command.offers),
        *_effects_context(owed),
        *(effect_buttons(quote, effect) for effect in owed if effect.offers),
    ]
    return Card(text, blocks)


def _state(state: QuoteState) -> str:
    return f"{STATE_ICONS[state]} {initial_capital(state_words(state))}"


def _header(quote: Quote) -> str:
    """Return "Acme · Q-2026-0042 v2"; a long customer's name is cut, the number never."""
    room = HEADER_CHARACTERS_MAX - len(title(quote)) - len(" · ")
    return f"{clipped(messages.one_line(quote.account), room)} · {title(quote)}"


def summary_line(quote: Quote) -> str:
    """Return "📝 Draft · *$9,180.00* · 15% off $10,800.00 · 12 months · @requester"."""
    pricing = quote.pricing
    listed = money.format_amount(pricing.list_total, pricing.currency)
    percent = pricing.discount_off_list_percent
    off = _("{percent} off {amount}", percent=money.format_percent(percent), amount=listed)
    facts = (
        _state(quote.state),
        f"*{messages.net(quote)}*",
        *((off if percent else _("list price {amount}", amount=listed),) if pricing.discount_total else ()),
        ngettext("{n} month", "{n} months", pricing.term_months),
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
        amount = money.format_amount(net, pricing.currency)
        more = ngettext("+ {n} more line, {amount}", "+ {n} more lines, {amount}", len(rest), amount=amount)
        pdf = next((effect for effect in owed if effect.label == "PDF" and effect.state == "delivered"), None)
        where = "" if pdf is None else ". " + linked(_("See all in the PDF"), pdf.link)
        rows.append(f"{more}{where}")
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
    part = "" if line.bundle is None else " " + _("(of {bundle})", bundle=messages.short(line.bundle_title, NAME_CHARACTERS_MAX))
    name = f"*{messages.short(line.name, NAME_CHARACTERS_MAX)}* × {grouped(line.quantity)}"  # noqa: RUF001 -- a product
    name = f"{name}{messages.line_options(line, currency)}{part}"
    net = f"*{money.format_amount(line.net_amount, currency)}*"
    before = f" ~{money.format_amount(line.list_amount, currency)}~" if line.discount_amount else ""
    return f"{name} · {_unit(line, pricing)} · {net}{before}"


def _unit(line: PricedLine, pricing: Pricing) -> str:
    """Return the price of one unit: "$6.00/month", with the months if they are not the quote's; "one-time" for a single one."""
    price = money.format_unit_price(line.unit_price, pricing.currency)
    if line.billing == "one_time":
        return _("one-time") if line.quantity == 1 else _("{price} one-time", price=price)
    if line.months == pricing.term_months:
        return _("{price}/month", price=price)
    return ngettext("{price}/month for {n} month", "{price}/month for {n} months", line.months, price=price)


def _approval_texts(
    quote: Quote,
    approvers: tuple[str, ...],
    away: tuple[Delegation, ...],
    decision: PolicyDecision | None,
    free_discount: Decimal | None,
) -> list[str]:
    """Return what a submission would need, or what the open request waits for; nothing in the other states."""
    if quote.state is QuoteState.PRICED and decision is not None:
        if free_discount is None:
            return [_preview(decision)]
        hint = _("No approval needed up to {percent} discount", percent=money.format_percent(free_discount))
        return [f"{_preview(decision)}\n💡 {hint}"]
    approval = quote.approval
    if quote.state is not QuoteState.PENDING_APPROVAL or approval is None:
        return []
    if approval.state is not ApprovalState.PENDING:
        return ["⌛ " + _("Approval request expired with no decision. Submit to ask again.")]
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    given = [f"✅ {slot_words(slot, approval.roles)}" for slot in approval.slots if slot.state is SlotState.APPROVED]
    waits = [_("Waiting for {people}", people=approval_messages.waiting_for(asked, away))] if asked else []
    waits += [_("asked {time}", time=local_age(approval.asked_at))] if asked else []
    waits += [_("due {time}", time=local_day(approval.due_at))] if asked and approval.due_at is not None else []
    progress = [*given[:GIVEN_MAX], *([" · ".join(waits)] if waits else [])]
    needs = f"⏳ {needs_text(approval.required_roles, approval.reasons, approval.roles)}"
    return [needs, "\n".join(progress)] if progress else [needs]


def _preview(decision: PolicyDecision) -> str:
    if decision.blocked:
        blocked = _("Can't be submitted: {reasons}. Edit the quote to continue.", reasons=_reasons(decision.hits))
        return f"🚫 {blocked}"
    if decision.automatic:
        return "✅ " + _("No approval needed. The PDF is created right away.")
    return f"🔎 {needs_text(decision.required_roles, decision.hits, decision.roles)}"


def needs_text(needed: tuple[str, ...], reasons: tuple[str, ...], roles: Roles) -> str:
    """Return the roles with the only reason beside them, or with each of several reasons on a line of its own."""
    if len(reasons) > 1:
        listed = "\n".join(f"• {initial_capital(reason)}" for reason in map(messages.one_line, reasons))
        needs = _("*Needs approval from {roles}*", roles=messages.approver_words(needed, roles))
        return f"{needs}\n{messages.escape(clipped(listed, REASONS_CHARACTERS_MAX))}"
    needs = _("Needs approval: *{roles}*", roles=messages.approver_words(needed, roles))
    return f"{needs} · {_reasons(reasons)}" if reasons else needs


def _reasons(reasons: tuple[str, ...]) -> str:
    return messages.escape(clipped("; ".join(messages.one_line(reason) for reason in reasons), REASONS_CHARACTERS_MAX))


def _decided(quote: Quote) -> str | None:
    """Return the decision of the last request with its reason; None while it is open, or if there is none."""
    approval = quote.approval
    if approval is None or approval.state is ApprovalState.PENDING:
        return None
    reason = (
        ""
        if approval.decision_reason is None
        else f"\n{messages.quoted(clipped(approval.decision_reason, REASONS_CHARACTERS_MAX))}"
    )
    return f"{_DECIDED_ICONS[approval.state]} {initial_capital(decided_words(approval))}{reason}"


def _ends(quote: Quote) -> list[str]:
    """Return the lines on the quote's lock, its recipient and its end."""
    lines = []
    if quote.frozen is not None:
        person, time = messages.mention(quote.frozen.frozen_by), local_time(quote.frozen.frozen_at)
        lines.append("🔒 " + _("Locked by {person}, {time}", person=person, time=time))
    if quote.sent is not None:
        sent = _(
            "Sent to {recipient} by {person}, {time}",
            recipient=messages.short(quote.sent.recipient, DETAIL_CHARACTERS_MAX),
            person=messages.mention(quote.sent.sent_by),
            time=local_time(quote.sent.sent_at),
        )
        lines.append(f"📤 {sent}")
    if quote.closing is not None:
        closing = quote.closing
        words = "" if closing.reason is None else clipped(reason_words(closing.reason), REASONS_CHARACTERS_MAX)
        reason = "" if closing.reason is None else f"\n{messages.quoted(words)}"
        lines.append(f"{_state(quote.state)} · {messages.mention(closing.closed_by)}, {local_time(closing.closed_at)}{reason}")
    return lines


def _waiting(command: PendingCommand) -> str:
    """Return the line of an unfinished command."""
    if command.retried_at is None:
        return f"⏳ {command.name}: {_(messages.OPERATION_PENDING)}"
    return f"⏳ {command.name}: {messages.retry_pending(command.retried_at)}"


def _effects_context(owed: tuple[PendingEffect, ...]) -> list[Json]:
    """Return the lines on a quote's effects: one for each that is not delivered, and one for all others."""
    done = " · ".join(_delivered(effect) for effect in owed if effect.state == "delivered")
    open_lines = [_undelivered(effect) for effect in owed if effect.state != "delivered"]
    lines = [*open_lines[: CONTEXT_ELEMENTS_MAX - 1], *([done] if done else [])]
    return [context(lines)] if lines else []


def _delivered(effect: PendingEffect) -> str:
    if effect.label == "PDF":
        return linked("PDF", effect.link) if effect.link is not None else _("PDF in this thread")
    return linked(_("Open in Salesforce"), effect.link) if effect.link is not None else _("In Salesforce")


def _undelivered(effect: PendingEffect) -> str:
    """Return the line of an effect that is not delivered: what happens with it, and whether anything is needed."""
    texts = EFFECT_TEXTS[effect.label]
    match effect.state:
        case "paused":
            return f"⏸️ {_(texts.paused)}"
        case "failed":
            told = _("Our ops team has been notified; no action needed from you. Ref {ref}", ref=messages.escape(effect.ref))
            return f"⚠️ {_(texts.missing)}. {told}"
        case "cancelled":
            why = messages.short(effect.detail or "", DETAIL_CHARACTERS_MAX)
            skipped = N_("{name} skipped: {reason}") if why else N_("{name} skipped")
            return f"🚫 {_(skipped, name=_(texts.name), reason=why)}"
        case "in doubt":
            return f"❔ {_(texts.is_uncertain)}"
        case state:
            return f"⏳ {_(texts.retrying)}" if state == "retrying" else f"⏳ {_(texts.doing)}…"
