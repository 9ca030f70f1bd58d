"""Precomputation for a command's transaction: prices and hashes that need no ledger, so that other writes do not wait for them.

It uses only the command and the last known rules. The transaction takes a result only for the same inputs and otherwise computes
it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot.commands.registry import CreateByForm, CreateQuote, parse_stored
from quotebot.domain.pricing.engine import Pricing, dated, price
from quotebot.store.quotes import written

if TYPE_CHECKING:
    from ledger.records import Operation
    from quotebot.commands.registry import Creation, Payload
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import PriceRequest, PricingProblem


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


NOTHING: Final = Precomputed()


def precompute(operation: Operation, ruleset: Ruleset) -> Precomputed:
    """Precompute the results of a command. Any error yields NOTHING: the command's transaction meets it again and records it."""
    try:
        payload = parse_stored(operation.action_kind, operation.payload)
        creation = payload.quote if isinstance(payload, CreateByForm) else payload
        if not isinstance(creation, CreateQuote):
            return Precomputed(payload)
        request = dated(creation.request, operation.received_at)
        priced = price(request, ruleset)
        snapshot = written(priced) if isinstance(priced, Pricing) else b""
        return Precomputed(payload, creation, content_hash(creation), request, ruleset, priced, snapshot)
    except Exception:  # noqa: BLE001 -- raised again, and recorded, when the command is executed
        return NOTHING


def content_hash(payload: Creation) -> str:
    """Hash a creation in this build's schema, whichever build recorded it: equal requests keep equal hashes across a deploy."""
    content: Any = payload.canonical()
    return keys.digest(content)
