"""Messages about versions and the end of quotes: notices, replies, refusals. Text is Slack mrkdwn, as in messages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.quotes.quote import Quote, QuoteState, local_time, state_words, title
from quotebot.domain.quotes.versions import difference_words
from quotebot.views import messages
from quotebot.views.messages import net

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.domain.pricing.engine import Pricing, PricingProblem


DIFFERENCES_SHOWN_MAX = 15
DETAIL_CHARACTERS_MAX = 200
WITH_DOCUMENT: Final = frozenset({QuoteState.APPROVED, QuoteState.FINALIZED, QuoteState.SENT})


def version_name(quote: Quote) -> str:
    """Return "Q-2026-0042 v1". Unlike `title`, it also numbers the first version, for comparisons."""
    return f"{quote.quote_id} v{quote.version}"


def differences(before: Pricing, after: Pricing) -> str:
    """Return the differences as list items: at most 15, and a count of the others."""
    found = difference_words(before, after)
    shown = [f"• {messages.short(part, DETAIL_CHARACTERS_MAX)}" for part in found[:DIFFERENCES_SHOWN_MAX]]
    if len(found) > DIFFERENCES_SHOWN_MAX:
        shown[-1:] = [f"• and {len(found) - DIFFERENCES_SHOWN_MAX} more like these", shown[-1]]
    return "\n".join(shown) or "• nothing differs"


# notices in the quote's thread


def revised(before: Quote, after: Quote, actor: str) -> str:
    """Notice of a new version: its changes, and the end of the previous version."""
    document = " So is its PDF, whose file stays as it is." if before.state in WITH_DOCUMENT else ""
    lapsed = "" if before.approval is None else f" Its approval does not carry over by itself: submit v{after.version} again."
    return (
        f"{messages.mention(actor)} made {version_name(after)}. v{before.version}, which was {state_words(before.state)}, "
        f"is superseded.{document}{lapsed}\n{differences(before.pricing, after.pricing)}"
    )


def cancelled(quote: Quote, actor: str) -> str:
    """Notice of a cancellation, with its reason."""
    return _with_reason(f"{title(quote)} was cancelled by {messages.mention(actor)}. Nothing more will happen to it.", quote)


def finalized(quote: Quote, actor: str) -> str:
    """Notice that the version is frozen."""
    return (
        f"{title(quote)}, {net(quote)}, was finalized by {messages.mention(actor)}: it can be sent. "
        "A change from here on is a new version."
    )


def sent(quote: Quote, actor: str) -> str:
    """Notice of the recipient that the user recorded; the bot itself sends no mail."""
    assert quote.sent is not None  # noqa: S101 -- it was just sent
    recipient = messages.escape(messages.one_line(quote.sent.recipient))
    said = f"{title(quote)}, {net(quote)}, was sent to {recipient}, says {messages.mention(actor)}."
    return f"{said} Valid until {local_time(quote.valid_until)}."


def accepted(quote: Quote, actor: str) -> str:
    """Notice that the customer accepted."""
    return f"{messages.mention(quote.requester)}: {title(quote)}, {net(quote)}, was accepted, says {messages.mention(actor)}."


def lost(quote: Quote, actor: str) -> str:
    """Notice that the customer refused, with the reason."""
    return _with_reason(f"{messages.mention(quote.requester)}: {title(quote)} was lost, says {messages.mention(actor)}.", quote)


# replies to the author of the command


def now(quote: Quote) -> str:
    """Reply to a change that succeeded."""
    return f"{title(quote)} is now {state_words(quote.state)}: {net(quote)}."


def cloned(quote: Quote, original: Quote) -> str:
    """Reply to a clone that succeeded."""
    return (
        f"Created {title(quote)} as a copy of {version_name(original)}: {net(quote)}. Its card is in the channel; submit it there."
    )


# refusals


def superseded(seen_version: int, quote: Quote) -> str:
    """Refuse a command about a version other than the head."""
    if seen_version > quote.version:
        return f"There is no v{seen_version} of {quote.quote_id}: it is at v{quote.version}. Nothing was changed."
    return (
        f"{quote.quote_id} v{seen_version} is superseded: it is now v{quote.version} ({state_words(quote.state)}). "
        f"Nothing was changed. See `/quote status {quote.quote_id}`."
    )


def wrong_state(quote: Quote, verb: str) -> str:
    """Refuse a command that the quote's state does not allow; `verb` names it, e.g. "finalize"."""
    instead = _INSTEAD[quote.state].format(quote_id=quote.quote_id, revision=revision_example(quote.quote_id))
    return f"You cannot {verb} {title(quote)}: it is {messages.standing(quote)}. Nothing was changed. {instead}"


