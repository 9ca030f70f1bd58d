"""Handlers of a quote's lifecycle: revise, clone, cancel, finalize, mark sent, accept, lose, expire.

Each enqueues the card and a notice in the thread. A new PDF and a new record in Salesforce are enqueued only when a version is
approved. A quote's expiry is tested against the time when the command was received, not against the progress of a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.payloads import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    CancelQuote,
    CloneQuote,
    ExpireQuote,
    LoseQuote,
    MarkSent,
    NoteStaleDraft,
)
from quotebot.domain.language import _
from quotebot.domain.pricing.commercial_terms import ends_at, renewed_terms
from quotebot.domain.pricing.engine import Pricing, for_account, price, renewed, request_of
from quotebot.domain.pricing.price_requests import Changes, PricingProblem, as_of, changed
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import Closing, Freezing, Quote, QuoteState, Sending, local_time, state_words
from quotebot.domain.quotes.versions import difference
from quotebot.handlers.approvals import withdrawal_events, withdrawn
from quotebot.handlers.decision import Asked, Decision, facts, foreign, refused, stale
from quotebot.views import lifecycle_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.commands.payloads import ReviseQuote
    from quotebot.domain.rules import Rules


def revise(asked: Asked, command: ReviseQuote, quote: Quote, root: str, rules: Rules) -> Decision:
    """Price other content as the next version. The previous version's approval no longer counts."""
    if refusal := _not_about_head(asked, quote):
        return refusal
    if not may_be_changed(quote.state):
        return _refused(asked, quote, "wrong_state", lifecycle_messages.wrong_state(quote, "revise"))
    if refusal := _lapsed(asked, quote, "revise"):
        return refusal
    priced = revised_price(command, quote, rules, asked.received_at)
    if not isinstance(priced, Pricing):
        return _refused(asked, quote, "not_priceable", lifecycle_messages.not_revisable(quote, priced))
    if not difference(quote.pricing, priced):
        return _refused(asked, quote, "no_change", lifecycle_messages.nothing_to_change(quote))
    after = replace(
        quote,
        version=quote.version + 1,
        state=QuoteState.PRICED,
        pricing=priced,
        approval=None,
        frozen=None,
        sent=None,
        valid_until=ends_at(request_of(priced).commercial, asked.received_at, rules.valid_days),
        revised_by=asked.actor,
        earlier_makers=()
        if quote.approved_by_people
        else tuple(sorted({*quote.earlier_makers, *filter(None, [quote.revised_by])})),
        revised_at=asked.received_at,
    )
    notice = lifecycle_messages.revised(quote, after, asked.actor, rules.policy)
    return _applied(asked, quote, after, root, ("revised", "quote.revised", notice))


def clone(asked: Asked, command: CloneQuote, original: Quote | None, quote_id: Callable[[], str], rules: Rules) -> Decision:
    """Create the author's own quote with the content of another, at current prices. `original` is None if there is no such version.

    `quote_id` allocates the next number; it is called only if there is a quote to number.
    """
    if original is None or original.team_id != asked.team_id:  # a user of another workspace must not learn that it exists
        return refused(asked, "new", command.channel, "unknown_quote", lifecycle_messages.nothing_to_clone(command.quote_id))
    request = renewed(original.pricing, asked.received_at)
    same_customer = command.account in (None, original.account)
    request = replace(request, commercial=renewed_terms(request.commercial, asked.received_at, same_customer=same_customer))
    request = for_account(request, command.account or original.account, rules.segments)
    priced = rules.unknown_names(request) or price(request, rules.ruleset)
    if not isinstance(priced, Pricing):
        problems = tuple(messages.pricing_problem(problem) for problem in priced)
        return refused(asked, "new", command.channel, "not_priceable", messages.problem_list(problems))
    quote = Quote(
        quote_id=quote_id(),
        version=1,
        state=QuoteState.PRICED,
        account=command.account or original.account,
        requester=asked.actor,
        requester_name=asked.actor_name,
        team_id=asked.team_id,
        channel=command.channel,
        created_at=asked.received_at,
        valid_until=ends_at(request.commercial, asked.received_at, rules.valid_days),
        pricing=priced,
        earlier_makers=tuple(sorted(original.makers)),
    )
    copied = {"cloned_from": original.quote_id, "cloned_version": original.version, "makers": list(original.makers)}
    event = AuditEvent("quote.created", quote.quote_id, after={**facts(quote), **copied})
    response = {"code": "cloned", "quote_id": quote.quote_id, "text": lifecycle_messages.cloned(quote, original)}
    return Decision("applied", response, quote, (effects.root(quote.quote_id),), (event,))


