"""Edits of a price request. Pure: takes a request and its changes and returns the edited request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from quotebot.domain.pricing.price_requests import LineRequest, PriceRequest, PricingProblem, clipped

if TYPE_CHECKING:
    from collections.abc import Mapping


CHANGES_MAX = 400  # as many as a quote has lines


@dataclass(frozen=True, slots=True)
class LineChange:
    """One edit of one product's line: `set` its quantity (adding a line if needed), `add` to it, or `remove` the line."""

    deed: Literal["set", "add", "remove"]
    sku: str  # of the catalogue, lower case
    quantity: int = 0  # >= 1 for set and add; 0 for remove


@dataclass(frozen=True, slots=True)
class Changes:
    """Edits of a request; None leaves a value unchanged."""

    lines: tuple[LineChange, ...] = ()
    term_months: int | None = None
    discount_percent: Decimal | None = None
    currency: str | None = None
    region: str | None = None
    with_tax: bool | None = None
    terms: tuple[str, ...] | None = None  # replaces all terms; () removes them


def canonical_changes(changes: Changes) -> dict[str, object]:
    """Return the JSON-ready form."""
    discount = changes.discount_percent
    return {
        "lines": [{"deed": line.deed, "sku": line.sku, "quantity": line.quantity} for line in changes.lines],
        "term_months": changes.term_months,
        "requested_discount_percent": None if discount is None else format(discount.normalize(), "f"),
        "currency": changes.currency,
        "region": changes.region,
        "with_tax": changes.with_tax,
        "terms": None if changes.terms is None else list(changes.terms),
    }


def parse_changes(stored: Mapping[str, Any]) -> Changes:
    """Rebuild the edits of `canonical_changes`."""
    term, discount, terms = stored["term_months"], stored["requested_discount_percent"], stored["terms"]
    return Changes(
        lines=tuple(LineChange(line["deed"], line["sku"], int(line["quantity"])) for line in stored["lines"]),
        term_months=None if term is None else int(str(term)),
        discount_percent=None if discount is None else Decimal(str(discount)),
        currency=stored["currency"],
        region=stored["region"],
        with_tax=stored["with_tax"],
        terms=None if terms is None else tuple(str(term) for term in terms),
    )


def changed(request: PriceRequest, changes: Changes) -> PriceRequest | tuple[PricingProblem, ...]:
    """Return the request after the edits, applied in order, or a problem for every edit that cannot be applied.

    A changed line keeps its position; a new one is appended. The engine checks whether the result has a price.
    """
    if len(changes.lines) > CHANGES_MAX:
        return (
            PricingProblem(
                "line_count",
                f"a revision has at most {CHANGES_MAX} changes, not {len(changes.lines)}",
                "make them in several steps",
            ),
        )
    lines = {line.sku: line for line in request.lines}
    problems: list[PricingProblem] = []
    for change in changes.lines:
        before = lines.get(change.sku)
        if change.deed == "remove":
            if before is None:
                there = clipped(", ".join(lines) or "none", 200)
                problems.append(
                    PricingProblem("no_such_line", f"there is no line {clipped(change.sku)} to remove", f"its lines are {there}")
                )
            else:
                del lines[change.sku]
        elif change.quantity < 1:
            problems.append(
                PricingProblem(
                    "quantity",
                    f"the quantity of {clipped(change.sku)} is 1 or more, not {clipped(str(change.quantity))}",
                    f"e.g. 10 {clipped(change.sku)}, or remove {clipped(change.sku)}",
                )
            )
        elif before is None:
            lines[change.sku] = LineRequest(change.sku, change.quantity)
        else:
            already = before.quantity if change.deed == "add" else 0
            lines[change.sku] = replace(before, quantity=already + change.quantity)
    if problems:
        return tuple(problems)
    return replace(
        request,
        lines=tuple(lines.values()),
        term_months=request.term_months if changes.term_months is None else changes.term_months,
        discount_percent=request.discount_percent if changes.discount_percent is None else changes.discount_percent,
        currency=request.currency if changes.currency is None else changes.currency,
        region=request.region if changes.region is None else changes.region,
        with_tax=request.with_tax if changes.with_tax is None else changes.with_tax,
        terms=request.terms if changes.terms is None else changes.terms,
    )
