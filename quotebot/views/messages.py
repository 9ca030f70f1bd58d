"""Messages of the bot outside its cards: acknowledgements, notices, refusals, help. Text is Slack mrkdwn.

Each message states the event, the resulting state and the next step. Text typed by users passes through `escape`.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.access import Sight
from quotebot.domain.approvals.decisions import decided_words
from quotebot.domain.approvals.policy import role_words
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.pricing.commercial_terms import term_rows
from quotebot.domain.pricing.engine import PricedLine, Pricing, PricingProblem, clipped, request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, local_day, local_time, state_words, title

if TYPE_CHECKING:
    from quotebot.domain.approvals.policy import PolicyDecision

_MENTIONED = re.compile(r"<@([UW][A-Z0-9]+)>")
NAMED_MAX = 10  # people mentioned in one sentence
PROBLEMS_SHOWN_MAX = 20
PROPOSED_LINES_MAX = 10
ACCOUNT_CHARACTERS_MAX = 100
DETAIL_CHARACTERS_MAX = 300
AGO_SECONDS_MAX = 600  # beyond this, a message gives the date and time instead


def one_line(text: str) -> str:
    """Return `text` on one line, without control characters, lone surrogates and invisible characters (format marks, blanks)."""
    if text.isascii() and text.isprintable():  # fast path: most typed text is printable ASCII
        return " ".join(text.split())
    return " ".join("".join(letter for letter in text if letter.isspace() or _is_printable(letter)).split())


def escape(text: str) -> str:
    """Return text for mrkdwn: `& < >` become entities, so that typed text cannot create a mention, channel alert or link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(text: str, characters_max: int) -> str:
    """Return typed text on one line, shortened and escaped."""
    return escape(clipped(one_line(text), characters_max))


def net(quote: Quote) -> str:
    """Return the net total of a quote: "17,340.00 USD"."""
    return money.format_amount(quote.pricing.net_total, quote.pricing.currency)


def mention(user: str) -> str:
    """Return the mention of a Slack user id."""
    return f"<@{user}>"


def mentions(users: tuple[str, ...]) -> str:
    """Return up to 10 mentions, and a count of the others."""
    named = ", ".join(mention(user) for user in users[:NAMED_MAX])
    return named if len(users) <= NAMED_MAX else f"{named} and {len(users) - NAMED_MAX} more"


def approver_words(roles: tuple[str, ...]) -> str:
    """Return the roles as people say them: "Sales Manager", "Deal Desk and Legal"."""
    return " and ".join(map(role_words, roles))


# commands that are recorded: their acknowledgement has no text


# Reply to a repeated delivery of a message that the model is asked to extract.
BEING_READ = "Reading your message\u2026"


# Result of a second answer to the same message; it is stored with the command and never posted.
MESSAGE_ANSWERED = "I've already answered this message."


# Reply to a creation that is unfinished after two seconds.
CREATING = "Creating your quote\u2026 Its card will appear in the channel. No need to send it again."


# Result of a recorded visit to the App Home; it is stored with the command and never posted.
HOME_FOLLOWS = "The Home tab is updated."


def command_name(action_kind: str) -> str:
    """Return a kind of command in words: "mark sent"."""
    return action_kind.partition(".")[2].replace("_", " ")


# Reply to a repeated delivery, or at the end of a wait, while the operation is still running.
OPERATION_PENDING = "Still working on it. No need to send it again."


def retry_pending(due_at: int | None = None) -> str:
    """Reply while an operation waits for its next attempt at `due_at` (Unix ms)."""
    when = "Retrying soon" if due_at is None else f"Retrying {local_time(due_at)}"
    return f"Saved. {when}; no need to send it again."


# Reply if the command was certainly not recorded.
NOTHING_RECORDED = "That didn't go through. Please try again."


def over_budget(per_minute: int, wait_seconds: int) -> str:
    """Reply to a command over the user's budget of `per_minute` commands."""
    return f"That's more than {per_minute} commands in a minute. Try again in {wait_seconds} s."


