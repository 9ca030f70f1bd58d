"""Approval policy of a priced quote: thresholds as data, one pure evaluation, and the parser of the policy file.

A blocked quote never looks like one that needs no approval: every blocking rule also requires the top of the ladder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from quotebot.domain import money
from quotebot.domain.catalogue.reader import DocumentError, read_toml
from quotebot.domain.pricing.conversion import Converted, converted, factor
from quotebot.domain.pricing.price_requests import TERM_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.pricing.engine import Pricing

LADDER = ("sales_manager", "deal_desk", "vp_sales", "cfo")  # commercial roles, lowest first
ORTHOGONAL = ("legal",)  # off the ladder: independent of the commercial roles
HUNDRED = Decimal(100)
HOUR_MS = 3_600_000
UNDER_THE_FLOOR = "margin is under the floor"
_WRITTEN_MARGIN = re.compile(r"margin (?:-?[0-9][0-9.,]* % )?is under [0-9][0-9.,]* %")


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
    """Deadlines of a slot, in milliseconds from the time it opened."""

    remind_ms: int = 2 * HOUR_MS
    escalate_ms: int = 4 * HOUR_MS
    expire_ms: int = 72 * HOUR_MS


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Thresholds of one policy version. Discounts and margins in per cent, totals in `currency`."""

    name: str
    version: str
    currency: str
    discount_blocked_over: Decimal
    discount_over: tuple[Threshold, ...]  # ascending
    total_over: tuple[Threshold, ...]  # ascending
    margin_under: Mapping[str, Threshold]  # by product family
    legal_terms: frozenset[str] = frozenset()  # each of these terms also needs legal
    other_terms: frozenset[str] = frozenset()  # known terms that need no approval
    full_ladder: bool = False  # every rung up to the highest required one, each by a different person
    order: Literal["parallel", "sequential"] = "parallel"
    timing: Timing = field(default_factory=Timing)


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
    by_margin: bool = False  # a margin is under its floor

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


_TOP = Threshold(Decimal(0), LADDER[-1])
_LEGAL = Threshold(Decimal(0), "legal")


def evaluate(pricing: Pricing, policy: ApprovalPolicy, terms: frozenset[str] = frozenset()) -> PolicyDecision:
    """Apply every rule to a pricing and the contract's special terms: those of its request, and `terms`.

    The highest commercial role is required (with `full_ladder`, every rung up to it), plus every orthogonal role hit. Totals are
    compared in the policy's currency, at the rate stored in the price; without a rate the quote is blocked.
    """
    worth = factor(pricing, policy.currency)
    if worth is None:
        no_rate = (
            f"the quote is in {pricing.currency}, the policy in {policy.currency}, and the price holds no rate between them: no "
            "rule compares them. Prices and policy have to stand in one currency, with a dated rate to the quote's"
        )
        return _decision([_Hit(_TOP, no_rate, blocks=True)], policy)
    return replace(
        _decision(
            [
                *_discount_hits(pricing, policy),
                *_total_hits(pricing, policy, worth),
                *_margin_hits(pricing, policy),
                *_term_hits(terms | frozenset(pricing.terms), policy),
            ],
            policy,
        ),
        converted=converted(pricing, policy.currency),
    )


def over_total(pricing: Pricing, limit: Decimal, worth: Decimal) -> bool:
    """Return whether the net total exceeds a limit in the policy's currency, 1 unit of which is `worth` of the quote's. Exact."""
    return pricing.net_total > money.multiply(limit, worth)


def sufficient_roles(required: str) -> tuple[str, ...]:
    """Return the roles with the authority of `required`, lowest first; only an orthogonal role itself satisfies it."""
    if required in LADDER:
        return LADDER[LADDER.index(required) :]
    return (required,) if required in ORTHOGONAL else ()


def _decision(hits: list[_Hit], policy: ApprovalPolicy) -> PolicyDecision:
    needs = [*_commercial(hits, full_ladder=policy.full_ladder), *_orthogonal(hits)]
    chosen = [hit.rule for hit in hits if _offers_a_choice(hit.rule)]
    choices = dict.fromkeys(Need((rule.role, *rule.more), rule.people, rule.dual_control) for rule in chosen)
    needs += [need for need in choices if not any(_covers(kept, need) for kept in needs)]
    if policy.order == "sequential":
        needs = [replace(need, stage=stage) for stage, need in enumerate(needs, start=1)]
    return PolicyDecision(
        required_roles=tuple(need.role for need in needs),
        hits=tuple(hit.words for hit in hits),
        blocked=any(hit.blocks for hit in hits),
        needs=tuple(needs),
        by_margin=any(hit.by_margin for hit in hits),
    )


