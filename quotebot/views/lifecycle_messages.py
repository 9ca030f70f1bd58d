"""Messages about versions and the end of quotes: notices, replies, refusals. Text is Slack mrkdwn, as in messages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.quotes.quote import Quote, QuoteState, local_day, state_words, title
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
        shown.append(f"• and {len(found) - DIFFERENCES_SHOWN_MAX} more like these")
    return "\n".join(shown) or "• No differences"


# notices in the quote's thread


def revised(before: Quote, after: Quote, actor: str) -> str:
    """Notice of a new version: its changes, and the end of the previous version."""
    gone = (
        f"v{before.version} and its PDF no longer apply"
        if before.state in WITH_DOCUMENT
        else f"v{before.version} no longer applies"
    )
    again = "" if before.approval is None else f"; submit v{after.version} for approval"
    return (
        f"{messages.mention(actor)} revised this quote to *{version_name(after)}*. {gone}{again}."
        f"\n{differences(before.pricing, after.pricing)}"
    )


def cancelled(quote: Quote, actor: str) -> str:
    """Notice of a cancellation, with its reason."""
    return _with_reason(f"{messages.mention(actor)} canceled {title(quote)}", quote)


def finalized(quote: Quote, actor: str) -> str:
    """Notice that the version is frozen."""
    return f"{messages.mention(actor)} locked {title(quote)} for sending"


def sent(quote: Quote, actor: str) -> str:
    """Notice of the recipient that the user recorded; the bot itself sends no mail."""
    assert quote.sent is not None  # noqa: S101 -- it was just sent
    recipient = messages.escape(messages.one_line(quote.sent.recipient))
    return f"{messages.mention(actor)} sent {title(quote)} to {recipient}. Valid until {local_day(quote.valid_until)}"


def accepted(quote: Quote, actor: str) -> str:
    """Notice that the customer accepted."""
    account = messages.short(quote.account, messages.ACCOUNT_CHARACTERS_MAX)
    marked = "" if actor == quote.requester else f" (marked by {messages.mention(actor)})"
    return f"{messages.mention(quote.requester)} 🏆 Won! {account} accepted {title(quote)}, {net(quote)}{marked}"


def lost(quote: Quote, actor: str) -> str:
    """Notice that the customer refused, with the reason."""
    return _with_reason(f"{messages.mention(quote.requester)}, {messages.mention(actor)} marked {title(quote)} as lost", quote)


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
        return f"{quote.quote_id} has no v{seen_version}. Its latest version is v{quote.version}."
    return f"v{seen_version} of {quote.quote_id} was replaced by v{quote.version} ({state_words(quote.state)}). No changes made."


def wrong_state(quote: Quote, verb: str) -> str:
    """Refuse a command that the quote's state does not allow; `verb` names it, e.g. "finalize"."""
    instead = _INSTEAD[quote.state].format(quote_id=quote.quote_id, revision=revision_example(quote.quote_id))
    standing = messages.standing(quote)
    if _REACHED.get(verb) is quote.state:
        return f"{title(quote)} {standing.replace('was ', 'was already ', 1)}. {instead}"
    if verb in ("accept", "lose") and quote.state in (QuoteState.APPROVED, QuoteState.FINALIZED):
        standing = "hasn't been sent yet"
        instead = f"{instead} To drop it, use Cancel quote." if verb == "lose" else instead
    return f"{title(quote)} {standing}, so it can't be {messages.done(verb)}. {instead}"


def nothing_to_change(quote: Quote) -> str:
    """Refuse a revision that changes nothing."""
    return f"No changes to save: {title(quote)} already says that."


def not_revisable(quote: Quote, problems: tuple[PricingProblem, ...]) -> str:
    """Refuse a revision, listing all its problems."""
    said = tuple(messages.pricing_problem(problem) for problem in problems)
    return _listed(f"{title(quote)} can't be changed like that:", said, revision_example(quote.quote_id))


