"""Approval policy of a priced quote: thresholds as data and one pure evaluation. Its document is read in policy_document.py.

A blocked quote never looks like one that needs no approval: every blocking rule also requires the top of the ladder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain import money
from quotebot.domain.approvals.roles import PACKAGED, Roles
from quotebot.domain.approvals.special_terms import term_words
from quotebot.domain.language import N_, _, current, grouped, localized, ngettext
from quotebot.domain.pricing.commercial_terms import payment_days, payment_words
from quotebot.domain.pricing.conversion import Converted, converted, factor
from quotebot.domain.schedule.schedules import after_working

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from quotebot.domain.pricing.priced import PricedLine, Pricing
    from quotebot.domain.schedule.schedules import Calendar

NOBODY: Final = "nobody"  # in place of a role: no approval is needed
BLOCKED: Final = "blocked"  # in place of a role: nobody can approve
ANY_FAMILY: Final = "*"  # margin floor of the families without one of their own
HOUR_MS = 3_600_000
_UNDER_THE_FLOOR: Final = "margin is under the floor"  # in place of the figures that an earlier build wrote
_WRITTEN_MARGIN = re.compile(r"margin (?:-?[0-9][0-9.,]* ?% )?is under [0-9][0-9.,]* ?%")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Limit of a rule, beyond which it requires approval by `role`.

    With `more` roles, `roles_needed` says whether any one role or all of them must approve. `people` says whether one holder of a
    role or all of them must approve. A `dual_control` rule requires two people, each with a written reason.
    """

    limit: Decimal
    role: str
    more: tuple[str, ...] = ()
    roles_needed: Literal["any", "all"] = "all"
    people: Literal["any", "all"] = "any"
    dual_control: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Deadlines of a slot, in milliseconds from the time it opened. With a calendar, the first two count its business hours."""

    remind_ms: int = 2 * HOUR_MS
    escalate_ms: int = 4 * HOUR_MS
    expire_ms: int = 72 * HOUR_MS
    calendar: Calendar | None = None

    def after(self, ms: int, at: int, zones: Iterable[str] = ()) -> int:
        """Return the time `ms` after `at`: by the calendar, when one of the people in `zones` has had so many business hours."""
        if self.calendar is None:
            return at + ms
        return min(after_working(self.calendar, zone, at, ms) for zone in set(zones) or {self.calendar.zone})


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Thresholds of one policy version. Discounts and margins in per cent, totals in `currency`."""

    name: str
    version: str
    currency: str
    discount_blocked_over: Decimal
    discount_over: tuple[Threshold, ...]  # ascending
    total_over: tuple[Threshold, ...]  # ascending
    margin_under: Mapping[str, Threshold]  # by product family, or ANY_FAMILY
    legal_terms: frozenset[str] = frozenset()  # each of these terms also needs legal (see Roles.for_terms)
    other_terms: frozenset[str] = frozenset()  # known terms that need no approval
    term_groups: Mapping[str, str] = field(default_factory=dict)  # terms that need another role, and that role
    term_names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # display names of terms, by language
    full_ladder: bool = False  # every rung up to the highest required one, each by a different person
    order: Literal["parallel", "sequential"] = "parallel"
    timing: Timing = field(default_factory=Timing)
    months_over: tuple[Threshold, ...] = ()  # ascending, by the term in months
    quantity_over: Mapping[str, Threshold] = field(default_factory=dict)  # by SKU, over the sum of its lines
    segment_roles: Mapping[str, str] = field(default_factory=dict)  # by segment of the price books: a role, NOBODY or BLOCKED
    payment_over: tuple[Threshold, ...] = ()  # ascending, by the days until a payment is due
    under_price_floor: str = PACKAGED.top  # for a price under its floor in the price book: a role, or BLOCKED
    roles: Roles = PACKAGED

    @property
    def label(self) -> str:
        """Name and version, as people read them."""
        return f"{self.name} {self.version}"

    @property
    def known_terms(self) -> frozenset[str]:
        """All special terms that a quote may have."""
        return self.legal_terms | self.other_terms | frozenset(self.term_groups)

    def role_for(self, term: str) -> str:
        """Return the role that has to approve a special term which is not among `other_terms`."""
        return self.term_groups.get(term, self.roles.for_terms)

    def term_words(self, term: str) -> str:
        """Return a special term as people read it: by its name in their language, else by its id in words."""
        return self.term_names.get(current(), {}).get(term) or term_words(term)

    def floor(self, family: str) -> Threshold | None:
        """Return the margin floor of a product family; None if the policy has neither its own nor one for any family."""
        return self.margin_under.get(family) or self.margin_under.get(ANY_FAMILY)