def _commercial(hits: list[_Hit], *, full_ladder: bool) -> Iterator[Need]:
    """Yield the highest rung and the lower ones that a multi-role rule names. Dual control of a lower rung moves to the highest."""
    rules = [hit.rule for hit in hits if not _offers_a_choice(hit.rule)]
    asked = {role for rule in rules for role in (rule.role, *rule.more) if role in LADDER}
    if not asked:
        return
    top = max(asked, key=LADDER.index)
    together = {role for rule in rules if rule.more for role in (rule.role, *rule.more)}
    dual = any(rule.dual_control and {rule.role, *rule.more} & set(LADDER) for rule in rules)
    for role in LADDER[: LADDER.index(top) + 1]:
        if full_ladder or role == top or role in together:
            yield Need((role,), _people(rules, role), dual_control=dual and role == top)


def _orthogonal(hits: list[_Hit]) -> Iterator[Need]:
    rules = [hit.rule for hit in hits if not _offers_a_choice(hit.rule)]
    for role in ORTHOGONAL:
        naming = [rule for rule in rules if role in (rule.role, *rule.more)]
        if naming:
            dual = any(rule.dual_control and not {rule.role, *rule.more} & set(LADDER) for rule in naming)
            yield Need((role,), _people(naming, role), dual_control=dual)


def _offers_a_choice(rule: Threshold) -> bool:
    return bool(rule.more) and rule.roles_needed == "any"


def _people(rules: list[Threshold], role: str) -> Literal["any", "all"]:
    return "all" if any(rule.people == "all" for rule in rules if role in (rule.role, *rule.more)) else "any"


def _covers(kept: Need, choice: Need) -> bool:
    """Return whether an approver of `kept` may also decide `choice`, which makes `choice` redundant."""
    if choice.dual_control or choice.people == "all":
        return False
    return any(role in sufficient_roles(wanted) for role in kept.roles for wanted in choice.roles)


def _discount_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    discount = pricing.deepest_discount_percent  # a line's own discount counts like one on the whole quote
    shown = money.format_percent(discount)
    if discount > policy.discount_blocked_over:
        limit = money.format_percent(policy.discount_blocked_over)
        yield _Hit(_TOP, f"discount {shown} is over {limit}, which nobody can approve", blocks=True)
        return
    passed = [row for row in policy.discount_over if discount > row.limit]
    if passed:
        yield _Hit(passed[-1], f"discount {shown} is over {money.format_percent(passed[-1].limit)}")


def _total_hits(pricing: Pricing, policy: ApprovalPolicy, worth: Decimal) -> Iterator[_Hit]:
    passed = [row for row in policy.total_over if over_total(pricing, row.limit, worth)]
    if passed:
        shown = money.format_amount(pricing.net_total, pricing.currency)
        found = converted(pricing, policy.currency)
        shown = shown if found is None else f"{shown}, {found.words},"
        yield _Hit(passed[-1], f"total {shown} is over {money.format_amount(passed[-1].limit, policy.currency)}")


def _term_hits(terms: frozenset[str], policy: ApprovalPolicy) -> Iterator[_Hit]:
    """Yield one hit for each term that legal has to check: those listed in the policy, and those unknown to it."""
    for term in sorted(terms - policy.other_terms):
        known = term in policy.legal_terms
        yield _Hit(_LEGAL, f"the term {term} needs legal" if known else f"the term {term} is unknown to the policy and needs legal")


def _margin_hits(pricing: Pricing, policy: ApprovalPolicy) -> Iterator[_Hit]:
    for family, (net, cost) in family_totals(pricing).items():
        floor = policy.margin_under.get(family)
        if floor is None:
            yield _Hit(_TOP, f"{family} has no margin floor in policy {policy.name} {policy.version}")
            continue
        if _is_under(floor, net, cost):
            given_away = f"{family} is given away, so its" if net == 0 else family
            yield _Hit(floor, f"{given_away} {UNDER_THE_FLOOR}", by_margin=True)


