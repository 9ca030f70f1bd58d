"""Execution of queries on the org: the objects, fields and dates they name, the records they find, their order and shape."""

from __future__ import annotations

import calendar
import datetime as dt
import operator
import re
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError
from quotebot.sandbox.salesforce.schema import SCHEMA, Field, SObject, children_of
from quotebot.sandbox.salesforce.soql_grammar import (
    Comparison,
    Condition,
    Count,
    Fields,
    Junction,
    Membership,
    Moment,
    Not,
    Order,
    Path,
    Query,
    Selected,
    Value,
    parse,
    pointing_at,
)
from quotebot.sandbox.salesforce.values import written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quotebot.sandbox.salesforce.org import Org, Record

_COMPARE: Mapping[str, Callable[[Decimal | str, Decimal | str], bool]] = MappingProxyType(
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
)
_NUMBERS = frozenset({"int", "double", "currency", "percent"})
_MOMENTS = frozenset({"date", "datetime"})
_NOT_FILTERED = frozenset({"textarea", "base64"})
_FIELDS_LIMIT = 200
_OFFSET_MAX = 2000
_PARENTS_MAX = 5
_DAY = dt.timedelta(days=1)
_MONTHS: Mapping[str, int] = MappingProxyType({"MONTH": 1, "QUARTER": 3, "YEAR": 12})
_STEPS: Mapping[str, int] = MappingProxyType({"LAST": -1, "THIS": 0, "NEXT": 1})
_NEAR: Mapping[str, int] = MappingProxyType({"YESTERDAY": -1, "TODAY": 0, "TOMORROW": 1})
_MONTHS_A_YEAR = 12
_LINK = "ContentDocumentLink"
_LINK_FILTERS = frozenset({"contentdocumentid", "linkedentityid", "id"})
_CUSTOM_HINT = (
    "If you are attempting to use a custom {0}, be sure to append the '__c' after the {0} name. "
    "Please reference your WSDL or the describe call for the appropriate names."
)


def query(org: Org, text: str, *, deleted: bool = False) -> tuple[SObject, list[Record]]:
    """Run one query, with `deleted` over the recycle bin too. Raises MALFORMED_QUERY, INVALID_TYPE or INVALID_FIELD.

    A record contains the selected fields; a parent is a record within it, children are a list, both under the relationship's name
    and with an `attributes` that names their type. COUNT() gives as many empty records as there are.
    """
    return _Run(org, text, deleted=deleted).records(parse(text), None)


