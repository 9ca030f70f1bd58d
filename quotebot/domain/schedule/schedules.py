"""Schedules as values, their due slots, and the handling of missed slots.

A slot is a time in Unix milliseconds. It is determined by the schedule and an anchor, a time in the life of the aggregate (the end
of a quote's validity, the request of an approval), never by the time of the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quotebot.domain.schedule.cron import Cron, newest_slots, slot_after

if TYPE_CHECKING:
    from collections.abc import Sequence

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
