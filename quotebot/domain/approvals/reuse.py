"""Reuse of an earlier approval for a changed quote: allowed only if the change is no worse than the version people approved."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.approvals.people import roles_of
from quotebot.domain.approvals.policy import Need, PolicyDecision, family_totals
from quotebot.domain.pricing.commercial_terms import worse_terms
from quotebot.domain.pricing.engine import request_of
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, Slot, SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotebot.domain.approvals.people import Holders
    from quotebot.domain.approvals.roles import Roles
    from quotebot.domain.pricing.engine import Pricing
    from quotebot.domain.pricing.priced import PricedLine

    LineKey = tuple[str | None, str, str, tuple[tuple[str, str], ...]]

TOLERANCE_PERCENT: Final = Decimal(95)


@dataclass(frozen=True, slots=True)
class EarlierApproval:
    """The last decision by people about a quote, with the price they saw. `valid_until`: end of that version's offer, Unix ms."""

    approval: Approval
    pricing: Pricing
    valid_until: int


def got_worse(before: Pricing, after: Pricing, tolerance_percent: Decimal = TOLERANCE_PERCENT) -> tuple[str, ...]:
    """Return, in words, each dimension in which `after` is worse than the approved `before`; empty if none is.

    Worse means another currency, a deeper discount, another agreed price, a new, larger or cheaper optional line, a larger total,
    a new special term, a commercial term that commits to more (see `worse_terms`), a smaller margin of a family or a new family;
    and a smaller commitment: a shorter term, a removed line, another price tier, or a line or total that keeps less than
    `tolerance_percent` of its value.
    """
    return tuple(_worse(before, after, tolerance_percent))


def reused(
    approval_id: str,
    quote: Quote,
    policy: PolicyDecision,
    earlier: EarlierApproval,
    holders: Holders,
    *,
    asked_by: str,
    at: int,
    gone: frozenset[str] = frozenset(),
    tolerance_percent: Decimal = TOLERANCE_PERCENT,
) -> Approval | None:
    """Return an approval of `quote` based on the `earlier` one, or None when a new approval is required.

    `holders` are the present role holders, `gone` the people who are no longer full members; `tolerance_percent` is the share of
    each line and of the total that a change must keep.

    A new one is required if anything is worse than the version that people approved, if that version's offer has ended, if a role
    is required that did not decide then, if a decider lost the role or left, and if a decider is the requester or a maker.
    """
    approval = earlier.approval
    if approval.state is not ApprovalState.APPROVED or not approval.slots or approval.earlier is not None:
        return None
    people = {user for slot in approval.slots for user in (slot.decided_by, slot.on_behalf_of) if user is not None}
    if people & {asked_by, *quote.makers} or people & gone or at >= earlier.valid_until:
        return None
    if policy.blocked or got_worse(earlier.pricing, quote.pricing, tolerance_percent):
        return None
    left = list(approval.slots)
    slots: list[Slot] = []
    for need in policy.needs:
        found = _decided_then(need, left, policy.roles)
        if not found or not all(_still_held(need, slot, holders, policy.roles) for slot in found):
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
        earlier=approval.approval_id,
    )


def _still_held(need: Need, slot: Slot, holders: Holders, roles: Roles) -> bool:
    """Return whether the decider of a slot, and the absent person they substituted for, hold a sufficient role today."""
    people = (slot.decided_by,) if slot.on_behalf_of is None else (slot.decided_by, slot.on_behalf_of)
    return all(user is not None and roles.lowest(need.roles, roles_of(user, holders)) is not None for user in people)


def _decided_then(need: Need, slots: list[Slot], roles: Roles) -> list[Slot]:
    """Return the earlier decisions that satisfy the need: two under dual control, all of a group, else the first."""
    enough = {role for wanted in need.roles for role in roles.sufficient(wanted)}
    found = [slot for slot in slots if slot.state is SlotState.APPROVED and slot.decided_role in enough]
    if need.people == "all":
        return found if all(set(slot.roles) == set(need.roles) for slot in found) else []
    if need.dual_control:
        return found[:2] if len(found) > 1 and all(slot.dual_control for slot in found[:2]) else []
    return found[:1]


