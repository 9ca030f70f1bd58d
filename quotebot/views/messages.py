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
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, local_time, state_words, title

if TYPE_CHECKING:
    from quotebot.domain.approvals.policy import PolicyDecision

EXAMPLE = "/quote new for Acme: 150 pro, 150 sso; term 12m; discount 15%"
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


# Return the help text: the commands and their syntax.
HELP_TEXT = "\n".join(
    (
        "*Quotebot prices, approves and sends quotes.*",
        "`/quote new for &lt;account&gt;: &lt;quantity&gt; &lt;product&gt;, ...; term 12m; discount 15%` creates a quote.",
        "Also `; currency EUR`, `; tax DE`, `; terms liability_cap, net_60` (special terms).",
        "Also `; billing quarterly` (upfront, monthly, quarterly or annual) and `; segment partner` (its price books).",
        "Also `; start 2027-02-01`, `; payment net 45`, `; po 4711`, `; valid 45d`, `; note ...` for the approver.",
        "For the bill `; bill-to ...`, `; email ...`, `; address ...`, `; vat ...`. Also `; language de`, `; customer-note ...`.",
        "A product may have a discount of its own, `150 pro -10%`, and attributes, `20 storage (gb=100)`.",
        "`/quote new` alone opens a form for it. What can be done with a quote is on its card, as buttons.",
        "`/quote status Q-2026-0042` shows one (also: show); `/quote list [mine|all] [open|sent|...] [customer]` lists them.",
        "`/quote submit Q-...` asks for approval; approvers decide with the buttons of its card.",
        "`/quote revise Q-...: 200 pro, add 10 sso, remove support; term 24m; discount 12%` makes a new version.",
        "`/quote add-line Q-...: 10 sso` and `/quote discount Q-...: 12%` are short for that.",
        "`/quote products [part of a name]` shows what is sold, `/quote price 150 pro; discount 10%` prices it without a quote.",
        "`/quote simulate Q-...: discount 20%` says what that would come to, without doing it.",
        "`/quote compare Q-... v1 v2` shows what differs, `/quote explain Q-... [line 2]` how a price comes about.",
        "`/quote finalize Q-...` freezes an approved quote, `/quote sent Q-... to &lt;recipient&gt;` records that it was sent.",
        "`/quote accept Q-...`, `/quote lost Q-...: &lt;reason&gt;` and `/quote cancel Q-...` end it.",
        "`/quote clone Q-... [for &lt;account&gt;]` makes a new quote of it.",
        "`/quote delegate @colleague until 2026-12-24` lets somebody approve instead of you while you are away.",
        "`/quote status c-...` says what became of a command, by the ref it was answered with.",
        "`/quote report discounts by product` shows the deal desk its numbers (also pipeline, win-loss, cycle-time, approvals).",
        "`/quote audit Q-...` says who did what to a quote; `/quote ops` tells operators what waits for them.",
        "`/quote help` shows this. Instead of new: start, create.",
        f"Example: `{EXAMPLE}`. Without a term it is 12 months, without a discount 0%.",
    )
)


def created(quote: Quote) -> str:
    """Reply to a creation that succeeded."""
    return f"Created {title(quote)} for {_account(quote)}, {net(quote)}."


def resubmission(quote_id: str, recorded_at: int, now: int) -> str:
    """Ask for confirmation of a second identical quote; the first was recorded at `recorded_at` (both times Unix ms)."""
    if (now - recorded_at) // 1000 <= AGO_SECONDS_MAX:
        return f"You just created the same quote, {quote_id}. Create another?"
    return f"You created the same quote, {quote_id}, {local_time(recorded_at)}. Create another?"


def line_options(line: PricedLine) -> str:
    """Return a line's chosen attributes and its own discount or price: " (gb 100, region eu, 10 % off)"; empty without them."""
    parts = [f"{name} {choice}" for name, choice in line.attributes]
    if line.agreed_price is not None:
        parts.append(f"agreed price {money.trimmed(line.agreed_price)}")
    elif line.requested_percent:
        parts.append(f"{money.format_percent(line.requested_percent)} off")
    return f" ({short(', '.join(parts), 200)})" if parts else ""


