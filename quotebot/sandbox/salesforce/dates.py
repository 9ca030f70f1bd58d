"""Range of a query's dates and date literals: the first and the last value, in the org's format."""

from __future__ import annotations

import calendar
import datetime as dt
from types import MappingProxyType
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY = dt.timedelta(days=1)
_MONTHS: Mapping[str, int] = MappingProxyType({"MONTH": 1, "QUARTER": 3, "YEAR": 12})
_STEPS: Mapping[str, int] = MappingProxyType({"LAST": -1, "THIS": 0, "NEXT": 1})
_NEAR: Mapping[str, int] = MappingProxyType({"YESTERDAY": -1, "TODAY": 0, "TOMORROW": 1})
_MONTHS_A_YEAR = 12
_BAD_REQUEST = 400


def written(moment: dt.datetime) -> str:
    """Format a datetime as the org does: in UTC, to the millisecond."""
    return f"{moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}+0000"


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
        raise _malformed(f"invalid datetime: {text}") from None


def _days(text: str, today: dt.date) -> tuple[dt.date, dt.date]:
    if text[0].isdigit():
        try:
            return (dt.date.fromisoformat(text),) * 2
        except ValueError:
            raise _malformed(f"invalid date: {text}") from None
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
        raise _malformed(f"number of {unit.lower()} out of range: {number}") from None


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


def _malformed(message: str) -> SalesforceRefusalError:
    return SalesforceRefusalError(_BAD_REQUEST, "MALFORMED_QUERY", message)
