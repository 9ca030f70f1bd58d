"""Messages about versions and the end of quotes: notices, replies, refusals. Text is Slack mrkdwn, as in messages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain.approvals.decisions import decided_words
from quotebot.domain.language import N_, _, grouped
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import ApprovalState, Quote, QuoteState, local_time, reason_words, state_words, title
from quotebot.domain.quotes.versions import difference_words
from quotebot.views import messages
from quotebot.views.messages import net

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.pricing.engine import Pricing, PricingProblem


DIFFERENCES_SHOWN_MAX = 15
DETAIL_CHARACTERS_MAX = 200
PRODUCT_CHARACTERS_MAX: Final = 40  # of a button
WITH_DOCUMENT: Final = frozenset({QuoteState.APPROVED, QuoteState.FINALIZED, QuoteState.SENT})


def version_name(quote: Quote) -> str:
    """Return "Q-2026-0042 v1". Unlike `title`, it also numbers the first version, for comparisons."""
    return f"{quote.quote_id} v{quote.version}"


def differences(before: Pricing, after: Pricing, policy: ApprovalPolicy) -> str:
    """Return the differences as list items: at most 15, and a count of the others."""
    found = difference_words(before, after, policy.term_words)
    shown = [f"• {messages.short(part, DETAIL_CHARACTERS_MAX)}" for part in found[:DIFFERENCES_SHOWN_MAX]]
    if len(found) > DIFFERENCES_SHOWN_MAX:
        shown.append(_("• and {n} more like these", n=grouped(len(found) - DIFFERENCES_SHOWN_MAX)))
    return "\n".join(shown) or _("• No differences")


# notices in the quote's thread


def revised(before: Quote, after: Quote, actor: str, policy: ApprovalPolicy) -> str:
    """Notice of a new version: its changes, and the end of the previous version."""
    said = _("{person} revised this quote to *{quote}*.", person=messages.mention(actor), quote=version_name(after))
    text = _GONE[before.state in WITH_DOCUMENT, before.approval is not None]
    gone = _(text, old=before.version, new=after.version)
    return f"{said} {gone}\n{differences(before.pricing, after.pricing, policy)}"


def cancelled(quote: Quote, actor: str) -> str:
    """Notice of a cancellation, with its reason."""
    return _with_reason(_("{person} canceled {quote}", person=messages.mention(actor), quote=title(quote)), quote)


def accepted(quote: Quote, actor: str) -> str:
    """Notice that the customer accepted."""
    account = messages.short(quote.account, messages.ACCOUNT_CHARACTERS_MAX)
    facts = {"requester": messages.mention(quote.requester), "customer": account, "quote": title(quote), "total": net(quote)}
    if actor == quote.requester:
        return _("{requester} 🏆 Won! {customer} accepted {quote}, {total}", **facts)
    by = messages.mention(actor)
    return _("{requester} 🏆 Won! {customer} accepted {quote}, {total} (marked by {person})", person=by, **facts)


def lost(quote: Quote, actor: str) -> str:
    """Notice that the customer refused, with the reason."""
    facts = {"requester": messages.mention(quote.requester), "person": messages.mention(actor), "quote": title(quote)}
    return _with_reason(_("{requester}, {person} marked {quote} as lost", **facts), quote)


# replies to the author of the command


def now(quote: Quote) -> str:
    """Reply to a change that succeeded."""
    return _("{quote} is now {state}: {total}.", quote=title(quote), state=state_words(quote.state), total=net(quote))


def cloned(quote: Quote, original: Quote) -> str:
    """Reply to a clone that succeeded."""
    return _(
        "Created {quote} as a copy of {original}: {total}. Its card is in the channel; submit it there.",
        quote=title(quote),
        original=version_name(original),
        total=net(quote),
    )


# refusals


def superseded(seen_version: int, quote: Quote) -> str:
    """Refuse a command about a version other than the head."""
    if seen_version > quote.version:
        return messages.no_such_version(seen_version, quote)
    facts = {"quote": quote.quote_id, "seen": seen_version, "version": quote.version, "state": state_words(quote.state)}
    return _("v{seen} of {quote} was replaced by v{version} ({state}). No changes made.", **facts)


def wrong_state(quote: Quote, verb: str) -> str:
    """Refuse a command that the quote's state does not allow; `verb` names it, e.g. "finalize"."""
    instead = _(_INSTEAD[quote.state], quote=quote.quote_id, revision=revision_example(quote.quote_id))
    if _REACHED.get(verb) is quote.state:
        return f"{standing(quote, already=True)}. {instead}"
    why = standing(quote)
    if verb in ("accept", "lose") and quote.state in (QuoteState.APPROVED, QuoteState.FINALIZED):
        why = _("{quote} hasn't been sent yet", quote=title(quote))
        instead = " ".join((instead, _("To drop it, use Cancel quote."))) if verb == "lose" else instead
    return f"{cannot(verb, why)} {instead}"