# Reply if it is uncertain whether the command was recorded.
MAYBE_RECORDED = "We couldn't confirm that went through. Check this channel for the quote before trying again."


# Reply to a repeated delivery of a command that an operator discarded.
DISCARDED = "An operator dropped this request. Send it again if you still need it."


def unknown_ref(ref: str) -> str:
    """Reply to a reference that matches no command of this user."""
    return f"No request of yours has the reference {escape(clipped(ref))}."


# Reply to a request id that was already used with different content.
CONFLICT = "That request was already used for something else. Type the command again."


def too_long(limit: int) -> str:
    """Reply to slash command text of more than `limit` characters."""
    return f"That's too long ({limit:,} characters max). Shorten it or split it into two quotes."


def message_too_long(limit: int) -> str:
    """Reply to a message of more than `limit` characters, which the bot does not parse at all."""
    return f"That message is too long for me ({limit:,} characters max). Please send a shorter one."


def command_too_large(bytes_max: int) -> str:
    """Reply to a command whose stored payload would exceed `bytes_max`."""
    return f"That's too large ({bytes_max // 1024} KiB max). Split it into two quotes."


def finished(outcome: str | None) -> str:
    """Reply to a delivery of a completed command whose result has no text."""
    return "That's already done." if outcome == "applied" else "That was already declined."


def finished_long_ago(outcome: str | None, finished_at: int) -> str:
    """Reply to a delivery of a purged command, which ended at `finished_at` (Unix ms): applied, refused or (None) abandoned."""
    at = datetime.fromtimestamp(finished_at / 1000, tz=UTC)
    day = f"{at.day} {at:%b %Y}"
    if outcome == "applied":
        return f"You already did this on {day}, so we didn't do it again."
    return f"You already asked for this on {day}, and it {'was declined' if outcome == 'refused' else 'did not go through'}."


def created(quote: Quote) -> str:
    """Reply to a creation that succeeded."""
    return f"Created {title(quote)} for {_account(quote)}, {net(quote)}."


def resubmission(quote_id: str, recorded_at: int, now: int) -> str:
    """Ask for confirmation of a second identical quote; the first was recorded at `recorded_at` (both times Unix ms)."""
    if (now - recorded_at) // 1000 <= AGO_SECONDS_MAX:
        return f"You just created the same quote, {quote_id}. Create another?"
    return f"You created the same quote, {quote_id}, {local_time(recorded_at)}. Create another?"


def line_options(line: PricedLine, currency: str) -> str:
    """Return a line's chosen attributes and its own discount or price: " (gb 100, region eu, 10 % off)"; empty without them."""
    parts = [f"{name} {choice}" for name, choice in line.attributes]
    if line.agreed_price is not None:
        parts.append(f"agreed price {money.format_unit_price(line.agreed_price, currency)}")
    elif line.requested_percent:
        parts.append(f"{money.format_percent(line.requested_percent)} off")
    return f" ({short(', '.join(parts), 200)})" if parts else ""


def option_rows(pricing: Pricing) -> list[str]:
    """Return up to 10 optional lines, each with its price."""
    rows = [
        f"• Optional: {line.quantity:,} {short(line.name, 60)}{line_options(line, pricing.currency)}, "
        f"{money.format_amount(line.net_amount, pricing.currency)} (not in the total)"
        for line in pricing.options[:PROPOSED_LINES_MAX]
    ]
    more = len(pricing.options) - PROPOSED_LINES_MAX
    return [*rows, f"• and {more} more optional {'line' if more == 1 else 'lines'}"] if more > 0 else rows