def option_rows(pricing: Pricing) -> list[str]:
    """Return up to 10 optional lines, each with its price."""
    rows = [
        f"• Optional: {line.quantity:,} {short(line.name, 60)}{line_options(line)}, "
        f"{money.format_amount(line.net_amount, pricing.currency)} (not in the total)"
        for line in pricing.options[:PROPOSED_LINES_MAX]
    ]
    more = len(pricing.options) - PROPOSED_LINES_MAX
    return [*rows, f"• and {more} more optional {'line' if more == 1 else 'lines'}"] if more > 0 else rows


def proposal(account: str, pricing: Pricing) -> str:
    """Ask for confirmation of an extracted quote: its customer, up to 10 lines, discount, tax, special terms and total."""
    lines = [
        f"• {line.quantity:,} {short(line.name, 60)}{line_options(line)}: {money.format_amount(line.net_amount, pricing.currency)}"
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
    head = f"I understood a quote for *{short(account, 100)}*, {pricing.term_months} months"
    percent = money.format_percent(pricing.discount_percent)
    net = money.format_amount(pricing.net_total, pricing.currency)
    total = f"*{net}* before tax" if request.with_tax else f"*{net}* in all"
    return "\n".join((f"{head}, {percent} discount:", *lines, f"{total}. Nothing was created yet. Create it?"))


# Refuse a creation in a direct message.
CHOOSE_CHANNEL = (
    "Nobody who approves would see a quote in here. Nothing was recorded. "
    "Create it where the deal is discussed, or choose the channel in the form."
)


# Refuse to open a form that would lose some of the products.
TOO_LONG_FOR_FORM = (
    "These products are too long for the form. Nothing was created. "
    "Mention me with the same text in the channel of the deal: there it can be confirmed without a form."
)


# Offer the form in reply to a request without any content.
BY_FORM = "Who is the quote for, and what is in it? Nothing was recorded. Say it in the form."


def by_command_only(quote_id: str | None) -> str:
    """Reply to a mention that asks for a change: only buttons and commands change a quote."""
    card = "" if quote_id is None else f" `/quote status {quote_id}` shows its card with its buttons."
    return f"In a message I only propose new quotes. Nothing was changed. Use a button of the quote's card, or `/quote`.{card}"


def already_created(quote_id: str) -> str:
    """Reply to a second use of a button or form that creates one quote."""
    return f"Already created: {quote_id}. Nothing was created now. See `/quote status {quote_id}`"


# Reply if the command behind a "Create another" button has been purged.
OFFER_GONE = "This button is too old: its command is no longer kept. Nothing was created. Type the command again."


# Refuse a "Create another" button that was shown to another user.
NOT_YOUR_OFFER = "This button belongs to the person who typed the command. Nothing was created. Type the command yourself."


def submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a submission that now waits for approval."""
    return f"{title(quote)} now waits for approval by {approver_words(approval.required_roles)}; they were asked in its thread."


# refusals


def problem_list(problems: tuple[str, ...]) -> str:
    """Refuse a typed command, listing all its problems; `problems` are escaped."""
    shown = [f"• {problem}" for problem in problems[:PROBLEMS_SHOWN_MAX]]
    if len(problems) > PROBLEMS_SHOWN_MAX:
        shown.append(f"• and {len(problems) - PROBLEMS_SHOWN_MAX} more like these")
    head = "That cannot be quoted yet:" if len(problems) > 1 else "That cannot be quoted:"
    return "\n".join((head, *shown, f"Nothing was recorded. Correct it and send it again, e.g. `{EXAMPLE}`"))


def pricing_problem(problem: PricingProblem) -> str:
    """Return one reason why a request has no price, with the suggested correction; escaped."""
    return escape(f"{problem.message}: {problem.suggestion}")


def stale(seen_version: int, quote: Quote) -> str:
    """Reply to a click on a card that shows an older version."""
    return (
        f"This card shows {quote.quote_id} v{seen_version}; it is now v{quote.version} ({state_words(quote.state)}). "
        "Nothing was changed. Use the buttons of the refreshed card."
    )


def foreign_team(quote: Quote) -> str:
    """Refuse a user of another workspace; the text reveals nothing about the quote but its id."""
    return f"Only members of the workspace that owns {quote.quote_id} can change it. Nothing was changed."


def turned_away(code: str) -> str:
    """Refuse a user whom the access gate does not admit, or a click in a wrong place; the text depends on no command."""
    return {
        "not_known": (
            "Slack did not answer who you are, and only members of this workspace can use Quotebot. "
            "Nothing was done. Try again in a minute."
        ),
        "foreign_team": "Only members of this workspace can use Quotebot. Nothing was done. Ask a member of it.",
        "foreign_click": (
            "This button or form was not made for you in this place, or is of an older build. Nothing was done. "
            "`/quote status Q-...` shows a quote with its buttons."
        ),
    }.get(code, "Guests, bots and people who have left cannot use Quotebot. Nothing was done. Ask a full member of this workspace.")


def not_seen(quote_id: str, quote: Quote | None, sight: Sight) -> str:
    """Reply to a query about a quote that the user may not see in full."""
    return unknown_quote(quote_id) if quote is None or sight is Sight.NOTHING else outline(quote)


def outline(quote: Quote) -> str:
    """Return the part of a quote shown to a member who may not see the rest."""
    return f"{title(quote)} is {state_words(quote.state)}. Only some people may see more of it; ask {mention(quote.requester)}."


def standing(quote: Quote) -> str:
    """Return the state of a quote; if a person set it, also that person and the time."""
    if quote.closing is not None:
        return f"{state_words(quote.state)} by {mention(quote.closing.closed_by)}, {local_time(quote.closing.closed_at)}"
    if quote.sent is not None and quote.state is QuoteState.SENT:
        return f"{state_words(quote.state)} by {mention(quote.sent.sent_by)}, {local_time(quote.sent.sent_at)}"
    if quote.frozen is not None and quote.state is QuoteState.FINALIZED:
        return f"{state_words(quote.state)} by {mention(quote.frozen.frozen_by)}, {local_time(quote.frozen.frozen_at)}"
    approval = quote.approval
    if approval is not None and approval.state in _DECIDED and quote.state in (QuoteState.APPROVED, QuoteState.REJECTED):
        return decided_words(approval)
    return state_words(quote.state)


def wrong_state(quote: Quote, verb: str) -> str:
    """Reply to a button that the quote's state no longer offers; `verb` names its action, e.g. "submit"."""
    return f"You cannot {verb} {title(quote)}: it is {standing(quote)}. Nothing was changed. Its card shows what is possible now."


def already_submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a second request for the approval of a version that waits for its decision."""
    return (
        f"{title(quote)} is already under review since {local_time(approval.requested_at)}: "
        f"<@{approval.requested_by}> asked for it. Nothing was changed. Its card shows who may decide."
    )


def expired(quote: Quote, verb: str) -> str:
    """Refuse a button after the quote's last day; `verb` names its action."""
    return (
        f"You cannot {verb} {title(quote)}: it was valid until {local_time(quote.valid_until)}. Nothing was changed. "
        "If it is still wanted, create a new quote."
    )


def blocked(quote: Quote, decision: PolicyDecision) -> str:
    """Refuse to submit a quote that the policy blocks: no one may approve it."""
    return (
        f"{title(quote)} cannot be submitted: {escape('; '.join(decision.hits))}. It stays {state_words(quote.state)}. "
        "Create a quote that keeps to the limit."
    )


def unknown_quote(quote_id: str) -> str:
    """Reply to the id of a quote that does not exist or that the user may not see."""
    return f"There is no quote {escape(clipped(quote_id))}. Nothing was changed. Check the number; it looks like Q-2026-0042."


def history_broken(ref: str) -> str:
    """Reply to a command about rows that were changed in the ledger's file from outside the bot."""
    return (
        f"Something wrote to the ledger beside the bot, so nothing is decided about this any more. Nothing was changed ({ref}). "
        "Tell an operator: `quotebot audit verify` names the row."
    )


# Reply to a button that another build wrote.
UNREADABLE_BUTTON = "This button is from another version of Quotebot. Nothing was changed. Use `/quote status` for a current card."


# Error in a form that was opened by another build.
UNREADABLE_FORM = "This form is from another version of Quotebot. Nothing was recorded. Close it and open it again."


# Reply if Slack did not open a form.
FORM_NOT_OPENED = "Slack did not open the form. Nothing was changed. Click again."


# Error under the reason field of the reject form.
REASON_NEEDED = "Say in one sentence why, so that the requester knows what to change (at most 500 characters)."


def terminal(reason: str, ref: str, quote_id: str | None) -> str:
    """Reply to an operation that failed permanently: the reason and the place to check."""
    where = f"See `/quote status {quote_id}`" if quote_id else "Send the command again"
    return f"That failed, ref {ref}: {_detail(reason)}. No quote was changed. {where}, or give the ref to your deal desk."


# notices in the quote's thread


def approval_notice(quote: Quote, approval: Approval, approvers: tuple[str, ...]) -> str:
    """Ask the approvers, in the thread, except the requesters of the approval and of the quote."""
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    who = mentions(asked) if asked else "No approver is known yet"
    return (
        f"{who}: {title(quote)} for {_account(quote)}, {net(quote)}, needs approval by "
        f"{approver_words(approval.required_roles)} ({escape(clipped('; '.join(approval.reasons), 1_000))}). "
        f"Asked for by {mention(approval.requested_by)}. Decide with the buttons on the card above."
    )


def decided_notice(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, of the decision, its author and its time."""
    words = f"{mention(approval.requested_by)}: {title(quote)}, {net(quote)}, was {decided_words(approval)}."
    if approval.state is ApprovalState.APPROVED:
        return f"{words} The PDF follows in this thread."
    if approval.decision_reason is None:
        return words
    return f"{words}\n{quoted(approval.decision_reason)}"


def expired_notice(quote: Quote) -> str:
    """Notify the requester, in the thread, that the quote expired."""
    return (
        f"{mention(quote.requester)}: {title(quote)} for {_account(quote)}, {net(quote)}, expired: it was valid until "
        f"{local_time(quote.valid_until)}. It can no longer be submitted, approved or accepted. "
        "If it is still wanted, create a new quote."
    )


def stale_notice(quote: Quote, touched_at: int) -> str:
    """Remind the requester, in the thread, of a quote that was last changed at `touched_at` (Unix ms)."""
    return (
        f"{mention(quote.requester)}: {title(quote)} for {_account(quote)}, {net(quote)}, is {state_words(quote.state)} and was "
        f"not touched since {local_time(touched_at)}. It expires {local_time(quote.valid_until)}. Submit it on the card above, or "
        "let it expire."
    )


def not_expired(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler did not expire a quote."""
    return f"{title(quote)} was not expired: {reason}. Nothing was changed and nothing is needed."


def not_reminded(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler sent no reminder."""
    return f"Nobody was reminded of {title(quote)}: {reason}. Nothing was changed and nothing is needed."


def pdf_comment(quote: Quote) -> str:
    """Comment of the uploaded PDF. It names the version, because a newer one may exist by the time of the upload."""
    return f"{quote.quote_id} v{quote.version} for {_account(quote)}: {net(quote)}, valid until {local_time(quote.valid_until)}."


def dead_letter(label: str, ref: str, reason: str, quote: Quote) -> str:
    """Notice that an effect of a quote became a dead letter; the quote itself is unchanged."""
    return (
        f"⚠️ {label} for {title(quote)} failed for good, ref {ref}: {_detail(reason)}. "
        f"The quote is still {state_words(quote.state)} and nothing is needed from you; an operator can repeat it under this ref."
    )


def card_not_posted(quote: Quote, ref: str, reason: str) -> str:
    """Notify the requester, privately, that the quote was created but its card could not be posted."""
    return (
        f"{title(quote)} was created ({net(quote)}), but its card could not be posted here, ref {ref}: {_detail(reason)}. "
        f"Invite the bot to this channel and give the ref to an operator, or see `/quote status {quote.quote_id}`."
    )


def card_in_direct_message(quote: Quote) -> str:
    """Notify the requester, privately, that the card is in their direct messages. The text holds no fact but the quote's number."""
    return (
        f"The card of {quote.quote_id} is in your direct messages with me, with its thread and its PDF: this channel is shared "
        "with another organization, or I cannot see whether it is. Approvers are told directly. To have quotes posted here, ask "
        "an operator to list the channel in `shared_channels`."
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
    return f"You asked in <#{channel}>: {answer}"


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