def standing(quote: Quote, *, already: bool = False) -> str:
    """Return the state of a quote as a clause; if a person set it, also that person and the time. `already`: "was already ..."."""
    by, at, texts = _last_move(quote)
    if texts is not None:
        return _(texts[already], quote=title(quote), person=messages.mention(by), time=local_time(at))
    approval = quote.approval
    if approval is not None and approval.state in _DECIDED and quote.state in (QuoteState.APPROVED, QuoteState.REJECTED):
        return _("{quote} was {decided}", quote=title(quote), decided=decided_words(approval))
    texts_of_state = _ALREADY if already and quote.state in _ALREADY else _STANDING
    return _(texts_of_state[quote.state], quote=title(quote))


def _last_move(quote: Quote) -> tuple[str, int, tuple[str, str] | None]:
    """Return who closed, sent or locked the quote, when, and the texts for it; no texts if its state has another reason."""
    if quote.closing is not None:
        return quote.closing.closed_by, quote.closing.closed_at, _MOVED[quote.state]
    if quote.sent is not None and quote.state is QuoteState.SENT:
        return quote.sent.sent_by, quote.sent.sent_at, _MOVED[quote.state]
    if quote.frozen is not None and quote.state is QuoteState.FINALIZED:
        return quote.frozen.frozen_by, quote.frozen.frozen_at, _MOVED[quote.state]
    return "", 0, None


def not_offered(quote: Quote, verb: str) -> str:
    """Reply to a button that the quote's state no longer offers; `verb` names its action, e.g. "submit"."""
    approval = quote.approval
    if quote.state is QuoteState.DRAFT and approval is not None and approval.decided_by is not None:
        edit = _(
            "{person} requested changes to {quote}. Edit the quote, then submit the new version.",
            person=messages.mention(approval.decided_by),
            quote=title(quote),
        )
        as_is = _("To submit it unchanged, say why: `/quote submit {quote}: they need SSO`", quote=quote.quote_id)
        return f"{edit} {as_is}" if verb == "submit" and quote.sent_back else edit
    return f"{cannot(verb, standing(quote))} {_(_ON_CARD)}"


def nobody_to_ask(quote: Quote) -> str:
    """Refuse to submit a version again as it is, with a note to approvers, if the policy requires none any more."""
    return _(
        "{quote} needs no approval anymore, so no one would read your note. Edit the quote, then submit the new version.",
        quote=title(quote),
    )


def needs_no_note(quote: Quote) -> str:
    """Refuse a note to approvers with a version that nobody sent back."""
    text = N_(
        "A note here answers requested changes, and no one requested any to {quote}. Submit it without one: `/quote submit {id}`"
    )
    return _(text, quote=title(quote), id=quote.quote_id)


def cannot(verb: str, why: str) -> str:
    """Return a sentence that refuses an action, after the clause that says why: "..., so it can't be marked as won."."""
    return _(_CANNOT[verb], why=why)


def quantity_or_addition() -> str:
    """Ask whether a number means the new quantity of a product or an addition to it."""
    return _("Do you mean the new quantity or an addition?")


def quantity_labels(product: str, number: int) -> tuple[str, str]:
    """Return the labels of the two buttons that answer `quantity_or_addition`."""
    name, n = clipped(product, PRODUCT_CHARACTERS_MAX), grouped(number)
    return _("Set {product} to {n}", product=name, n=n), _("Add {n} {product}", product=name, n=n)