def margin_figures(pricing: Pricing, policy: ApprovalPolicy) -> tuple[str, ...]:
    """Return each family's margin under its floor, with both figures. For approvers only: the figures reveal unit costs."""
    found: list[str] = []
    for family, (net, cost) in family_totals(pricing).items():
        floor = policy.margin_under.get(family)
        if floor is not None and net != 0 and _is_under(floor, net, cost):
            scaled = money.multiply(money.EXACT.subtract(net, cost), HUNDRED)
            margin = money.format_percent(money.floor_hundredths(money.EXACT.divide(scaled, net)))
            found.append(f"{family} margin {margin} is under {money.format_percent(floor.limit)}")
    return tuple(found)


def without_margin_figures(text: str) -> str:
    """Return a text of an earlier build with the figures of a margin and its floor removed."""
    return _WRITTEN_MARGIN.sub(UNDER_THE_FLOOR, text)


def _is_under(floor: Threshold, net: Decimal, cost: Decimal) -> bool:
    # (net - cost) / net < floor %, without the division: exact, and defined when net is 0.
    return money.multiply(money.EXACT.subtract(net, cost), HUNDRED) < money.multiply(floor.limit, net)


def family_totals(pricing: Pricing) -> dict[str, tuple[Decimal, Decimal]]:
    """Return (net, cost) of each product family, in the order of the lines."""
    found: dict[str, tuple[Decimal, Decimal]] = {}
    for family in dict.fromkeys(line.family for line in pricing.lines):
        lines = [line for line in pricing.lines if line.family == family]
        net = money.total(tuple(line.net_amount for line in lines), pricing.currency)
        found[family] = (net, money.total(tuple(line.cost_amount for line in lines), pricing.currency))
    return found


ROLES = (*LADDER, *ORTHOGONAL)
HOURS_MAX = 24 * 365


class PolicyError(ValueError):
    """The policy text is invalid; the message names the place and the remedy."""


def parse_policy(toml_text: str) -> ApprovalPolicy:
    """Build a policy from TOML. Raises PolicyError naming the first invalid place."""
    try:
        data = read_toml(toml_text)
    except DocumentError as error:
        raise PolicyError(f"the policy is not valid TOML: {error}") from error
    currency = _text(data, "currency")
    try:
        money.exponent(currency)
    except ValueError as error:
        raise PolicyError(f"currency: {error}") from error
    discount, totals, margins = (_table(data, key) for key in ("discount", "total", "margin"))
    rungs = _ascending(discount, "discount", "percent")
    blocked_over = _number(discount.get("blocked_over"), "discount.blocked_over")
    if rungs and blocked_over < rungs[-1].limit:
        raise PolicyError("discount.blocked_over: must not be below the last discount.over, or that row could never apply")
    legal, other = _terms(data.get("terms", {}))
    return ApprovalPolicy(
        name=_text(data, "name"),
        version=_text(data, "version"),
        currency=currency,
        discount_blocked_over=blocked_over,
        discount_over=rungs,
        total_over=_ascending(totals, "total", "amount"),
        margin_under={family: _floor(row, f"margin.{family}") for family, row in margins.items()},
        legal_terms=legal,
        other_terms=other,
        **_routing(data.get("routing", {})),
    )


def _floor(row: Any, place: str) -> Threshold:
    floor = _threshold(row, place, "under")
    if floor.limit > HUNDRED:
        raise PolicyError(f"{place}.under: no margin is over 100 %, so nothing could ever meet this floor")
    return floor


