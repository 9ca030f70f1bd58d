"""Tests of the matrix: every cell, every delay, and the minimum that the vendor sets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.policies import (
    ONE_AT_A_TIME,
    POLICIES,
    TIMEOUT_SECONDS_MAX,
    Backoff,
    Matrix,
    Policy,
    duration,
    policies,
    policy_for,
)
from quotebot.dispatch.dispatcher import OVERRUN_SECONDS
from quotebot.settings import LEASE_SECONDS_MIN

DAY = 24 * 3600
WEEK = 7 * DAY
CLASSES = sorted(POLICIES)

# class: semantics, retries, backoff, jitter, time-out, max age, at once, lane, dead letter when
CELLS: dict[str, tuple[str, int, str, str, float, float, int, str, str]] = {
    "slack.card": ("convergent", 5, "exp 250 ms..30 s", "full", 10, WEEK, 4, "message", "exhausted or terminal 4xx"),
    "slack.post": ("append", 5, "exp 250 ms..30 s", "full", 10, WEEK, 4, "thread", "exhausted or terminal 4xx"),
    "slack.direct": ("append", 5, "exp 250 ms..30 s", "full", 10, WEEK, 4, "person", "exhausted or terminal 4xx"),
    "slack.direct_card": ("convergent", 5, "exp 250 ms..30 s", "full", 10, WEEK, 4, "message", "exhausted or terminal 4xx"),
    "slack.reply": (
        "repeat_once", 5, "exp 250 ms..30 s", "full", 10, WEEK, 4, "user", "exhausted; a dead response_url is superseded by a DM",
    ),
    "slack.unfurl": ("convergent", 5, "exp 250 ms..30 s", "full", 10, DAY, 4, "message", "exhausted or terminal 4xx"),
    "slack.file": ("append", 5, "exp 250 ms..30 s", "full", 60, WEEK, 4, "thread", "exhausted or terminal 4xx"),
    "crm.create": (
        "keyed", 6, "exp 500 ms..60 s", "full", 20, WEEK, 2, "quote", "exhausted; mapping/validation terminal; auth pauses instead",
    ),
    "crm.update": (
        "convergent", 6, "exp 500 ms..60 s", "full", 20, WEEK, 2, "quote",
        "exhausted; mapping/validation terminal; auth pauses instead",
    ),
    "crm.read": (
        "pure", 6, "exp 500 ms..60 s", "full", 20, DAY, 2, "org", "exhausted; mapping/validation terminal; auth pauses instead",
    ),
    "pdf.render": (
        "pure", 2, "1 s, 3 s", "none", 60, WEEK, 1, "quote",
        "exhausted; a template error at first sight; any other deterministic failure at the second",
    ),
    "llm.extract": ("pure", 3, "exp 300 ms..10 s", "bounded", 30, WEEK, 4, "operation", "repeated time-out or provider hard fail"),
    "llm.summarize": (
        "pure", 3, "exp 300 ms..10 s", "bounded", 30, WEEK, 4, "operation", "repeated time-out or provider hard fail",
    ),
    "default": ("append", 5, "exp 1 s..5 min", "full", 10, WEEK, 4, "-", "exhausted"),
}  # fmt: skip

Draws = list[tuple[float, float] | None]

# class: the exact range drawn from after the 1st, 2nd, ... failure. None: the budget is spent. Equal bounds: nothing is drawn.
SLACK_DRAWS: Draws = [(0, 0.25), (0, 0.5), (0, 1), (0, 2), (0, 4), None]
CRM_DRAWS: Draws = [(0, 0.5), (0, 1), (0, 2), (0, 4), (0, 8), (0, 16), None]
LLM_DRAWS: Draws = [(0.225, 0.375), (0.45, 0.75), (0.9, 1.5), None]
DRAWS: dict[str, Draws] = {
    "slack.card": SLACK_DRAWS,
    "slack.post": SLACK_DRAWS,
    "slack.direct": SLACK_DRAWS,
    "slack.direct_card": SLACK_DRAWS,
    "slack.reply": SLACK_DRAWS,
    "slack.unfurl": SLACK_DRAWS,
    "slack.file": SLACK_DRAWS,
    "crm.create": CRM_DRAWS,
    "crm.update": CRM_DRAWS,
    "crm.read": CRM_DRAWS,
    "pdf.render": [(1, 1), (3, 3), None],
    "llm.extract": LLM_DRAWS,
    "llm.summarize": LLM_DRAWS,
    "default": [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), None],
}
EVERY_ATTEMPT = [(name, attempt, drawn) for name, draws in DRAWS.items() for attempt, drawn in enumerate(draws, start=1)]


@dataclass
class Dice:
    """Source of jitter that returns a fixed share of the requested range, and records the ranges."""

    share: float
    asked: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, low: float, high: float) -> float:
        assert low <= high
        self.asked.append((low, high))
        return low + self.share * (high - low)


def test_the_matrix_has_these_lines_and_no_other() -> None:
    assert set(POLICIES) == set(CELLS) == set(DRAWS)
    assert [name for name, line in POLICIES.items() if name != line.effect_class] == []


@pytest.mark.parametrize("effect_class", CELLS)
def test_every_cell_of_the_matrix(effect_class: str) -> None:
    line = policy_for(effect_class)
    assert CELLS[effect_class] == (
        line.semantics,
        line.retries,
        line.backoff.words,
        line.jitter,
        line.timeout_seconds,
        line.max_age_seconds,
        line.concurrency,
        line.lane,
        line.dead_letter_when,
    )


@pytest.mark.parametrize(("effect_class", "attempt", "drawn"), EVERY_ATTEMPT)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_failed_attempt_draws_its_wait_from_exactly_this_range(
    effect_class: str, attempt: int, drawn: tuple[float, float] | None, share: float
) -> None:
    line, dice = policy_for(effect_class), Dice(share)
    delay = line.next_delay(attempt, dice, None)
    if drawn is None:
        assert (delay, dice.asked) == (None, [])
    else:
        low, high = drawn
        assert delay == pytest.approx(low + share * (high - low))
        assert dice.asked == ([] if line.jitter == "none" else [pytest.approx(drawn)])


@pytest.mark.parametrize("effect_class", CELLS)
def test_the_budget_is_spent_after_exactly_the_first_try_and_the_retries(effect_class: str) -> None:
    line = policy_for(effect_class)
    assert len(DRAWS[effect_class]) == line.retries + 1
    assert [line.next_delay(failed, Dice(1), None) is None for failed in range(line.retries + 3)] == (
        [False] * (line.retries + 1) + [True, True]
    )


@pytest.mark.parametrize("effect_class", CELLS)
def test_after_nothing_but_throttling_the_wait_is_the_first_one(effect_class: str) -> None:
    line, untried, once = policy_for(effect_class), Dice(1), Dice(1)
    assert line.next_delay(0, untried, None) == line.next_delay(1, once, None)
    assert untried.asked == once.asked


@pytest.mark.parametrize("effect_class", CELLS)
def test_the_waits_that_are_shown_are_the_waits_that_are_drawn(effect_class: str) -> None:
    assert list(policy_for(effect_class).waits()) == [pytest.approx(drawn) for drawn in DRAWS[effect_class] if drawn]


@pytest.mark.parametrize("effect_class", CLASSES)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_backoff_stops_growing_at_its_cap_and_jitter_stays_inside_it(effect_class: str, share: float) -> None:
    line = policy_for(effect_class)
    low = {"none": 1.0, "full": 0.0, "bounded": 0.75}[line.jitter]
    expected = line.backoff.cap_seconds * (1.0 if share else low)
    for failed in (40, 90, 5_000):
        assert replace(line, retries=10_000).next_delay(failed, Dice(share), None) == pytest.approx(expected)


@given(st.sampled_from(CLASSES), st.integers(0, 6), st.floats(0, 1), st.none() | st.floats(0, 4000))
def test_a_retry_is_never_earlier_than_the_vendor_allows(
    effect_class: str, failed_attempts: int, share: float, retry_after: float | None
) -> None:
    line = policy_for(effect_class)
    delay = line.next_delay(failed_attempts, Dice(share), retry_after)
    if failed_attempts > line.retries:
        assert delay is None
    else:
        assert delay is not None
        assert delay >= (retry_after or 0)
        assert delay <= max(retry_after or 0, line.backoff.cap_seconds)


def test_a_retry_after_longer_than_the_backoff_is_kept() -> None:
    assert policy_for("slack.post").next_delay(1, Dice(1), 45) == 45


@pytest.mark.parametrize(("effect_class", "attempt", "drawn"), EVERY_ATTEMPT)
def test_vendor_wait_is_a_minimum_at_every_attempt_and_extends_no_spent_budget(
    effect_class: str, attempt: int, drawn: tuple[float, float] | None
) -> None:
    line = policy_for(effect_class)
    longer = line.backoff.cap_seconds + 1
    assert line.next_delay(attempt, Dice(1), longer) == (None if drawn is None else longer)
    assert line.next_delay(attempt, Dice(1), 0.0) == (None if drawn is None else pytest.approx(drawn[1]))


@pytest.mark.parametrize("lines", [POLICIES, policies({})])
def test_an_unlisted_class_has_the_default_line(lines: dict[str, Policy]) -> None:
    assert Matrix(lines).of("fax.send") is lines["default"]
    assert Matrix(lines).of("crm.create") is lines["crm.create"]
    assert policy_for("fax.send") is POLICIES["default"]


def test_only_pdf_rendering_has_a_concurrency_of_one() -> None:
    assert set(ONE_AT_A_TIME) == {name for name, line in POLICIES.items() if line.concurrency == 1} == {"pdf.render"}


def test_the_longest_call_ends_within_the_shortest_lease() -> None:
    assert max(line.timeout_seconds for line in POLICIES.values()) == 60 <= TIMEOUT_SECONDS_MAX
    assert TIMEOUT_SECONDS_MAX + OVERRUN_SECONDS < LEASE_SECONDS_MIN


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.05, "50 ms"), (0.0625, "62.5 ms"), (1, "1 s"), (1.5, "1.5 s"), (60, "60 s"), (90, "90 s"),
        (119.5, "119.5 s"), (120, "2 min"), (130, "130 s"), (1800, "30 min"), (3600, "1 h"), (5400, "90 min"),
        (DAY, "1 d"), (WEEK, "7 d"),
    ],
)  # fmt: skip
def test_a_duration_is_written_exactly(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_fixed_steps_are_waited_in_turn_and_the_last_one_is_repeated() -> None:
    backoff = Backoff(1, 3, (1, 3, 2))
    assert [backoff.seconds(failed) for failed in range(6)] == [1, 1, 3, 2, 2, 2]
    assert backoff.words == "1 s, 3 s, 2 s"
