"""Before submitting: who would have to approve, the largest discount that needs nobody, the smallest change that avoids it all.

Whether a discount needs nobody is not monotone: a deeper one leaves less margin and passes more discount limits, but also makes the
total smaller. Each rule alone is, but for the cents by which each line's share of the discount is rounded: so both ends of the
stretch that needs nobody are found by bisection, and around the upper one every discount is tried at which a cent could matter.
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
    """What submitting would come to. Discounts in per cent, None where no discount would do.

    `largest_free_discount` is the largest that needs nobody. `nearest_free_discount` is the one that changes the quote least; it is
    the present one when nobody is needed as it is, and may be a deeper one when only the total is too large.
    """

    decision: PolicyDecision
    largest_free_discount: Decimal | None
    nearest_free_discount: Decimal | None


def preview(pricing: Pricing, reprice: Reprice, policy: ApprovalPolicy, terms: frozenset[str] = frozenset()) -> Preview:
    """Return what submitting `pricing` would come to. `reprice` gives the same quote at another discount, 0 to 100 %."""
    decision = evaluate(pricing, policy, terms)
    free = _free_stretch(reprice, policy, terms)
    if free is None:
        return Preview(decision, None, None)
    first, last = free
    nearest = min(max(int(money.multiply(pricing.discount_percent, 100)), first), last)

    def is_free(step: int) -> bool:
        return evaluate(reprice(_percent(step)), policy, terms).automatic

    if not is_free(nearest):  # a cent of rounding is in the way
        around = range(max(first, nearest + nearest - last), last + 1)
        nearest = min((step for step in around if is_free(step)), key=lambda step: abs(step - nearest))
    return Preview(decision, _percent(last), _percent(nearest))


def free_discount(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> Decimal | None:
    """Return the largest discount in per cent on the whole quote at which it needs nobody, by the prices of today's ruleset.

    None when there is none, when the prices have changed since, and for a long quote: the search prices it several times, and it
    is asked for while somebody waits. None, too, when a margin decides it: everybody in the channel reads it, and it would tell
    what the products cost.
    """
    if len(pricing.lines) > PREVIEWED_LINES_MAX:
        return None
    request = request_of(pricing)

    def priced(discount: Decimal) -> Pricing | tuple[PricingProblem, ...]:
        return price(replace(request, discount_percent=discount), ruleset)

    def reprice(discount: Decimal) -> Pricing:
        found = priced(discount)
        assert isinstance(found, Pricing)  # noqa: S101 -- what has a price at one discount has it at every one
        return found

    if priced(pricing.discount_percent) != pricing:
        return None
    largest = preview(pricing, reprice, policy).largest_free_discount
    return largest if largest == _percent(_deepest_by_discount_alone(policy)) else None


def _free_stretch(reprice: Reprice, policy: ApprovalPolicy, terms: frozenset[str]) -> tuple[int, int] | None:
    """Return the smallest and the largest discount that needs nobody, in hundredths of a per cent, or None."""
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
    """Return how many hundredths of a per cent the net of a family may take to fall by what rounding can hide.

    A share is less than one smallest unit from what it would be unrounded, and so is the whole discount: twice that, of a family
    with one unit per line and one more.
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
    """Return the last step from `low` to `high` where `holds`; it does at `low`, and once it does not it never does again."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _percent(step: int) -> Decimal:
    return money.multiply(step, STEP)
