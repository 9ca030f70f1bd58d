"""Tests of the clock that follows the database's server."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from ledger.postgres.clock import DatabaseClock, counted_ms, skew
from tests.ledger.parts import sure
from tests.quotebot.parts import ManualClock


class Times:
    """A machine whose clock is right, and a server's clock that is `ahead_ms` of it."""

    def __init__(self, ahead_ms: float = 0) -> None:
        self.counted = 5_000.0
        self.ahead_ms = ahead_ms
        self.machine = ManualClock(1_000_000)
        self.clock = DatabaseClock(self.machine, lambda: self.counted, reports=True)

    def advance(self, ms: int) -> None:
        self.counted += ms
        self.machine.advance(ms)

    def compare(self, there_ms: int = 0, back_ms: int = 0) -> None:
        def ask() -> float:
            self.advance(there_ms)
            answer = self.machine.now_ms() + self.ahead_ms
            self.advance(back_ms)
            return answer

        self.clock.compare(ask)

    @property
    def wrong_ms(self) -> float:
        return self.clock.now_ms() - self.machine.now_ms() - self.ahead_ms


def test_clock_is_the_machines_before_the_first_comparison() -> None:
    assert Times(40_000).clock.now_ms() == 1_000_000


@pytest.mark.parametrize("ahead_ms", [40_000, -40_000])
def test_clock_shows_the_servers_time_from_the_first_comparison(ahead_ms: int) -> None:
    times = Times(ahead_ms)
    times.compare(10, 30)
    assert times.wrong_ms == -10  # at most half of the way there and back
    times.advance(600_000)
    assert times.wrong_ms == -10


def test_later_comparisons_make_the_clock_as_exact_as_the_fastest() -> None:
    times = Times()
    times.compare(0, 400)
    assert times.wrong_ms == -200
    times.compare(1, 1)
    assert times.wrong_ms == -1
    times.compare(3_000, 1_000)  # a slow answer proves nothing new
    assert times.wrong_ms == -1


def test_clock_follows_a_server_that_is_ahead_at_once() -> None:
    times = Times()
    times.compare()
    times.ahead_ms = 9_000
    times.compare()
    assert times.wrong_ms == 0


def test_clock_never_goes_back_and_waits_at_half_speed_for_a_server_that_is_behind() -> None:
    times = Times()
    times.compare()
    shown = times.clock.now_ms()
    times.ahead_ms = -4_000
    times.compare()
    assert times.clock.now_ms() == shown
    for second in range(1, 9):
        times.advance(1_000)
        assert times.clock.now_ms() == shown + 500 * second
        times.compare()
    assert times.wrong_ms == 0
    times.advance(1_000)
    assert times.wrong_ms == 0


def test_clock_does_not_go_back_for_a_thread_that_reads_it_during_a_comparison() -> None:
    times, told = Times(), []
    times.compare()

    def counted() -> float:
        now = times.counted
        if not times.clock._lock.locked():  # another thread can read the clock now
            times.advance(400)
            told.append(times.clock._shown(times.counted, sure(times.clock._offset)))
        return now

    times.advance(1_000)
    times.ahead_ms = -2_000
    times.clock._counted = counted
    times.compare()
    times.clock._counted = lambda: times.counted
    assert times.clock.now_ms() >= max(told)


def test_time_in_which_the_machine_was_suspended_counts() -> None:
    assert counted_ms() > 0
    times = Times()
    times.compare()
    before = times.clock.monotonic()
    times.advance(3_600_000)
    assert (times.wrong_ms, times.clock.monotonic() - before) == (0, 3_600)


@pytest.mark.parametrize(
    ("before", "server", "after", "found"), [(900, 100, 1_000, 800), (100, 900, 200, -700), (100, 150, 200, 0)]
)
def test_only_a_difference_that_the_way_cannot_explain_is_a_skew(before: int, server: int, after: int, found: int) -> None:
    assert skew(before, server, after) == found


def test_machine_whose_clock_differs_from_the_servers_is_reported_once() -> None:
    times = Times(700)
    with capture_logs() as lines:
        times.compare(0, 100)
        times.compare(0, 100)
        times.ahead_ms = 100
        times.compare(0, 100)
    assert [(line["event"], line["ahead_ms"]) for line in lines] == [("clock.differs", -600), ("clock.agrees", 0)]