class _Run:
    """One query: the org, and the text that its error messages quote."""

    def __init__(self, org: Org, text: str, *, deleted: bool) -> None:
        self._org = org
        self._text = text
        self._deleted = deleted

    def records(self, asked: Query, parent: tuple[SObject, str] | None) -> tuple[SObject, list[Record]]:
        """Return the object and its records; with `parent` (object, id) only its children."""
        sobject, link = self._source(asked, parent)
        selected = [item for part in asked.selected for item in self._expanded(asked, sobject, part)]
        if asked.where is not None:
            self._check(sobject, asked.where)
        self._check_rules(asked, sobject, parent)
        found: Iterable[Record] = self._org.all(sobject, deleted=self._deleted)
        if parent is not None and link is not None:
            found = (record for record in found if record[link.name] == parent[1])
        if asked.where is not None:
            where = asked.where
            found = (record for record in found if self._holds(sobject, where, record))
        ordered = self._ordered(sobject, asked.order, list(found))[asked.offset or 0 :]
        chosen = ordered if asked.limit is None else ordered[: asked.limit]
        return sobject, [self._shaped(sobject, selected, record) for record in chosen]

    def _refused(self, code: str, at: int, words: str) -> SalesforceRefusalError:
        return SalesforceRefusalError(code, pointing_at(self._text, at, words))

    def _source(self, asked: Query, parent: tuple[SObject, str] | None) -> tuple[SObject, Field | None]:
        if parent is None:
            found = SCHEMA.get(asked.sobject.lower())
            if found is None:
                raise self._refused(
                    "INVALID_TYPE", asked.at, f"sObject type '{asked.sobject}' is not supported. {_CUSTOM_HINT.format('object')}"
                )
            return found, None
        for name, child, link in children_of(parent[0]):
            if name.lower() == asked.sobject.lower():
                return child, link
        raise self._refused(
            "INVALID_TYPE",
            asked.at,
            f"Didn't understand relationship '{asked.sobject}' in FROM part of query call. {_CUSTOM_HINT.format('relationship')}",
        )

    def _expanded(self, asked: Query, sobject: SObject, part: Selected) -> list[Selected]:
        """Return the selected items of a part, with names as in the schema."""
        if isinstance(part, Fields):
            if asked.limit is None or asked.limit > _FIELDS_LIMIT:
                raise SalesforceRefusalError(
                    "MALFORMED_QUERY", f"The SOQL FIELDS function must have a LIMIT of at most {_FIELDS_LIMIT}"
                )
            fields = sobject.fields.values()
            return [Path((field.name,)) for field in fields if part.group in ("ALL", "CUSTOM" if field.custom else "STANDARD")]
        if not isinstance(part, Path):
            return [part]
        return [self._named(sobject, part)[0]]

    def _field(self, sobject: SObject, path: Path) -> Field:
        """Return the field at the end of a path. Raises INVALID_FIELD."""
        return self._named(sobject, path)[1]

    def _named(self, sobject: SObject, path: Path) -> tuple[Path, Field]:
        """Return a path with names as in the schema, and the field at its end. Raises INVALID_FIELD."""
        names: list[str] = []
        at = sobject
        if len(path.names) > _PARENTS_MAX + 1:
            raise SalesforceRefusalError("MALFORMED_QUERY", f"a relationship may be followed over at most {_PARENTS_MAX} parents")
        for name in path.names[:-1]:
            found = _parent(at, name)
            if found is None:
                raise self._refused(
                    "INVALID_FIELD",
                    path.at,
                    f"Didn't understand relationship '{name}' in field path. {_CUSTOM_HINT.format('relationship')}",
                )
            names.append(found[0].relationship)
            at = found[1]
        field = at.field(path.names[-1])
        if field is None:
            raise self._refused(
                "INVALID_FIELD", path.at, f"No such column '{path.names[-1]}' on entity '{at.name}'. {_CUSTOM_HINT.format('field')}"
            )
        return Path((*names, field.name), path.at), field

    def _check(self, sobject: SObject, condition: Condition) -> None:
        if isinstance(condition, Not):
            self._check(sobject, condition.condition)
        elif isinstance(condition, Junction):
            for part in condition.conditions:
                self._check(sobject, part)
        else:
            field = self._field(sobject, condition.path)
            values = condition.values if isinstance(condition, Membership) else (condition.value,)
            for value in values:
                self._check_filter(field, value, condition.path)

    def _check_filter(self, field: Field, value: Value, path: Path) -> None:
        if field.type in _NOT_FILTERED:
            raise self._refused("INVALID_FIELD", path.at, f"field '{field.name}' can not be filtered in a query call")
        if value is not None and not _fits(field, value):
            enclosed = "should be enclosed in quotes" if isinstance(value, Decimal) else "should not be enclosed in quotes"
            raise self._refused(
                "INVALID_FIELD",
                path.at,
                f"value of filter criterion for field '{field.name}' must be of type {field.type} and {enclosed}",
            )

    def _check_rules(self, asked: Query, sobject: SObject, parent: tuple[SObject, str] | None) -> None:
        for key in asked.order:
            self._field(sobject, key.path)
        if asked.offset is not None and asked.offset > _OFFSET_MAX:
            raise SalesforceRefusalError("NUMBER_OUTSIDE_VALID_RANGE", f"Maximum SOQL offset allowed is {_OFFSET_MAX}")
        if sobject.name == _LINK and parent is None and not _by_one_of(asked.where, _LINK_FILTERS):
            raise SalesforceRefusalError(
                "MALFORMED_QUERY",
                f"Implementation restriction: {_LINK} requires a filter by a single Id on ContentDocumentId or LinkedEntityId "
                "using the equals operator or multiple Id's using the IN operator.",
            )

    def _holds(self, sobject: SObject, condition: Condition, record: Record) -> bool:
        if isinstance(condition, Not):
            return not self._holds(sobject, condition.condition, record)
        if isinstance(condition, Junction):
            together = all if condition.word == "AND" else any
            return together(self._holds(sobject, part, record) for part in condition.conditions)
        field = self._field(sobject, condition.path)
        have = self._reached(sobject, condition.path, record)
        if isinstance(condition, Membership):
            return any(self._equal(field, have, value) for value in condition.values) != condition.negated
        if condition.operator in ("=", "!="):
            return self._equal(field, have, condition.value) == (condition.operator == "=")
        if condition.operator == "LIKE":
            return have is not None and _pattern(str(condition.value)).fullmatch(str(have)) is not None
        return self._compares(field, condition, have)

    def _compares(self, field: Field, condition: Comparison, have: object) -> bool:
        wanted: object = condition.value
        if isinstance(wanted, Moment):
            first, last = self._stretch(field, wanted)
            wanted = first if condition.operator in ("<", ">=") else last
        left, right = _comparable(have), _comparable(wanted)
        if isinstance(left, Decimal) and isinstance(right, Decimal):
            return _COMPARE[condition.operator](left, right)
        if isinstance(left, str) and isinstance(right, str):
            return _COMPARE[condition.operator](left, right)
        return False

    def _equal(self, field: Field, have: object, wanted: Value) -> bool:
        if isinstance(wanted, Moment):
            first, last = self._stretch(field, wanted)
            return have is not None and first <= str(have) <= last
        return _comparable(have) == _comparable(wanted)

    def _stretch(self, field: Field, moment: Moment) -> tuple[str, str]:
        """Return the first and last value, in the field's own format, of a date or a datetime."""
        return stretch(moment.text, whole_days=field.type == "date", today=self._org.today())

    def _reached(self, sobject: SObject, path: Path, record: Record) -> object:
        found = self._owner(sobject, path.names[:-1], record)
        if found is None:
            return None
        at, holder = found
        field = at.field(path.names[-1])
        return None if field is None else holder[field.name]

    def _owner(self, sobject: SObject, names: tuple[str, ...], record: Record) -> tuple[SObject, Record] | None:
        """Follow relationships up from a record; None if a reference is empty."""
        at, holder = sobject, record
        for name in names:
            found = _parent(at, name)
            reference = None if found is None else holder[found[0].name]
            if found is None or reference is None:
                return None
            at = found[1]
            holder = self._org.read(at, str(reference))
        return at, holder

    def _ordered(self, sobject: SObject, order: tuple[Order, ...], records: list[Record]) -> list[Record]:
        for key in reversed(order):
            values = [(self._reached(sobject, key.path, record), record) for record in records]
            empty = [record for value, record in values if value is None]
            full = [(_sort_key(value), record) for value, record in values if value is not None]
            full.sort(key=lambda pair: pair[0], reverse=key.descending)
            rest = [record for _, record in full]
            records = rest + empty if key.nulls == "LAST" else empty + rest
        return records

    def _shaped(self, sobject: SObject, selected: list[Selected], record: Record) -> Record:
        shaped: Record = {}
        for part in selected:
            if isinstance(part, Path):
                self._put(shaped, sobject, part, record)
            elif isinstance(part, Query):
                child, rows = self.records(part, (sobject, str(record["Id"])))
                name = next(name for name, _, _ in children_of(sobject) if name.lower() == part.sobject.lower())
                typed = [{"attributes": {"type": child.name}, **row} for row in rows]
                shaped[name] = {"totalSize": len(typed), "done": True, "records": typed} if typed else None
        return shaped

    def _put(self, shaped: Record, sobject: SObject, path: Path, record: Record) -> None:
        holder = shaped
        for depth, name in enumerate(path.names[:-1], start=1):
            owner = self._owner(sobject, path.names[:depth], record)
            if owner is None:
                holder[name] = None
                return
            inner = holder.setdefault(name, {"attributes": {"type": owner[0].name}})
            if not isinstance(inner, dict):
                return
            holder = inner
        holder[path.names[-1]] = self._reached(sobject, path, record)


