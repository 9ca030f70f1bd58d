"""Facts in the shape of the requested schema, so that a change of the schema changes the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quotebot.sandbox.llm.rules import Facts, Line

_DEPTH_MAX = 12
Schema = Mapping[str, Any]


def shaped(facts: Facts, schema: Schema, excerpt: str) -> Any:
    """Return the JSON value for `schema`. A property is recognized by its name; an unknown value is null, or empty if required."""
    return _Shaper(schema).value(schema, _known(facts, excerpt), 0)


def natural(facts: Facts) -> dict[str, object]:
    """Return the facts as JSON for requests that accept any object."""
    return {
        "account": facts.account,
        "lines": [{"product": line.product, "quantity": line.quantity} for line in facts.lines],
        "term_months": facts.term_months,
        "discount_percent": facts.discount,
        "currency": facts.currency,
    }


def _known(facts: Facts, excerpt: str) -> dict[str, Any]:
    """Return the known values by the words that a property's name may contain, the most specific words first."""
    return {
        "line": [_known_line(line) for line in facts.lines],
        "item": [_known_line(line) for line in facts.lines],
        "product": [_known_line(line) for line in facts.lines],
        "account": facts.account,
        "customer": facts.account,
        "company": facts.account,
        "discount": facts.discount,
        "term_unit": "months" if facts.term_months is not None else None,
        "term": facts.term_months,
        "month": facts.term_months,
        "currency": facts.currency,
        "summary": excerpt.partition("\n")[0][:200],
        "excerpt": excerpt[:200],
        "quantity": facts.lines[0].quantity if facts.lines else None,
        "sku": facts.lines[0].product if facts.lines else None,
    }


def _known_line(line: Line) -> dict[str, Any]:
    return {
        "quantity": line.quantity,
        "qty": line.quantity,
        "count": line.quantity,
        "seats": line.quantity,
        "excerpt": line.excerpt,
        "raw": line.excerpt,
        "sku": line.product,
        "product": line.product,
        "name": line.product,
        "description": line.product,
    }


class _Shaper:
    """Walks one schema; `$ref` is looked up in its `$defs`."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def value(self, schema: Schema, known: Any, depth: int) -> Any:
        """Return a value for `schema` from the values that are known for it."""
        schema, nullable = self._resolved(schema)
        if depth > _DEPTH_MAX:
            return None
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            return self._object(schema, known if isinstance(known, dict) else {}, depth)
        if kind == "array":
            items = known if isinstance(known, list) else []
            return [self.value(schema.get("items", {}), item, depth + 1) for item in items]
        if isinstance(known, list | dict) or known is None:
            return None if nullable else _empty(schema)
        return _scalar(schema, known)

    def _object(self, schema: Schema, known: Mapping[str, Any], depth: int) -> dict[str, Any]:
        return {name: self.value(part, _look_up(known, name), depth + 1) for name, part in schema.get("properties", {}).items()}

    def _resolved(self, schema: Schema) -> tuple[Schema, bool]:
        """Resolve references and unions to one plain schema; tell whether null is allowed on the way."""
        nullable = False
        for _ in range(_DEPTH_MAX):
            if "$ref" in schema:
                schema = self._root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
                continue
            options = schema.get("anyOf") or schema.get("oneOf")
            if options:
                nullable = nullable or any(option.get("type") == "null" for option in options)
                schema = _preferred([option for option in options if option.get("type") != "null"])
                continue
            break
        kind = schema.get("type")
        if isinstance(kind, list):
            plain = [name for name in kind if name != "null"]
            return {**schema, "type": plain[0] if plain else "null"}, nullable or "null" in kind
        return schema, nullable or kind == "null"


def _preferred(options: list[Schema]) -> Schema:
    """Prefer text: an amount that may be a number or text becomes text."""
    return next((option for option in options if option.get("type") == "string"), options[0] if options else {})


def _look_up(known: Mapping[str, Any], name: str) -> Any:
    lowered = name.lower()
    if lowered in known:
        return known[lowered]
    return next((value for word, value in known.items() if word in lowered), None)


def _empty(schema: Schema) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(str(schema.get("type")))


def _scalar(schema: Schema, known: str | float) -> Any:
    choices = schema.get("enum")
    if choices:
        return next((choice for choice in choices if str(choice).lower() == str(known).lower()), choices[0])
    text = str(known)
    kind = schema.get("type")
    if kind == "integer":
        whole = text.partition(".")[0]
        return int(whole) if whole.isdecimal() else 0
    if kind == "number":
        return float(text) if text.replace(".", "", 1).isdecimal() else 0
    if kind == "boolean":
        return bool(known)
    return text
