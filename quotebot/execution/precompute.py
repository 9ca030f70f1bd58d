"""Precomputation for a command's transaction: prices, advice and hashes, so that other writes do not wait for them.

It uses only the command and the last known rules. The transaction takes a result only for the same inputs and otherwise computes
it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot.commands.lifecycle import CloneQuote
from quotebot.commands.registry import CreateByForm, CreateQuote, ReviseQuote, parse_stored
from quotebot.domain.approvals.advice import advise
from quotebot.domain.pricing.engine import Pricing, dated, price, renewed
from quotebot.handlers.lifecycle import revised_price
from quotebot.store.quotes import written

if TYPE_CHECKING:
    from ledger.records import Operation
    from quotebot.commands.registry import Creation, Payload
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import PriceRequest, PricingProblem
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules


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


def precompute(operation: Operation, rules: Rules, quote: Quote | None = None) -> Precomputed:
    """Precompute the results of a command; `quote` is the one that it revises or clones, in its state at this moment.

    Any error yields NOTHING: the command's transaction meets it again and records it.
    """
    try:
        payload = parse_stored(operation.action_kind, operation.payload)
        creation = payload.quote if isinstance(payload, CreateByForm) else payload
        if isinstance(creation, CreateQuote):
            request = dated(creation.request, operation.received_at)
            priced = price(request, rules.ruleset)
            snapshot = written(priced) if isinstance(priced, Pricing) else b""
            found = Precomputed(payload, creation, content_hash(creation), request, rules.ruleset, priced, snapshot)
        else:
            priced, found = (
                _price_of_another(payload, quote, rules, operation.received_at),
                Precomputed(payload, ruleset=rules.ruleset),
            )
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
        return price(renewed(quote.pricing, at), rules.ruleset)
    return ()


def content_hash(payload: Creation) -> str:
    """Hash a creation in this build's schema, whichever build recorded it: equal requests keep equal hashes across a deploy."""
    content: Any = payload.canonical()
    return keys.digest(content)