def proposal(account: str, pricing: Pricing) -> str:
    """Ask for confirmation of an extracted quote: its customer, up to 10 lines, discount, tax, special terms and total."""
    lines = [
        f"• {line.quantity:,} \u00d7 {short(line.name, 60)}{line_options(line, pricing.currency)} "
        + money.format_amount(line.net_amount, pricing.currency)
        for line in pricing.lines[:PROPOSED_LINES_MAX]
    ]
    if len(pricing.lines) > PROPOSED_LINES_MAX:
        lines.append(f"• and {len(pricing.lines) - PROPOSED_LINES_MAX} more lines")
    lines += option_rows(pricing)
    request = request_of(pricing)
    if request.with_tax:
        tax = money.format_amount(pricing.tax_total, pricing.currency)
        lines.append(f"• Tax of {escape(request.region or '')}{' (estimated)' if pricing.tax_estimated else ''}: {tax}")
    elif request.region is not None:
        lines.append(f"• Prices of {escape(request.region)}")
    if request.segment is not None:
        lines.append(f"• Prices of the segment {escape(request.segment)}")
    if request.billing_frequency != BILLING_FREQUENCIES[0]:
        lines.append(f"• Billing: {request.billing_frequency}")
    if request.terms:
        lines.append(f"• Special terms: {', '.join(escape(term_words(term)) for term in request.terms)}")
    lines += [f"• {name}: {short(value, 100)}" for name, value in term_rows(request.commercial)]
    terms = [f"{pricing.term_months} months"]
    terms += [f"{money.format_percent(pricing.discount_percent)} off"] if pricing.discount_percent else []
    total = f"*Total {money.format_amount(pricing.net_total, pricing.currency)}*{' before tax' if request.with_tax else ''}"
    said = " \u00b7 ".join(terms)
    return "\n".join((f"*New quote for {short(account, 100)}?* {said}", *lines, total))


# Refuse a creation in a direct message.
CHOOSE_CHANNEL = "Quotes need a channel so approvers can see them. Pick one to continue."


# Refuse to open a form that would lose some of the products.
TOO_LONG_FOR_FORM = "That's too long for the form. Mention me with the same text in the deal's channel instead."


# Offer the form in reply to a request without any content.
BY_FORM = "Tell me the customer and products, or use the form."


# Reply to a mention that asks for a change of a quote: only buttons and commands change one.
BY_COMMAND_ONLY = "I can't do that from a message. Open the quote to use its buttons."


# Reply to a mention that asks for another command.
COMMAND_ONLY = "I can't do that from a message. Type it as a `/quote` command."


def which_quote(verb: str) -> str:
    """Ask for the quote that a command without a number is about."""
    return f"Which quote? Open one, or add its number: `/quote {verb} Q-2026-0042`"


def already_created(quote_id: str) -> str:
    """Reply to a second use of a button or form that creates one quote."""
    return f"Already created: {quote_id}. `/quote {quote_id}` shows it."


# Reply if the command behind a "Create another" button has been purged.
OFFER_GONE = "This button has expired. Type the command again."


# Refuse a "Create another" button that was shown to another user.
NOT_YOUR_OFFER = "Only the person who asked can use this button."


def submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a submission that now waits for approval."""
    return f"Submitted {title(quote)}. Waiting for {approver_words(approval.required_roles)}."


# refusals


def problem_list(problems: tuple[str, ...], corrected: str | None = None) -> str:
    """Refuse a typed command, listing all its problems, which are escaped; `corrected` is what to type instead."""
    shown = problems if len(problems) == 1 else (f"{len(problems)} things to fix:", *bullets(problems))
    return "\n".join((*shown, *(() if corrected is None else (f"Try `/quote {escape(corrected).replace('`', '')}`",))))


def bullets(problems: tuple[str, ...]) -> list[str]:
    """Return up to 20 problems as list items, and a count of the others."""
    shown = [f"• {problem}" for problem in problems[:PROBLEMS_SHOWN_MAX]]
    more = len(problems) - PROBLEMS_SHOWN_MAX
    return [*shown, f"• and {more} more like these"] if more > 0 else shown


def pricing_problem(problem: PricingProblem) -> str:
    """Return one reason why a request has no price, with the suggested correction, as sentences; escaped."""
    suggestion = problem.suggestion.replace(", e.g. ", ". Example: ", 1).replace("e.g. ", "Example: ", 1)
    return escape(" ".join(map(_sentence, (problem.message, suggestion))))


def _sentence(text: str) -> str:
    """Return text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def stale(seen_version: int, quote: Quote) -> str:
    """Reply to a click on a card that shows an older version."""
    changed = f"{quote.quote_id} changed since you opened v{seen_version}: it's now v{quote.version} ({state_words(quote.state)})"
    return f"{changed}. Your click changed nothing."


