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
from quotebot.domain.language import N_, _, day_text, grouped, listed, ngettext
from quotebot.domain.pricing.engine import PricedLine, Pricing, PricingProblem, clipped
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, local_day, local_time, state_words, title

if TYPE_CHECKING:
    from quotebot.domain.approvals.policy import PolicyDecision
    from quotebot.domain.approvals.roles import Roles

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
    return named if len(users) <= NAMED_MAX else _("{people} and {n} more", people=named, n=grouped(len(users) - NAMED_MAX))


def approver_words(needed: tuple[str, ...], roles: Roles) -> str:
    """Return the needed roles as people say them: "Sales Manager", "Deal Desk and Legal"."""
    return listed(tuple(map(roles.words, needed)))


# commands that are recorded: their acknowledgement has no text


# Reply to a repeated delivery of a message that the model is asked to extract.
BEING_READ = N_("Reading your message\u2026")


# Result of a second answer to the same message; it is stored with the command and never posted.
MESSAGE_ANSWERED = N_("I've already answered this message.")


# Reply to a creation that is unfinished after two seconds.
CREATING = N_("Creating your quote\u2026 Its card will appear in the channel. No need to send it again.")


# Result of a recorded visit to the App Home; it is stored with the command and never posted.
HOME_FOLLOWS = N_("The Home tab is updated.")


# Result of a command that a link causes. It is stored with it, never posted.
PREVIEW_FOLLOWS = N_("The preview follows.")


def command_name(action_kind: str) -> str:
    """Return a kind of command in words: "mark sent"."""
    name = action_kind.partition(".")[2].replace("_", " ")
    return _(name) if name in _COMMAND_NAMES else name


# Reply to a repeated delivery, or at the end of a wait, while the operation is still running.
OPERATION_PENDING = N_("Still working on it. No need to send it again.")


def retry_pending(due_at: int | None = None) -> str:
    """Reply while an operation waits for its next attempt at `due_at` (Unix ms)."""
    if due_at is None:
        return _("Saved. Retrying soon; no need to send it again.")
    return _("Saved. Retrying {time}; no need to send it again.", time=local_time(due_at))


# Reply if the command was certainly not recorded.
NOTHING_RECORDED = N_("That didn't go through. Please try again.")


def over_budget(per_minute: int, wait_seconds: int) -> str:
    """Reply to a command over the user's budget of `per_minute` commands."""
    return _(
        "That's more than {n} commands in a minute. Try again in {seconds} s.", n=grouped(per_minute), seconds=grouped(wait_seconds)
    )


# Reply if it is uncertain whether the command was recorded.
MAYBE_RECORDED = N_("We couldn't confirm that went through. Check this channel for the quote before trying again.")


# Reply to a repeated delivery of a command that an operator discarded.
DISCARDED = N_("An operator dropped this request. Send it again if you still need it.")


def unknown_ref(ref: str) -> str:
    """Reply to a reference that matches no command of this user."""
    return _("No request of yours has the reference {ref}.", ref=escape(clipped(ref)))


# Reply to a request id that was already used with different content.
CONFLICT = N_("That request was already used for something else. Type the command again.")


def too_long(limit: int) -> str:
    """Reply to slash command text of more than `limit` characters."""
    return _("That's too long ({n} characters max). Shorten it or split it into two quotes.", n=grouped(limit))


def message_too_long(limit: int) -> str:
    """Reply to a message of more than `limit` characters, which the bot does not parse at all."""
    return _("That message is too long for me ({n} characters max). Please send a shorter one.", n=grouped(limit))


