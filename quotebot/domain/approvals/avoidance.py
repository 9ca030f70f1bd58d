"""The smallest change of a quote that avoids an approval: of its discount, its term, one line's quantity, or its special terms.

Prices jump at tiers, so whether a change suffices is not monotone, and nothing is assumed to be: each change that is named was
priced and avoids the approval, and the same change less one step (0.01 %, a month, a unit) was priced and does not. The search
looks as far as a discount at a limit of the policy, one month, one unit; where that does not do it, no change of the kind is named.
The work is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from quotebot.domain import money
from quotebot.domain.approvals.policy import HUNDRED, LADDER, evaluate
from quotebot.domain.pricing.engine import Pricing, price, request_of
from quotebot.domain.pricing.price_requests import QUANTITY_MAX, TERM_MONTHS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_requests import PriceRequest

    Edit = Callable[[int], PriceRequest]  # a step of one dimension: the request with it
    Suffices = Callable[[PolicyDecision], bool]
    _Kind = Callable[["_Search", Pricing, ApprovalPolicy, Suffices], "Avoidance | None"]

PRICED_LINES_MAX = 600  # lines priced in one search, over all its tries: a fraction of a second
LINES_TRIED_MAX = 4  # the largest ones
HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Avoidance:
    """A change that avoids an approval. `before` and `after` are per cent, months, units, or how many special terms need legal.

    `roles` are those still needed after it, none as a rule.
    """

    what: Literal["discount", "term", "quantity", "terms"]
    before: Decimal
    after: Decimal
    roles: tuple[str, ...]
    request: PriceRequest  # with the change made
    name: str = ""  # the product of a quantity
    by_margin: bool = False  # one step less does not do because of a margin: the figure tells what the products cost

    @property
    def words(self) -> str:
        """Return "10 % discount instead of 15 %", "24 instead of 36 months", "120 instead of 150 pro"."""
        before, after = money.trimmed(self.before), money.trimmed(self.after)
        return {
            "discount": f"{after} % discount instead of {before} %",
            "term": f"{after} instead of {before} months",
            "quantity": f"{after} instead of {before} {self.name}",
            "terms": "no special term that needs legal",
        }[self.what]

    def grants(self, discount_percent: Decimal | None) -> bool:
        """Tell whether it says that a discount of so many per cent needs nobody."""
        return self.what == "discount" and not self.roles and self.after == discount_percent


class _SpentError(Exception):
    """As many lines were priced as one search may price."""


class _Search:
    """Prices edits of one request, as many as the budget allows."""

    def __init__(self, ruleset: Ruleset, policy: ApprovalPolicy, lines: int) -> None:
        self._ruleset = ruleset
        self._policy = policy
        self._lines = lines
        self._left = PRICED_LINES_MAX
        self._known: dict[PriceRequest, PolicyDecision | None] = {}

    def ruling(self, request: PriceRequest) -> PolicyDecision | None:
        """Return what the policy says of a request, None when it has no price. Raises _SpentError."""
        if request not in self._known:
            self._left -= self._lines
            if self._left < 0:
                raise _SpentError
            priced = price(request, self._ruleset)
            self._known[request] = evaluate(priced, self._policy) if isinstance(priced, Pricing) else None
        return self._known[request]

    def nearest(self, edit: Edit, suffices: Suffices, now: int, ends: Iterable[int]) -> int | None:
        """Return the step nearest to `now` that was found to suffice although the one before it does not; None when none was.

        One of `ends` on each side, the nearest that suffices, is how far it looks there.
        """
        best: int | None = None
        for side in (-1, 1):
            there = sorted((end for end in ends if (end - now) * side > 0), key=lambda end: abs(end - now))
            if best is not None:
                there = [end for end in there if abs(end - now) < abs(best - now)]
            end = next((each for each in there if self._holds(edit(each), suffices)), None)
            if end is not None:
                step = self._outwards(edit, suffices, now, end)
                best = step if best is None or abs(step - now) < abs(best - now) else best
        return best

    def _outwards(self, edit: Edit, suffices: Suffices, now: int, end: int) -> int:
        """Return a first step that suffices on the way from `now`, which does not, to `end`, which does.

        As a rule that is the end itself, a limit of the policy. Else it goes out in doubling steps, and back by bisection.
        """
        sign, far = (1 if end > now else -1), abs(end - now)

        def holds(distance: int) -> bool:
            return self._holds(edit(now + sign * distance), suffices)

        if far == 1 or not holds(far - 1):
            return end
        near, distance = 0, 1
        while distance < far and not holds(distance):
            near, distance = distance, distance * 2
        return now + sign * self._least(holds, near, min(distance, far - 1))

    def _holds(self, request: PriceRequest, suffices: Suffices) -> bool:
        decision = self.ruling(request)
        return decision is not None and suffices(decision)

    @staticmethod
    def _least(holds: Callable[[int], bool], no: int, yes: int) -> int:
        """Return a step after which `holds` is true and before which it is not, from one of each."""
        while yes - no > 1:
            middle = (no + yes) // 2
            if holds(middle):
                yes = middle
            else:
                no = middle
        return yes


def avoidances(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> tuple[Avoidance, ...]:
    """Return at most one change of each kind after which nobody is needed; else those after which fewer or lower roles are.

    Empty for a quote that needs nobody, and for one whose prices have changed since: today's would say nothing about it.
    """
    decision, request = evaluate(pricing, policy), request_of(pricing)
    search = _Search(ruleset, policy, len(pricing.lines))
    if decision.automatic or len(pricing.lines) * 2 > PRICED_LINES_MAX or price(request, ruleset) != pricing:
        return ()
    alone = _sufficient_alone(pricing, policy)
    nobody = tuple(_each(search, pricing, policy, lambda after: after.automatic, alone))
    return nobody or tuple(_each(search, pricing, policy, lambda after: eases(decision, after), KINDS))


def _sufficient_alone(pricing: Pricing, policy: ApprovalPolicy) -> tuple[_Kind, ...]:
    """Return the kinds of change after which nobody may be needed: no other one undoes a hit of the discount, or of a term."""
    discount = any(pricing.deepest_discount_percent > row.limit for row in policy.discount_over)
    discount = discount or pricing.deepest_discount_percent > policy.discount_blocked_over
    terms = bool(set(pricing.terms) - policy.other_terms)
    if discount and terms:
        return ()
    return (_discount,) if discount else (_terms,) if terms else (_discount, _term, _quantity)


def eases(before: PolicyDecision, after: PolicyDecision) -> bool:
    """Tell whether a ruling asks for less: a lower commercial role, or an orthogonal one fewer, and nothing more."""
    if after.blocked or before.needs == after.needs:
        return False
    rungs_before, others_before = _asked(before)
    rungs_after, others_after = _asked(after)
    if before.blocked:
        return others_after <= others_before
    less = rungs_after < rungs_before or others_after < others_before
    return less and rungs_after <= rungs_before and others_after <= others_before


def _asked(decision: PolicyDecision) -> tuple[int, frozenset[str]]:
    roles = {role for need in decision.needs for role in need.roles}
    return max((LADDER.index(role) + 1 for role in roles if role in LADDER), default=0), frozenset(roles - set(LADDER))


def _each(
    search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices, kinds: tuple[_Kind, ...]
) -> Iterator[Avoidance]:
    for kind in kinds:
        try:
            found = kind(search, pricing, policy, suffices)
        except _SpentError:
            return
        if found is not None:
            yield found


def _discount(search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices) -> Avoidance | None:
    request = request_of(pricing)

    def edit(step: int) -> PriceRequest:
        return replace(request, discount_percent=money.multiply(step, HUNDREDTH))

    now = int(money.multiply(request.discount_percent, 100))
    limits = (policy.discount_blocked_over, *(row.limit for row in policy.discount_over))
    ends = {0, *(int(money.multiply(min(limit, HUNDRED), 100)) for limit in limits)}
    step = search.nearest(edit, suffices, now, ends)
    if step is None:
        return None
    change = _avoidance(search, "discount", edit(step), request.discount_percent, money.multiply(step, HUNDREDTH))
    return replace(change, by_margin=_decided_by_margin(search, edit, step, now))


def _term(search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices) -> Avoidance | None:
    del policy
    request = request_of(pricing)

    def edit(months: int) -> PriceRequest:
        return replace(request, term_months=months)

    months = search.nearest(edit, suffices, request.term_months, (1, TERM_MONTHS_MAX))
    if months is None:
        return None
    change = _avoidance(search, "term", edit(months), Decimal(request.term_months), Decimal(months))
    return replace(change, by_margin=_decided_by_margin(search, edit, months, request.term_months))


def _quantity(search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices) -> Avoidance | None:
    """Try the lines that cost most; of those whose quantity can be changed to that end take the one that changes least of it."""
    del policy
    request = request_of(pricing)
    net = {line.sku: line.net_amount for line in pricing.lines}
    largest = sorted(range(len(request.lines)), key=lambda at: -net.get(request.lines[at].sku, Decimal(0)))[:LINES_TRIED_MAX]
    found: list[tuple[Decimal, Avoidance]] = []
    for at in largest:
        line = request.lines[at]

        def edit(units: int, at: int = at) -> PriceRequest:
            lines = [replace(each, quantity=units) if number == at else each for number, each in enumerate(request.lines)]
            return replace(request, lines=tuple(lines))

        units = search.nearest(edit, suffices, line.quantity, (1, min(line.quantity * 2, QUANTITY_MAX)))
        if units is not None:
            change = _avoidance(search, "quantity", edit(units), Decimal(line.quantity), Decimal(units), line.sku)
            change = replace(change, by_margin=_decided_by_margin(search, edit, units, line.quantity))
            found.append((money.EXACT.divide(Decimal(abs(units - line.quantity)), Decimal(line.quantity)), change))
    return min(found, key=lambda row: row[0])[1] if found else None


def _terms(search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices) -> Avoidance | None:
    request = request_of(pricing)
    if not request.terms:
        return None
    kept = tuple(term for term in request.terms if term in policy.other_terms)
    edited = replace(request, terms=kept)
    decision = search.ruling(edited)
    if kept == request.terms or decision is None or not suffices(decision):
        return None
    return _avoidance(search, "terms", edited, Decimal(len(request.terms) - len(kept)), Decimal(0))


KINDS = (_discount, _term, _quantity, _terms)


def _decided_by_margin(search: _Search, edit: Edit, step: int, now: int) -> bool:
    """Tell whether a margin is under its floor one step nearer to `now`. That request was priced by the search."""
    before = search.ruling(edit(step - 1 if step > now else step + 1))
    return before is not None and before.by_margin


def _avoidance(
    search: _Search,
    what: Literal["discount", "term", "quantity", "terms"],
    request: PriceRequest,
    before: Decimal,
    after: Decimal,
    name: str = "",
) -> Avoidance:
    decision = search.ruling(request)
    assert decision is not None  # noqa: S101 -- it was found by its price
    return Avoidance(what, before, after, decision.required_roles, request, name)
