"""Tests of the verdicts of the day benchmark: growth over a whole day, and losses in any run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from bench.day import DAY, Held, judge

HELD: Final = Held(
    commands=1, seconds=1.0, rss_mib=100.0, renderer_mib=70.0, threads=10, descriptors=28, tasks=12, wal_mib=15.0, ledger_mib=4.0
)
WELL: Final[dict[str, Any]] = {"unfinished": 0, "dead": 0, "quotes": 9, "customers": 9, "status": 0, "drain_seconds": 0.5}


def verdicts(last: Held, outcome: dict[str, Any], commands: int = DAY) -> set[str]:
    return {goal["verdict"] for goal in judge([HELD, HELD, last], outcome, commands)}


@pytest.mark.parametrize("change", [{}, {"rss_mib": 104.9}, {"threads": 12}, {"tasks": 3, "ledger_mib": 900.0}])
def test_a_day_that_stays_as_it_was_is_well(change: dict[str, Any]) -> None:
    assert verdicts(replace(HELD, **change), WELL) == {"ok"}


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"rss_mib": 105.1}, {}),
        ({"threads": 13}, {}),
        ({"descriptors": 31}, {}),
        ({"tasks": 15}, {}),
        ({"renderer_mib": 128.1}, {}),
        ({"wal_mib": 64.1}, {}),
        ({}, {"unfinished": 1}),
        ({}, {"dead": 1}),
        ({}, {"quotes": 10}),
        ({}, {"status": 1}),
        ({}, {"drain_seconds": 8.1}),
    ],
)
def test_whatever_grew_or_was_lost_is_missed(change: dict[str, Any], outcome: dict[str, Any]) -> None:
    judged = judge([HELD, HELD, replace(HELD, **change)], {**WELL, **outcome}, DAY)
    assert sorted(goal["verdict"] for goal in judged) == ["missed", *["ok"] * 8]


def test_less_than_a_day_says_nothing_about_growth_but_all_about_loss() -> None:
    assert verdicts(replace(HELD, rss_mib=500.0), WELL, 300) == {"no verdict (not a day)", "ok"}
    assert "missed" in verdicts(HELD, {**WELL, "dead": 1}, 300)