def unreadable_changes(problems: tuple[str, ...], example: str) -> str:
    """Refuse a typed revision or simulation, listing all its problems; `problems` are escaped."""
    return _listed("I couldn't read that:", problems, example)


def change_proposed(quote: Quote, differences: str, preview: str) -> str:
    """Ask for confirmation of a change requested in the thread, with its result; `differences` and `preview` are mrkdwn."""
    return f"*Change {title(quote)} to v{quote.version + 1}?*\n{differences}\n{preview}"


def how_is_it_meant(unsure: tuple[str, ...]) -> str:
    """Ask for a clearer wording if words may change the meaning of a number; `unsure` are those words."""
    named = ", ".join(f'"{messages.escape(word)}"' for word in unsure[:5])
    return (
        f"I'm not sure what {named} means here. Write `200 pro` for the new quantity or `add 200 pro` for more. "
        "Also: `remove support`, `term 24m`, `discount 12%`."
    )


def too_long_for_a_button(quote_id: str) -> str:
    """Explain how to type a change that is too long for a button's value."""
    return f"That's too long for a button. Use *Edit* on the card, or type it: `{revision_example(quote_id)}`"


def reason_needed(quote_id: str) -> str:
    """Refuse to mark a quote as lost without a reason."""
    return f"Why was it lost? `/quote lost {quote_id}: too expensive`"


def recipient_needed(quote_id: str) -> str:
    """Refuse to mark a quote as sent without a recipient."""
    return f"Who did you send it to? `/quote sent {quote_id} to buyer@acme.example`"


def changes_needed(quote_id: str) -> str:
    """Refuse a revision that names no change."""
    return f"What should change? Example: `/quote revise {quote_id}: 200 pro`"


def too_long(what: str, limit: int) -> str:
    """Refuse a reason or a recipient that exceeds `limit` characters."""
    return f"That {what} is too long ({limit} characters max)."


def nothing_to_clone(quote_id: str) -> str:
    """Refuse to clone a quote or a version that does not exist or that the user may not see."""
    return f"{quote_id} has no such version to copy. `/quote {quote_id}` shows its latest one."


def revision_example(quote_id: str) -> str:
    """Return an example of a typed revision."""
    return f"/quote revise {quote_id}: 200 pro, add 10 sso, remove support; term 24m; discount 12%"


def _listed(head: str, problems: tuple[str, ...], example: str) -> str:
    return "\n".join((head, *messages.bullets(problems), f"Example: `{example}`"))


def _with_reason(sentence: str, quote: Quote) -> str:
    reason = None if quote.closing is None else quote.closing.reason
    return sentence if reason is None else f"{sentence}\n{messages.quoted(reason)}"


_AGAIN: Final = "To continue, make a new quote of it: `/quote clone {quote_id}`"
_REVISE: Final = "Edit the quote first: `{revision}`"
_INSTEAD: Final[Mapping[QuoteState, str]] = {
    QuoteState.DRAFT: _REVISE,
    QuoteState.VALIDATED: _REVISE,
    QuoteState.PRICED: "Submit it for approval first.",
    QuoteState.PENDING_APPROVAL: "Its approvers decide first.",
    QuoteState.APPROVED: "Lock it for sending first: `/quote finalize {quote_id}`.",
    QuoteState.REJECTED: _REVISE,
    QuoteState.FINALIZED: "Mark it as sent first: `/quote sent {quote_id} to ...`.",
    QuoteState.SENT: "Mark it as won or lost: `/quote accept {quote_id}` or `/quote lost {quote_id}: reason`.",
    QuoteState.ACCEPTED: _AGAIN,
    QuoteState.LOST: _AGAIN,
    QuoteState.CANCELLED: _AGAIN,
    QuoteState.EXPIRED: _AGAIN,
}
_REACHED: Final[Mapping[str, QuoteState]] = {
    "finalize": QuoteState.FINALIZED,
    "send": QuoteState.SENT,
    "accept": QuoteState.ACCEPTED,
    "lose": QuoteState.LOST,
    "cancel": QuoteState.CANCELLED,
}
