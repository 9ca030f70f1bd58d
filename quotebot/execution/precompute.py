"""What a command's transaction will need and can be computed before it, so that nobody waits for that at the write gate.

It is computed from the command alone and from the rules as they were last known, and never trusted for more than that: what the
transaction finds otherwise, it computes anew.
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
    """What was computed of one command; without a payload nothing was. Each method gives what its inputs give, known or not."""

    payload: Payload | None = None
    creation: CreateQuote | None = None  # what it asks for, and of that:
    asked_hash: str = ""
    request: PriceRequest | None = None
    ruleset: Ruleset | None = None
    priced: Pricing | tuple[PricingProblem, ...] = ()
    snapshot: bytes = b""

    def payload_of(self, operation: Operation) -> Payload:
        """Return the payload of the operation that was foreseen. Raises NeedsNewerBuild as `parse_stored` does."""
        return parse_stored(operation.action_kind, operation.payload) if self.payload is None else self.payload

    def hash_of(self, creation: Creation) -> str:
        """Return the hash of what is asked for."""
        return self.asked_hash if creation is self.creation else content_hash(creation)

    def price(self, request: PriceRequest, ruleset: Ruleset) -> Pricing | tuple[PricingProblem, ...]:
        """Price as the domain's `price` does."""
        return self.priced if ruleset is self.ruleset and request == self.request else price(request, ruleset)

    def snapshot_of(self, pricing: Pricing) -> bytes:
        """Return the canonical text of a price."""
        return self.snapshot if pricing is self.priced else written(pricing)


NOTHING: Final = Precomputed()


def precompute(operation: Operation, ruleset: Ruleset) -> Precomputed:
    """Compute what can be; nothing of what this build cannot read or has a bug about: its transaction says what is wrong."""
    try:
        payload = parse_stored(operation.action_kind, operation.payload)
        creation = payload.quote if isinstance(payload, CreateByForm) else payload
        if not isinstance(creation, CreateQuote):
            return Precomputed(payload)
        request = dated(creation.request, operation.received_at)
        priced = price(request, ruleset)
        snapshot = written(priced) if isinstance(priced, Pricing) else b""
        return Precomputed(payload, creation, content_hash(creation), request, ruleset, priced, snapshot)
    except Exception:  # noqa: BLE001 -- met again, and recorded, where the command is executed
        return NOTHING


def content_hash(payload: Creation) -> str:
    """Hash what is asked for in this build's schema, whichever build recorded it: equal wishes have equal hashes over a deploy."""
    content: Any = payload.canonical()
    return keys.digest(content)