def foreign_team(quote: Quote) -> str:
    """Refuse a user of another workspace; the text reveals nothing about the quote but its id."""
    return f"You can't change {quote.quote_id}: it belongs to another workspace."


def turned_away(code: str) -> str:
    """Refuse a user whom the access gate does not admit, or a click in a wrong place; the text depends on no command."""
    return {
        "not_known": "We couldn't verify your Slack account. Try again in a minute.",
        "foreign_team": "Quotebot is only available to members of this workspace.",
        "foreign_click": "This button isn't yours to use here, or it's out of date. Open the quote again: `/quote Q-...`",
    }.get(code, "Quotebot isn't available to guests. Ask a teammate with a full account.")


def not_seen(quote_id: str, quote: Quote | None, sight: Sight) -> str:
    """Reply to a query about a quote that the user may not see in full."""
    return unknown_quote(quote_id) if quote is None or sight is Sight.NOTHING else outline(quote)


def outline(quote: Quote) -> str:
    """Return the part of a quote shown to a member who may not see the rest."""
    return f"{title(quote)} is {state_words(quote.state)}. Not everyone can see more of it. Ask {mention(quote.requester)}."


def standing(quote: Quote) -> str:
    """Return the state of a quote as the end of a sentence about it; if a person set it, also that person and the time."""
    if quote.closing is not None:
        return f"{_ENDED[quote.state]} by {mention(quote.closing.closed_by)}, {local_time(quote.closing.closed_at)}"
    if quote.sent is not None and quote.state is QuoteState.SENT:
        return f"was sent to the customer by {mention(quote.sent.sent_by)}, {local_time(quote.sent.sent_at)}"
    if quote.frozen is not None and quote.state is QuoteState.FINALIZED:
        return f"was locked for sending by {mention(quote.frozen.frozen_by)}, {local_time(quote.frozen.frozen_at)}"
    approval = quote.approval
    if approval is not None and approval.state in _DECIDED and quote.state in (QuoteState.APPROVED, QuoteState.REJECTED):
        return f"was {decided_words(approval)}"
    return _STANDING.get(quote.state, f"is {state_words(quote.state)}")


def wrong_state(quote: Quote, verb: str) -> str:
    """Reply to a button that the quote's state no longer offers; `verb` names its action, e.g. "submit"."""
    approval = quote.approval
    if quote.state is QuoteState.DRAFT and approval is not None and approval.decided_by is not None:
        asked = f"{mention(approval.decided_by)} requested changes to {title(quote)}"
        return f"{asked}. Edit the quote, then submit the new version."
    return f"{title(quote)} {standing(quote)}, so it can't be {done(verb)}. Its card shows what's possible now."


def done(verb: str) -> str:
    """Return the participle of an action, as its button names it: "marked as won" for "accept"."""
    return _DONE[verb]


def already_submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a second request for the approval of a version that waits for its decision."""
    return (
        f"{title(quote)} is already waiting for approval: {mention(approval.requested_by)} submitted it, "
        f"{local_time(approval.requested_at)}. Its card shows who can decide."
    )


def expired(quote: Quote, verb: str) -> str:
    """Refuse a button after the quote's last day; `verb` names its action."""
    return (
        f"{title(quote)} was valid until {local_time(quote.valid_until)}, so it can't be {done(verb)}. "
        f"Clone it to continue: `/quote clone {quote.quote_id}`"
    )


def blocked(quote: Quote, decision: PolicyDecision) -> str:
    """Refuse to submit a quote that the policy blocks: no one may approve it."""
    return f"{title(quote)} can't be submitted: {escape('; '.join(decision.hits))}. Edit the quote and try again."