def cancel(asked: Asked, command: CancelQuote, quote: Quote, root: str) -> Decision:
    """End the quote. A pending approval request is invalidated."""
    if refusal := _cannot_become(asked, quote, QuoteState.CANCELLED, "cancel"):
        return refusal
    reason = (command.reason or "").strip() or None
    if reason is not None and len(reason) > REASON_CHARACTERS_MAX:
        return _refused(asked, quote, "too_long", lifecycle_messages.too_long("reason", REASON_CHARACTERS_MAX))
    closed = Closing(reason, asked.actor, asked.received_at)
    after = replace(withdrawn(quote, asked.received_at), state=QuoteState.CANCELLED, closing=closed)
    return _applied(asked, quote, after, root, ("cancelled", "quote.cancelled", lifecycle_messages.cancelled(after, asked.actor)))


def finalize(asked: Asked, quote: Quote, root: str) -> Decision:
    """Freeze the head, if it is approved."""
    if refusal := _cannot_become(asked, quote, QuoteState.FINALIZED, "finalize"):
        return refusal
    after = replace(quote, state=QuoteState.FINALIZED, frozen=Freezing(asked.actor, asked.received_at))
    return _applied(asked, quote, after, root, ("finalized", "quote.finalized", None))


def mark_sent(asked: Asked, command: MarkSent, quote: Quote, root: str) -> Decision:
    """Record the recipient of the finalized version."""
    if refusal := _cannot_become(asked, quote, QuoteState.SENT, "send"):
        return refusal
    recipient = command.recipient.strip()
    if not recipient:
        return _refused(asked, quote, "recipient_needed", lifecycle_messages.recipient_needed(quote.quote_id))
    if len(recipient) > RECIPIENT_CHARACTERS_MAX:
        return _refused(asked, quote, "too_long", lifecycle_messages.too_long("recipient", RECIPIENT_CHARACTERS_MAX))
    after = replace(quote, state=QuoteState.SENT, sent=Sending(recipient, asked.actor, asked.received_at))
    return _applied(asked, quote, after, root, ("sent", "quote.sent", None))


def accept(asked: Asked, quote: Quote, root: str) -> Decision:
    """Record the customer's acceptance, unless it came after the quote's last day."""
    if refusal := _cannot_become(asked, quote, QuoteState.ACCEPTED, "accept"):
        return refusal
    after = replace(quote, state=QuoteState.ACCEPTED, closing=Closing(None, asked.actor, asked.received_at))
    return _applied(asked, quote, after, root, ("accepted", "quote.accepted", lifecycle_messages.accepted(after, asked.actor)))


def lose(asked: Asked, command: LoseQuote, quote: Quote, root: str) -> Decision:
    """Record the customer's refusal and its reason."""
    if refusal := _cannot_become(asked, quote, QuoteState.LOST, "lose"):
        return refusal
    reason = command.reason.strip()
    if not reason:
        return _refused(asked, quote, "reason_needed", lifecycle_messages.reason_needed(quote.quote_id))
    if len(reason) > REASON_CHARACTERS_MAX:
        return _refused(asked, quote, "too_long", lifecycle_messages.too_long("reason", REASON_CHARACTERS_MAX))
    after = replace(quote, state=QuoteState.LOST, closing=Closing(reason, asked.actor, asked.received_at))
    return _applied(asked, quote, after, root, ("lost", "quote.lost", lifecycle_messages.lost(after, asked.actor)))


def refresh(asked: Asked, quote: Quote, root: str) -> Decision:
    """Send the card in its current state, even if it is unchanged, for any version that the user saw."""
    if refusal := foreign(asked, quote):
        return refusal
    response = {"code": "refreshed", "quote_id": quote.quote_id, "text": lifecycle_messages.now(quote)}
    return Decision("applied", response, None, (effects.card(quote.quote_id, root, always=True),))


def revised_price(command: ReviseQuote, quote: Quote, rules: Rules, at: int) -> Pricing | tuple[PricingProblem, ...]:
    """Return the price of a revision on the day of `at` (Unix ms), or the problems of its request."""
    request = command.request
    if request is None:
        edited = changed(request_of(quote.pricing), command.changes or Changes())
        if isinstance(edited, tuple):
            return edited
        request = edited
    return rules.unknown_names(request) or price(for_account(as_of(request, at), quote.account, rules.segments), rules.ruleset)


