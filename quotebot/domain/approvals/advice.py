"""Advice about the approval of one priced version: computed once when it is priced, stored beside it, and shown on its card.

Avoidances are the smallest changes that avoid an approval: of the discount, an agreed price, the term, one line's quantity, or
terms. Prices jump at tiers, so the effect of a change is not monotone, and the search does not assume that it is: each reported
change was priced and avoids the approval, and the same change less one step (0.01 %, a cent, a month, a unit) was priced and does
not. The search extends to a discount at a limit of the policy, one month or one unit; if that does not suffice, it reports no
change of the kind. The number of priced lines is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Any, Literal

from quotebot.domain import money
from quotebot.domain.approvals.policy import PolicyDecision, evaluate
from quotebot.domain.language import _, localized, ngettext
from quotebot.domain.pricing.engine import Pricing, price, request_of
from quotebot.domain.pricing.price_requests import QUANTITY_MAX, TERM_MONTHS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_requests import PriceRequest

    Edit = Callable[[int], PriceRequest]
    Suffices = Callable[[PolicyDecision], bool]
    _Kind = Callable[["_Search", Pricing, ApprovalPolicy, Suffices], "Avoidance | None"]

PRICED_LINES_MAX = 600  # lines priced in one search, over all attempts: a fraction of a second
LINES_TRIED_MAX = 4  # the largest ones
HUNDREDTH = Decimal("0.01")
ADVISED_LINES_MAX = 100  # of a quote whose free discount is computed


@dataclass(frozen=True, slots=True)
class Avoidance:
    """A change that avoids an approval. `before` and `after` are per cent, months, units, prices, or numbers of terms.

    `roles` are the roles still needed after the change, usually none.
    """

    what: Literal["discount", "price", "term", "quantity", "terms"]
    before: Decimal
    after: Decimal
    roles: tuple[str, ...]
    request: PriceRequest  # with the change made
    name: str = ""  # the product of a quantity or a price
    currency: str = ""  # of a price
    groups: str = ""  # the roles that the removed terms needed, in words
    by_margin: bool = False  # a margin decides this step, so the figure reveals product costs

    @property
    def words(self) -> str:
        """Return "10% discount (now 15%)", "24 months (now 36)", "120 pro (now 150)"."""
        before, after = (localized(money.trimmed(figure)) for figure in (self.before, self.after))
        match self.what:
            case "discount":
                percents = {"percent": money.format_percent(self.after), "other": money.format_percent(self.before)}
                return _("{percent} discount (now {other})", **percents)
            case "price":
                after, before = (money.format_unit_price(price, self.currency) for price in (self.after, self.before))
                return _("{product} at {price} (now {other})", product=self.name, price=after, other=before)
            case "term":
                return ngettext("{n} month (now {other})", "{n} months (now {other})", int(self.after), other=before)
            case "quantity":
                return _("{quantity} {product} (now {other})", quantity=after, product=self.name, other=before)
        return _("no special term that needs {roles}", roles=self.groups)

    def grants(self, discount_percent: Decimal | None) -> bool:
        """Return whether this change states that a discount of `discount_percent` needs no approval."""
        return self.what == "discount" and not self.roles and self.after == discount_percent


class _SpentError(Exception):
    """The search has used up its budget of priced lines."""


class _Search:
    """Evaluator of edits of one request within the budget of priced lines."""

    def __init__(self, ruleset: Ruleset, policy: ApprovalPolicy, lines: int) -> None:
        self._ruleset = ruleset
        self._policy = policy
        self._lines = lines
        self._left = PRICED_LINES_MAX
        self._known: dict[PriceRequest, PolicyDecision | None] = {}

    def ruling(self, request: PriceRequest) -> PolicyDecision | None:
        """Return the policy's decision about a request, None when it has no price. Raises _SpentError."""
        if request not in self._known:
            self._left -= self._lines
            if self._left < 0:
                raise _SpentError
            priced = price(request, self._ruleset)
            self._known[request] = evaluate(priced, self._policy) if isinstance(priced, Pricing) else None
        return self._known[request]

    def nearest(self, edit: Edit, suffices: Suffices, now: int, ends: Iterable[int]) -> int | None:
        """Return the nearest step to `now` that suffices while the step before it does not; None if none is found.

        On each side, the nearest of `ends` that suffices bounds the search.
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
        """Return a first sufficient step between `now`, which does not suffice, and `end`, which does.

        Usually that is the end itself, a limit of the policy. Otherwise the search uses doubling steps, then bisection.
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
        """Bisect between `no` and `yes`: return a step where `holds` is true while it is false one step before."""
        while yes - no > 1:
            middle = (no + yes) // 2
            if holds(middle):
                yes = middle
            else:
                no = middle
        return yes