def unknown_quote(quote_id: str) -> str:
    """Reply to the id of a quote that does not exist or that the user may not see."""
    return f"No quote {escape(clipped(quote_id))}. Check the number, or search: `/quote list acme`."


def history_broken(ref: str) -> str:
    """Reply to a command about rows that were changed in the ledger's file from outside the bot."""
    return (
        f"Something outside Quotebot changed this record, so it's locked and nothing was done. Reference {ref}. "
        "Tell an operator: `quotebot audit verify` names the row."
    )


# Reply to a button that another build wrote.
UNREADABLE_BUTTON = "This button is out of date. Open the quote again: `/quote Q-...`"


# Error in a form that was opened by another build.
UNREADABLE_FORM = "This form is out of date. Close it and open it again."


# Reply if Slack did not open a form.
FORM_NOT_OPENED = "Slack couldn't open the form. Try again."


# Error under the reason field of the reject form.
REASON_NEEDED = "Add a reason (500 characters max)."


def terminal(reason: str, ref: str, quote_id: str | None) -> str:
    """Reply to an operation that failed permanently, with the reason."""
    changed = "no quote was changed" if quote_id is None else f"{quote_id} wasn't changed"
    return f"Something went wrong and {changed}: {_detail(reason)}. Try again, or share reference {ref} with your admin."


# notices in the quote's thread


def approval_notice(quote: Quote, approval: Approval, approvers: tuple[str, ...]) -> str:
    """Ask the approvers, in the thread, except the requesters of the approval and of the quote."""
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    deal = f"*{_account(quote)} · {net(quote)}* ({title(quote)}) from {mention(approval.requested_by)}"
    why = escape(clipped("; ".join(approval.reasons), 1_000))
    why = f". {why[:1].upper()}{why[1:]}" if why else ""
    if not asked:
        return f"No one holds the {approver_words(approval.required_roles)} role yet, so nobody can approve {deal}{why}"
    return f"{mentions(asked)}, please review: {deal}{why}"


