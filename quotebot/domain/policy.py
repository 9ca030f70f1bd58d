"""Who must approve a priced quote: thresholds as data, one pure evaluation.

A blocked quote never looks like one that needs nobody: whatever blocks also asks for the top of the ladder.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from quotebot.domain import money

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.pricing import Pricing

LADDER = ("sales_manager", "deal_desk", "vp_sales", "cfo")  # commercial roles, lowest first
ORTHOGONAL = ("legal",)  # beside the ladder: neither replaces nor is replaced by a commercial role
HUNDRED = Decimal(100)


class PolicyError(ValueError):
    """The policy text cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Past `limit`, `role` must approve."""

    limit: Decimal
    role: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds of one policy version. Discounts and margins in per cent, totals in `currency`."""

    name: str
    version: str
    currency: str
    discount_blocked_over: Decimal
    discount_over: tuple[Threshold, ...]  # ascending
    total_over: tuple[Threshold, ...]  # ascending
    margin_under: Mapping[str, Threshold]  # by product family


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What the policy says: the highest commercial role asked for plus orthogonal ones, every hit in words, blocked or not."""

    required_roles: tuple[str, ...]
    hits: tuple[str, ...]
    blocked: bool

    @property
    def automatic(self) -> bool:
        """True when nobody has to approve."""
        return not self.blocked and not self.required_roles


@dataclass(frozen=True, slots=True)
class _Hit:
    role: str
    words: str
    blocks: bool = False


def evaluate(pricing: Pricing, policy: Policy) -> PolicyDecision:
    """Apply every rule to a pricing and keep the highest commercial role."""
    if pricing.currency != policy.currency:
        words = f"the quote is in {pricing.currency}, the policy in {policy.currency}: no rule compares them"
        return PolicyDecision((LADDER[-1],), (words,), blocked=True)
    hits = [*_discount_hits(pricing, policy), *_total_hits(pricing, policy), *_margin_hits(pricing, policy)]
    roles = {hit.role for hit in hits}
    commercial = [role for role in LADDER if role in roles]
    orthogonal = [role for role in ORTHOGONAL if role in roles]
    return PolicyDecision(
        required_roles=(*commercial[-1:], *orthogonal),
        hits=tuple(hit.words for hit in hits),
        blocked=any(hit.blocks for hit in hits),
    )


def _discount_hits(pricing: Pricing, policy: Policy) -> Iterator[_Hit]:
    shown = money.format_percent(pricing.discount_percent)
    if pricing.discount_percent > policy.discount_blocked_over:
        limit = money.format_percent(policy.discount_blocked_over)
        yield _Hit(LADDER[-1], f"discount {shown} is over {limit}, which nobody can approve", blocks=True)
        return
    passed = [row for row in policy.discount_over if pricing.discount_percent > row.limit]
    if passed:
        yield _Hit(passed[-1].role, f"discount {shown} is over {money.format_percent(passed[-1].limit)}")


def _total_hits(pricing: Pricing, policy: Policy) -> Iterator[_Hit]:
    passed = [row for row in policy.total_over if pricing.net_total > row.limit]
    if passed:
        shown = money.format_amount(pricing.net_total, pricing.currency)
        yield _Hit(passed[-1].role, f"total {shown} is over {money.format_amount(passed[-1].limit, policy.currency)}")


def _margin_hits(pricing: Pricing, policy: Policy) -> Iterator[_Hit]:
    for family in dict.fromkeys(line.family for line in pricing.lines):
        lines = [line for line in pricing.lines if line.family == family]
        net = money.total(tuple(line.net_amount for line in lines), pricing.currency)
        cost = money.total(tuple(line.cost_amount for line in lines), pricing.currency)
        floor = policy.margin_under.get(family)
        if floor is None:
            yield _Hit(LADDER[-1], f"{family} has no margin floor in policy {policy.name} {policy.version}")
            continue
        # (net - cost) / net < floor %, without the division: exact, and defined when net is 0.
        scaled = money.multiply(money.EXACT.subtract(net, cost), HUNDRED)
        if scaled < money.multiply(floor.limit, net):
            limit = money.format_percent(floor.limit)
            if net == 0:
                yield _Hit(floor.role, f"{family} is given away, so its margin is under {limit}")
                continue
            margin = money.format_percent(money.floor_hundredths(money.EXACT.divide(scaled, net)))
            yield _Hit(floor.role, f"{family} margin {margin} is under {limit}")


def parse_policy(toml_text: str) -> Policy:
    """Build a policy from TOML. Raises PolicyError naming the first bad place."""
    try:
        data = tomllib.loads(toml_text, parse_float=Decimal)
    except ValueError as error:
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
    return Policy(
        name=_text(data, "name"),
        version=_text(data, "version"),
        currency=currency,
        discount_blocked_over=blocked_over,
        discount_over=rungs,
        total_over=_ascending(totals, "total", "amount"),
        margin_under={family: _threshold(row, f"margin.{family}", "under") for family, row in margins.items()},
    )


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
    if not isinstance(row, dict) or set(row) != {key, "role"}:
        raise PolicyError(f"{place}: must be {{ {key}, role }}")
    if row["role"] not in (*LADDER, *ORTHOGONAL):
        raise PolicyError(f"{place}.role: {row['role']!r} must be one of {', '.join((*LADDER, *ORTHOGONAL))}")
    return Threshold(_number(row[key], f"{place}.{key}"), row["role"])


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