def _cannot_become(asked: Asked, quote: Quote, target: QuoteState, verb: str) -> Decision | None:
    """Refuse a transition that the head's state or its last day does not allow; None if it is allowed."""
    if refusal := _not_about_head(asked, quote):
        return refusal
    if target not in allowed(quote.state):
        return _refused(asked, quote, "wrong_state", lifecycle_messages.wrong_state(quote, verb))
    return _lapsed(asked, quote, verb)


def _not_about_head(asked: Asked, quote: Quote) -> Decision | None:
    if refusal := foreign(asked, quote):
        return refusal
    if asked.seen_version is None or asked.seen_version == quote.version:
        return None
    return stale(asked, quote, lifecycle_messages.superseded(asked.seen_version, quote))


def _lapsed(asked: Asked, quote: Quote, verb: str) -> Decision | None:
    if asked.received_at < quote.valid_until:
        return None
    text = lifecycle_messages.expired(quote, verb)
    return refused(asked, quote.quote_id, quote.channel, "expired", text, clone=quote.version)


def _applied(asked: Asked, before: Quote, after: Quote, root: str, end: tuple[str, str, str | None]) -> Decision:
    """Return the applied decision. `end` is the code of the response, the audit event and the notice in the thread.

    Without a notice only the card shows it: nobody has to act.
    """
    code, event, notice = end
    return Decision(
        "applied",
        {
            "code": code,
            "quote_id": after.quote_id,
            "version": after.version,
            "ref": asked.correlation_id,
            "text": lifecycle_messages.now(after),
        },
        after,
        (effects.card(after.quote_id, root), *(() if notice is None else (effects.notice(after.quote_id, root, notice),))),
        (*withdrawal_events(before, asked.received_at), AuditEvent(event, after.quote_id, facts(before), facts(after))),
    )


def _refused(asked: Asked, quote: Quote, code: str, text: str) -> Decision:
    return refused(asked, quote.quote_id, quote.channel, code, text)


_DRAFTS = frozenset({QuoteState.DRAFT, QuoteState.VALIDATED, QuoteState.PRICED})


def expire(asked: Asked, command: ExpireQuote, quote: Quote, root: str) -> Decision:
    """Close the quote at any version, if it may still expire and its validity ended before the command was received."""
    if QuoteState.EXPIRED not in allowed(quote.state):
        reason = _("it is {state}, which is final", state=state_words(quote.state))
        return _not_due("final", quote, messages.not_expired(quote, reason))
    if quote.valid_until != command.valid_until or asked.received_at < quote.valid_until:
        reason = _("it is valid until {time}", time=local_time(quote.valid_until))
        return _not_due("still_valid", quote, messages.not_expired(quote, reason))
    after = replace(withdrawn(quote, asked.received_at), state=QuoteState.EXPIRED)
    notice = messages.expired_notice(after)
    return Decision(
        "applied",
        {"code": "expired", "quote_id": quote.quote_id, "text": notice},
        after,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, notice)),
        (
            *withdrawal_events(quote, asked.received_at),
            AuditEvent("quote.expired", quote.quote_id, _term_facts(quote), _term_facts(after)),
        ),
    )


def note_stale(asked: Asked, command: NoteStaleDraft, quote: Quote, root: str, touched_at: int) -> Decision:
    """Remind the requester if the quote has not changed since the reminder became due. `touched_at` is Unix ms."""
    if quote.state not in _DRAFTS:
        reason = _("it is {state}", state=state_words(quote.state))
        return _not_due("not_draft", quote, messages.not_reminded(quote, reason))
    if touched_at != command.untouched_since:
        reason = _("it was touched {time}", time=local_time(touched_at))
        return _not_due("touched", quote, messages.not_reminded(quote, reason))
    if asked.received_at >= quote.valid_until:
        reason = _("it was valid until {time}", time=local_time(quote.valid_until))
        return _not_due("expired", quote, messages.not_reminded(quote, reason))
    notice = messages.stale_notice(quote, touched_at)
    return Decision(
        "applied",
        {"code": "noted", "quote_id": quote.quote_id, "text": notice},
        None,
        (effects.notice(quote.quote_id, root, notice),),
        (AuditEvent("quote.stale_noted", quote.quote_id, after={**_term_facts(quote), "untouched_since": touched_at}),),
    )


def _not_due(code: str, quote: Quote, text: str) -> Decision:
    """Refuse a command of the scheduler. No one waits for a reply, so the refusal is only stored with the command."""
    return Decision("refused", {"code": code, "quote_id": quote.quote_id, "text": text})


def _term_facts(quote: Quote) -> dict[str, object]:
    return {"version": quote.version, "state": quote.state.value, "valid_until": quote.valid_until}
