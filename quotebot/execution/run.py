"""Run of one command: the results precomputed for it, and its open transaction with the rules and services that it needs.

Prices, advice and hashes are computed before the transaction, so that other writes do not wait for them, from the command and the
last known rules. The transaction takes a result only for the same inputs and otherwise computes it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ledger import keys
from ledger.records import Outcome
from quotebot import effects
from quotebot.commands.payloads import CloneQuote, CreateByForm, CreateQuote, ReviseQuote
from quotebot.commands.registry import parse_stored
from quotebot.domain.access import Sight, may_see
from quotebot.domain.approvals.advice import advise
from quotebot.domain.pricing.engine import Pricing, dated, for_account, price, renewed
from quotebot.execution import membership
from quotebot.handlers.decision import Decision
from quotebot.handlers.lifecycle import revised_price
from quotebot.store import crm_mirror
from quotebot.store.quotes import written

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.records import Operation
    from quotebot.commands.registry import Creation, Payload
    from quotebot.domain.access import Viewer
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import PriceRequest, PricingProblem
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.handlers.decision import Asked

D = TypeVar("D", Decision, Outcome)


@dataclass(frozen=True, slots=True)
class Precomputed:
    """Precomputed results of one command; empty without a payload. Each method computes its result if it is not precomputed."""

    payload: Payload | None = None
    creation: CreateQuote | None = None  # the requested creation; the fields below belong to it
    asked_hash: str = ""
    request: PriceRequest | None = None
    ruleset: Ruleset | None = None
    priced: Pricing | tuple[PricingProblem, ...] = ()
    snapshot: bytes = b""
    advised: Pricing | None = None  # the price that `advice` is about
    advice: Advice | None = None

    def payload_of(self, operation: Operation) -> Payload:
        """Return the payload of the precomputed operation. Raises NeedsNewerBuild as `parse_stored` does."""
        return parse_stored(operation.action_kind, operation.payload) if self.payload is None else self.payload

    def hash_of(self, creation: Creation) -> str:
        """Return the content hash of a creation."""
        return self.asked_hash if creation is self.creation else content_hash(creation)

    def price(self, request: PriceRequest, ruleset: Ruleset) -> Pricing | tuple[PricingProblem, ...]:
        """Return the same result as the domain's `price`."""
        return self.priced if ruleset is self.ruleset and request == self.request else price(request, ruleset)

    def snapshot_of(self, pricing: Pricing) -> bytes:
        """Return the canonical text of a pricing."""
        return self.snapshot if pricing is self.priced else written(pricing)

    def advice_of(self, pricing: Pricing, rules: Rules) -> Advice | None:
        """Return the same result as the domain's `advise`."""
        known = rules.ruleset is self.ruleset and pricing == self.advised
        return self.advice if known else advise(pricing, rules.ruleset, rules.policy)


NOTHING: Final = Precomputed()


def customer_of(operation: Operation, quote: Quote | None) -> tuple[str, str | None] | None:
    """Return the customer of a command that prices, and the CRM's id of its account if an opportunity was chosen; else None."""
    try:
        payload = parse_stored(operation.action_kind, operation.payload)
    except Exception:  # noqa: BLE001 -- raised again, and recorded, when the command is executed
        return None
    creation = payload.quote if isinstance(payload, CreateByForm) else payload
    if isinstance(creation, CreateQuote):
        return creation.account, creation.crm_account
    if quote is not None and isinstance(payload, ReviseQuote):
        return quote.account, quote.crm_account
    if quote is not None and isinstance(payload, CloneQuote):
        return payload.account or quote.account, None
    return None


def precompute(operation: Operation, rules: Rules, quote: Quote | None = None) -> Precomputed:
    """Precompute the results of a command; `quote` is the one that it revises or clones, in its state at this moment.

    Any error yields NOTHING: the command's transaction meets it again and records it.
    """
    try:
        payload = parse_stored(operation.action_kind, operation.payload)
        creation = payload.quote if isinstance(payload, CreateByForm) else payload
        if isinstance(creation, CreateQuote):
            request = for_account(dated(creation.request, operation.received_at), creation.account, rules.segments)
            priced = price(request, rules.ruleset)
            snapshot = written(priced) if isinstance(priced, Pricing) else b""
            found = Precomputed(payload, creation, content_hash(creation), request, rules.ruleset, priced, snapshot)
        else:
            priced = _price_of_another(payload, quote, rules, operation.received_at)
            found = Precomputed(payload, ruleset=rules.ruleset)
        if not isinstance(priced, Pricing):
            return found
        return replace(found, advised=priced, advice=advise(priced, rules.ruleset, rules.policy))
    except Exception:  # noqa: BLE001 -- raised again, and recorded, when the command is executed
        return NOTHING