def counts(text: str) -> bool:
    """Tell whether a query selects COUNT() only. Raises MALFORMED_QUERY."""
    return parse(text).selected == (Count(),)


def _parent(sobject: SObject, relationship: str) -> tuple[Field, SObject] | None:
    """Return the reference of a relationship's name, and the object it points to."""
    for field in sobject.fields.values():
        if field.reference_to is not None and field.relationship.lower() == relationship.lower():
            return field, SCHEMA[field.reference_to.lower()]
    return None


def _fits(field: Field, value: Value) -> bool:
    if field.type in _NUMBERS:
        return isinstance(value, Decimal) and not isinstance(value, bool)
    if field.type == "boolean":
        return isinstance(value, bool)
    if field.type in _MOMENTS:
        return isinstance(value, Moment)
    return isinstance(value, str)


def _by_one_of(condition: Condition | None, names: frozenset[str]) -> bool:
    if isinstance(condition, Junction):
        parts = [_by_one_of(part, names) for part in condition.conditions]
        return any(parts) if condition.word == "AND" else all(parts)
    if isinstance(condition, Comparison):
        return condition.operator == "=" and condition.path.names[-1].lower() in names
    return isinstance(condition, Membership) and not condition.negated and condition.path.names[-1].lower() in names


def _pattern(like: str) -> re.Pattern[str]:
    """Return the pattern of LIKE: % is any text, _ one character, either itself after a backslash; case does not matter."""
    parts = {"%": ".*", "_": "."}
    pieces = re.findall(r"\\[%_]|.", like, re.DOTALL)
    return re.compile("".join(parts.get(piece, re.escape(piece[-1])) for piece in pieces), re.IGNORECASE | re.DOTALL)


