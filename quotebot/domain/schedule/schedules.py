"""Schedules as values (cron expressions among them), their due slots, and the handling of missed slots.

A slot is a time in Unix milliseconds. It is determined by the schedule and an anchor, a time in the life of the aggregate (the end
of a quote's validity, the request of an approval), never by the time of the check.

A cron expression has five fields, in an IANA time zone, with defined behaviour at clock changes: a local time that does not exist,
because the clocks are put forward, is due once, when the gap ends; one that exists twice, because the clocks are put back, is due
once, the first time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
ONE_DAY: Final = timedelta(days=1)
LOOK_BACK_DAYS: Final = 3 * 366  # slots missed before that are ignored
LOOK_AHEAD_DAYS: Final = 9 * 366  # from one 29 February to the next there are up to eight years
FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART: Final = re.compile(r"(?P<first>\*|[0-9]{1,2}|[a-z]{3})(?:-(?P<last>[0-9]{1,2}|[a-z]{3}))?(?:/(?P<step>[0-9]{1,2}))?")


@dataclass(frozen=True, slots=True)
class Cron:
    """Parsed cron expression in a time zone. Weekdays count from 0, Sunday. With `either_day`, either kind of day suffices."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    zone: tzinfo

    def falls_on(self, day: date) -> bool:
        """Return whether the expression matches this local day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


def parse_cron(text: str, zone: tzinfo) -> Cron:
    """Parse "minute hour day month weekday", e.g. "0 9 * * mon-fri". Raises ValueError naming the field."""
    parts = text.lower().split()
    if len(parts) != len(FIELDS):
        raise ValueError(f'"{text}" has {len(parts)} fields; five are needed: minute hour day month weekday, e.g. 0 9 * * mon-fri')
    minutes, hours, days, months, weekdays = [_field(part, *field) for part, field in zip(parts, FIELDS, strict=True)]
    cron = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
        zone=zone,
    )
    if not cron.either_day and not any(min(days) <= LONGEST_MONTHS[month - 1] for month in months):
        raise ValueError(f'"{text}" names a day that no month has')
    return cron


def slot_after(cron: Cron, after: int) -> int:
    """Return the first slot after `after`."""
    first = _local_day(cron, after) - ONE_DAY  # a local day may be skipped entirely and end after its own midnight
    for offset in range(LOOK_AHEAD_DAYS):
        for slot in slots_of_day(cron, first + offset * ONE_DAY):
            if slot > after:
                return slot
    raise AssertionError("a day that some month has comes within nine years")


def newest_slots(cron: Cron, after: int, until: int, limit: int) -> tuple[int, ...]:
    """Return the newest `limit` slots after `after`, up to and including `until`, in order."""
    newest: list[int] = []
    for slot in _backwards(cron, until):
        if slot <= after or len(newest) == limit:
            break
        newest.append(slot)
    return tuple(reversed(newest))


def slots_of_day(cron: Cron, day: date) -> tuple[int, ...]:
    """Return the slots of one local day, in order, without duplicates."""
    if not cron.falls_on(day):
        return ()
    times = (datetime(day.year, day.month, day.day, hour, minute) for hour in cron.hours for minute in cron.minutes)  # noqa: DTZ001 -- local
    return tuple(dict.fromkeys(moment_of(local, cron.zone) for local in times))


def moment_of(local: datetime, zone: tzinfo) -> int:
    """Return the time (Unix ms) at which the clocks of `zone` first show `local` (naive), or skip it."""
    moment = _unix_seconds(local.replace(tzinfo=zone))
    if _at(moment, zone).replace(tzinfo=None, fold=0) == local:
        return moment * 1000
    before, after = _unix_seconds(local.replace(tzinfo=zone, fold=1)), moment
    old = _at(before, zone).utcoffset()
    while after - before > 1:  # `before` has the old UTC offset, `after` the new one
        middle = (before + after) // 2
        if _at(middle, zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after * 1000


@dataclass(frozen=True, slots=True)
class Calendar:
    """Business hours of an installation: local weekdays (0 is Monday), minutes of the day, and holidays.

    They are local times of each person; `zone` is the IANA name of the zone of people whose own is not known.
    """

    weekdays: frozenset[int]
    opens: int
    closes: int
    holidays: frozenset[date] = frozenset()
    zone: str = "UTC"

    def is_working(self, day: date) -> bool:
        """Return whether people work on this local day."""
        return day.weekday() in self.weekdays and day not in self.holidays


def after_working(calendar: Calendar, zone: str, start: int, ms: int) -> int:
    """Return the time (Unix ms) at which `ms` of business hours in the named zone have passed since `start`.

    A day on which the clocks change is as long as its hours are. Times that the clocks skip begin when the gap ends.
    """
    local, left, closed = zone_of(zone), ms, start
    first = _at(start // 1000, local).date()
    for days in range(LOOK_AHEAD_DAYS):
        day = first + days * ONE_DAY
        if not calendar.is_working(day):
            continue
        opens, closed = (_minute_of(day, minute, local) for minute in (calendar.opens, calendar.closes))
        begin = max(opens, start)
        if closed - begin >= left:
            return begin + left
        left -= max(closed - begin, 0)
    return closed


def _minute_of(day: date, minute: int, zone: tzinfo) -> int:
    """Return the time at which a local day reaches a minute; minute 1440 is the next midnight."""
    return moment_of(datetime(day.year, day.month, day.day) + timedelta(minutes=minute), zone)  # noqa: DTZ001 -- local


def next_morning(after: int, zone: str, calendar: Calendar | None = None) -> int:
    """Return the next 9:00 of a working day in the named zone after `after` (Unix ms): by the calendar, else Monday to Friday."""
    local = zone_of(zone)
    cron = parse_cron("0 9 * * mon-fri" if calendar is None else "0 9 * * *", local)
    slot = slot_after(cron, after)
    for _ in range(LOOK_AHEAD_DAYS):
        if calendar is None or calendar.is_working(_at(slot // 1000, local).date()):
            break
        slot = slot_after(cron, slot)
    return slot


def zone_of(name: str) -> tzinfo:
    """Return an IANA time zone; UTC for a name that is not installed here."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def local_hour(moment: int, zone: str) -> int:
    """Return the hour of the day, 0 to 23, at a time (Unix ms) in the named zone."""
    return _at(moment // 1000, zone_of(zone)).hour


def _backwards(cron: Cron, until: int) -> Iterator[int]:
    """Yield slots backwards from `until`, without duplicates: the last slot of a skipped day may equal the first of the next."""
    last, seen = _local_day(cron, until), None
    for offset in range(LOOK_BACK_DAYS):
        for slot in reversed(slots_of_day(cron, last - offset * ONE_DAY)):
            if slot <= until and slot != seen:
                seen = slot
                yield slot


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f'the {name} "{part}" is not readable; write *, 5, 1-5, */15 or a list of these')
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if first == "*":
            begin, end = low, high
        else:
            begin = _number(first, name)
            end = _number(last, name) if last else high if match["step"] else begin
        if step < 1 or not low <= begin <= end <= high or (first == "*" and last):
            raise ValueError(f'the {name} "{part}" is not within {low}-{high}')
        found.update(range(begin, end + 1, step))
    return frozenset(found)


