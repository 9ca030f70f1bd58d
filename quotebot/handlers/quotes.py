"""What each command decides. Pure: the command, the quote and the rules in; a Decision out. Refusing is a value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ledger.keys import digest, effect_key
from ledger.records import AuditEvent, EffectIntent
from quotebot import effects, extraction_words, words
from quotebot.domain import money, people
from quotebot.domain.people import StandIn
from quotebot.domain.pricing import Pricing, dated, price
from quotebot.domain.quotes import Quote, QuoteState
from quotebot.domain.reapproval import TOLERANCE_PERCENT
from quotebot.domain.special_terms import unknown_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from decimal import Decimal

    from quotebot.commands import CreateQuote, Creation, ProposeQuote
    from quotebot.domain.catalogue import Catalogue
    from quotebot.domain.people import Delegation, Person
    from quotebot.domain.policy import Policy
    from quotebot.domain.pricing import PriceRequest, PricingProblem
    from quotebot.domain.quotes import Approval
    from quotebot.domain.rulesets import Ruleset

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
        "quote.card_replaced",  # somebody deleted its message
        "quote.card_moved",  # into a direct message: another organization shares the channel
        "access.refused",
        "approval.requested",
        "approval.automatic",
        "approval.reused",
        "approval.slot_approved",
        "approval.approved",
        "approval.rejected",
        "approval.changes_requested",
        "approval.refused",
        "approval.reminded",
        "approval.escalated",
        "approval.expired",
        "approval.invalidated",
        "reading.distrusted",
        "delegation.set",
        "delegation.ended",
        "ruleset.imported",
        "ruleset.activated",  # and the one before it retired
        "ruleset.discarded",
        "quote_numbers.skipped",  # by a restore: they may have been given out in the part that was lost
        "delegation.refused",
        "crm.conflict_found",
        "crm.reconciled",
        "clock.suspended",  # what ends by time waits: see clock_guard.py
        "clock.resumed",
        "clock.confirmed",
    }
)
DAY_MS = 86_400_000
RESUBMISSION = "resubmission"  # the code of a creation that was refused because it looks like a repetition
PROPOSED = "proposed"  # the code of a proposal that its author may confirm
RESUBMISSION_MS = 120_000  # who asks for the same again within this time is asked back


@dataclass(frozen=True, slots=True)
class Rules:
    """What decisions are made by: the active ruleset and policy, who holds which role, how long a quote is valid."""

    ruleset: Ruleset
    policy: Policy
    approvers: Mapping[str, tuple[str, ...]]  # role -> Slack user ids
    valid_days: int = 30
    operators: tuple[str, ...] = ()  # Slack user ids of those who may work dead letters
    terminal_users: Mapping[str, str] = field(default_factory=dict)  # system user -> Slack user id
    guest_reps: tuple[str, ...] = ()  # Slack user ids of guests who may make quotes and see their own
    readings_per_day: int = 0  # how many messages of one person a model may read in a day; 0: there is no model
    summaries_per_day: int = 0  # how many of one person's requests for approval it may sum up in a day
    reuse_tolerance_percent: Decimal = TOLERANCE_PERCENT  # share of the approved value that a reused approval must keep

    @property
    def catalogue(self) -> Catalogue:
        """The active ruleset's products and their names."""
        return self.ruleset.catalogue

    @property
    def role_holders(self) -> frozenset[str]:
        """Return everybody whom the settings give a role: they see the quotes of every channel."""
        return frozenset(self.operators).union(*self.approvers.values())

    def roles_of(self, user: str) -> frozenset[str]:
        """Return every role the person holds now."""
        return people.roles_of(user, self.approvers)

    def person(self, user: str, team: str, delegations: Iterable[Delegation] = (), kind: str = "member") -> Person:
        """Return somebody as they act now, with the absent people they stand in for."""
        absent = [each.absent for each in delegations if each.delegate == user]
        stands_in_for = [StandIn(each, self.roles_of(each)) for each in absent]
        return people.person(user, team, self.roles_of(user), stands_in_for, kind)

    def who_may_decide(
        self, approval: Approval, makers: tuple[str, ...], delegations: Iterable[Delegation] = ()
    ) -> tuple[str, ...]:
        """Return whom to ask now: the holders of each role asked, or of the next higher one, or who stands in for them.

        `makers` are those of the quote, who are not asked, like who asks.
        """
        askers, away = (approval.requested_by, *makers), tuple(delegations)
        open_slots = [slot for slot in approval.slots if slot.is_open]
        asked = [user for slot in open_slots for user in people.asked_people(slot, self.approvers, away, askers)]
        return tuple(dict.fromkeys(asked))


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks, when, under which operation. `seen_version` is the version on the button; times are Unix milliseconds."""

    operation_key: str
    correlation_id: str
    actor: str
    team_id: str
    received_at: int
    seen_version: int | None
    actor_name: str = ""
    actor_type: str = "user"  # "system" is the scheduler: no person, who is answered nothing
    actor_kind: str = "member"  # one of domain.people.Kind, as Slack last said
    terminal_user: str | None = None  # the system user of a command from the terminal


@dataclass(frozen=True, slots=True)
class Decision:
    """What one command comes to. `quote` is the quote as it is to be saved, None when nothing changes."""

    kind: Literal["applied", "refused"]
    response: dict[str, Any]
    quote: Quote | None = None
    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Twin:
    """The quote that the same person already made of the same content. `recorded_at`: when it was executed, Unix ms."""

    quote_id: str
    version: int
    recorded_at: int


def resubmission(asked: Asked, command: Creation, twin: Twin) -> Decision:
    """Ask back instead of creating the same quote twice. The refused operation's key is the token that creates it after all."""
    text = words.resubmission(twin.quote_id, twin.recorded_at, asked.received_at)
    offer = {"token": asked.operation_key, "quote_id": twin.quote_id, "version": twin.version}
    answer = effects.reply("new", asked.actor, command.channel, text, asked.received_at, offer=offer)
    return Decision("refused", {"code": RESUBMISSION, "quote_id": twin.quote_id, "text": text, "offer": offer}, None, (answer,))


