"""Snapshots of prices: conversion to the JSON-ready form that is stored, hashed and sent, by schema, and back."""

from __future__ import annotations

import functools
import json
from dataclasses import fields
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain import money
from quotebot.domain.pricing.price_requests import canonical_request, parse_request
from quotebot.domain.pricing.priced import PER_LINE, SNAPSHOT_SCHEMA, PricedLine, Pricing, Step
from quotebot.domain.pricing.taxes import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REMEMBERED: Final = 32  # prices in use at a time; a large one takes a few hundred kilobytes
# Schema 1 has only these fields of a pricing and of a line.
_FIRST_PRICING = (
    *("ruleset", "currency", "term_months", "discount_percent"),
    *("list_total", "discount_total", "net_total", "cost_total"),
)
_FIRST_LINE = (
    *("position", "sku", "name", "family", "unit", "billing", "quantity", "months", "unit_price", "tier"),
    *("list_amount", "discount_amount", "net_amount", "cost_amount"),
)


def canonical(pricing: Pricing) -> dict[str, object]:
    """Return the JSON-ready snapshot: amounts as text in plain digits, whole numbers as numbers, the schema version as `v`.

    A pricing stored under an older schema gives exactly the stored content.
    """
    if pricing.schema == 1:
        lines = [{name: _plain(getattr(line, name)) for name in _FIRST_LINE} for line in pricing.lines]
        return {"v": 1, **{name: _plain(getattr(pricing, name)) for name in _FIRST_PRICING}, "lines": lines}
    return {"v": pricing.schema, **{name: _plain(getattr(pricing, name)) for name in _PRICING_TYPES if name != "schema"}}


def from_canonical(snapshot: Mapping[str, Any]) -> Pricing:
    """Rebuild the Pricing of `canonical`. Raises ValueError for an unknown schema or an incomplete snapshot."""
    schema = snapshot.get("v")
    if schema not in range(1, SNAPSHOT_SCHEMA + 1):
        raise ValueError(f"pricing snapshot schema {schema!r} is unknown; this build reads 1 to {SNAPSHOT_SCHEMA}")
    try:
        if schema == 1:
            return _first(snapshot)
        lines = tuple(_restored(PricedLine, line) for line in snapshot["lines"])
        values = {name: snapshot[name] for name in _PRICING_TYPES if name not in ("schema", "lines")}
        pricing: Pricing = _restored(Pricing, {**values, "lines": lines, "schema": schema})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"pricing snapshot is incomplete or malformed: {error}") from error
    return pricing


@functools.lru_cache(maxsize=REMEMBERED)
def from_stored(text: str) -> Pricing:
    """Rebuild the Pricing of a stored snapshot. Raises as `from_canonical` does.

    Results are cached: a quote is read a dozen times during its processing, and prices are immutable.
    """
    return from_canonical(json.loads(text))


def _first(snapshot: Mapping[str, Any]) -> Pricing:
    lines = tuple(
        PricedLine(
            **{name: _decoded(_LINE_TYPES[name], line[name]) for name in _FIRST_LINE},
            header_discount_amount=money.exact(line["discount_amount"]),
        )
        for line in snapshot["lines"]
    )
    values = {name: _decoded(_PRICING_TYPES[name], snapshot[name]) for name in _FIRST_PRICING}
    recurring, once = (
        tuple(line.net_amount for line in lines if (line.billing == "recurring") is wanted) for wanted in (True, False)
    )
    return Pricing(
        **values,
        lines=lines,
        authorised_percent=values["discount_percent"],
        recurring_total=money.total(recurring, values["currency"]),
        one_time_total=money.total(once, values["currency"]),
        gross_total=values["net_total"],
        header_rule=PER_LINE,
        schema=1,
    )


def _plain(value: Any) -> Any:
    """Return the JSON form of a value."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, tuple):
        return [_plain(row) for row in value]
    if isinstance(value, PricedLine | Step):
        return {name: _plain(getattr(value, name)) for name in (_LINE_TYPES if isinstance(value, PricedLine) else _STEP_NAMES)}
    if isinstance(value, Rate):
        return value.document()
    return canonical_request(value)


def _restored(row: type[Any], stored: Mapping[str, Any]) -> Any:
    types = _PRICING_TYPES if row is Pricing else _LINE_TYPES
    return row(**{name: _decoded(declared, stored[name]) for name, declared in types.items()})


def _decoded(declared: str, value: Any) -> Any:
    decode = _DECODERS.get(declared)
    return value if decode is None else decode(value)


def _rate(stored: Mapping[str, Any]) -> Rate:
    return Rate(stored["base"], stored["currency"], money.exact(stored["rate"]), date.fromisoformat(stored["on"]))


# Annotations are text in those modules, so a field's declared type is compared by name.
_PRICING_TYPES = {field.name: str(field.type) for field in fields(Pricing)}
_LINE_TYPES = {field.name: str(field.type) for field in fields(PricedLine)}
_STEP_NAMES = tuple(field.name for field in fields(Step))
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "Decimal": money.exact,
    "Decimal | None": lambda value: None if value is None else money.exact(value),
    "tuple[tuple[str, str], ...]": lambda value: tuple((str(name), str(choice)) for name, choice in value),
    "tuple[Step, ...]": lambda value: tuple(
        Step(str(row["name"]), money.exact(row["amount"]), str(row["detail"])) for row in value
    ),
    "Rate | None": lambda value: None if value is None else _rate(value),
    "PriceRequest | None": lambda value: None if value is None else parse_request(value),
}
