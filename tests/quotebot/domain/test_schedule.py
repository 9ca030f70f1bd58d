from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.schedule.schedules import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    ON_TIME_MS,
    SLOTS_MAX,
    Candidate,
    Every,
    Fate,
    Misfire,
    Once,
    Schedule,
    fate_of,
    parse_cron,
    slots_due,
)
from tests.quotebot.views.quote_examples import MORNING  # Saturday, 21 Nov 2026 10:31 UTC

NINE = parse_cron("0 9 * * mon-fri", UTC)
MONDAY = MORNING + 2 * DAY_MS - 91 * MINUTE_MS  # 09:00
SIX_HOURS = 6 * HOUR_MS


@pytest.mark.parametrize(
    ("schedule", "after", "until", "due"),
    [
        (Once(), None, 0, [0]),
        (Once(), None, -1, []),
        (Once(), 0, 0, []),
        (Once(HOUR_MS), None, HOUR_MS - 1, []),
        (Once(HOUR_MS), None, DAY_MS, [HOUR_MS]),
        (Once(HOUR_MS), HOUR_MS, DAY_MS, []),
        (Once(0, NINE), None, MONDAY - MORNING - 1, []),
        (Once(0, NINE), None, MONDAY - MORNING, [MONDAY - MORNING]),
        (Once(0, NINE), None, 9 * DAY_MS, [MONDAY - MORNING]),  # the first time only
        (Once(2 * DAY_MS, NINE), None, 9 * DAY_MS, [MONDAY - MORNING + DAY_MS]),
        (Every(HOUR_MS), None, HOUR_MS - 1, []),
        (Every(HOUR_MS), None, 3 * HOUR_MS, [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS]),
        (Every(HOUR_MS), HOUR_MS, 3 * HOUR_MS, [2 * HOUR_MS, 3 * HOUR_MS]),
        (Every(HOUR_MS), HOUR_MS + 1, 3 * HOUR_MS, [2 * HOUR_MS, 3 * HOUR_MS]),
        (Every(HOUR_MS), 9 * HOUR_MS, 3 * HOUR_MS, []),
        (Every(HOUR_MS, times=2), None, 9 * HOUR_MS, [HOUR_MS, 2 * HOUR_MS]),
        (Every(HOUR_MS, times=2), 2 * HOUR_MS, 9 * HOUR_MS, []),
        (NINE, None, 3 * DAY_MS, [MONDAY - MORNING, MONDAY - MORNING + DAY_MS]),
        (NINE, MONDAY - MORNING, 3 * DAY_MS, [MONDAY - MORNING + DAY_MS]),
        (NINE, -9 * DAY_MS, 2 * DAY_MS, [MONDAY - MORNING]),  # nothing is due before the anchor
    ],
)
def test_slots_follow_from_the_anchor(schedule: Schedule, after: int | None, until: int, due: list[int]) -> None:
    """All of them relative to the anchor, Saturday morning."""
    found = slots_due(schedule, MORNING, None if after is None else MORNING + after, MORNING + until)
    assert [slot - MORNING for slot in found] == due


@pytest.mark.parametrize("schedule", [Every(MINUTE_MS), parse_cron("* * * * *", UTC)])
def test_after_a_year_only_the_newest_slots_are_looked_at(schedule: Schedule) -> None:
    until = MORNING + 365 * DAY_MS
    found = slots_due(schedule, MORNING, None, until)
    assert found == tuple(until - n * MINUTE_MS for n in reversed(range(SLOTS_MAX)))


def test_nothing_repeats_itself_within_a_minute() -> None:
    with pytest.raises(ValueError, match="once a minute at most"):
        Every(MINUTE_MS - 1)


HOURS = tuple(MORNING - number * HOUR_MS for number in (8, 7, 2, 1))


@pytest.mark.parametrize(
    ("slots", "misfire", "late", "fate"),
    [
        (HOURS, Misfire.COALESCE, None, Fate(HOURS[-1:])),
        (HOURS, Misfire.COALESCE, SIX_HOURS, Fate(HOURS[-1:], HOURS[:2])),
        (HOURS, Misfire.COALESCE, MINUTE_MS, Fate((), HOURS)),
        (HOURS, Misfire.CATCH_UP, None, Fate(HOURS)),
        (HOURS, Misfire.CATCH_UP, SIX_HOURS, Fate(HOURS[2:], HOURS[:2])),
        (HOURS, Misfire.SKIP, None, Fate((), HOURS)),
        ((*HOURS, MORNING), Misfire.SKIP, None, Fate((MORNING,), HOURS)),
        ((MORNING - ON_TIME_MS,), Misfire.SKIP, SIX_HOURS, Fate((MORNING - ON_TIME_MS,))),
        ((MORNING - ON_TIME_MS - 1,), Misfire.SKIP, SIX_HOURS, Fate((), (MORNING - ON_TIME_MS - 1,))),
        ((MORNING - SIX_HOURS,), Misfire.COALESCE, SIX_HOURS, Fate((MORNING - SIX_HOURS,))),
        ((MORNING - SIX_HOURS - 1,), Misfire.COALESCE, SIX_HOURS, Fate((), (MORNING - SIX_HOURS - 1,))),
        ((MORNING - 2,), Misfire.SKIP, 1, Fate((), (MORNING - 2,))),
        ((), Misfire.CATCH_UP, None, Fate()),
    ],
)
def test_what_becomes_of_missed_slots(slots: tuple[int, ...], misfire: Misfire, late: int | None, fate: Fate) -> None:
    assert fate_of(slots, MORNING, misfire, late) == fate


@given(st.lists(st.integers(0, DAY_MS), unique=True).map(sorted), st.sampled_from(Misfire), st.none() | st.integers(0, DAY_MS))
def test_no_slot_is_both_fired_and_dropped_and_none_is_fired_too_late(ages: list[int], misfire: Misfire, late: int | None) -> None:
    slots = tuple(MORNING - age for age in reversed(ages))
    fate = fate_of(slots, MORNING, misfire, late)
    assert set(fate.fire) | set(fate.dropped) <= set(slots)
    assert set(fate.fire) & set(fate.dropped) == set()
    assert late is None or all(MORNING - slot <= late for slot in fate.fire)
    assert misfire is Misfire.CATCH_UP or len(fate.fire) <= 1
    assert not fate.fire or fate.fire[-1] == slots[-1]


def test_a_candidates_name_tells_its_parts_apart() -> None:
    whole = Candidate("A-2026-0042-v1-1", MORNING, "Q-2026-0042", "T0HOME")
    part = Candidate("A-2026-0042-v1-1", MORNING, "Q-2026-0042", "T0HOME", "2")
    assert (whole.name, part.name) == ("A-2026-0042-v1-1", "A-2026-0042-v1-1/2")
