"""Calendar of business hours, as a table of the approval policy and in its canonical form. Pure."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.schedule.schedules import Calendar

if TYPE_CHECKING:
    from collections.abc import Mapping

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS: Final = ("days", "from", "until", "holidays")
HOLIDAYS_MAX: Final = 1_000
MINUTES_MIN: Final = 60  # a shorter day would put deadlines off for years
HOURS_OF_DAY: Final = 24
_TIME: Final = re.compile(r"([0-9]{2}):([0-5][0-9])")


def read_calendar(table: Any) -> Calendar:
    """Build a calendar from plain data. Raises ValueError that begins with the key and names the remedy."""
    if not isinstance(table, dict) or set(table) - set(KEYS):
        raise ValueError(f"days: a [calendar] may only have {', '.join(KEYS)}")
    days = table.get("days", list(DAYS[:5]))
    if not isinstance(days, list) or not days or any(day not in DAYS for day in days):
        raise ValueError(f"days: must be a list of {', '.join(DAYS)}")
    opens, closes = _minute(table, "from"), _minute(table, "until")
    if closes - opens < MINUTES_MIN:
        raise ValueError("until: must be at least an hour after from")
    weekdays = frozenset(DAYS.index(day) for day in days)
    return Calendar(weekdays, opens, closes, _holidays(table.get("holidays", [])))


def calendar_document(calendar: Calendar) -> dict[str, Any]:
    """Return the canonical table; `read_calendar` reads it back. It names no zone: that is the installation's."""
    return {
        "days": [day for number, day in enumerate(DAYS) if number in calendar.weekdays],
        "from": _written(calendar.opens),
        "until": _written(calendar.closes),
        "holidays": [day.isoformat() for day in sorted(calendar.holidays)],
    }


def _minute(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    minute = -1 if found is None else int(found[1]) * 60 + int(found[2])
    if not 0 <= minute <= HOURS_OF_DAY * 60:
        raise ValueError(f"{key}: {value!r} must be a time such as 09:00, at most 24:00")
    return minute


def _holidays(days: Any) -> frozenset[date]:
    if not isinstance(days, list) or len(days) > HOLIDAYS_MAX:
        raise ValueError(f"holidays: must be a list of at most {HOLIDAYS_MAX:,} days such as 2026-12-25")
    if timed := next((day for day in days if isinstance(day, datetime)), None):
        raise ValueError(f"holidays: {timed} is no day; write days such as 2026-12-25")
    try:
        return frozenset(day if isinstance(day, date) else date.fromisoformat(day) for day in days)
    except (TypeError, ValueError) as error:
        raise ValueError(f"holidays: {error}; write days such as 2026-12-25") from error


def _written(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
