"""When something is due: schedules as values, the slots they come to, and what becomes of slots that were missed.

A slot is a moment in Unix milliseconds. It follows from the schedule and from an anchor, a moment in the life of what the schedule
is about (when a quote stops being valid, when an approval was asked for), never from when somebody looks.
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
SLOTS_MAX: Final = 100  # of one aggregate in one look; older ones are not made up
ON_TIME_MS: Final = MINUTE_MS  # a slot that is found later than this was missed


@dataclass(frozen=True, slots=True)
class Once:
    """One slot, `delay_ms` after the anchor; with `at` the next time of that which is not earlier."""

    delay_ms: int = 0
    at: Cron | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """A slot each `period_ms` after the anchor, `times` of them or without end."""

    period_ms: int
    times: int | None = None

    def __post_init__(self) -> None:
        if self.period_ms < MINUTE_MS:
            raise ValueError("a schedule repeats itself once a minute at most")


Schedule = Once | Every | Cron  # a Cron has a slot each of its times after the anchor


class Misfire(StrEnum):
    """What becomes of slots that nobody looked at in time."""

    SKIP = "skip"  # they are dropped
    COALESCE = "coalesce"  # the newest stands for all
    CATCH_UP = "catch_up"  # each is made up for, up to SLOTS_MAX


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that a job is about. `aggregate_id` and `part` name it; the command is about the quote `quote_id`.

    `part` tells apart what one aggregate has several of (the approver's slot of an approval). `anchor` is Unix milliseconds.
    """

    aggregate_id: str
    anchor: int
    quote_id: str
    team_id: str
    part: str = ""

    @property
    def name(self) -> str:
        """What the slot is of, as the request id has it."""
        return f"{self.aggregate_id}/{self.part}" if self.part else self.aggregate_id


@dataclass(frozen=True, slots=True)
class Fate:
    """Which slots are to be fired, and which are dropped because it is too late for them; both in order."""

    fire: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def slots_due(schedule: Schedule, anchor: int, after: int | None, until: int) -> tuple[int, ...]:
    """Return the slots later than `after` (None: all) and not later than `until`, in order: the newest SLOTS_MAX of them."""
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
    """Say what becomes of due slots, given in order. Later than `max_lateness_ms` each is dropped, whatever the policy."""
    latest = ON_TIME_MS if misfire is Misfire.SKIP else max_lateness_ms
    if max_lateness_ms is not None and latest is not None:
        latest = min(latest, max_lateness_ms)
    alive = tuple(slot for slot in slots if latest is None or now - slot <= latest)
    dropped = tuple(slot for slot in slots if slot not in alive)
    if misfire is Misfire.CATCH_UP:
        return Fate(alive, dropped)
    return Fate(alive[-1:], dropped)