def refused_offer(asked: Asked, code: Literal["offer_gone", "not_your_offer", "already_created"], quote_id: str | None) -> Decision:
    """Create nothing at a "Create another" that cannot be used, or was: then `quote_id` is what it made."""
    if quote_id is not None:
        return refused(asked, quote_id, None, code, words.already_created(quote_id))
    return refused(asked, "new", None, code, words.not_your_offer() if code == "not_your_offer" else words.offer_gone())


def propose(asked: Asked, command: ProposeQuote, rules: Rules) -> Decision:
    """Price what was asked for in a message and ask its author to confirm. This operation's key is the token that creates it."""
    wanted = command.quote
    priced = price(dated(wanted.request, asked.received_at), rules.ruleset)
    if not isinstance(priced, Pricing):
        problems = tuple(words.pricing_problem(problem) for problem in priced)
        return refused(asked, "new", wanted.channel, "not_priceable", words.problem_list(problems))
    notes = extraction_words.beside(command.remarks)
    text = words.proposal(wanted.account, priced) + (f"\n{notes}" if notes else "")
    offer = {"token": asked.operation_key}
    answer = effects.reply("new", asked.actor, wanted.channel, text, asked.received_at, offer=offer, thread_ts=command.thread_ts)
    return Decision("applied", {"code": PROPOSED, "quote_id": None, "text": text, "offer": offer}, None, (answer,))


def already_made(asked: Asked, quote_id: str, channel: str) -> Decision:
    """Create nothing from a form that has made its quote; `channel` is where the answer is shown."""
    return refused(asked, quote_id, channel, "already_created", words.already_created(quote_id))


def create(asked: Asked, command: CreateQuote, allocate: Callable[[], str], rules: Rules, priced_by: Pricer = price) -> Decision:
    """Price the request and show it. `allocate` gives the next quote number, asked for only when there is a quote to number.

    `priced_by` prices as the domain's `price` does, which may have been done before.
    """
    request = dated(command.request, asked.received_at)
    priced = unknown_terms(command.request.terms, rules.policy) or priced_by(request, rules.ruleset)
    if not isinstance(priced, Pricing):
        problems = tuple(words.pricing_problem(problem) for problem in priced)
        return refused(asked, "new", command.channel, "not_priceable", words.problem_list(problems))
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
        valid_until=asked.received_at + rules.valid_days * DAY_MS,
        pricing=priced,
        opportunity=command.opportunity,
    )
    response = {"code": "created", "quote_id": quote_id, "text": words.created(quote)}
    chosen = {} if command.opportunity is None else {"opportunity": command.opportunity.record_id}
    event = AuditEvent("quote.created", quote_id, after={**facts(quote), **chosen})
    return Decision("applied", response, quote, (effects.root(quote_id),), (event,))


def root_key(operation_key: str) -> str:
    """Return the key of the root effect that `create` owes under this operation."""
    return effect_key(operation_key, effects.POST, 0)


def seen_another_version(asked: Asked, quote: Quote) -> Decision | None:
    """Refuse a gesture that was about another version than the head; None when it was about the head."""
    if asked.seen_version is None or asked.seen_version == quote.version:
        return None
    return refused(asked, quote.quote_id, quote.channel, "stale", words.stale(asked.seen_version, quote))


def foreign(asked: Asked, quote: Quote) -> Decision | None:
    """Refuse somebody of another workspace; None when the person belongs to the quote's."""
    if asked.team_id == quote.team_id:
        return None
    refusal = refused(asked, quote.quote_id, quote.channel, "foreign_team", words.foreign_team(quote))
    event = AuditEvent("access.refused", quote.quote_id, after={"code": "foreign_team", "actor": asked.actor})
    return replace(refusal, events=(event,))


def refused(asked: Asked, aggregate_id: str, channel: str | None, code: str, text: str) -> Decision:
    """Change nothing, and answer the person who asked with `text`."""
    response = {"code": code, "quote_id": None if aggregate_id == "new" else aggregate_id, "text": text}
    if asked.actor_type == "system":
        return Decision("refused", response)
    return Decision("refused", response, None, (effects.reply(aggregate_id, asked.actor, channel, text, asked.received_at),))


def facts(quote: Quote) -> dict[str, Any]:
    """Return what the audit keeps of a quote: figures, ids and hashes, no customer name."""
    return {
        "version": quote.version,
        "state": quote.state.value,
        "requester": quote.requester,
        "channel": quote.channel,
        "account_sha256": digest([quote.quote_id, quote.account]),
        "valid_until": quote.valid_until,
        "net_total": money.trimmed(quote.pricing.net_total),
        "currency": quote.pricing.currency,
        "discount_percent": money.trimmed(quote.pricing.discount_percent),
        "approval_id": None if quote.approval is None else quote.approval.approval_id,
        "required_roles": [] if quote.approval is None else list(quote.approval.required_roles),
        "decided_by": None if quote.approval is None else quote.approval.decided_by,
        "decided_role": None if quote.approval is None else quote.approval.decided_role,
    }
