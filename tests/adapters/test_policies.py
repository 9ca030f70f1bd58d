from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.failures import AdapterError, Failure
from adapters.policies import CALL_SECONDS_MAX, POLICIES, Policy, Verdict, policy_for, verdict
from quotebot.dispatch import OVERRUN_SECONDS
from quotebot.settings import LEASE_SECONDS_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

WEEK = 7 * 24 * 3600
CLASSES = sorted(POLICIES)


def highest(low: float, high: float) -> float:
    assert low <= high
    return high


def lowest(low: float, high: float) -> float:
    assert low <= high
    return low


def schedule(policy: Policy, draw: Callable[[float, float], float]) -> list[float | None]:
    return [policy.next_delay(failed, draw, None) for failed in range(1, policy.retries + 2)]


def failed(failure: Failure, code: str = "x", *, possibly_applied: bool = False) -> AdapterError:
    return AdapterError(failure, code, "it failed", possibly_applied=possibly_applied)


@pytest.mark.parametrize(
    ("effect_class", "semantics", "retries", "backoff", "jitter", "timeout_seconds", "max_age_seconds"),
    [
        ("slack.card", "convergent", 5, "exp 250 ms..30 s", "full", 10, WEEK),
        ("slack.post", "append", 5, "exp 250 ms..30 s", "full", 10, WEEK),
        ("slack.reply", "repeat_once", 5, "exp 250 ms..30 s", "full", 10, 1800),
        ("slack.file", "append", 5, "exp 250 ms..30 s", "full", 60, WEEK),
        ("crm.create", "keyed", 6, "exp 500 ms..60 s", "full", 20, WEEK),
        ("crm.update", "convergent", 6, "exp 500 ms..60 s", "full", 20, WEEK),
        ("pdf.render", "pure", 2, "1 s, 3 s", "none", 60, WEEK),
        ("llm.extract", "pure", 3, "exp 300 ms..10 s", "bounded", 30, WEEK),
        ("llm.summarize", "pure", 3, "exp 300 ms..10 s", "bounded", 30, WEEK),
        ("default", "append", 5, "exp 1 s..5 min", "full", 10, WEEK),
    ],
)
def test_every_cell_of_the_matrix(
    effect_class: str, semantics: str, retries: int, backoff: str, jitter: str, timeout_seconds: float, max_age_seconds: float
) -> None:
    line = policy_for(effect_class)
    assert (line.effect_class, line.semantics, line.retries) == (effect_class, semantics, retries)
    assert (line.backoff.words, line.jitter) == (backoff, jitter)
    assert (line.timeout_seconds, line.max_age_seconds) == (timeout_seconds, max_age_seconds)


def test_the_matrix_has_these_lines_and_no_other() -> None:
    assert len(POLICIES) == 10
    assert [name for name, line in POLICIES.items() if name != line.effect_class] == []


@pytest.mark.parametrize(
    ("effect_class", "longest"),
    [
        ("slack.card", [0.25, 0.5, 1, 2, 4, None]),
        ("slack.post", [0.25, 0.5, 1, 2, 4, None]),
        ("slack.reply", [0.25, 0.5, 1, 2, 4, None]),
        ("slack.file", [0.25, 0.5, 1, 2, 4, None]),
        ("crm.create", [0.5, 1, 2, 4, 8, 16, None]),
        ("crm.update", [0.5, 1, 2, 4, 8, 16, None]),
        ("pdf.render", [1, 3, None]),
        ("llm.extract", [0.375, 0.75, 1.5, None]),
        ("llm.summarize", [0.375, 0.75, 1.5, None]),
        ("default", [1, 2, 4, 8, 16, None]),
    ],
)
def test_the_longest_waits_double_and_then_the_budget_is_spent(effect_class: str, longest: list[float | None]) -> None:
    assert schedule(policy_for(effect_class), highest) == pytest.approx(longest)


def test_full_jitter_may_draw_no_wait_at_all_and_bounded_jitter_takes_a_quarter_off_at_most() -> None:
    assert schedule(policy_for("slack.post"), lowest) == [0, 0, 0, 0, 0, None]
    assert schedule(policy_for("llm.extract"), lowest) == pytest.approx([0.225, 0.45, 0.9, None])
    assert schedule(policy_for("pdf.render"), lowest) == [1, 3, None]


@pytest.mark.parametrize("effect_class", CLASSES)
def test_the_backoff_stops_growing_at_its_cap_and_jitter_stays_inside_it(effect_class: str) -> None:
    line = policy_for(effect_class)
    endless = Policy(line.effect_class, line.semantics, 100, line.backoff, line.jitter, line.timeout_seconds, line.max_age_seconds)
    assert endless.next_delay(90, highest, None) == line.backoff.cap_seconds