def lapsed(quote: Quote, verb: str) -> str:
    """Refuse a command after the quote's last day, even if its state is not yet expired."""
    return (
        f"You cannot {verb} {title(quote)}: it was valid until {local_time(quote.valid_until)} and has expired. "
        f"Nothing was changed. `/quote clone {quote.quote_id}` makes a new quote of it."
    )


def nothing_to_change(quote: Quote) -> str:
    """Refuse a revision that changes nothing."""
    return f"That is what {title(quote)} already says. Nothing was changed, and there is no new version."


def not_revisable(quote: Quote, problems: tuple[PricingProblem, ...]) -> str:
    """Refuse a revision, listing all its problems."""
    said = tuple(messages.pricing_problem(problem) for problem in problems)
    return _listed(f"{title(quote)} cannot be changed like that:", said, "Nothing was changed", revision_example(quote.quote_id))


def unreadable_changes(problems: tuple[str, ...], example: str) -> str:
    """Refuse a typed revision or simulation, listing all its problems; `problems` are escaped."""
    return _listed("I cannot read that:", problems, "Nothing was recorded", example)


def change_proposed(quote: Quote, differences: str, preview: str) -> str:
    """Ask for confirmation of a change requested in the thread, with its result; `differences` and `preview` are mrkdwn."""
    head = f"I understood a change of {title(quote)}:"
    return f"{head}\n{differences}\n{preview}. Nothing was changed yet. Make it v{quote.version + 1}?"


def how_is_it_meant(unsure: tuple[str, ...]) -> str:
    """Ask for a clearer wording if words may change the meaning of a number; `unsure` are those words."""
    named = ", ".join(f'"{messages.escape(word)}"' for word in unsure[:5])
    return (
        f"I am not sure how the numbers are meant: {named}. Nothing was changed. Say it as `200 pro` (the new quantity), "
        "`add 10 sso`, `remove support`, `term 24m` or `discount 12%`; several with commas."
    )


def too_long_for_a_button(quote_id: str) -> str:
    """Explain how to type a change that is too long for a button's value."""
    return f"That is too much for a button: type it as `{revision_example(quote_id)}`."


def reason_needed(quote_id: str) -> str:
    """Refuse to mark a quote as lost without a reason."""
    return f"Say why {quote_id} was lost: `/quote lost {quote_id}: too expensive`. Nothing was changed."


def recipient_needed(quote_id: str) -> str:
    """Refuse to mark a quote as sent without a recipient."""
    return f"Say to whom {quote_id} was sent: `/quote sent {quote_id} to buyer@acme.example`. Nothing was changed."


def too_long(what: str, limit: int) -> str:
    """Refuse a reason or a recipient that exceeds `limit` characters."""
    return f"The {what} is longer than {limit} characters. Nothing was changed. Shorten it."


def nothing_to_clone(quote_id: str) -> str:
    """Refuse to clone a quote or a version that does not exist or that the user may not see."""
    return f"There is no such version of {quote_id} to copy. Nothing was created. Check the number; it looks like Q-2026-0042."


def revision_example(quote_id: str) -> str:
    """Return an example of a typed revision."""
    return f"/quote revise {quote_id}: 200 pro, add 10 sso, remove support; term 24m; discount 12%"


def _listed(head: str, problems: tuple[str, ...], outcome: str, example: str) -> str:
    shown = [f"• {problem}" for problem in problems[: messages.PROBLEMS_SHOWN_MAX]]
    if len(problems) > messages.PROBLEMS_SHOWN_MAX:
        shown.append(f"• and {len(problems) - messages.PROBLEMS_SHOWN_MAX} more like these")
    return "\n".join((head, *shown, f"{outcome}. Correct it and send it again, e.g. `{example}`"))


def _with_reason(sentence: str, quote: Quote) -> str:
    reason = None if quote.closing is None else quote.closing.reason
    return sentence if reason is None else f"{sentence}\n{messages.quoted(reason)}"


_AGAIN: Final = "That is final; `/quote clone {quote_id}` makes a new quote of it."
_REVISE: Final = "Revise it first: `{revision}`."
_INSTEAD: Final[Mapping[QuoteState, str]] = {
    QuoteState.DRAFT: _REVISE,
    QuoteState.VALIDATED: _REVISE,
    QuoteState.PRICED: "Submit it for approval first.",
    QuoteState.PENDING_APPROVAL: "It waits for its approvers.",
    QuoteState.APPROVED: "Finalize it first: `/quote finalize {quote_id}`.",
    QuoteState.REJECTED: _REVISE,
    QuoteState.FINALIZED: "Record first that it was sent: `/quote sent {quote_id} to ...`.",
    QuoteState.SENT: "It waits for the customer: `/quote accept {quote_id}` or `/quote lost {quote_id}: reason`.",
    QuoteState.ACCEPTED: _AGAIN,
    QuoteState.LOST: _AGAIN,
    QuoteState.CANCELLED: _AGAIN,
    QuoteState.EXPIRED: _AGAIN,
}
