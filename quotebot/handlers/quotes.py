"""Handlers of quote creation and proposals. Pure: the command, the quote and the rules in, a Decision out. A refusal is a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ledger.keys import effect_key
from ledger.records import AuditEvent
from quotebot import effects
from quotebot.domain.language import _
from quotebot.domain.pricing.commercial_terms import ends_at
from quotebot.domain.pricing.engine import PriceRequest, Pricing, PricingProblem, dated, for_account, price
from quotebot.domain.quotes.quote import Quote, QuoteState
from quotebot.handlers.decision import Asked, Decision, Twin, facts, refused
from quotebot.store.quotes import PROPOSED, RESUBMISSION
from quotebot.views import confirmations, extraction_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.commands.payloads import CreateQuote, ProposeQuote
    from quotebot.commands.registry import Creation
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.rules import Rules

    Pricer = Callable[[PriceRequest, Ruleset], Pricing | tuple[PricingProblem, ...]]

DOMAIN_EVENTS = frozenset(
    {
        "quote.created",
        "quote.submitted",
        "quote.revised",
        "quote.cancelled",
        "quote.finalized",
        "quote.sent",
        "quote.accepted",
        "quote.lost",
        "quote.expired",
        "quote.stale_noted",
        "quote.card_replaced",  # its message was deleted
        "quote.card_moved",  # into a direct message: another organization shares the channel
        "access.refused",
        "roles.changed",  # the settings name other holders of a role
        "approval.requested",
        "approval.automatic",
        "approval.reused",
        "approval.slot_approved",
        "approval.approved",
        "approval.rejected",
        "approval.changes_requested",
        "approval.refused",
        "approval.duplicate_suppressed",  # requested again while the first request waits for its decision
        "approval.reminded",
        "approval.escalated",
        "approval.reassigned",  # the people asked before may not approve any more
        "approval.expired",
        "approval.invalidated",
        "reading.distrusted",
        "delegation.set",
        "delegation.ended",
        "ruleset.imported",
        "ruleset.activated",  # the previous one is retired
        "ruleset.discarded",
        "quote_numbers.skipped",  # by a restore: they may have been allocated in the lost part
        "delegation.refused",
        "crm.conflict_found",
        "crm.reconciled",
        "clock.suspended",  # expiry and other deadlines wait: see clock_guard.py
        "clock.resumed",
        "clock.confirmed",
    }
)
RESUBMISSION_MS = 120_000  # the same request within this time needs a confirmation


def resubmission(asked: Asked, command: Creation, twin: Twin) -> Decision:
    """Ask for confirmation instead of creating the same quote twice. The refused operation's key is the token that confirms it."""
    text = messages.resubmission(twin.quote_id, twin.recorded_at, asked.received_at)
    offer = {"token": asked.operation_key, "quote_id": twin.quote_id, "version": twin.version}
    answer = effects.reply("new", asked.actor, command.channel, text, asked.received_at, offer=offer)
    return Decision("refused", {"code": RESUBMISSION, "quote_id": twin.quote_id, "text": text, "offer": offer}, None, (answer,))


def refused_offer(asked: Asked, code: Literal["offer_gone", "not_your_offer", "already_created"], quote_id: str | None) -> Decision:
    """Refuse a "Create another" that is invalid or used; `quote_id` is then the quote it created."""
    if quote_id is not None:
        return refused(asked, quote_id, None, code, messages.already_created(quote_id))
    return refused(asked, "new", None, code, _(messages.NOT_YOUR_OFFER) if code == "not_your_offer" else _(messages.OFFER_GONE))


def propose(asked: Asked, command: ProposeQuote, rules: Rules) -> Decision:
    """Price the content of a message and ask its author to confirm it. This operation's key is the token that creates the quote."""
    wanted = command.quote
    priced = price(for_account(dated(wanted.request, asked.received_at), wanted.account, rules.segments), rules.ruleset)
    if not isinstance(priced, Pricing):
        problems = tuple(messages.pricing_problem(problem) for problem in priced)
        return refused(asked, "new", wanted.channel, "not_priceable", messages.problem_list(problems))
    notes = extraction_messages.beside(command.remarks)
    text = confirmations.proposal(wanted.account, priced, rules.policy) + (f"\n{notes}" if notes else "")
    offer = {"token": asked.operation_key}
    answer = effects.reply("new", asked.actor, wanted.channel, text, asked.received_at, offer=offer, thread_ts=command.thread_ts)
    return Decision("applied", {"code": PROPOSED, "quote_id": None, "text": text, "offer": offer}, None, (answer,))


def create(asked: Asked, command: CreateQuote, allocate: Callable[[], str], rules: Rules, priced_by: Pricer = price) -> Decision:
    """Price the request and show it. `allocate` returns the next quote number; it is called only if there is a quote to number.

    `priced_by` prices as the domain's `price` does; its result may have been precomputed.
    """
    request = for_account(dated(command.request, asked.received_at), command.account, rules.segments)
    priced = rules.unknown_names(command.request) or priced_by(request, rules.ruleset)
    if not isinstance(priced, Pricing):
        problems = tuple(messages.pricing_problem(problem) for problem in priced)
        return refused(asked, "new", command.channel, "not_priceable", messages.problem_list(problems))
    quote_id = allocate()
    quote = Quote(
        quote_id=quote_id,
        version=1,
        state=QuoteState.PRICED,
        account=command.account,
        requester=asked.actor,
        requester_name=asked.actor_name,
        team_id=asked.team_id,
        channel=command.channel,
        created_at=asked.received_at,
        valid_until=ends_at(request.commercial, asked.received_at, rules.valid_days),
        pricing=priced,
        opportunity=command.opportunity,
    )
    response = {"code": "created", "quote_id": quote_id, "text": messages.created(quote)}
    chosen = {} if command.opportunity is None else {"opportunity": command.opportunity.record_id}
    event = AuditEvent("quote.created", quote_id, after={**facts(quote), **chosen})
    return Decision("applied", response, quote, (effects.root(quote_id),), (event,))


def root_key(operation_key: str) -> str:
    """Return the key of the root effect that `create` enqueues under this operation."""
    return effect_key(operation_key, effects.POST, 0)
