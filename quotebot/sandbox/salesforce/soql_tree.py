"""Syntax tree of a query, and its text form: the grammar's `parse` reads the output of `write`."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "LIKE")
FIELD_GROUPS = ("ALL", "STANDARD", "CUSTOM")
_ESCAPED: Mapping[str, str] = MappingProxyType(
    {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\b": r"\b", "\f": r"\f"}
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, a datetime or a date literal such as TODAY or LAST_N_DAYS:7, as in the text."""

    text: str


Value = str | Decimal | bool | Moment | None


@dataclass(frozen=True, slots=True)
class Path:
    """A field, or a field of a parent: ("Account", "Name"). `at` is its offset in the text."""

    names: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Fields:
    """FIELDS(ALL), FIELDS(STANDARD) or FIELDS(CUSTOM)."""

    group: str


@dataclass(frozen=True, slots=True)
class Count:
    """COUNT(): the number of records, without the records."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A path, one of COMPARISONS, a value."""

    path: Path
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """A path IN (or, `negated`, NOT IN) a list of at least one value."""

    path: Path
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more conditions joined by `word`: AND or OR."""

    word: str
    conditions: tuple[Condition, ...]


Condition = Comparison | Membership | Not | Junction


@dataclass(frozen=True, slots=True)
class Order:
    """One sort key. `nulls` is FIRST, LAST or empty for the default, which is first."""

    path: Path
    descending: bool = False
    nulls: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query. `at` is the offset of the object's name in the text."""

    selected: tuple[Selected, ...]
    sobject: str
    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None
    at: int = field(default=0, compare=False)


Selected = Path | Fields | Count | Query


def write(query: Query) -> str:
    """Return a query as text; `parse` reads it back to the same tree."""
    parts = ["SELECT", ", ".join(map(_written_selected, query.selected)), "FROM", query.sobject]
    if query.where is not None:
        parts.append(f"WHERE {_written_condition(query.where)}")
    if query.order:
        parts.append(f"ORDER BY {', '.join(map(_written_order, query.order))}")
    if query.limit is not None:
        parts.append(f"LIMIT {query.limit}")
    if query.offset is not None:
        parts.append(f"OFFSET {query.offset}")
    return " ".join(parts)


def _written_selected(selected: Selected) -> str:
    if isinstance(selected, Path):
        return ".".join(selected.names)
    if isinstance(selected, Fields):
        return f"FIELDS({selected.group})"
    return "COUNT()" if isinstance(selected, Count) else f"({write(selected)})"


def _written_condition(condition: Condition) -> str:
    if isinstance(condition, Comparison):
        return f"{'.'.join(condition.path.names)} {condition.operator} {_written_value(condition.value)}"
    if isinstance(condition, Membership):
        values = ", ".join(map(_written_value, condition.values))
        return f"{'.'.join(condition.path.names)} {'NOT ' * condition.negated}IN ({values})"
    if isinstance(condition, Not):
        return f"NOT {_written_part(condition.condition)}"
    return f" {condition.word} ".join(map(_written_part, condition.conditions))


def _written_part(condition: Condition) -> str:
    written = _written_condition(condition)
    return f"({written})" if isinstance(condition, Junction) else written


def _written_value(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return f"'{''.join(_ESCAPED.get(character, character) for character in value)}'"
    return value.text if isinstance(value, Moment) else f"{value:f}"


def _written_order(order: Order) -> str:
    return ".".join(order.path.names) + " DESC" * order.descending + (f" NULLS {order.nulls}" if order.nulls else "")