def decided_notice(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, of the decision, its author and its time."""
    if approval.state is ApprovalState.APPROVED:
        return f"{mention(approval.requested_by)} ✅ {title(quote)} was {decided_words(approval)}. The PDF follows in this thread."
    words = f"{mention(approval.requested_by)} ⛔ {title(quote)} was {decided_words(approval)}"
    return words if approval.decision_reason is None else f"{words}\n{quoted(approval.decision_reason)}"


def expired_notice(quote: Quote) -> str:
    """Notify the requester, in the thread, that the quote expired."""
    valid = f"it was valid until {local_time(quote.valid_until)}"
    return f"{mention(quote.requester)}, {title(quote)} expired: {valid}. Clone it to continue: `/quote clone {quote.quote_id}`"


def stale_notice(quote: Quote, touched_at: int) -> str:
    """Remind the requester, in the thread, of a quote that was last changed at `touched_at` (Unix ms)."""
    return (
        f"{mention(quote.requester)}, {title(quote)} ({state_words(quote.state)}) hasn't changed since {local_time(touched_at)} "
        f"and expires {local_time(quote.valid_until)}. Submit, edit or cancel it on the card above."
    )


def not_expired(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler did not expire a quote."""
    return f"{title(quote)} was not expired: {reason}. Nothing was changed and nothing is needed."


def not_reminded(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler sent no reminder."""
    return f"Nobody was reminded of {title(quote)}: {reason}. Nothing was changed and nothing is needed."


def pdf_comment(quote: Quote) -> str:
    """Comment of the uploaded PDF. It names the version, because a newer one may exist by the time of the upload."""
    return f"{quote.quote_id} v{quote.version} · {_account(quote)} · {net(quote)} · valid until {local_day(quote.valid_until)}"


def dead_letter(label: str, ref: str, reason: str, quote: Quote) -> str:
    """Notice that an effect of a quote became a dead letter; the quote itself is unchanged."""
    return (
        f"⚠️ {label} for {title(quote)} failed: {_detail(reason)}. The quote is still {state_words(quote.state)}. "
        f"Our ops team has been notified; no action needed from you. Ref {ref}"
    )


def card_not_posted(quote: Quote, ref: str, reason: str) -> str:
    """Notify the requester, privately, that the quote was created but its card could not be posted."""
    return (
        f"{title(quote)} is created, but its card couldn't be posted here: {_detail(reason)}. "
        f"Type `/invite @Quotebot`, or open it with `/quote {quote.quote_id}`. Reference {ref}."
    )


def card_in_direct_message(quote: Quote) -> str:
    """Notify the requester, privately, that the card is in their direct messages. The text holds no fact but the quote's number."""
    return (
        f"The card of {quote.quote_id} is in your direct messages with me, with its thread and PDF. This channel is shared with "
        "another organization, or I can't see whether it is. Approvers get a direct message. To have quotes posted here, ask an "
        "operator to list the channel in `shared_channels`."
    )


# Placeholder for a card in a channel that another organization may read: no fact, not even the quote's number.
CARD_WITHDRAWN = (
    "This card is gone: another organization may read this channel now. The quote goes on in a direct message of its owner."
)


def sent_directly(quote: Quote, text: str) -> str:
    """Return a notice of a quote's thread for a user who cannot read that thread."""
    where = f"My Home tab shows what waits for you; so does `/quote show {quote.quote_id}`."
    return f"{text}\nThe card of {quote.quote_id} is not in a channel. {where}"


def mentioned(text: str) -> list[str]:
    """Return the user ids mentioned in the bot's own text. Typed text in it is escaped and mentions no one."""
    return _MENTIONED.findall(text)


def asked_in(channel: str, answer: str) -> str:
    """Return a reply that is sent in another conversation than `channel`, where the user asked."""
    return f"In <#{channel}>: {answer}"


def quoted(text: str) -> str:
    """Return typed text as an mrkdwn quotation, so that no line of it can be mistaken for the bot's text."""
    lines = (one_line(line) for line in text.splitlines())
    return "\n".join(f"> {escape(line)}" for line in lines if line)


def _is_printable(letter: str) -> bool:
    return unicodedata.category(letter) not in ("Cc", "Cs", "Cf") and letter not in _BLANKS


def _account(quote: Quote) -> str:
    return short(quote.account, ACCOUNT_CHARACTERS_MAX)


def _detail(reason: str) -> str:
    return short(reason, DETAIL_CHARACTERS_MAX).rstrip(".")


_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # invisible letters and signs
_DECIDED = frozenset({ApprovalState.APPROVED, ApprovalState.REJECTED})
_ENDED = {
    QuoteState.ACCEPTED: "was marked as won",
    QuoteState.LOST: "was marked as lost",
    QuoteState.CANCELLED: "was canceled",
    QuoteState.EXPIRED: "was ended as expired",
}
_STANDING = {
    QuoteState.DRAFT: "needs changes first",
    QuoteState.VALIDATED: "isn't approved yet",
    QuoteState.PRICED: "isn't approved yet",
    QuoteState.APPROVED: "was approved",
    QuoteState.FINALIZED: "was locked for sending",
    QuoteState.SENT: "was sent to the customer",
    QuoteState.ACCEPTED: "was won",
    QuoteState.LOST: "was lost",
    QuoteState.REJECTED: "was rejected",
    QuoteState.CANCELLED: "was canceled",
    QuoteState.EXPIRED: "has expired",
}
_DONE = {
    "submit": "submitted",
    "approve": "approved",
    "reject": "rejected",
    "request changes": "sent back",
    "decide about": "decided",
    "revise": "revised",
    "edit": "edited",
    "change the discount of": "changed",
    "finalize": "locked for sending",
    "send": "marked as sent",
    "accept": "marked as won",
    "lose": "marked as lost",
    "cancel": "canceled",
}
