"""Differences between two rulesets, field by field, old -> new, for review before activation. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from quotebot.domain.catalogue.rulesets import Ruleset, canonical_ruleset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Entry = dict[str, Any]

# the lists of a document, and the fields that identify a row
KEYS = {
    "products": ("sku",),
    "price_books": ("name",),
    "constraints": ("kind", "sku", "other", "attribute", "choice", "then_attribute"),
    "taxes": ("region", "category", "valid_from", "valid_until"),
    "rates": ("base", "currency", "on"),
}
HEAD = ("name", "version", "currency", "rounding", "header_discount")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `key` names the row, `field` the changed field; `old` and `new` are display texts, None if absent."""

    kind: Literal["added", "removed", "changed"]
    table: str  # "ruleset", "products", "price_books", "prices", "constraints", "taxes", "rates"
    key: str
    field: str
    old: str | None
    new: str | None


def ruleset_changes(before: Ruleset, after: Ruleset) -> tuple[Change, ...]:
    """Return every difference in a fixed order; empty for equal rulesets."""
    old: Any = canonical_ruleset(before)
    new: Any = canonical_ruleset(after)
    found = list(_fields("ruleset", "", {name: old[name] for name in HEAD}, {name: new[name] for name in HEAD}))
    for table, names in KEYS.items():
        found += _rows(table, _keyed(old[table], names), _keyed(new[table], names))
        if table == "price_books":
            found += _rows("prices", _prices(old[table]), _prices(new[table]))
    return tuple(found)


def _keyed(rows: list[Entry], names: tuple[str, ...]) -> dict[str, Entry]:
    keyed: dict[str, Entry] = {}
    for row in rows:
        key = " ".join(str(row[name]) for name in names if row.get(name) not in (None, ""))
        while key in keyed:  # one product may have several rules of a kind, each with its own numbers
            key += " +"
        keyed[key] = {name: value for name, value in row.items() if name != "prices"}
    return keyed


def _prices(books: list[Entry]) -> dict[str, Entry]:
    """Return each book's prices as one row per product, so that the parts of a price stay together."""
    return {f"{book['name']} / {row['sku']}": {"price": price_words(row)} for book in books for row in book["prices"]}


def price_words(row: Mapping[str, Any]) -> str:
    """Return the display text of one entry of a price book, e.g. "range 1: 10, 50: 8"."""
    match row["kind"]:
        case "flat":
            said = str(row["price"])
        case "formula":
            inputs = ", ".join(f"{name} = {value}" for name, value in row["inputs"].items())
            said = f"{row['formula']}{f' with {inputs}' if inputs else ''}"
        case "percent":
            said = f"{row['percent']} % of {', '.join(row['of']) or 'everything'} ({row['basis']})"
        case mode:
            tiers = ", ".join(f"{tier['from']}: {tier['price']}" for tier in row["tiers"])
            said = f"{mode} {tiers}"
    extra = ", ".join(f"{each['attribute']} = {each['choice']}: +{each['amount']}" for each in row.get("surcharges", ()))
    return f"{said}; {extra}" if extra else said


def _rows(table: str, old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        if key not in new:
            yield Change("removed", table, key, "", _whole(old[key]), None)
        elif key not in old:
            yield Change("added", table, key, "", None, _whole(new[key]))
        else:
            yield from _fields(table, key, old[key], new[key])


def _fields(table: str, key: str, old: Entry, new: Entry) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change("changed", table, key, name, _shown(old.get(name)), _shown(new.get(name)))


def _whole(row: Entry) -> str:
    if set(row) == {"price"}:
        return str(row["price"])
    return ", ".join(f"{name} {_shown(value)}" for name, value in row.items() if value not in ([], None))


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)