def _price_of_another(payload: Payload, quote: Quote | None, rules: Rules, at: int) -> Pricing | tuple[PricingProblem, ...]:
    """Return the price of a revision or a clone; nothing for a command that does not price."""
    if quote is not None and isinstance(payload, ReviseQuote):
        return revised_price(payload, quote, rules, at)
    if quote is not None and isinstance(payload, CloneQuote):
        return price(for_account(renewed(quote.pricing, at), payload.account or quote.account, rules.segments), rules.ruleset)
    return ()


def content_hash(payload: Creation) -> str:
    """Hash a creation in this build's schema, whichever build recorded it: equal requests keep equal hashes across a deploy."""
    content: Any = payload.canonical()
    return keys.digest(content)


class ChannelUnaskedError(Exception):
    """A decision depends on the membership of a private channel. Nothing was written; the caller must query Slack first."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.channel = channel


@dataclass(frozen=True, slots=True)
class Run:
    """Execution of one command. `viewer` is None for the scheduler; `now` is Unix milliseconds."""

    ledger: Ledger
    tx: Tx
    operation: Operation
    asked: Asked
    viewer: Viewer | None
    rules: Rules
    precomputed: Precomputed
    now: int
    vouched: Callable[[str], bool]  # whether people of this source count as members while Slack has given no answer about them
    follow: FollowUpDecision  # the follow-ups of a dead letter that a command retries or discards

    def is_member(self, user: str) -> bool:
        """Return true if a user of Slack is a full member of the actor's workspace, by Slack's last answer."""
        return kind_of(self.tx, self.asked.team_id, user, now=self.now, vouched=self.vouched("slack")) == "member"

    def sight(self, quote: Quote) -> Sight:
        """Return how much of a quote the actor sees; the scheduler sees everything.

        Raises ChannelUnaskedError if that depends on a channel that Slack was not queried about.
        """
        if self.viewer is None:
            return Sight.FULL
        sight = may_see(self.viewer, quote)
        if sight is not Sight.OUTLINE:
            return sight
        if self.viewer.user in self.rules.role_holders:
            return Sight.FULL
        if quote.channel not in self.viewer.circle.asked:
            raise ChannelUnaskedError(quote.channel)
        return sight

    def kept(self, decision: Decision) -> Outcome:
        """Return the outcome of a command that is purged `rules.keep_refused_ms` after its execution."""
        return replace(outcome_of(decision), retain_until=self.now + self.rules.keep_refused_ms)


def rules_for(run: Run, account: str, account_id: str | None = None) -> Rules:
    """Return the rules with the segments of a customer, by the CRM's id of its account or else by name."""
    if run.rules.account_segments is None:
        return run.rules
    return crm_mirror.with_segments(run.tx, run.rules, account, account_id, run.now)


def kind_of(tx: Tx, team_id: str, user: str, *, now: int, vouched: bool) -> str:
    """Return a person's kind from Slack's last answer. Without one that counts, `vouched` people are members."""
    return counted_kind(membership.known_person(tx, team_id, user), now=now, vouched=vouched)


def counted_kind(found: membership.Known | None, *, now: int, vouched: bool) -> str:
    """Return the kind in Slack's last answer, as `kind_of` does."""
    if found is not None and found.counts_at(now):
        return found.kind
    if not vouched:
        return "unknown"
    return "member" if found is None else found.kind


def answered_at_terminal(operation: Operation, decided: D) -> D:
    """Remove the replies of a terminal command: the user reads the answer at the terminal, so Slack gets none."""
    if operation.source != "cli":
        return decided
    return replace(decided, effects=tuple(effect for effect in decided.effects if effect.effect_class != effects.REPLY))


def outcome_of(decision: Decision) -> Outcome:
    """Return the outcome that completes the operation of a decision."""
    response: dict[str, Any] = decision.response
    return Outcome(decision.kind, response, decision.effects, decision.events)