def command_too_large(bytes_max: int) -> str:
    """Reply to a command whose stored payload would exceed `bytes_max`."""
    return _("That's too large ({n} KiB max). Split it into two quotes.", n=grouped(bytes_max // 1024))


def finished(outcome: str | None) -> str:
    """Reply to a delivery of a completed command whose result has no text."""
    return _("That's already done.") if outcome == "applied" else _("That was already declined.")


def finished_long_ago(outcome: str | None, finished_at: int) -> str:
    """Reply to a delivery of a purged command, which ended at `finished_at` (Unix ms): applied, refused or (None) abandoned."""
    day = day_text(datetime.fromtimestamp(finished_at / 1000, tz=UTC))
    if outcome == "applied":
        return _("You already did this on {day}, so we didn't do it again.", day=day)
    if outcome == "refused":
        return _("You already asked for this on {day}, and it was declined.", day=day)
    return _("You already asked for this on {day}, and it did not go through.", day=day)


def created(quote: Quote) -> str:
    """Reply to a creation that succeeded."""
    return _("Created {quote} for {customer}, {total}.", quote=title(quote), customer=_account(quote), total=net(quote))


def resubmission(quote_id: str, recorded_at: int, now: int) -> str:
    """Ask for confirmation of a second identical quote; the first was recorded at `recorded_at` (both times Unix ms)."""
    if (now - recorded_at) // 1000 <= AGO_SECONDS_MAX:
        return _("You just created the same quote, {quote}. Create another?", quote=quote_id)
    return _("You created the same quote, {quote}, {time}. Create another?", quote=quote_id, time=local_time(recorded_at))


def line_options(line: PricedLine, currency: str) -> str:
    """Return a line's chosen attributes and its own discount or price: " (gb 100, region eu, 10 % off)"; empty without them."""
    parts = [f"{name} {choice}" for name, choice in line.attributes]
    if line.agreed_price is not None:
        parts.append(_("agreed price {price}", price=money.format_unit_price(line.agreed_price, currency)))
    elif line.requested_percent:
        parts.append(_("{percent} off", percent=money.format_percent(line.requested_percent)))
    return f" ({short(', '.join(parts), 200)})" if parts else ""


def option_rows(pricing: Pricing) -> list[str]:
    """Return up to 10 optional lines, each with its price."""
    rows = [
        _(
            "• Optional: {n} {product}, {amount} (not in the total)",
            n=grouped(line.quantity),
            product=f"{short(line.name, 60)}{line_options(line, pricing.currency)}",
            amount=money.format_amount(line.net_amount, pricing.currency),
        )
        for line in pricing.options[:PROPOSED_LINES_MAX]
    ]
    more = len(pricing.options) - PROPOSED_LINES_MAX
    return [*rows, ngettext("• and {n} more optional line", "• and {n} more optional lines", more)] if more > 0 else rows


# Refuse a creation in a direct message.
CHOOSE_CHANNEL = N_("Quotes need a channel so approvers can see them. Pick one to continue.")


# Refuse to open a form that would lose some of the products.
TOO_LONG_FOR_FORM = N_("That's too long for the form. Mention me with the same text in the deal's channel instead.")


# Offer the form in reply to a request without any content.
BY_FORM = N_("Tell me the customer and products, or use the form.")


# Reply to a mention that asks for a change of a quote: only buttons and commands change one.
BY_COMMAND_ONLY = N_("I can't do that from a message. Open the quote to use its buttons.")


# Reply to a mention that asks for another command.
COMMAND_ONLY = N_("I can't do that from a message. Type it as a `/quote` command.")


def which_quote(verb: str) -> str:
    """Ask for the quote that a command without a number is about."""
    return _("Which quote? Open one, or add its number: `/quote {verb} Q-2026-0042`", verb=verb)


def already_created(quote_id: str) -> str:
    """Reply to a second use of a button or form that creates one quote."""
    return _("Already created: {quote}. `/quote {quote}` shows it.", quote=quote_id)


# Reply if the command behind a "Create another" button has been purged.
OFFER_GONE = N_("This button has expired. Type the command again.")


# Refuse a "Create another" button that was shown to another user.
NOT_YOUR_OFFER = N_("Only the person who asked can use this button.")


def submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a submission that now waits for approval."""
    return _(
        "Submitted {quote}. Waiting for {roles}.", quote=title(quote), roles=approver_words(approval.required_roles, approval.roles)
    )


# refusals


def problem_list(problems: tuple[str, ...], corrected: str | None = None) -> str:
    """Refuse a typed command, listing all its problems, which are escaped; `corrected` is what to type instead."""
    shown = problems if len(problems) == 1 else (_("{n} things to fix:", n=grouped(len(problems))), *bullets(problems))
    instead = () if corrected is None else (_("Try `/quote {command}`", command=escape(corrected).replace("`", "")),)
    return "\n".join((*shown, *instead))


def bullets(problems: tuple[str, ...]) -> list[str]:
    """Return up to 20 problems as list items, and a count of the others."""
    shown = [f"• {problem}" for problem in problems[:PROBLEMS_SHOWN_MAX]]
    more = len(problems) - PROBLEMS_SHOWN_MAX
    return [*shown, _("• and {n} more like these", n=grouped(more))] if more > 0 else shown


def pricing_problem(problem: PricingProblem) -> str:
    """Return one reason why a request has no price, with the suggested correction, as sentences; escaped."""
    example = _("Example: ")
    suggestion = problem.suggestion.replace(_(", e.g. "), f". {example}", 1).replace(_("e.g. "), example, 1)
    return escape(" ".join(map(_sentence, (problem.message, suggestion))))


def _sentence(text: str) -> str:
    """Return text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def no_such_version(asked: int, quote: Quote) -> str:
    """Reply to a command about a version that the quote does not have yet."""
    return _("{quote} has no v{seen}. Its latest version is v{version}.", quote=quote.quote_id, seen=asked, version=quote.version)


def stale(seen_version: int, quote: Quote) -> str:
    """Reply to a request about another version than the head: a click on an older card, or a version that does not exist."""
    if seen_version > quote.version:
        return no_such_version(seen_version, quote)
    return _(
        "{quote} changed since you opened v{seen}: it's now v{version} ({state}). Your click changed nothing.",
        quote=quote.quote_id,
        seen=seen_version,
        version=quote.version,
        state=state_words(quote.state),
    )


def foreign_team(quote: Quote) -> str:
    """Refuse a user of another workspace; the text reveals nothing about the quote but its id."""
    return _("You can't change {quote}: it belongs to another workspace.", quote=quote.quote_id)


def turned_away(code: str) -> str:
    """Refuse a user whom the access gate does not admit, or a click in a wrong place; the text depends on no command."""
    return _(_TURNED_AWAY.get(code, _FOR_GUESTS))


def not_seen(quote_id: str, quote: Quote | None, sight: Sight) -> str:
    """Reply to a query about a quote that the user may not see in full."""
    return unknown_quote(quote_id) if quote is None or sight is Sight.NOTHING else outline(quote)


def outline(quote: Quote) -> str:
    """Return the part of a quote shown to a member who may not see the rest."""
    return _(
        "{quote} is {state}. Not everyone can see more of it. Ask {person}.",
        quote=title(quote),
        state=state_words(quote.state),
        person=mention(quote.requester),
    )


def already_submitted(quote: Quote, approval: Approval) -> str:
    """Reply to a second request for the approval of a version that waits for its decision."""
    return _(
        "{quote} is already waiting for approval: {person} submitted it, {time}. Its card shows who can decide.",
        quote=title(quote),
        person=mention(approval.requested_by),
        time=local_time(approval.requested_at),
    )


def blocked(quote: Quote, decision: PolicyDecision) -> str:
    """Refuse to submit a quote that the policy blocks: no one may approve it."""
    why = escape("; ".join(decision.hits))
    return _("{quote} can't be submitted: {why}. Edit the quote and try again.", quote=title(quote), why=why)


def unknown_quote(quote_id: str) -> str:
    """Reply to the id of a quote that does not exist or that the user may not see."""
    return _("No quote {quote}. Check the number, or search: `/quote list acme`.", quote=escape(clipped(quote_id)))


def history_broken(ref: str) -> str:
    """Reply to a command about rows that were changed in the ledger's file from outside the bot."""
    return _(
        "Something outside Quotebot changed this record, so it's locked and nothing was done. Reference {ref}. "
        "Tell an operator: `quotebot audit verify` names the row.",
        ref=ref,
    )


# Reply to a button that another build wrote.
UNREADABLE_BUTTON = N_("This button is out of date. Open the quote again: `/quote Q-...`")


# Reply to a button of a card that another build wrote, beside a button that shows the quote.
OUTDATED_BUTTON = N_("This button is out of date. Open the quote again.")


# Error in a form that was opened by another build.
UNREADABLE_FORM = N_("This form is out of date. Close it and open it again.")


# Reply if Slack did not open a form.
FORM_NOT_OPENED = N_("Slack couldn't open the form. Try again.")


# Error under the reason field of the reject form.
REASON_NEEDED = N_("Add a reason (500 characters max).")


def terminal(reason: str, ref: str, quote_id: str | None) -> str:
    """Reply to an operation that failed permanently, with the reason."""
    if quote_id is None:
        text = N_("Something went wrong and no quote was changed: {why}. Try again, or share reference {ref} with your admin.")
        return _(text, why=_detail(reason), ref=ref)
    text = N_("Something went wrong and {quote} wasn't changed: {why}. Try again, or share reference {ref} with your admin.")
    return _(text, quote=quote_id, why=_detail(reason), ref=ref)


# notices in the quote's thread


def approval_notice(quote: Quote, approval: Approval, approvers: tuple[str, ...]) -> str:
    """Ask the approvers, in the thread, except the requesters of the approval and of the quote."""
    asked = tuple(user for user in approvers if user not in (approval.requested_by, quote.requester))
    why = escape(clipped("; ".join(approval.reasons), 1_000))
    why = (f". {why[:1].upper()}{why[1:]}" if why else "") + (f"\n{asked_again(approval)}" if approval.note else "")
    deal = {
        "customer": _account(quote),
        "total": net(quote),
        "quote": title(quote),
        "requester": mention(approval.requested_by),
    }
    if asked:
        return _("{people}, please review: *{customer} · {total}* ({quote}) from {requester}", people=mentions(asked), **deal) + why
    nobody = _(
        "No one holds the {roles} role yet, so nobody can approve *{customer} · {total}* ({quote}) from {requester}",
        roles=approver_words(approval.required_roles, approval.roles),
        **deal,
    )
    return f"{nobody}{why}"


def asked_again(approval: Approval) -> str:
    """Return the note of a version that was submitted again as it is."""
    return "\n".join((_("Submitted again without changes:"), quoted(approval.note or "")))


def decided_notice(quote: Quote, approval: Approval) -> str:
    """Notify the requester, in the thread, of the decision, its author and its time."""
    facts = {"person": mention(approval.requested_by), "quote": title(quote), "decided": decided_words(approval)}
    if approval.state is ApprovalState.APPROVED:
        return _("{person} ✅ {quote} was {decided}. The PDF follows in this thread.", **facts)
    words = _("{person} ⛔ {quote} was {decided}", **facts)
    return words if approval.decision_reason is None else f"{words}\n{quoted(approval.decision_reason)}"


def expired_notice(quote: Quote) -> str:
    """Notify the requester, in the thread, that the quote expired."""
    return _(
        "{person}, {name} expired: it was valid until {time}. Clone it to continue: `/quote clone {quote}`",
        person=mention(quote.requester),
        name=title(quote),
        time=local_time(quote.valid_until),
        quote=quote.quote_id,
    )


def stale_notice(quote: Quote, touched_at: int) -> str:
    """Remind the requester, in the thread, of a quote that was last changed at `touched_at` (Unix ms)."""
    return _(
        "{person}, {quote} ({state}) hasn't changed since {time} and expires {end}. Submit, edit or cancel it on the card above.",
        person=mention(quote.requester),
        quote=title(quote),
        state=state_words(quote.state),
        time=local_time(touched_at),
        end=local_time(quote.valid_until),
    )


def not_expired(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler did not expire a quote."""
    return _("{quote} was not expired: {why}. Nothing was changed and nothing is needed.", quote=title(quote), why=reason)


def not_reminded(quote: Quote, reason: str) -> str:
    """Return the reason why the scheduler sent no reminder."""
    return _("Nobody was reminded of {quote}: {why}. Nothing was changed and nothing is needed.", quote=title(quote), why=reason)


def approved(quote: Quote) -> str:
    """Tell the requester, in the thread, that the quote is approved, by whom and when."""
    approval = quote.approval
    assert approval is not None  # noqa: S101 -- an approved quote has one
    facts = {"person": mention(approval.requested_by), "quote": title(quote), "decided": decided_words(approval)}
    return _("{person} ✅ {quote} was {decided}", **facts)


def pdf_comment(quote: Quote, *, announces: bool = False) -> str:
    """Comment of the uploaded PDF, which may announce the approval.

    It names the version, because a newer one may exist by the time of the upload.
    """
    facts = f"{quote.quote_id} v{quote.version} · {_account(quote)} · {net(quote)}"
    comment = _("{quote} · valid until {day}", quote=facts, day=local_day(quote.valid_until))
    return f"{approved(quote)}\n{comment}" if announces and quote.approval is not None else comment


def replaced_pdf(quote: Quote, *, announces: bool = False) -> str:
    """Comment of the PDF of a version that the next one replaced; `announces` is as of `pdf_comment`."""
    replaced = _("v{version} was replaced by v{newest}", version=quote.version, newest=quote.version + 1)
    return f"🚫 *{replaced}*\n{pdf_comment(quote, announces=announces)}"


def dead_letter(label: str, ref: str, reason: str, quote: Quote) -> str:
    """Notice that an effect of a quote became a dead letter; the quote itself is unchanged."""
    return _(
        "⚠️ {job} for {quote} failed: {why}. The quote is still {state}. "
        "Our ops team has been notified; no action needed from you. Ref {ref}",
        job=label,
        quote=title(quote),
        why=_detail(reason),
        state=state_words(quote.state),
        ref=ref,
    )


def card_not_posted(quote: Quote, ref: str, reason: str) -> str:
    """Notify the requester, privately, that the quote was created but its card could not be posted."""
    return _(
        "{name} is created, but its card couldn't be posted here: {why}. "
        "Type `/invite @Quotebot`, or open it with `/quote {quote}`. Reference {ref}.",
        name=title(quote),
        why=_detail(reason),
        quote=quote.quote_id,
        ref=ref,
    )


def card_in_direct_message(quote: Quote) -> str:
    """Notify the requester, privately, that the card is in their direct messages. The text holds no fact but the quote's number."""
    return _(
        "The card of {quote} is in your direct messages with me, with its thread and PDF. This channel is shared with "
        "another organization, or I can't see whether it is. Approvers get a direct message. To have quotes posted here, ask an "
        "operator to list the channel in `shared_channels`.",
        quote=quote.quote_id,
    )


# Placeholder for a card in a channel that another organization may read: no fact, not even the quote's number.
CARD_WITHDRAWN = N_(
    "This card is gone: another organization may read this channel now. The quote goes on in a direct message of its owner."
)


def sent_directly(quote: Quote, text: str) -> str:
    """Return a notice of a quote's thread for a user who cannot read that thread."""
    return _(
        "{text}\nThe card of {quote} is not in a channel. My Home tab shows what waits for you; so does `/quote show {quote}`.",
        text=text,
        quote=quote.quote_id,
    )


def mentioned(text: str) -> list[str]:
    """Return the user ids mentioned in the bot's own text. Typed text in it is escaped and mentions no one."""
    return _MENTIONED.findall(text)


def asked_in(channel: str, answer: str) -> str:
    """Return a reply that is sent in another conversation than `channel`, where the user asked."""
    return _("In {channel}: {answer}", channel=f"<#{channel}>", answer=answer)


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


# Invisible letters and signs, and two that no document can hold.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffe\uffff")
# Every name that `command_name` returns.
_COMMAND_NAMES = frozenset(
    {
        *(N_("create"), N_("create another"), N_("create by form"), N_("propose"), N_("submit"), N_("decide"), N_("revise")),
        *(N_("clone"), N_("cancel"), N_("finalize"), N_("mark sent"), N_("accept"), N_("lose"), N_("refresh"), N_("expire")),
        *(N_("note stale"), N_("delegate"), N_("remind"), N_("escalate"), N_("reassign"), N_("read"), N_("answer"), N_("sync")),
        *(N_("reconcile"), N_("show"), N_("set"), N_("send"), N_("announce"), N_("retry"), N_("discard"), N_("resubmit")),
        *(N_("card"), N_("replay all"), N_("steer"), N_("preview")),
    }
)
_TURNED_AWAY = {
    "not_known": N_("We couldn't verify your Slack account. Try again in a minute."),
    "foreign_team": N_("Quotebot is only available to members of this workspace."),
    "foreign_click": N_("This button isn't yours to use here, or it's out of date. Open the quote again: `/quote Q-...`"),
}
_FOR_GUESTS = N_("Quotebot isn't available to guests. Ask a teammate with a full account.")
