from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.retry_after import asked_wait_seconds, read_retry_after

TEN = "Sat, 21 Nov 2026 10:00:00 GMT"
TEN_SECONDS = 1_795_255_200.0  # the same moment as Unix time
LATER = "Sat, 21 Nov 2026 10:00:30 GMT"


def unread() -> float:
    raise AssertionError("the clock was read")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("30", 30), ("1.5", 1.5), ("007", 7), (" 30 ", 30), ("86400", 86_400), ("999999999", 999_999_999),
        (LATER, 30),
        ("Saturday, 21-Nov-26 10:00:30 GMT", 30),  # the two obsolete forms a receiver must still read
        ("Sat Nov 21 10:00:30 2026", 30),
        ("Sat, 21 Nov 2026 11:00:30 +0100", 30),
        ("Sat, 21 Nov 2026 10:00:30 -0000", 30),
        ("Sun, 22 Nov 2026 10:00:00 GMT", 86_400),
        (TEN, 0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_a_wait_is_seconds_or_a_date_and_never_capped(value: str, seconds: float) -> None:
    assert read_retry_after(value, TEN_SECONDS) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "-5", "-0.1", "+5", "soon", "nan", "inf", "1e3", "0x10", "1_000", "30 s", "30,5", "1.", ".5", "1.5.2", "٣٠",
        "30, 60", "9" * 10, "9" * 400, "Sat, 99 Nov 2026 10:00:30 GMT", "Sat, 21 Nov 2026 10:00:30 +9999",
        "Sat, 21 Nov 99999 10:00:30 GMT",
        "21 Nov 2026", "None",
    ],
)  # fmt: skip
def test_rubbish_is_no_wait(value: str) -> None:
    assert read_retry_after(value, TEN_SECONDS) is None


@given(st.text(max_size=60) | st.from_regex(r"\w{3}, \d{1,3} \w{3} \d{1,5} \d\d:\d\d:\d\d [+-]?\w{1,5}", fullmatch=True))
def test_no_header_can_raise_or_ask_for_more_than_the_ledger_can_hold(value: str) -> None:
    seconds = read_retry_after(value, TEN_SECONDS)
    assert seconds is None or 0 <= seconds * 1000 < 2**62


def test_a_date_is_counted_against_the_answers_own_date_whatever_our_clock_says() -> None:
    assert asked_wait_seconds({"Retry-After": LATER, "Date": TEN}, clock=unread) == 30


@pytest.mark.parametrize("date", [{}, {"Date": ""}, {"Date": "yesterday"}])
def test_only_without_a_readable_date_our_own_clock_counts(date: dict[str, str]) -> None:
    assert asked_wait_seconds({"Retry-After": LATER, **date}, clock=lambda: TEN_SECONDS - 60) == 90
    assert asked_wait_seconds({"Retry-After": LATER, **date}, clock=lambda: TEN_SECONDS + 60) == 0
    assert asked_wait_seconds({"Retry-After": "30", **date}, clock=lambda: TEN_SECONDS) == 30


def test_an_answer_that_asks_for_no_wait_has_none() -> None:
    assert asked_wait_seconds({"Date": TEN}, clock=unread) is None
    assert asked_wait_seconds({}) is None