def expired(quote: Quote, verb: str) -> str:
    """Refuse a button after the quote's last day; `verb` names its action."""
    why = _("{quote} was valid until {time}", quote=title(quote), time=local_time(quote.valid_until))
    return " ".join((cannot(verb, why), _("Clone it to continue: `/quote clone {quote}`", quote=quote.quote_id)))


def nothing_to_change(quote: Quote) -> str:
    """Refuse a revision that changes nothing."""
    return _("No changes to save: {quote} already says that.", quote=title(quote))


def not_revisable(quote: Quote, problems: tuple[PricingProblem, ...]) -> str:
    """Refuse a revision, listing all its problems."""
    said = tuple(messages.pricing_problem(problem) for problem in problems)
    return _listed(_("{quote} can't be changed like that:", quote=title(quote)), said, revision_example(quote.quote_id))


def unreadable_changes(problems: tuple[str, ...], example: str) -> str:
    """Refuse a typed revision or simulation, listing all its problems; `problems` are escaped."""
    return _listed(_("I couldn't read that:"), problems, example)


def change_proposed(quote: Quote, differences: str, preview: str) -> str:
    """Ask for confirmation of a change requested in the thread, with its result; `differences` and `preview` are mrkdwn."""
    asked = _("*Change {quote} to v{version}?*", quote=title(quote), version=quote.version + 1)
    return f"{asked}\n{differences}\n{preview}"


def how_is_it_meant(unsure: tuple[str, ...]) -> str:
    """Ask for a clearer wording if words may change the meaning of a number; `unsure` are those words."""
    named = ", ".join(f'"{messages.escape(word)}"' for word in unsure[:5])
    return _(
        "I'm not sure what {words} means here. Write `200 pro` for the new quantity or `add 200 pro` for more. "
        "Also: `remove support`, `term 24m`, `discount 12%`.",
        words=named,
    )


def too_long_for_a_button(quote_id: str) -> str:
    """Explain how to type a change that is too long for a button's value."""
    example = revision_example(quote_id)
    return _("That's too long for a button. Use *Edit* on the card, or type it: `{example}`", example=example)


def reason_needed(quote_id: str) -> str:
    """Refuse to mark a quote as lost without a reason."""
    return _("Why was it lost? `/quote lost {quote}: too expensive`", quote=quote_id)


def recipient_needed(quote_id: str) -> str:
    """Refuse to mark a quote as sent without a recipient."""
    return _("Who did you send it to? `/quote sent {quote} to buyer@acme.example`", quote=quote_id)


def changes_needed(quote_id: str) -> str:
    """Refuse a revision that names no change."""
    return _("What should change? Example: `/quote revise {quote}: 200 pro`", quote=quote_id)


def too_long(what: Literal["reason", "recipient", "note"], limit: int) -> str:
    """Refuse a text that exceeds `limit` characters."""
    return _(_TOO_LONG[what], n=grouped(limit))


def nothing_to_clone(quote_id: str) -> str:
    """Refuse to clone a quote or a version that does not exist or that the user may not see."""
    return _("{quote} has no such version to copy. `/quote {quote}` shows its latest one.", quote=quote_id)


def revision_example(quote_id: str) -> str:
    """Return an example of a typed revision."""
    return f"/quote revise {quote_id}: 200 pro, add 10 sso, remove support; term 24m; discount 12%"


def _listed(head: str, problems: tuple[str, ...], example: str) -> str:
    return "\n".join((head, *messages.bullets(problems), _("Example: `{example}`", example=example)))


def _with_reason(sentence: str, quote: Quote) -> str:
    reason = None if quote.closing is None else quote.closing.reason
    return sentence if reason is None else f"{sentence}\n{messages.quoted(reason_words(reason))}"