@given(st.sampled_from(CLASSES), st.integers(0, 6), st.floats(0, 1), st.none() | st.floats(0, 4000))
def test_a_retry_is_never_earlier_than_the_vendor_allows(
    effect_class: str, failed_attempts: int, share: float, retry_after: float | None
) -> None:
    line = policy_for(effect_class)
    delay = line.next_delay(failed_attempts, lambda low, high: low + share * (high - low), retry_after)
    if failed_attempts > line.retries:
        assert delay is None
    else:
        assert delay is not None
        assert delay >= (retry_after or 0)
        assert delay <= max(retry_after or 0, line.backoff.cap_seconds)


def test_a_retry_after_longer_than_the_backoff_is_kept() -> None:
    assert policy_for("slack.post").next_delay(1, highest, 45) == 45


def test_an_unlisted_class_has_the_default_line() -> None:
    assert policy_for("fax.send") is POLICIES["default"]


def test_the_longest_call_ends_within_the_shortest_lease() -> None:
    assert CALL_SECONDS_MAX + OVERRUN_SECONDS < LEASE_SECONDS_MIN


@pytest.mark.parametrize("effect_class", CLASSES)
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure.TRANSIENT, Verdict.RETRY),
        (Failure.THROTTLED, Verdict.WAIT),
        (Failure.AUTH, Verdict.PAUSE),
        (Failure.MAPPING, Verdict.DEAD),
        (Failure.VALIDATION, Verdict.DEAD),
        (Failure.NOT_FOUND, Verdict.DEAD),
        (Failure.CONFLICT, Verdict.DEAD),
        (Failure.RENDER, Verdict.RETRY),
        (Failure.LLM_SCHEMA, Verdict.DEAD),
        (Failure.UNCERTAIN, Verdict.UNCERTAIN),
        (Failure.POISON, Verdict.DEAD),
        (Failure.EXPIRED, Verdict.DEAD),
        (Failure.INTERNAL, Verdict.RETRY),
    ],
)
def test_a_first_failure_that_provably_did_nothing_is_judged_by_its_kind(
    effect_class: str, failure: Failure, expected: Verdict
) -> None:
    assert verdict(policy_for(effect_class), failed(failure), alike_before=0) is expected


def test_every_kind_of_failure_is_in_that_table() -> None:
    assert len(Failure) == 13


@pytest.mark.parametrize(
    ("effect_class", "first", "second"),
    [
        ("slack.card", Verdict.RETRY, Verdict.RETRY),
        ("slack.post", Verdict.UNCERTAIN, Verdict.UNCERTAIN),
        ("slack.reply", Verdict.RETRY, Verdict.DEAD),
        ("slack.file", Verdict.UNCERTAIN, Verdict.UNCERTAIN),
        ("crm.create", Verdict.RETRY, Verdict.RETRY),
        ("crm.update", Verdict.RETRY, Verdict.RETRY),
        ("pdf.render", Verdict.RETRY, Verdict.RETRY),
        ("llm.extract", Verdict.RETRY, Verdict.RETRY),
        ("llm.summarize", Verdict.RETRY, Verdict.RETRY),
        ("default", Verdict.UNCERTAIN, Verdict.UNCERTAIN),
    ],
)
def test_a_lost_answer_is_looked_for_where_repeating_would_add_something(
    effect_class: str, first: Verdict, second: Verdict
) -> None:
    lost = failed(Failure.TRANSIENT, "timeout", possibly_applied=True)
    assert verdict(policy_for(effect_class), lost, alike_before=0) is first
    assert verdict(policy_for(effect_class), lost, alike_before=1) is second


def test_a_template_error_is_final_at_first_sight_and_any_other_render_failure_at_the_second() -> None:
    line = policy_for("pdf.render")
    assert verdict(line, failed(Failure.RENDER, "template_error"), alike_before=0) is Verdict.DEAD
    assert verdict(line, failed(Failure.RENDER, "layout"), alike_before=0) is Verdict.RETRY
    assert verdict(line, failed(Failure.RENDER, "layout"), alike_before=1) is Verdict.DEAD


@pytest.mark.parametrize("effect_class", CLASSES)
@pytest.mark.parametrize("possibly_applied", [False, True])
def test_a_bug_of_ours_is_tried_twice_at_most(effect_class: str, possibly_applied: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    bug = failed(Failure.INTERNAL, possibly_applied=possibly_applied)
    assert verdict(policy_for(effect_class), bug, alike_before=0) is not Verdict.DEAD
    assert verdict(policy_for(effect_class), bug, alike_before=1) is Verdict.DEAD