def _terms(table: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Read the optional [terms] table: the terms that also need legal, and the other permitted terms."""
    if not isinstance(table, dict) or not set(table) <= {"legal", "other"}:
        raise PolicyError("terms: may only have legal and other")
    legal, other = (_names(table.get(key, []), f"terms.{key}") for key in ("legal", "other"))
    if both := legal & other:
        raise PolicyError(f"terms.other: {min(both)} needs legal already; keep it in one list")
    return legal, other


def _names(names: Any, place: str) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and TERM_NAME.fullmatch(name) for name in names):
        raise PolicyError(f"{place}: must be a list of the names of terms, such as liability_cap")
    return frozenset(names)


def _routing(table: Any) -> dict[str, Any]:
    """Read the optional [routing] table: full_ladder, order, remind_hours, escalate_hours, expire_hours."""
    known = {"full_ladder", "order", "remind_hours", "escalate_hours", "expire_hours"}
    if not isinstance(table, dict) or not set(table) <= known:
        raise PolicyError(f"routing: may only have {', '.join(sorted(known))}")
    full_ladder, order = table.get("full_ladder", False), table.get("order", "parallel")
    if not isinstance(full_ladder, bool):
        raise PolicyError(f"routing.full_ladder: {full_ladder!r} must be true or false")
    if order not in ("parallel", "sequential"):
        raise PolicyError(f"routing.order: {order!r} must be parallel or sequential")
    hours = {name: _hours(table, name, default // HOUR_MS) for name, default in _TIMES.items()}
    if not hours["remind_hours"] < hours["escalate_hours"] < hours["expire_hours"]:
        raise PolicyError("routing: remind_hours must be less than escalate_hours, and that less than expire_hours")
    return {"full_ladder": full_ladder, "order": order, "timing": Timing(*(hours[name] * HOUR_MS for name in _TIMES))}


_TIMES = {"remind_hours": Timing().remind_ms, "escalate_hours": Timing().escalate_ms, "expire_hours": Timing().expire_ms}


def _hours(table: dict[str, Any], name: str, default: int) -> int:
    value = table.get(name, default)
    if type(value) is not int or not 1 <= value <= HOURS_MAX:
        raise PolicyError(f"routing.{name}: {value!r} must be a whole number of hours from 1 to {HOURS_MAX:,}")
    return value


def _ascending(table: dict[str, Any], place: str, key: str) -> tuple[Threshold, ...]:
    rows = table.get("over")
    if not isinstance(rows, list):
        raise PolicyError(f"{place}.over: must be a list of {{ {key}, role }}")
    found = tuple(_threshold(row, f"{place}.over[{number}]", key) for number, row in enumerate(rows, start=1))
    for number, (low, high) in enumerate(pairwise(found), start=2):
        if not low.limit < high.limit:
            raise PolicyError(f"{place}.over[{number}].{key}: must be larger than the row before it")
        if low.role in LADDER and high.role in LADDER and LADDER.index(low.role) > LADDER.index(high.role):
            raise PolicyError(f"{place}.over[{number}].role: a larger {key} must not need a lower role")
    return found


def _threshold(row: Any, place: str, key: str) -> Threshold:
    """Read { <key>, role } or { <key>, roles, roles_needed }; both may have people and dual_control."""
    if not isinstance(row, dict) or key not in row or not set(row) <= {key, *_ROUTES} or ("role" in row) == ("roles" in row):
        raise PolicyError(f"{place}: must be {{ {key}, role }}; roles, roles_needed, people and dual_control are possible too")
    roles = row.get("roles", [row.get("role")])
    if not isinstance(roles, list) or not roles or len(set(map(str, roles))) != len(roles):
        raise PolicyError(f"{place}.roles: must be a list of different roles")
    for role in roles:
        if role not in ROLES:
            raise PolicyError(f"{place}.role: {role!r} must be one of {', '.join(ROLES)}")
    dual_control = row.get("dual_control", False)
    if not isinstance(dual_control, bool):
        raise PolicyError(f"{place}.dual_control: {dual_control!r} must be true or false")
    return Threshold(
        limit=_number(row[key], f"{place}.{key}"),
        role=roles[0],
        more=tuple(roles[1:]),
        roles_needed=_any_or_all(row, "roles_needed", "all", place),
        people=_any_or_all(row, "people", "any", place),
        dual_control=dual_control,
    )


_ROUTES = frozenset({"role", "roles", "roles_needed", "people", "dual_control"})


def _any_or_all(row: dict[str, Any], key: str, default: Literal["any", "all"], place: str) -> Literal["any", "all"]:
    value = row.get(key, default)
    if value not in ("any", "all"):
        raise PolicyError(f'{place}.{key}: {value!r} must be "any" or "all"')
    return "any" if value == "any" else "all"


def _number(value: Any, place: str) -> Decimal:
    try:
        number = money.exact(value)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{place}: {value!r} must be a number") from error
    if number < 0:
        raise PolicyError(f"{place}: {value!r} must not be negative")
    return number


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    table = data.get(key)
    if not isinstance(table, dict):
        raise PolicyError(f"{key}: a [{key}] table is needed")
    return table


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(f"{key}: {value!r} must be a non-empty text")
    return value