def _comparable(value: object) -> Decimal | str | bool | None:
    """Return a value in comparable form: text in lower case, numbers as Decimal."""
    if value is None or isinstance(value, bool | Decimal):
        return value
    return Decimal(value) if isinstance(value, int) else str(value).lower()


def _sort_key(value: object) -> tuple[Decimal, str]:
    number = _comparable(value)
    return (Decimal(number), "") if isinstance(number, bool | Decimal) else (Decimal(0), str(number))


def stretch(text: str, *, whole_days: bool, today: dt.date) -> tuple[str, str]:
    """Return the first and last value of a date, a datetime or a date literal. Raises MALFORMED_QUERY.

    With `whole_days` they are dates (2026-01-31), otherwise datetimes.
    """
    if "T" in text and text[0].isdigit():
        moment = _datetime(text)
        return (moment.date().isoformat(),) * 2 if whole_days else (written(moment),) * 2
    first, last = _days(text, today)
    if whole_days:
        return first.isoformat(), last.isoformat()
    end = dt.datetime.combine(last + _DAY, dt.time.min, dt.UTC) - dt.timedelta(milliseconds=1)
    return written(dt.datetime.combine(first, dt.time.min, dt.UTC)), written(end)


def _datetime(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise SalesforceRefusalError("MALFORMED_QUERY", f"invalid datetime: {text}") from None


def _days(text: str, today: dt.date) -> tuple[dt.date, dt.date]:
    if text[0].isdigit():
        try:
            return (dt.date.fromisoformat(text),) * 2
        except ValueError:
            raise SalesforceRefusalError("MALFORMED_QUERY", f"invalid date: {text}") from None
    if text in _NEAR:
        return (today + _NEAR[text] * _DAY,) * 2
    direction, _, rest = text.partition("_")
    if rest == "90_DAYS":
        rest = "N_DAYS:90"
    if rest == "WEEK":
        start = today - ((today.weekday() + 1) % 7) * _DAY + 7 * _STEPS[direction] * _DAY  # weeks begin on Sunday
        return start, start + 6 * _DAY
    if rest in _MONTHS:
        return _months(today, _STEPS[direction], _MONTHS[rest], 1)
    unit, _, number = rest.removeprefix("N_").partition(":")
    try:
        return _many(today, _STEPS[direction], unit, int(number))
    except (OverflowError, ValueError):
        raise SalesforceRefusalError("MALFORMED_QUERY", f"number of {unit.lower()} out of range: {number}") from None


def _many(today: dt.date, step: int, unit: str, number: int) -> tuple[dt.date, dt.date]:
    """Return the last or next `number` days, weeks, months or years; last days end today, other units before the present one."""
    if unit == "DAYS":
        return (today - number * _DAY, today) if step < 0 else (today + _DAY, today + number * _DAY)
    if unit == "WEEKS":
        sunday = today - ((today.weekday() + 1) % 7) * _DAY
        return (sunday - 7 * number * _DAY, sunday - _DAY) if step < 0 else (sunday + 7 * _DAY, sunday + (7 * number + 6) * _DAY)
    length = _MONTHS[unit.removesuffix("S")]
    return _months(today, -number if step < 0 else 1, length, number)


def _months(today: dt.date, steps: int, length: int, count: int) -> tuple[dt.date, dt.date]:
    """Return the range of `count` periods of `length` months, the first of them `steps` away from the present one."""
    month = today.year * _MONTHS_A_YEAR + today.month - 1
    first = month - month % length + steps * length
    last = first + count * length - 1
    year, number = divmod(last, _MONTHS_A_YEAR)
    start_year, start_number = divmod(first, _MONTHS_A_YEAR)
    return dt.date(start_year, start_number + 1, 1), dt.date(year, number + 1, calendar.monthrange(year, number + 1)[1])
