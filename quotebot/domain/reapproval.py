"""Whether an earlier approval still holds for a changed quote: when nothing that was approved got worse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.policy import family_totals, sufficient_roles
from quotebot.domain.quotes import Approval, ApprovalState
from quotebot.domain.slots import Slot, SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotebot.domain.policy import Need, PolicyDecision
    from quotebot.domain.pricing import Pricing
    from quotebot.domain.quotes import Quote


def got_worse(before: Pricing, after: Pricing) -> tuple[str, ...]:
    """Return the dimensions an approver looked at that are worse now, in words; empty when none is.

    Worse is what a policy could mind: another currency, a deeper discount, a larger total, a special term, a family's smaller
    margin, a new family.
    """
    return tuple(_worse(before, after))


def reused(
    approval_id: str,
    quote: Quote,
    policy: PolicyDecision,
    earlier: Approval,
    before: Pricing,
    *,
    asked_by: str,
    at: int,
) -> Approval | None:
    """Return an approval of `quote` that rests on the `earlier` one of the price `before`, or None when it has to be asked for.

    It is asked for when anything got worse, when a role is needed now that did not decide then, and when somebody who decided then
    is the one who asks now.
    """
    people = {user for slot in earlier.slots for user in (slot.decided_by, slot.on_behalf_of)}
    if earlier.state is not ApprovalState.APPROVED or not earlier.slots or people & {asked_by, *quote.makers}:
        return None
    if policy.blocked or got_worse(before, quote.pricing):
        return None
    left = list(earlier.slots)
    slots: list[Slot] = []
    for need in policy.needs:
        found = _decided_then(need, left)
        if not found:
            return None
        left = [slot for slot in left if slot not in found]
        slots += [replace(slot, roles=need.roles, asked=need.roles, stage=need.stage, assignee=None) for slot in found]
    return Approval(
        approval_id=approval_id,
        quote_id=quote.quote_id,
        quote_version=quote.version,
        required_roles=policy.required_roles,
        reasons=policy.hits,
        state=ApprovalState.APPROVED,
        requested_by=asked_by,
        requested_at=at,
        decided_role=" + ".join(slot.decided_role or slot.role for slot in slots),
        decided_at=at,
        slots=tuple(replace(slot, number=number) for number, slot in enumerate(slots, start=1)),
        earlier=earlier.approval_id,
    )


def _decided_then(need: Need, slots: list[Slot]) -> list[Slot]:
    """Return the decisions of then that answer a need of now: two under dual control, all of a group, else the first."""
    enough = {role for wanted in need.roles for role in sufficient_roles(wanted)}
    found = [slot for slot in slots if slot.state is SlotState.APPROVED and slot.decided_role in enough]
    if need.people == "all":
        return found if all(set(slot.roles) == set(need.roles) for slot in found) else []
    if need.dual_control:
        return found[:2] if len(found) > 1 and all(slot.dual_control for slot in found[:2]) else []
    return found[:1]


def _worse(before: Pricing, after: Pricing) -> Iterator[str]:
    if after.currency != before.currency:
        yield "currency"
        return
    if after.deepest_discount_percent > before.deepest_discount_percent:
        yield "discount"
    if after.net_total > before.net_total:
        yield "total"
    if set(after.terms) - set(before.terms):
        yield "special terms"
    then = family_totals(before)
    for family, (net, cost) in family_totals(after).items():
        if family not in then:
            yield f"new family {family}"
            continue
        net_then, cost_then = then[family]
        # (net - cost) / net is not smaller, without the divisions: cost / net is not larger.
        if money.multiply(cost, net_then) > money.multiply(cost_then, net) or (net == 0 and net_then > 0):
            yield f"margin of {family}"