def _number(text: str, name: str) -> int:
    names = {"month": MONTHS, "weekday": WEEKDAYS}.get(name, ())
    if text in names:
        return names.index(text) + (name == "month")
    if not text.isdigit():
        raise ValueError(f'the {name} "{text}" is not known')
    return int(text)


def _local_day(cron: Cron, moment: int) -> date:
    return _at(moment // 1000, cron.zone).date()


def _at(seconds: int, zone: tzinfo) -> datetime:
    return (EPOCH + seconds * SECOND).astimezone(zone)


def _unix_seconds(moment: datetime) -> int:
    return (moment - EPOCH) // SECOND


MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SLOTS_MAX: Final = 100  # per aggregate and check; older slots are not made up for
ON_TIME_MS: Final = MINUTE_MS  # a slot found later than this counts as missed


@dataclass(frozen=True, slots=True)
class Once:
    """Single slot, `delay_ms` after the anchor; with `at`, the first time of that cron expression from then on."""

    delay_ms: int = 0
    at: Cron | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """Periodic slots, every `period_ms` after the anchor, `times` in number or without end."""

    period_ms: int
    times: int | None = None

    def __post_init__(self) -> None:
        if self.period_ms < MINUTE_MS:
            raise ValueError("a schedule repeats itself once a minute at most")


Schedule = Once | Every | Cron  # a Cron has a slot at each of its times after the anchor


class Misfire(StrEnum):
    """Handling of slots that were not found in time."""

    SKIP = "skip"  # they are dropped
    COALESCE = "coalesce"  # only the newest is fired, for all
    CATCH_UP = "catch_up"  # each is fired, up to SLOTS_MAX


@dataclass(frozen=True, slots=True)
class Candidate:
    """Subject of a scheduled job, named by `aggregate_id` and `part`; the command concerns the quote `quote_id`.

    `part` distinguishes parts of one aggregate (the approver's slot of an approval). `anchor` is Unix milliseconds.
    """

    aggregate_id: str
    anchor: int
    quote_id: str
    team_id: str
    part: str = ""

    @property
    def name(self) -> str:
        """Name of the subject, as used in request ids."""
        return f"{self.aggregate_id}/{self.part}" if self.part else self.aggregate_id


@dataclass(frozen=True, slots=True)
class Fate:
    """Slots to fire, and slots dropped because they are too late; both in order."""

    fire: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def slots_due(schedule: Schedule, anchor: int, after: int | None, until: int) -> tuple[int, ...]:
    """Return the newest SLOTS_MAX slots later than `after` (None: all) and not later than `until`, in order."""
    if isinstance(schedule, Cron):
        return newest_slots(schedule, anchor if after is None else max(anchor, after), until, SLOTS_MAX)
    if isinstance(schedule, Every):
        first = 1 if after is None else max(1, (after - anchor) // schedule.period_ms + 1)
        last = (until - anchor) // schedule.period_ms
        last = last if schedule.times is None else min(last, schedule.times)
        return tuple(anchor + number * schedule.period_ms for number in range(max(first, last - SLOTS_MAX + 1), last + 1))
    slot = anchor + schedule.delay_ms
    if schedule.at is not None and slot <= until:
        slot = slot_after(schedule.at, slot - 1)
    return (slot,) if slot <= until and (after is None or slot > after) else ()


def fate_of(slots: Sequence[int], now: int, misfire: Misfire, max_lateness_ms: int | None = None) -> Fate:
    """Decide which due slots, given in order, to fire or drop. Slots later than `max_lateness_ms` are dropped in any case."""
    latest = ON_TIME_MS if misfire is Misfire.SKIP else max_lateness_ms
    if max_lateness_ms is not None and latest is not None:
        latest = min(latest, max_lateness_ms)
    alive = tuple(slot for slot in slots if latest is None or now - slot <= latest)
    dropped = tuple(slot for slot in slots if slot not in alive)
    if misfire is Misfire.CATCH_UP:
        return Fate(alive, dropped)
    return Fate(alive[-1:], dropped)
