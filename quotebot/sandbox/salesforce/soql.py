"""A small part of SOQL: SELECT fields FROM object [WHERE field op literal [AND ...]] [ORDER BY field [ASC|DESC]] [LIMIT n]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError
from quotebot.sandbox.salesforce.schema import SCHEMA, Field, SObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.sandbox.salesforce.org import Org, Record

_TOKEN = re.compile(r"\s*(?:('(?:[^'\\]|\\.)*')|([A-Za-z_][\w.]*)|(-?\d+(?:[\d.:TZ+-]*\d|Z)?)|(!=|<=|>=|[=<>(),]))")
_OPERATORS: Mapping[str, Callable[[Decimal | str, Decimal | str], bool]] = MappingProxyType(
    {
        "<": lambda left, right: left < right,  # type: ignore[operator] # both sides have the field's type
        ">": lambda left, right: left > right,  # type: ignore[operator] # both sides have the field's type
        "<=": lambda left, right: left <= right,  # type: ignore[operator] # both sides have the field's type
        ">=": lambda left, right: left >= right,  # type: ignore[operator] # both sides have the field's type
    }
)
_NUMBERS = frozenset({"int", "double", "currency", "percent"})
_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class _Condition:
    field: Field
    operator: str
    values: tuple[object, ...]

    def holds(self, record: Record) -> bool:
        have = _comparable(record[self.field.name])
        wanted = tuple(_comparable(value) for value in self.values)
        if self.operator in ("=", "IN"):
            return have in wanted
        if self.operator == "!=":
            return have not in wanted
        bound = wanted[0]
        if isinstance(have, str) and isinstance(bound, str):
            return _OPERATORS[self.operator](have, bound)
        if isinstance(have, Decimal) and isinstance(bound, Decimal):
            return _OPERATORS[self.operator](have, bound)
        return False


def query(org: Org, text: str) -> tuple[SObject, list[Record]]:
    """Run one query; the records hold only the selected fields. Raises MALFORMED_QUERY, INVALID_TYPE or INVALID_FIELD."""
    return _Parser(_tokens(text)).run(org)


class _Parser:
    """One pass over the tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def run(self, org: Org) -> tuple[SObject, list[Record]]:
        self._expect("SELECT")
        names = [self._next()]
        while self._accept(","):
            names.append(self._next())
        self._expect("FROM")
        sobject = _sobject(self._next())
        fields = [_field(sobject, name) for name in names]
        conditions = self._conditions(sobject)
        records = [record for record in org.all(sobject) if all(condition.holds(record) for condition in conditions)]
        records = self._ordered(sobject, records)
        if self._accept("LIMIT"):
            records = records[: self._whole_number()]
        if self._at != len(self._tokens):
            raise _malformed(f"unexpected token: {self._tokens[self._at]}")
        return sobject, [{field.name: record[field.name] for field in fields} for record in records]

    def _conditions(self, sobject: SObject) -> list[_Condition]:
        conditions: list[_Condition] = []
        if not self._accept("WHERE"):
            return conditions
        while True:
            field = _field(sobject, self._next())
            operator = self._next().upper()
            if operator == "IN":
                values = self._list()
            elif operator in ("=", "!=", *_OPERATORS):
                values = (_literal(self._next()),)
            else:
                raise _malformed(f"unexpected token: {operator}")
            _check_types(field, values)
            conditions.append(_Condition(field, operator, values))
            if not self._accept("AND"):
                return conditions

    def _list(self) -> tuple[object, ...]:
        self._expect("(")
        values = [_literal(self._next())]
        while self._accept(","):
            values.append(_literal(self._next()))
        self._expect(")")
        return tuple(values)

    def _ordered(self, sobject: SObject, records: list[Record]) -> list[Record]:
        if not self._accept("ORDER"):
            return records
        self._expect("BY")
        field = _field(sobject, self._next())
        descending = self._accept("DESC")
        if not descending:
            self._accept("ASC")
        empty = [record for record in records if record[field.name] is None]
        full = [record for record in records if record[field.name] is not None]
        full.sort(key=lambda record: _sort_key(record[field.name]), reverse=descending)
        return full + empty if descending else empty + full

    def _whole_number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            raise _malformed(f"unexpected token: {token}")
        return int(token)

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise _malformed("unexpected end of query")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at].upper() == word:
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            found = self._tokens[self._at] if self._at < len(self._tokens) else "<EOF>"
            raise _malformed(f"unexpected token: {found}, expected {word}")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise _malformed(f"unexpected character at position {at}")
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


def _literal(token: str) -> object:
    if token.startswith("'"):
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    words = {"null": None, "true": True, "false": False}
    if token.lower() in words:
        return words[token.lower()]
    try:
        return Decimal(token)
    except ArithmeticError:
        return token  # an unquoted date or datetime


def _check_types(field: Field, values: tuple[object, ...]) -> None:
    wants_number = field.type in _NUMBERS
    for value in values:
        if value is not None and isinstance(value, Decimal) != wants_number:
            raise SalesforceRefusalError(
                _BAD_REQUEST, "INVALID_FIELD", f"filter value of incorrect type for field '{field.name}' of type {field.type}"
            )


def _comparable(value: object) -> Decimal | str | bool | None:
    """Return a value two sides can be compared by: text without case, numbers as Decimal."""
    if value is None or isinstance(value, bool | Decimal):
        return value
    return Decimal(value) if isinstance(value, int) else str(value).lower()


def _sort_key(value: object) -> tuple[Decimal, str]:
    number = _comparable(value)
    return (Decimal(number), "") if isinstance(number, bool | Decimal) else (Decimal(0), str(number))


def _sobject(name: str) -> SObject:
    found = SCHEMA.get(name.lower())
    if found is None:
        raise SalesforceRefusalError(_BAD_REQUEST, "INVALID_TYPE", f"sObject type '{name}' is not supported.")
    return found


def _field(sobject: SObject, name: str) -> Field:
    found = sobject.field(name)
    if found is None:
        raise SalesforceRefusalError(_BAD_REQUEST, "INVALID_FIELD", f"No such column '{name}' on entity '{sobject.name}'.")
    return found


def _malformed(message: str) -> SalesforceRefusalError:
    return SalesforceRefusalError(_BAD_REQUEST, "MALFORMED_QUERY", message)