@dataclass(frozen=True, slots=True)
class Need:
    """One required approval, by a holder of any of `roles` (on the ladder: or of a higher one).

    Needs of a later `stage` are requested only after the earlier ones are approved.
    """

    roles: tuple[str, ...]
    people: Literal["any", "all"] = "any"
    dual_control: bool = False
    stage: int = 1

    @property
    def role(self) -> str:
        """Display text of the roles: "cfo", "deal_desk or legal"."""
        return " or ".join(self.roles)


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Result of the policy: required roles, every hit in words, and whether it blocks. `needs` has one entry per required role."""

    required_roles: tuple[str, ...]
    hits: tuple[str, ...]
    blocked: bool
    needs: tuple[Need, ...] = ()
    converted: Converted | None = None  # the total in the policy's currency, when the quote has another one
    by_margin: bool = False  # a margin or a price is under its floor
    roles: Roles = PACKAGED  # of the policy

    @property
    def automatic(self) -> bool:
        """True if no approval is required."""
        return not self.blocked and not self.required_roles


@dataclass(frozen=True, slots=True)
class _Hit:
    rule: Threshold
    words: str
    blocks: bool = False
    by_margin: bool = False


def _anyway(role: str) -> Threshold:
    """Return the rule that a role has to approve whatever the figure is."""
    return Threshold(Decimal(0), role)


def evaluate(pricing: Pricing, policy: ApprovalPolicy, terms: frozenset[str] = frozenset()) -> PolicyDecision:
    """Apply every rule to a pricing and the contract's special terms: those of its request, and `terms`.

    The highest commercial role is required (with `full_ladder`, every rung up to it), plus every orthogonal role hit. Totals are
    compared in the policy's currency, at the rate stored in the price; without a rate the quote is blocked. Optional lines count in
    no total, margin or quantity; their own discounts and agreed prices do count, because the customer can choose them.
    """
    worth = factor(pricing, policy.currency)
    if worth is None:
        no_rate = _(
            "the quote is in {currency}, the policy in {other}, and the price holds no rate between them: no rule compares them. "
            "Prices and policy have to stand in one currency, with a dated rate to the quote's",
            currency=pricing.currency,
            other=policy.currency,
        )
        return _decision([_Hit(_anyway(policy.roles.top), no_rate, blocks=True)], policy)
    return replace(
        _decision(
            [
                *_discount_hits(pricing, policy),
                *_total_hits(pricing, policy, worth),
                *_margin_hits(pricing, policy),
                *_price_hits(pricing, policy),
                *_month_hits(pricing, policy),
                *_payment_hits(pricing, policy),
                *_quantity_hits(pricing, policy),
                *_segment_hits(pricing, policy),
                *_term_hits(terms | frozenset(pricing.terms), policy),
            ],
            policy,
        ),
        converted=converted(pricing, policy.currency),
    )


def over_total(pricing: Pricing, limit: Decimal, worth: Decimal) -> bool:
    """Return whether the net total exceeds a limit in the policy's currency, 1 unit of which is `worth` of the quote's. Exact."""
    return pricing.net_total > money.multiply(limit, worth)


def _decision(hits: list[_Hit], policy: ApprovalPolicy) -> PolicyDecision:
    needs = [*_commercial(hits, policy), *_orthogonal(hits, policy.roles)]
    chosen = [hit.rule for hit in hits if _offers_a_choice(hit.rule)]
    choices = dict.fromkeys(Need((rule.role, *rule.more), rule.people, rule.dual_control) for rule in chosen)
    needs += [need for need in choices if not any(_covers(kept, need, policy.roles) for kept in needs)]
    if policy.order == "sequential":
        needs = [replace(need, stage=stage) for stage, need in enumerate(needs, start=1)]
    return PolicyDecision(
        required_roles=tuple(need.role for need in needs),
        hits=tuple(hit.words for hit in hits),
        blocked=any(hit.blocks for hit in hits),
        needs=tuple(needs),
        by_margin=any(hit.by_margin for hit in hits),
        roles=policy.roles,
    )


def _commercial(hits: list[_Hit], policy: ApprovalPolicy) -> Iterator[Need]:
    """Yield the highest rung and the lower ones that a multi-role rule names. Dual control of a lower rung moves to the highest."""
    rules, ladder = [hit.rule for hit in hits if not _offers_a_choice(hit.rule)], policy.roles.ladder
    asked = {role for rule in rules for role in (rule.role, *rule.more) if role in ladder}
    if not asked:
        return
    top = max(asked, key=ladder.index)
    together = {role for rule in rules if rule.more for role in (rule.role, *rule.more)}
    dual = any(rule.dual_control and {rule.role, *rule.more} & set(ladder) for rule in rules)
    for role in ladder[: ladder.index(top) + 1]:
        if policy.full_ladder or role == top or role in together:
            yield Need((role,), _people(rules, role), dual_control=dual and role == top)


def _orthogonal(hits: list[_Hit], roles: Roles) -> Iterator[Need]:
    rules = [hit.rule for hit in hits if not _offers_a_choice(hit.rule)]
    for role in roles.beside:
        naming = [rule for rule in rules if role in (rule.role, *rule.more)]
        if naming:
            dual = any(rule.dual_control and not {rule.role, *rule.more} & set(roles.ladder) for rule in naming)
            yield Need((role,), _people(naming, role), dual_control=dual)


def _offers_a_choice(rule: Threshold) -> bool:
    return bool(rule.more) and rule.roles_needed == "any"


def _people(rules: list[Threshold], role: str) -> Literal["any", "all"]:
    return "all" if any(rule.people == "all" for rule in rules if role in (rule.role, *rule.more)) else "any"


def _covers(kept: Need, choice: Need, roles: Roles) -> bool:
    """Return whether an approver of `kept` may also decide `choice`, which makes `choice` redundant."""
    if choice.dual_control or choice.people == "all":
        return False
    return any(role in roles.sufficient(wanted) for role in kept.roles for wanted in choice.roles)


def _discount_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    discount = pricing.deepest_discount_percent  # a line's own discount counts like one on the whole quote
    shown = money.format_percent(money.ceiling_hundredths(discount))
    deepest = max(pricing.every_line, key=lambda line: line.requested_percent, default=None)
    if deepest is not None and deepest.requested_percent and len(pricing.every_line) > 1:
        shown = _("{percent} on {product}", percent=shown, product=deepest.name)
    if discount > policy.discount_blocked_over:
        limit = money.format_percent(policy.discount_blocked_over)
        maximum = _("discount {percent} is over the {limit} maximum", percent=shown, limit=limit)
        yield _Hit(_anyway(policy.roles.top), maximum, blocks=True)
        return
    passed = [row for row in policy.discount_over if discount > row.limit]
    if passed:
        limit = money.format_percent(passed[-1].limit)
        yield _Hit(passed[-1], _("discount {percent} (limit {limit})", percent=shown, limit=limit))


def _total_hits(pricing: Pricing, policy: ApprovalPolicy, worth: Decimal) -> Iterator[_Hit]:
    passed = [row for row in policy.total_over if over_total(pricing, row.limit, worth)]
    if passed:
        shown = money.format_amount(pricing.net_total, pricing.currency)
        found = converted(pricing, policy.currency)
        limit = money.format_amount(passed[-1].limit, policy.currency)
        if found is None:
            yield _Hit(passed[-1], _("total {total} (limit {limit})", total=shown, limit=limit))
        else:
            converted_too = _("total {total}, {converted}, limit {limit}", total=shown, converted=found.words, limit=limit)
            yield _Hit(passed[-1], converted_too)


def _term_hits(terms: frozenset[str], policy: ApprovalPolicy) -> Iterator[_Hit]:
    """Yield one hit for each term that legal or another group has to check: those listed in the policy, and those unknown to it."""
    for term in sorted(terms - policy.other_terms):
        role = policy.role_for(term)
        if term in policy.known_terms:
            said = _("{term} needs {role}", term=policy.term_words(term), role=policy.roles.words(role))
        else:
            said = _("the term {term} is unknown to the policy and needs {role}", term=term, role=policy.roles.words(role))
        yield _Hit(_anyway(role), said)


def _margin_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    for family, (net, cost) in family_totals(pricing).items():
        floor = policy.floor(family)
        if floor is None:
            yield _Hit(
                _anyway(policy.roles.top), _("{family} has no margin floor in policy {policy}", family=family, policy=policy.label)
            )
            continue
        if _is_under(floor, net, cost):
            given_away = N_("{family} is given away, so its margin is under the floor")
            under = given_away if net == 0 else N_("{family} margin is under the floor")
            yield _Hit(floor, _(under, family=family), by_margin=True)


def _price_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    for line in _under_price_floor(pricing):
        if policy.under_price_floor == BLOCKED:
            words = _("{product} is priced under its floor, which nobody can approve", product=line.name)
            yield _Hit(_anyway(policy.roles.top), words, blocks=True, by_margin=True)
        else:
            words = _("{product} is priced under its floor", product=line.name)
            yield _Hit(_anyway(policy.under_price_floor), words, by_margin=True)


def _under_price_floor(pricing: Pricing) -> Iterator[PricedLine]:
    """Yield the lines with a net before the header discount under their floor, by an agreed price or a discount of their own."""
    for line in pricing.every_line:
        if line.floor_price is not None and (line.agreed_price is not None or line.line_discount_amount):
            least = money.round_money(money.product(line.floor_price, line.quantity, line.months), pricing.currency)
            if line.before_header < least:
                yield line


def _month_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    passed = [row for row in policy.months_over if pricing.term_months > row.limit]
    if passed:
        limit = localized(money.trimmed(passed[-1].limit))
        words = ngettext("term {n} month (limit {limit})", "term {n} months (limit {limit})", pricing.term_months, limit=limit)
        yield _Hit(passed[-1], words)


def _payment_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    days = None if pricing.request is None else payment_days(pricing.request.commercial, pricing.terms)
    passed = [] if days is None else [row for row in policy.payment_over if days > row.limit]
    if days is not None and passed:
        limit = localized(money.trimmed(passed[-1].limit))
        yield _Hit(passed[-1], _("payment {payment} (limit {limit} days)", payment=payment_words(days), limit=limit))


def _quantity_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    for sku, rule in policy.quantity_over.items():
        quantity = sum(line.quantity for line in pricing.lines if line.sku == sku)
        if quantity > rule.limit:
            limit = localized(money.trimmed(rule.limit))
            counted = _("{quantity} {sku} (limit {limit})", quantity=grouped(quantity), sku=sku, limit=limit)
            yield _Hit(rule, counted if rule.limit else _("{sku} always needs approval", sku=sku))


def _segment_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    segment = None if pricing.request is None else pricing.request.segment
    if segment is None or pricing.segment_is_open:
        return
    role = policy.segment_roles.get(segment, policy.roles.reporting)
    if role == BLOCKED:
        closed = N_("prices of the segment {segment} are not open to this customer, which nobody can approve")
        yield _Hit(
            _anyway(policy.roles.top),
            _(closed, segment=segment),
            blocks=True,
        )
    elif role != NOBODY:
        words = _("prices of the segment {segment} need {role}", segment=segment, role=policy.roles.words(role))
        yield _Hit(_anyway(role), words)


def margin_figures(pricing: Pricing, policy: ApprovalPolicy) -> tuple[str, ...]:
    """Return each margin of a family and each price under its floor, with the figures. For approvers only."""
    found: list[str] = []
    for family, (net, cost) in family_totals(pricing).items():
        floor = policy.floor(family)
        if floor is not None and net != 0 and _is_under(floor, net, cost):
            scaled = money.multiply(money.EXACT.subtract(net, cost), money.HUNDRED)
            margin = money.format_percent(money.floor_hundredths(money.EXACT.divide(scaled, net)))
            limit = money.format_percent(floor.limit)
            found.append(_("{family} margin {margin} is under {limit}", family=family, margin=margin, limit=limit))
    for line in _under_price_floor(pricing):
        least = money.format_unit_price(line.floor_price or Decimal(0), pricing.currency)
        found.append(_("{product} is priced under its floor of {price}", product=line.name, price=least))
    return tuple(found)


def margin_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[tuple[str, str], ...]:
    """Return the margins below their floors, with figures. For approvers only."""
    found = margin_figures(pricing, policy)
    return ((_("For approvers only"), "; ".join(found)),) if found else ()


def margin_effect(pricing: Pricing) -> str | None:
    """Return "60% (65% without discount)", the margins of a quote; None for one of no value. For approvers only."""
    margin, without = pricing.margin_percent, pricing.list_margin_percent
    if margin is None:
        return None
    shown = money.format_percent(margin)
    if without is None or without == margin:
        return shown
    return _("{margin} ({other} without discount)", margin=shown, other=money.format_percent(without))


def margin_words(pricing: Pricing) -> tuple[str, ...]:
    """Return `margin_effect` with its name; nothing for a quote of no value. For approvers only."""
    effect = margin_effect(pricing)
    return () if effect is None else (_("margin {figures}", figures=effect),)


def approver_rows(pricing: Pricing, policy: ApprovalPolicy) -> tuple[tuple[str, str], ...]:
    """Return the row of an approver's private card: the margin effect, and the margins below their floors."""
    found = (*margin_words(pricing), *margin_figures(pricing, policy))
    return ((_("For approvers only"), "; ".join(found)),) if found else ()


def without_margin_figures(text: str) -> str:
    """Return a text of an earlier build with the figures of a margin and its floor removed."""
    return _WRITTEN_MARGIN.sub(_UNDER_THE_FLOOR, text)


def _is_under(floor: Threshold, net: Decimal, cost: Decimal) -> bool:
    # (net - cost) / net < floor %, without the division: exact, and defined when net is 0.
    return money.multiply(money.EXACT.subtract(net, cost), money.HUNDRED) < money.multiply(floor.limit, net)


def family_totals(pricing: Pricing) -> dict[str, tuple[Decimal, Decimal]]:
    """Return (net, cost) of each product family, in the order of the lines."""
    found: dict[str, tuple[Decimal, Decimal]] = {}
    for family in dict.fromkeys(line.family for line in pricing.lines):
        lines = [line for line in pricing.lines if line.family == family]
        net = money.total(tuple(line.net_amount for line in lines), pricing.currency)
        found[family] = (net, money.total(tuple(line.cost_amount for line in lines), pricing.currency))
    return found
