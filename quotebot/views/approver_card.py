"""Card in the direct message to an approver: what they need to decide, with the buttons, and the outcome once it is decided.

It shows margins, so it is drawn for one person with authority; without authority no figure is left. After the decision the quote's
card without its buttons takes its place. Block Kit limits hold by construction, as on the quote's card.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.approvals.decisions import slot_words
from quotebot.domain.approvals.policy import margin_effect, margin_figures
from quotebot.domain.language import _, grouped, initial_capital, ngettext
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import ApprovalState, SlotState, local_day, local_time, state_words, title
from quotebot.views import messages
from quotebot.views.blocks import context, linked, mrkdwn, plain, section
from quotebot.views.card import (
    HEADER_CHARACTERS_MAX,
    REASONS_CHARACTERS_MAX,
    STATE_ICONS,
    Card,
    avoidance_rows,
    deciding,
    figure_rows,
    line_sections,
    price_rows,
    summary_row,
)

if TYPE_CHECKING:
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.approvals.people import Delegation
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.quotes.quote import Approval, Listed, Quote
    from quotebot.views.blocks import Json
    from quotebot.views.card import PriceRow

REASONS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Ask:
    """Facts of a request beside the quote. `earlier` are the customer's last quotes, `thread` is the address of its card."""

    policy: ApprovalPolicy
    advice: Advice | None
    summary: str | None
    waiting: tuple[str, ...]
    away: tuple[Delegation, ...]
    earlier: tuple[Listed, ...]
    thread: str | None = None


def asking(quote: Quote, ask: Ask) -> Card:
    """Ask for a decision. The quote's approval is the request."""
    approval = _request(quote)
    easier = () if ask.advice is None else avoidance_rows(ask.advice.changes, ask.policy.roles, approver=True)
    shown = (*price_rows(quote.pricing, ask.policy), *summary_row(ask.summary))
    requester = messages.mention(approval.requested_by)
    text = _("{person} asks you to approve {quote}, {total}", person=requester, quote=_subject(quote), total=messages.net(quote))
    blocks: list[Json] = [
        _header(quote),
        section(_("{person} asks you to approve this quote.", person=requester)),
        *([] if approval.note is None else [section(messages.asked_again(approval))]),
        {"type": "section", "fields": [*_fields(quote), *_due(approval)]},
        *line_sections(quote.pricing),
        *figure_rows(shown),
        section("\n".join((_("*Why you are asked*"), _reasons(approval)))),
        *figure_rows(_margin_rows(quote, ask.policy)),
        *figure_rows(easier, "💡 "),
        *_earlier(quote, ask.earlier),
        {"type": "actions", "block_id": "quote.actions", "elements": deciding(quote)},
        *_progress(approval),
        context([_place(quote, ask.thread)]),
    ]
    return Card(text, blocks)


def replaced(card: Card, quote: Quote, newest: int) -> Card:
    """Add to the card of a request that a newer version of the quote replaced the version that it was about."""
    replaced_by = _("v{version} was replaced by v{newest}", version=quote.version, newest=newest)
    return Card(card.text, [*card.blocks, context([replaced_by])])


def without_figures(quote: Quote) -> Card:
    """Replace the content for a person who lost the authority to decide."""
    text = _("{quote}: this request no longer needs you", quote=title(quote))
    return Card(text, [section(f"{text}.")])


def _request(quote: Quote) -> Approval:
    assert quote.approval is not None  # noqa: S101 -- the card is about it
    return quote.approval


def _subject(quote: Quote) -> str:
    return f"{messages.short(quote.account, HEADER_CHARACTERS_MAX)} · {title(quote)}"


def _header(quote: Quote) -> Json:
    return {"type": "header", "text": plain(clipped(f"{messages.one_line(quote.account)} · {title(quote)}", HEADER_CHARACTERS_MAX))}


def _fields(quote: Quote) -> list[Json]:
    pricing = quote.pricing
    facts = [(_("Total"), f"*{messages.net(quote)}*")]
    if pricing.discount_total:
        percent = money.format_percent(pricing.discount_off_list_percent)
        listed = money.format_amount(pricing.list_total, pricing.currency)
        facts.append((_("Discount"), _("{percent} of {amount}", percent=percent, amount=listed)))
    facts.append((_("Term"), ngettext("{n} month", "{n} months", pricing.term_months)))
    return [mrkdwn(f"*{name}*\n{fact}") for name, fact in facts]


def _due(approval: Approval) -> list[Json]:
    """Return when the request expires."""
    due = approval.due_at
    return [] if due is None else [mrkdwn(_("*Decide by*\n{time}", time=local_time(due)))]


def _reasons(approval: Approval) -> str:
    shown = [
        f"• {messages.short(initial_capital(reason), REASONS_CHARACTERS_MAX // 2)}" for reason in approval.reasons[:REASONS_MAX]
    ]
    more = len(approval.reasons) - len(shown)
    return "\n".join([*shown, *([_("• {n} more", n=grouped(more))] if more else [])]) or _("• The policy requires it")


def _earlier(quote: Quote, earlier: tuple[Listed, ...]) -> list[Json]:
    """Return the customer's last quotes, one line each."""
    rows = [
        f"• {title(each)} · {money.format_amount(each.net_total, each.currency)} · "
        f"{STATE_ICONS[each.state]} {state_words(each.state)} · {local_day(each.created_at)}"
        for each in earlier
    ]
    if not rows:
        return []
    heading = _("*Last quotes for {customer}*", customer=messages.short(quote.account, HEADER_CHARACTERS_MAX))
    return [section("\n".join([heading, *rows]))]


def _progress(approval: Approval) -> list[Json]:
    """Return the approvals given so far, while others are missing."""
    given = [f"✅ {slot_words(slot, approval.roles)}" for slot in approval.slots if slot.state is SlotState.APPROVED]
    return [context(given[:REASONS_MAX])] if given and approval.state is ApprovalState.PENDING else []


def _margin_rows(quote: Quote, policy: ApprovalPolicy) -> tuple[PriceRow, ...]:
    """Return the margin, what it is without the discount, and those below their floors."""
    effect = margin_effect(quote.pricing)
    found = (*(() if effect is None else (effect,)), *margin_figures(quote.pricing, policy))
    return ((_("Margin"), "; ".join(found)),) if found else ()


def _place(quote: Quote, thread: str | None) -> str:
    command = f"`/quote show {quote.quote_id}`"
    if thread is not None:
        return " · ".join((linked(_("Open the thread"), thread), command))
    return command if quote.card_channel is not None else f"<#{quote.channel}> · {command}"
