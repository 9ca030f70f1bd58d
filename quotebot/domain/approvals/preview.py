"""Preview before submission: required approvals, the largest discount without approval, and the nearest such discount.

The need for approval is not monotone in the discount: a deeper one leaves less margin and exceeds more discount limits, but also
reduces the total. Each rule alone is monotone, except for the rounding of each line's share of the discount. So bisection finds
both ends of the range without approval, and near the upper end every discount is tried at which a cent could matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.approvals.policy import HUNDRED, PolicyDecision, evaluate, family_totals, over_total
from quotebot.domain.pricing.conversion import factor
from quotebot.domain.pricing.engine import Pricing, price, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.engine import PricingProblem

    Reprice = Callable[[Decimal], Pricing]

STEPS = 10_000  # a discount has two decimals: 0.00 to 100.00 %
STEP = Decimal("0.01")
ZERO = Decimal(0)
PREVIEWED_LINES_MAX = 100


@dataclass(frozen=True, slots=True)
class Preview:
    """Result of submitting. Discounts in per cent, None if every discount needs approval.

    `largest_free_discount` is the largest discount without approval. `nearest_free_discount` is the one closest to the present
    discount: equal to it if no approval is needed now, and possibly deeper if only the total is too large.
    """

    decision: PolicyDecision
    largest_free_discount: Decimal | None
    nearest_free_discount: Decimal | None


def preview(pricing: Pricing, reprice: Reprice, policy: ApprovalPolicy, terms: frozenset[str] = frozenset()) -> Preview:
    """Preview the submission of `pricing`. `reprice` returns the same quote at another discount, 0 to 100 %."""
    decision = evaluate(pricing, policy, terms)
    free = _free_stretch(reprice, policy, terms)
    if free is None:
        return Preview(decision, None, None)
    first, last = free
    nearest = min(max(int(money.multiply(pricing.discount_percent, 100)), first), last)

    def is_free(step: int) -> bool:
        return evaluate(reprice(_percent(step)), policy, terms).automatic

    if not is_free(nearest):  # a cent of rounding breaks the monotony
        around = range(max(first, nearest + nearest - last), last + 1)
        nearest = min((step for step in around if is_free(step)), key=lambda step: abs(step - nearest))
    return Preview(decision, _percent(last), _percent(nearest))


def free_discount(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> Decimal | None:
    """Return the largest header discount in per cent at which the quote needs no approval, by today's ruleset.

    None if there is none, if the prices have changed since, and for a long quote: the search prices it several times while a user
    waits. None, too, if a margin decides the discount: the whole channel reads it, and it would reveal product costs.
    """
    if len(pricing.lines) > PREVIEWED_LINES_MAX:
        return None
    request = request_of(pricing)

    def priced(discount: Decimal) -> Pricing | tuple[PricingProblem, ...]:
        return price(replace(request, discount_percent=discount), ruleset)

    def reprice(discount: Decimal) -> Pricing:
        found = priced(discount)
        assert isinstance(found, Pricing)  # noqa: S101 -- a quote with a price at one discount has a price at every one
        return found

    if priced(pricing.discount_percent) != pricing:
        return None
    largest = preview(pricing, reprice, policy).largest_free_discount
    return largest if largest == _percent(_deepest_by_discount_alone(policy)) else None


def _free_stretch(reprice: Reprice, policy: ApprovalPolicy, terms: frozenset[str]) -> tuple[int, int] | None:
    """Return the smallest and the largest discount without approval, in hundredths of a per cent, or None."""
    without_totals = replace(policy, total_over=())

    def shallow_enough(step: int) -> bool:
        return evaluate(reprice(_percent(step)), without_totals, terms).automatic

    def small_enough(step: int) -> bool:
        if not policy.total_over:
            return True
        pricing = reprice(_percent(step))
        worth = factor(pricing, policy.currency)
        return worth is not None and not over_total(pricing, policy.total_over[0].limit, worth)

    bound = _deepest_by_discount_alone(policy)
    if shallow_enough(bound):  # the usual case: one pricing instead of a search
        last = bound
    elif shallow_enough(0):
        last = _last_true(shallow_enough, 0, bound - 1)
        doubtful = range(last + 1, min(bound, last + 1 + _steps_of_rounding(reprice(ZERO))))
        last = max((step for step in doubtful if shallow_enough(step)), default=last)
    else:
        return None
    if not small_enough(last):
        return None
    return (0 if small_enough(0) else _last_true(lambda step: not small_enough(step), 0, last) + 1), last


def _steps_of_rounding(pricing: Pricing) -> int:
    """Return the number of 0.01 % steps within which rounding can hide the change of a family's net.

    A rounded share differs from the exact one by less than one smallest unit, and so does the whole discount. The bound allows
    twice that difference: one smallest unit per line and one more.
    """
    unit = money.quantum(pricing.currency)
    steps = [
        money.EXACT.divide_int(money.product(unit, Decimal(2 * STEPS * (len(pricing.lines) + 1))), net)
        for net, _ in family_totals(pricing).values()
        if net > 0
    ]
    return int(max(steps, default=ZERO)) + 1


def _deepest_by_discount_alone(policy: ApprovalPolicy) -> int:
    limits = [policy.discount_blocked_over, *(row.limit for row in policy.discount_over[:1]), HUNDRED]
    return int(money.multiply(min(limits), 100))


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last step from `low` to `high` where `holds` is true. It must be true at `low` and stay false once false."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _percent(step: int) -> Decimal:
    return money.multiply(step, STEP)
