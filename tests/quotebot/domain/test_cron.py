from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.schedule.schedules import Cron, newest_slots, parse_cron, slot_after, slots_of_day

BERLIN, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")
APIA, KOLKATA = ZoneInfo("Pacific/Apia"), ZoneInfo("Asia/Kolkata")
MINUTE = 60_000
DAY = 86_400_000


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def read(slots: tuple[int, ...]) -> list[str]:
    return [f"{datetime.fromtimestamp(slot // 1000, tz=UTC):%m-%d %H:%M}" for slot in slots]


@pytest.mark.parametrize(
    ("text", "zone", "day", "moments"),
    [
        ("0 9 * * mon-fri", BERLIN, date(2026, 11, 20), ["11-20 08:00"]),
        ("0 9 * * mon-fri", BERLIN, date(2026, 11, 21), []),
        ("*/20 23 * * *", UTC, date(2026, 11, 21), ["11-21 23:00", "11-21 23:20", "11-21 23:40"]),
        ("0 8-18/5 * * *", UTC, date(2026, 11, 21), ["11-21 08:00", "11-21 13:00", "11-21 18:00"]),
        ("50/5 8 * * *", UTC, date(2026, 11, 21), ["11-21 08:50", "11-21 08:55"]),
        ("0 0 1 jan,JUL *", UTC, date(2027, 7, 1), ["07-01 00:00"]),
        ("0 0 1 * *", UTC, date(2026, 11, 21), []),
        ("0 0 1 * sat", UTC, date(2026, 11, 21), ["11-21 00:00"]),  # either kind of day will do
        ("0 0 * * 7", UTC, date(2026, 11, 22), ["11-22 00:00"]),  # 0 and 7 are Sunday
        ("0 0 * * 0", UTC, date(2026, 11, 22), ["11-22 00:00"]),
        ("30 9 * * *", KOLKATA, date(2026, 11, 21), ["11-21 04:00"]),
    ],
)
def test_five_fields_name_moments_of_a_local_day(text: str, zone: ZoneInfo, day: date, moments: list[str]) -> None:
    assert read(slots_of_day(parse_cron(text, zone), day)) == moments


@pytest.mark.parametrize(
    ("text", "zone", "day", "moments"),
    [
        ("30 2 * * *", BERLIN, date(2026, 3, 29), ["03-29 01:00"]),  # 02:00-03:00 is left out
        ("15,45 2 * * *", BERLIN, date(2026, 3, 29), ["03-29 01:00"]),
        ("0,30 2-3 * * *", BERLIN, date(2026, 3, 29), ["03-29 01:00", "03-29 01:30"]),
        ("30 2 * * *", BERLIN, date(2026, 10, 25), ["10-25 00:30"]),  # 02:00-03:00 comes twice
        ("0 3 * * *", BERLIN, date(2026, 10, 25), ["10-25 02:00"]),
        ("30 2 * * *", NEW_YORK, date(2026, 3, 8), ["03-08 07:00"]),
        ("30 1 * * *", NEW_YORK, date(2026, 11, 1), ["11-01 05:30"]),
        ("10 2 * * *", LORD_HOWE, date(2026, 10, 4), ["10-03 15:30"]),  # half an hour is left out
        ("45 1 * * *", LORD_HOWE, date(2026, 4, 5), ["04-04 14:45"]),  # and comes twice
        ("0 12 * * *", APIA, date(2011, 12, 30), ["12-30 10:00"]),  # the whole day is left out
    ],
)
def test_skipped_local_time_is_due_after_the_gap_and_a_repeated_one_only_once(
    text: str, zone: ZoneInfo, day: date, moments: list[str]
) -> None:
    assert read(slots_of_day(parse_cron(text, zone), day)) == moments


def test_a_moment_that_two_days_share_is_one_slot() -> None:
    midnight_and_noon = parse_cron("0 0,12 * * *", APIA)  # of 30 Dec 2011, which never was, nothing is left but the next midnight
    found = newest_slots(midnight_and_noon, utc("2011-12-29T12:00"), utc("2011-12-31T00:00"), 10)
    assert read(found) == ["12-29 22:00", "12-30 10:00", "12-30 22:00"]


