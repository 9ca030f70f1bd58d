"""Advice about the approval of one priced version: computed once when it is priced, stored beside it, and shown on its card."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quotebot.domain import money
from quotebot.domain.approvals.avoidance import avoidances
from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.approvals.preview import free_discount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import Pricing


@dataclass(frozen=True, slots=True)
class EasierChange:
    """A change that needs fewer approvers, in words; `roles` are the roles that it still needs, usually none.

    A change that a margin decides is not among them: the whole channel reads a card, and the figure would reveal product costs.
    """

    words: str
    roles: tuple[str, ...]
    by_margin: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """Ways around an approval. `free_discount` is the largest header discount in per cent that needs none; None if unknown."""

    free_discount: Decimal | None
    changes: tuple[EasierChange, ...]


def advise(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> Advice | None:
    """Return the advice for a priced quote; None if it needs no approval."""
    if evaluate(pricing, policy).automatic:
        return None
    free, found = free_discount(pricing, ruleset, policy), avoidances(pricing, ruleset, policy)
    if any(change.grants(free) for change in found):  # a change already states it
        free = None
    return Advice(free, tuple(EasierChange(change.words, change.roles) for change in found if not change.by_margin))


def basis_of(ruleset: Ruleset, policy: ApprovalPolicy) -> str:
    """Return what an advice depends on beside the price. Advice of another basis is outdated and not shown."""
    return f"{ruleset.hash} {policy.name} {policy.version}"


def canonical_advice(advice: Advice) -> dict[str, object]:
    """Return the JSON-ready form."""
    free = advice.free_discount
    return {
        "free_discount": None if free is None else money.trimmed(free),
        "changes": [[change.words, list(change.roles)] for change in advice.changes],
    }


def parse_advice(stored: Mapping[str, Any]) -> Advice:
    """Rebuild the advice of `canonical_advice`."""
    free = stored["free_discount"]
    changes = tuple(EasierChange(str(words), tuple(roles)) for words, roles in stored["changes"])
    return Advice(None if free is None else Decimal(free), changes)
