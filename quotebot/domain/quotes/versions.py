"""Differences between two prices, as values and in words, and simulation of a request. Pure.

All amounts are customer prices, never cost or margin.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.approvals.policy import ApprovalPolicy, PolicyDecision, evaluate
from quotebot.domain.approvals.special_terms import term_words, unknown_terms
from quotebot.domain.language import N_, _, grouped
from quotebot.domain.pricing.commercial_terms import term_differences
from quotebot.domain.pricing.engine import (
    NO_SEGMENTS,
    PricedLine,
    PriceRequest,
    Pricing,
    PricingProblem,
    for_account,
    price,
    request_of,
)
from quotebot.domain.pricing.price_requests import as_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from quotebot.domain.catalogue.rulesets import Ruleset


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between two prices. Pairs are (before, after), None if unchanged; amounts as in Pricing."""

    added: tuple[PricedLine, ...]
    removed: tuple[PricedLine, ...]
    changed: tuple[tuple[PricedLine, PricedLine], ...]
    term_months: tuple[int, int] | None
    discount_percent: tuple[Decimal, Decimal] | None
    currency: tuple[str, str] | None
    list_total: tuple[Decimal, Decimal] | None
    discount_total: tuple[Decimal, Decimal] | None
    net_total: tuple[Decimal, Decimal] | None
    tax_total: tuple[Decimal, Decimal] | None = None
    terms: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    asked: tuple[tuple[str, str, str], ...] = ()  # other inputs: name, before, after

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated price of a request and the approvals it would need; not recorded."""

    pricing: Pricing
    decision: PolicyDecision


def simulate(
    request: PriceRequest,
    ruleset: Ruleset,
    policy: ApprovalPolicy,
    at_ms: int,
    account: str | None = None,
    segments: Mapping[str, str] = NO_SEGMENTS,
) -> Simulation | tuple[PricingProblem, ...]:
    """Price a request as of `at_ms` (Unix ms) and evaluate the policy, or return the problems that prevent a price.

    `account` is the customer, if known, and `segments` are those of its account in the CRM (see `for_account`).
    """
    request = request if account is None else for_account(request, account, segments)
    unknown, priced = unknown_terms(request.terms, policy.known_terms), price(as_of(request, at_ms), ruleset)
    if not isinstance(priced, Pricing):
        return (*unknown, *priced)
    return unknown or Simulation(priced, evaluate(priced, policy))


def difference(before: Pricing, after: Pricing) -> Difference:
    """Compare two prices line by line: a product of a bundle is another line than the product alone.

    The order of lines and the ruleset's name alone do not count as differences.
    """
    old, new = ({(line.bundle, line.sku): line for line in pricing.lines} for pricing in (before, after))
    return Difference(
        added=tuple(line for key, line in new.items() if key not in old),
        removed=tuple(line for key, line in old.items() if key not in new),
        changed=tuple((line, new[key]) for key, line in old.items() if key in new and not _same_line(line, new[key])),
        term_months=None if before.term_months == after.term_months else (before.term_months, after.term_months),
        discount_percent=_differing(before.discount_percent, after.discount_percent),
        currency=None if before.currency == after.currency else (before.currency, after.currency),
        list_total=_differing(before.list_total, after.list_total),
        discount_total=_differing(before.discount_total, after.discount_total),
        net_total=_differing(before.net_total, after.net_total),
        tax_total=_differing(before.tax_total, after.tax_total),
        terms=None if before.terms == after.terms else (before.terms, after.terms),
        asked=(
            *((_(name), old, new) for name, old, new in zip(_ASKED, _asked(before), _asked(after), strict=True) if old != new),
            *term_differences(request_of(before).commercial, request_of(after).commercial),
        ),
    )


_ASKED = (N_("region"), N_("segment"), N_("billing"), N_("tax"), N_("optional"))


def _asked(pricing: Pricing) -> tuple[str, ...]:
    request = request_of(pricing)
    tax, none = _("on") if request.with_tax else _("off"), _("none")
    options = ", ".join(
        _("{units} at {amount}", units=_counted(line), amount=money.format_amount(line.net_amount, pricing.currency))
        for line in pricing.options
    )
    segment = request.segment or none
    if pricing.segment_is_open:
        segment = _("{segment} (open to the customer)", segment=segment)
    return (request.region or none, segment, _(request.billing_frequency), tax, options or none)


def difference_words(before: Pricing, after: Pricing, name: Callable[[str], str] = term_words) -> tuple[str, ...]:
    """Return one phrase per difference, old -> new, the total first and the list price last; empty if there is none.

    Plain text: product names are not escaped. `name` returns a special term as people read it.
    """
    found = difference(before, after)
    old, new = before.currency, after.currency
    said: list[str] = []
    if found.net_total is not None or found.currency is not None:
        change = after.net_total - before.net_total
        sign = "+" if change > 0 else "\u2212"
        more = "" if old != new or not change else f" ({sign}{money.format_amount(abs(change), new)})"
        said.append(_("Total {change}", change=f"{_from_to(before.net_total, after.net_total, old, new)}{more}"))
    said += [
        _("Added {units}: {amount}", units=_counted(line), amount=money.format_amount(line.net_amount, new)) for line in found.added
    ]
    said += [
        _("Removed {units}: {amount}", units=_counted(line), amount=money.format_amount(line.net_amount, old))
        for line in found.removed
    ]
    said += [_line_words(line, now, old, new) for line, now in found.changed]
    if found.term_months is not None:
        said.append(_("Term {before} \u2192 {after} months", before=found.term_months[0], after=found.term_months[1]))
    if found.discount_percent is not None:
        asked = " \u2192 ".join(money.format_percent(percent) for percent in found.discount_percent)
        said.append(_("Discount {change}", change=asked))
    if found.tax_total is not None:
        said.append(_("Tax {change}", change=_from_to(before.tax_total, after.tax_total, old, new)))
    if found.terms is not None:
        was, is_now = (", ".join(map(name, terms)) or _("none") for terms in found.terms)
        said.append(_("Special terms {change}", change=f"{was} \u2192 {is_now}"))
    said += [f"{name[:1].upper()}{name[1:]} {was} \u2192 {is_now}" for name, was, is_now in found.asked]
    if said and before.ruleset != after.ruleset:
        said.append(_("Catalog {change}", change=f"{before.ruleset} \u2192 {after.ruleset}"))
    if found.list_total is not None or found.currency is not None:
        said.append(_("List price {change}", change=_from_to(before.list_total, after.list_total, old, new)))
    return tuple(said)


def _counted(line: PricedLine) -> str:
    return f"{grouped(line.quantity)} \u00d7 {line.full_name}"


def _from_to(before: Decimal, after: Decimal, old: str, new: str) -> str:
    return f"{money.format_amount(before, old)} \u2192 {money.format_amount(after, new)}"


_COMPARED = (
    *("quantity", "months", "unit_price", "list_amount", "net_amount", "attributes", "requested_percent"),
    *("agreed_price", "price_reason"),
)


def _line_words(before: PricedLine, after: PricedLine, old: str, new: str) -> str:
    parts = []
    if before.quantity != after.quantity:
        parts.append(f"{grouped(before.quantity)} \u2192 {grouped(after.quantity)}")
    if before.attributes != after.attributes:
        parts.append(" \u2192 ".join(_choices(line) for line in (before, after)))
    if before.agreed_price != after.agreed_price or before.price_reason != after.price_reason:
        parts.append(" \u2192 ".join(_agreed(line, currency) for line, currency in ((before, old), (after, new))))
    elif before.requested_percent != after.requested_percent:
        was, is_now = (money.format_percent(line.requested_percent) for line in (before, after))
        parts.append(_("own discount {change}", change=f"{was} \u2192 {is_now}"))
    if before.unit_price != after.unit_price or old != new:
        was, is_now = money.format_unit_price(before.unit_price, old), money.format_unit_price(after.unit_price, new)
        parts.append(_("unit price {change}", change=f"{was} \u2192 {is_now}"))
    was, is_now = money.format_amount(before.net_amount, old), money.format_amount(after.net_amount, new)
    parts.append(f"{was} \u2192 {is_now}")
    return f"{after.full_name}: {', '.join(parts)}"


def _agreed(line: PricedLine, currency: str) -> str:
    if line.agreed_price is None:
        if not line.requested_percent:
            return _("list price")
        return _("list price less {percent}", percent=money.format_percent(line.requested_percent))
    price = money.format_unit_price(line.agreed_price, currency)
    return _("agreed price {price} ({reason})", price=price, reason=line.price_reason)


def _choices(line: PricedLine) -> str:
    return ", ".join(f"{name} {choice}" for name, choice in line.attributes) or _("no choices")


def _same_line(before: PricedLine, after: PricedLine) -> bool:
    """Return whether two lines are equal for the customer; the seller's cost is ignored."""
    return all(getattr(before, name) == getattr(after, name) for name in _COMPARED)


def _differing(before: Decimal, after: Decimal) -> tuple[Decimal, Decimal] | None:
    return None if before == after else (before, after)