# By whether the replaced version had a PDF, and whether its approval had been asked for.
_GONE: Final = {
    (False, False): N_("v{old} no longer applies."),
    (False, True): N_("v{old} no longer applies; submit v{new} for approval."),
    (True, False): N_("v{old} and its PDF no longer apply."),
    (True, True): N_("v{old} and its PDF no longer apply; submit v{new} for approval."),
}
_TOO_LONG: Final = {
    "reason": N_("That reason is too long ({n} characters max)."),
    "recipient": N_("That recipient is too long ({n} characters max)."),
    "note": N_("That note is too long ({n} characters max)."),
}
_AGAIN: Final = N_("To continue, make a new quote of it: `/quote clone {quote}`")
_REVISE: Final = N_("Edit the quote first: `{revision}`")
_INSTEAD: Final[Mapping[QuoteState, str]] = {
    QuoteState.DRAFT: _REVISE,
    QuoteState.VALIDATED: _REVISE,
    QuoteState.PRICED: N_("Submit it for approval first."),
    QuoteState.PENDING_APPROVAL: N_("Its approvers decide first."),
    QuoteState.APPROVED: N_("Lock it for sending first: `/quote finalize {quote}`."),
    QuoteState.REJECTED: _REVISE,
    QuoteState.FINALIZED: N_("Mark it as sent first: `/quote sent {quote} to ...`."),
    QuoteState.SENT: N_("Mark it as won or lost: `/quote accept {quote}` or `/quote lost {quote}: reason`."),
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
_DECIDED = frozenset({ApprovalState.APPROVED, ApprovalState.REJECTED})
_ON_CARD: Final = N_("Its card shows what's possible now.")
_MOVED = {
    QuoteState.FINALIZED: (
        N_("{quote} was locked for sending by {person}, {time}"),
        N_("{quote} was already locked for sending by {person}, {time}"),
    ),
    QuoteState.SENT: (
        N_("{quote} was sent to the customer by {person}, {time}"),
        N_("{quote} was already sent to the customer by {person}, {time}"),
    ),
    QuoteState.ACCEPTED: (
        N_("{quote} was marked as won by {person}, {time}"),
        N_("{quote} was already marked as won by {person}, {time}"),
    ),
    QuoteState.LOST: (
        N_("{quote} was marked as lost by {person}, {time}"),
        N_("{quote} was already marked as lost by {person}, {time}"),
    ),
    QuoteState.CANCELLED: (
        N_("{quote} was canceled by {person}, {time}"),
        N_("{quote} was already canceled by {person}, {time}"),
    ),
    QuoteState.EXPIRED: (N_("{quote} was ended as expired by {person}, {time}"),) * 2,
}
_STANDING = {
    QuoteState.DRAFT: N_("{quote} needs changes first"),
    QuoteState.VALIDATED: N_("{quote} isn't approved yet"),
    QuoteState.PRICED: N_("{quote} isn't approved yet"),
    QuoteState.PENDING_APPROVAL: N_("{quote} is waiting for approval"),
    QuoteState.APPROVED: N_("{quote} was approved"),
    QuoteState.FINALIZED: N_("{quote} was locked for sending"),
    QuoteState.SENT: N_("{quote} was sent to the customer"),
    QuoteState.ACCEPTED: N_("{quote} was won"),
    QuoteState.LOST: N_("{quote} was lost"),
    QuoteState.REJECTED: N_("{quote} was rejected"),
    QuoteState.CANCELLED: N_("{quote} was canceled"),
    QuoteState.EXPIRED: N_("{quote} has expired"),
}
_ALREADY = {
    QuoteState.FINALIZED: N_("{quote} was already locked for sending"),
    QuoteState.SENT: N_("{quote} was already sent to the customer"),
    QuoteState.ACCEPTED: N_("{quote} was already won"),
    QuoteState.LOST: N_("{quote} was already lost"),
    QuoteState.CANCELLED: N_("{quote} was already canceled"),
}
_CANNOT = {
    "submit": N_("{why}, so it can't be submitted."),
    "approve": N_("{why}, so it can't be approved."),
    "reject": N_("{why}, so it can't be rejected."),
    "request_changes": N_("{why}, so it can't be sent back."),
    "decide": N_("{why}, so it can't be decided."),
    "revise": N_("{why}, so it can't be revised."),
    "edit": N_("{why}, so it can't be edited."),
    "finalize": N_("{why}, so it can't be locked for sending."),
    "send": N_("{why}, so it can't be marked as sent."),
    "accept": N_("{why}, so it can't be marked as won."),
    "lose": N_("{why}, so it can't be marked as lost."),
    "cancel": N_("{why}, so it can't be canceled."),
}