def _worse(before: Pricing, after: Pricing, tolerance_percent: Decimal) -> Iterator[str]:
    if after.currency != before.currency:
        yield "currency"
        return
    dimensions = {
        "discount": after.deepest_discount_percent > before.deepest_discount_percent,
        "total": after.net_total > before.net_total,
        "committed value": _keeps_too_little(before.net_total, after.net_total, tolerance_percent),
        "term": after.term_months < before.term_months,
        "special terms": bool(set(after.terms) - set(before.terms)),
        "segment": _sale(after)[0] != _sale(before)[0] or (before.segment_is_open and not after.segment_is_open),
        "billing": _sale(after)[1] != _sale(before)[1],
    }
    yield from (name for name, is_worse in dimensions.items() if is_worse)
    then_asked, asked = request_of(before), request_of(after)
    yield from worse_terms(then_asked.commercial, asked.commercial, (then_asked.priced_on, asked.priced_on))
    yield from _worse_lines(before, after, tolerance_percent)
    yield from _worse_options(before, after)
    then = family_totals(before)
    for family, (net, cost) in family_totals(after).items():
        if family not in then:
            yield f"new family {family}"
            continue
        net_then, cost_then = then[family]
        # Compares cost / net, without divisions: the margin (net - cost) / net shrinks if cost / net grows.
        if money.multiply(cost, net_then) > money.multiply(cost_then, net) or (net == 0 and net_then > 0):
            yield f"margin of {family}"


def _sale(pricing: Pricing) -> tuple[str | None, str]:
    """Return the segment and the billing frequency."""
    request = pricing.request
    return (None, BILLING_FREQUENCIES[0]) if request is None else (request.segment, request.billing_frequency)


def _worse_lines(before: Pricing, after: Pricing, tolerance_percent: Decimal) -> Iterator[str]:
    now = _by_product(after)
    for key, lines_then in _by_product(before).items():
        lines, name = now.get(key), lines_then[0].name
        if lines is None:
            yield f"{name} removed"
            continue
        dimensions = {
            "price tier": {line.tier for line in lines} != {line.tier for line in lines_then},
            "discount": max(line.requested_percent for line in lines) > max(line.requested_percent for line in lines_then),
            "agreed price": {line.price_reason for line in lines} != {line.price_reason for line in lines_then},
            "value": _keeps_too_little(_net(lines_then, before), _net(lines, after), tolerance_percent),
        }
        yield from (f"{dimension} of {name}" for dimension, is_worse in dimensions.items() if is_worse)


def _worse_options(before: Pricing, after: Pricing) -> Iterator[str]:
    """Yield the optional lines of which the customer was not offered so many at this price before."""
    offered = {(line.bundle, line.sku, line.attributes): line for line in before.every_line}
    for line in after.options:
        then = offered.get((line.bundle, line.sku, line.attributes))
        if (
            then is None
            or (line.tier, line.price_reason) != (then.tier, then.price_reason)
            or line.requested_percent > then.requested_percent
            or line.quantity > then.quantity
            or line.unit_price < then.unit_price
        ):
            yield f"optional {line.name}"


def _by_product(pricing: Pricing) -> dict[LineKey, list[PricedLine]]:
    """Group the lines by product: the same product in another bundle or with other attributes is a different one."""
    found: dict[LineKey, list[PricedLine]] = defaultdict(list)
    for line in pricing.lines:
        found[(line.bundle, line.sku, line.family, line.attributes)].append(line)
    return found


def _net(lines: list[PricedLine], pricing: Pricing) -> Decimal:
    return money.total(tuple(line.net_amount for line in lines), pricing.currency)


def _keeps_too_little(before: Decimal, after: Decimal, tolerance_percent: Decimal) -> bool:
    # after / before < tolerance %, without the division.
    return money.multiply(after, money.HUNDRED) < money.multiply(before, tolerance_percent)