def avoidances(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> tuple[Avoidance, ...]:
    """Return at most one change of each kind that makes approval unnecessary; else those that need fewer or lower roles.

    Empty for a quote that needs no approval, for one too long to search, and for one whose prices have changed since.
    """
    decision, request = evaluate(pricing, policy), request_of(pricing)
    search = _Search(ruleset, policy, len(pricing.every_line))
    if decision.automatic or len(pricing.every_line) * 2 > PRICED_LINES_MAX or price(request, ruleset) != pricing:
        return ()
    alone = _sufficient_alone(pricing, policy)
    nobody = tuple(_each(search, pricing, policy, lambda after: after.automatic, alone))
    return nobody or tuple(_each(search, pricing, policy, lambda after: eases(decision, after), KINDS))


def _sufficient_alone(pricing: Pricing, policy: ApprovalPolicy) -> tuple[_Kind, ...]:
    """Return the kinds of change that can make approval unnecessary: no other kind resolves a hit of the discount or of a term."""
    discount = any(pricing.deepest_discount_percent > row.limit for row in policy.discount_over)
    discount = discount or pricing.deepest_discount_percent > policy.discount_blocked_over
    terms = bool(set(pricing.terms) - policy.other_terms)
    if discount and terms:
        return ()
    return (_discount, _price) if discount else (_terms,) if terms else (_discount, _price, _term, _quantity)


def eases(before: PolicyDecision, after: PolicyDecision) -> bool:
    """Return whether `after` requires less: a lower commercial role or one orthogonal role fewer, and nothing more."""
    if after.blocked or before.needs == after.needs:
        return False
    rungs_before, others_before = _asked(before)
    rungs_after, others_after = _asked(after)
    if before.blocked:
        return others_after <= others_before
    less = rungs_after < rungs_before or others_after < others_before
    return less and rungs_after <= rungs_before and others_after <= others_before


def _asked(decision: PolicyDecision) -> tuple[int, frozenset[str]]:
    roles, ladder = {role for need in decision.needs for role in need.roles}, decision.roles.ladder
    return max((ladder.index(role) + 1 for role in roles if role in ladder), default=0), frozenset(roles - set(ladder))


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
    ends = {0, *(int(money.multiply(min(limit, money.HUNDRED), 100)) for limit in limits)}
    step = search.nearest(edit, suffices, now, ends)
    if step is None:
        return None
    change = _avoidance(search, "discount", edit(step), request.discount_percent, money.multiply(step, HUNDREDTH))
    return replace(change, by_margin=_decided_by_margin(search, edit, step, now))


def _price(search: _Search, pricing: Pricing, policy: ApprovalPolicy, suffices: Suffices) -> Avoidance | None:
    """Try higher agreed prices, up to the list price, line by line; return the first that suffices."""
    del policy
    request, unit = request_of(pricing), money.quantum(pricing.currency)
    listed = {line.sku: line for line in pricing.every_line if line.bundle is None}
    agreed = [(at, line.sku, line.agreed_price) for at, line in enumerate(request.lines) if line.agreed_price is not None]
    for at, sku, before in agreed[:LINES_TRIED_MAX]:

        def edit(step: int, at: int = at) -> PriceRequest:
            raised = replace(request.lines[at], agreed_price=money.product(unit, step))
            return replace(request, lines=(*request.lines[:at], raised, *request.lines[at + 1 :]))

        now, end = (int(money.EXACT.divide_int(price, unit)) for price in (before, listed[sku].unit_price))
        step = search.nearest(edit, suffices, now, (end,))
        if step is not None:
            change = _avoidance(search, "price", edit(step), before, money.product(unit, step), listed[sku].name)
            return replace(change, currency=pricing.currency, by_margin=_decided_by_margin(search, edit, step, now))
    return None


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
    """Try the lines with the largest net; return the sufficient quantity change that is relatively smallest."""
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
    needed = dict.fromkeys(policy.role_for(term) for term in request.terms if term not in kept)
    groups = policy.roles.words(" or ".join(needed))
    return replace(_avoidance(search, "terms", edited, Decimal(len(request.terms) - len(kept)), Decimal(0)), groups=groups)


KINDS = (_discount, _price, _term, _quantity, _terms)


def _decided_by_margin(search: _Search, edit: Edit, step: int, now: int) -> bool:
    """Return whether a margin is under its floor one step closer to `now`. The search has priced that request."""
    before = search.ruling(edit(step - 1 if step > now else step + 1))
    return before is not None and before.by_margin


def _avoidance(
    search: _Search,
    what: Literal["discount", "price", "term", "quantity", "terms"],
    request: PriceRequest,
    before: Decimal,
    after: Decimal,
    name: str = "",
) -> Avoidance:
    decision = search.ruling(request)
    assert decision is not None  # noqa: S101 -- the search has priced it
    return Avoidance(what, before, after, decision.required_roles, request, name)


def free_discount(pricing: Pricing, ruleset: Ruleset, policy: ApprovalPolicy) -> Decimal | None:
    """Return the policy's deepest discount without an approval, in per cent, if the quote needs none there by today's ruleset.

    None if it does: a smaller discount that a margin allows would reveal product costs to the channel. None, too, if the prices
    have changed since, and for a long quote, which a user would have to wait for.
    """
    if len(pricing.every_line) > ADVISED_LINES_MAX:
        return None
    request = request_of(pricing)
    if price(replace(request, discount_percent=pricing.discount_percent), ruleset) != pricing:
        return None
    limits = (policy.discount_blocked_over, *(row.limit for row in policy.discount_over[:1]), money.HUNDRED)
    deepest = min(limits).quantize(HUNDREDTH, ROUND_DOWN, money.EXACT)
    found = price(replace(request, discount_percent=deepest), ruleset)
    return deepest if isinstance(found, Pricing) and evaluate(found, policy).automatic else None


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