@pytest.mark.parametrize(
    ("zone", "year", "local", "moments"),
    [
        (BERLIN, 2026, "30 2 * * *", 365),
        (NEW_YORK, 2026, "30 2 * * *", 365),
        (NEW_YORK, 2026, "30 1 * * *", 365),
        (LORD_HOWE, 2028, "45 1 * * *", 366),
    ],
)
def test_each_day_of_a_year_has_its_slot_once_over_both_changes(zone: ZoneInfo, year: int, local: str, moments: int) -> None:
    cron = parse_cron(local, zone)
    first = datetime(year, 1, 1, tzinfo=zone)
    until = datetime(year + 1, 1, 1, tzinfo=zone)
    found = newest_slots(cron, round(first.timestamp()) * 1000, round(until.timestamp()) * 1000, 1_000)
    assert len(found) == len(set(found)) == moments
    days = {datetime.fromtimestamp(slot // 1000, tz=zone).date() for slot in found}
    assert len(days) == moments


def test_the_next_slot_may_be_eight_years_away() -> None:
    leap_day = parse_cron("0 0 29 2 *", UTC)
    assert slot_after(leap_day, utc("2096-02-29T00:00")) == utc("2104-02-29T00:00")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 9 * *", "has 4 fields; five are needed"),
        ("60 9 * * *", 'the minute "60" is not within 0-59'),
        ("0 24 * * *", 'the hour "24" is not within 0-23'),
        ("0 9 0 * *", 'the day of the month "0" is not within 1-31'),
        ("0 9 * 13 *", 'the month "13" is not within 1-12'),
        ("0 9 * * mun", 'the weekday "mun" is not known'),
        ("0 9 * * fri-mon", 'the weekday "fri-mon" is not within 0-7'),
        ("0 9 * * mon-", 'the weekday "mon-" is not readable'),
        ("*/0 9 * * *", 'the minute "\\*/0" is not within 0-59'),
        ("*-5 9 * * *", 'the minute "\\*-5" is not within 0-59'),
        (", 9 * * *", 'the minute "" is not readable'),
        ("jan 9 * * *", 'the minute "jan" is not known'),
        ("0 9 31 2,4 *", "names a day that no month has"),
    ],
)
def test_what_is_no_cron_is_refused_by_its_field(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_cron(text, UTC)


zones = st.sampled_from([UTC, BERLIN, NEW_YORK, LORD_HOWE, APIA])
moments = st.integers(utc("2011-12-25T00:00") // MINUTE, utc("2012-04-10T00:00") // MINUTE).map(lambda minutes: minutes * MINUTE)


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    minute = draw(st.sampled_from(["0", "30", "*/15", "7"]))
    hour = draw(st.sampled_from(["*", "2", "0-3", "9,17"]))
    day, weekday = draw(st.sampled_from([("*", "*"), ("*", "mon-fri"), ("1,29-31", "*"), ("1", "sun")]))
    return parse_cron(f"{minute} {hour} {day} * {weekday}", draw(zones))


@given(crons(), moments, st.integers(0, 4 * DAY), st.integers(0, 4 * DAY))
def test_a_span_has_the_slots_of_its_two_parts(cron: Cron, after: int, first: int, second: int) -> None:
    middle, until = after + first, after + first + second
    parts = newest_slots(cron, after, middle, 10_000) + newest_slots(cron, middle, until, 10_000)
    whole = newest_slots(cron, after, until, 10_000)
    assert whole == parts
    assert list(whole) == sorted(set(whole))
    assert all(after < slot <= until for slot in whole)


@given(crons(), moments)
def test_the_next_slot_is_the_first_of_what_follows(cron: Cron, after: int) -> None:
    following = slot_after(cron, after)
    assert newest_slots(cron, after, following, 10_000) == (following,)


@given(crons(), moments, st.integers(0, 3 * DAY), st.integers(1, 5))
def test_a_limit_keeps_the_newest(cron: Cron, after: int, span: int, limit: int) -> None:
    assert newest_slots(cron, after, after + span, limit) == newest_slots(cron, after, after + span, 10_000)[-limit:]


@given(crons(), moments)
def test_every_slot_shows_a_time_of_the_cron_or_ends_a_gap(cron: Cron, after: int) -> None:
    for slot in newest_slots(cron, after, after + 3 * DAY, 10_000):
        local = datetime.fromtimestamp(slot // 1000, tz=cron.zone)
        before = (local.astimezone(UTC) - timedelta(seconds=1)).astimezone(cron.zone)
        ends_a_gap = local.replace(tzinfo=None) - before.replace(tzinfo=None) > timedelta(seconds=1)
        assert ends_a_gap or (local.minute in cron.minutes and local.hour in cron.hours and cron.falls_on(local.date()))
        assert ends_a_gap or local.fold == 0
