"""Tests of overrides: the parts of the matrix that an installation may change, and the refusal of everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.policies import (
    POLICIES,
    TIMEOUT_SECONDS_MAX,
    Backoff,
    Matrix,
    OverridesError,
    Policy,
    RetryOverride,
    policies,
    read_overrides,
)
from quotebot.dispatch.dispatcher import OVERRUN_SECONDS
from quotebot.settings import LEASE_SECONDS_MIN

DAY = 86_400
WHOLE = {
    "retries": 8, "base_seconds": 1, "cap_seconds": 120, "timeout_seconds": 30, "max_age_seconds": DAY, "jitter": "bounded",
    "concurrency": 2,
}  # fmt: skip
BOUNDS: dict[str, tuple[float, float]] = {
    "retries": (0, 20),
    "base_seconds": (0.05, 60),
    "cap_seconds": (0.05, 3600),
    "factor": (1, 10),
    "timeout_seconds": (1, 80),
    "max_age_seconds": (60, 90 * DAY),
    "concurrency": (1, 16),
}
JITTERS = ["full", "none", "bounded"]


def with_overrides(given: dict[str, Any]) -> dict[str, Policy]:
    return dict(policies(read_overrides(given)))


def refused(given: dict[str, Any]) -> dict[str, str]:
    """Return every refused item with its reason."""
    with pytest.raises(OverridesError) as error:
        read_overrides(given)
    for misfit in error.value.misfits:
        assert ".".join(misfit.place) in str(error.value)
        assert misfit.reason in str(error.value)
    return {".".join(misfit.place): misfit.reason for misfit in error.value.misfits}


def highest(low: float, high: float) -> float:
    assert low <= high
    return high


def test_without_overrides_the_matrix_is_the_built_in_one() -> None:
    assert with_overrides({}) == dict(POLICIES)
    assert with_overrides({"crm.create": {}}) == dict(POLICIES)
    assert with_overrides({"crm.create": {"retries": None}}) == dict(POLICIES)


@pytest.mark.parametrize("effect_class", sorted(set(POLICIES) - {"pdf.render"}))
def test_every_item_of_every_class_can_be_set_and_nothing_else_changes(effect_class: str) -> None:
    lines = with_overrides({effect_class: WHOLE})
    assert lines.pop(effect_class) == replace(
        POLICIES[effect_class],
        retries=8,
        backoff=Backoff(1, 120),
        jitter="bounded",
        timeout_seconds=30,
        max_age_seconds=DAY,
        concurrency=2,
    )
    assert lines == {name: line for name, line in POLICIES.items() if name != effect_class}


@pytest.mark.parametrize(
    ("item", "value", "changed"),
    [
        ("retries", 0, {"retries": 0}),
        ("base_seconds", 2, {"backoff": Backoff(2, 60)}),
        ("cap_seconds", 5, {"backoff": Backoff(0.5, 5)}),
        ("factor", 3, {"backoff": Backoff(0.5, 60, factor=3)}),
        ("steps_seconds", [5, 1, 30], {"backoff": Backoff(1, 30, (5, 1, 30))}),
        ("jitter", "none", {"jitter": "none"}),
        ("timeout_seconds", 2.5, {"timeout_seconds": 2.5}),
        ("max_age_seconds", 60, {"max_age_seconds": 60}),
        ("concurrency", 16, {"concurrency": 16}),
    ],
)
def test_one_item_changes_one_cell(item: str, value: object, changed: dict[str, Any]) -> None:
    assert with_overrides({"crm.create": {item: value}})["crm.create"] == replace(POLICIES["crm.create"], **changed)


def test_the_waits_follow_the_overrides() -> None:
    line = with_overrides({"crm.create": {"retries": 4, "base_seconds": 3, "cap_seconds": 10, "jitter": "none"}})["crm.create"]
    assert [line.next_delay(failed, highest, None) for failed in range(1, 6)] == [3, 6, 10, 10, None]
    assert line.backoff.words == "exp 3 s..10 s"


def test_a_factor_is_how_much_longer_each_wait_is() -> None:
    line = with_overrides({"crm.create": {"factor": 3, "cap_seconds": 10, "jitter": "none"}})["crm.create"]
    assert [line.next_delay(failed, highest, None) for failed in range(1, 8)] == [0.5, 1.5, 4.5, 10, 10, 10, None]
    assert line.backoff.words == "exp 500 ms..10 s x3"
    constant = with_overrides({"crm.create": {"factor": 1, "jitter": "none"}})["crm.create"]
    assert [constant.next_delay(failed, highest, None) for failed in (1, 6)] == [0.5, 0.5]


def test_fixed_steps_are_waited_as_given() -> None:
    line = with_overrides({"pdf.render": {"retries": 4, "steps_seconds": [2, 5, 5.5]}})["pdf.render"]
    assert [line.next_delay(failed, highest, None) for failed in range(1, 6)] == [2, 5, 5.5, 5.5, None]
    assert line.backoff.words == "2 s, 5 s, 5.5 s"


@pytest.mark.parametrize("steps", [[], [1, 0.04], [1, 3601], [1] * 21, [1, "1"], [1, True], 3, "1"])
def test_fixed_steps_have_bounds_too(steps: object) -> None:
    (item,) = refused({"pdf.render": {"steps_seconds": steps}})
    assert item.startswith("pdf.render.steps_seconds")


@pytest.mark.parametrize("item", ["base_seconds", "cap_seconds", "factor"])
def test_fixed_steps_and_a_backoff_exclude_each_other(item: str) -> None:
    reasons = refused({"slack.post": {"steps_seconds": [1, 2], item: 2}})
    assert reasons == {"slack.post.steps_seconds": f"fixed steps and {item} exclude each other"}


def test_a_bad_step_and_a_bad_factor_are_named_with_every_other_bad_item() -> None:
    found = refused({"slack.post": {"steps_seconds": [1, 0], "retries": 21}, "crm.create": {"factor": 11, "cap_seconds": 70}})
    assert set(found) == {"slack.post.steps_seconds.1", "slack.post.retries", "crm.create.factor"}


def test_no_retries_means_one_try() -> None:
    line = with_overrides({"slack.post": {"retries": 0}})["slack.post"]
    assert (line.next_delay(1, highest, 5), line.waits()) == (None, ())


def test_fixed_steps_become_a_doubling_backoff_only_when_both_its_ends_are_given() -> None:
    line = with_overrides({"pdf.render": {"retries": 3, "base_seconds": 2, "cap_seconds": 6}})["pdf.render"]
    assert [line.next_delay(failed, highest, None) for failed in range(1, 5)] == [2, 4, 6, None]
    for item in ("base_seconds", "cap_seconds", "factor"):
        assert "together" in refused({"pdf.render": {item: 2}})["pdf.render"]


def test_fixed_steps_stay_when_only_other_items_are_given() -> None:
    line = with_overrides({"pdf.render": {"retries": 3, "jitter": "full"}})["pdf.render"]
    assert (line.backoff, list(line.waits())) == (Backoff(1, 3, (1, 3)), [(0, 1), (0, 3), (0, 3)])


@pytest.mark.parametrize("item", BOUNDS)
def test_the_bounds_themselves_are_allowed_and_what_lies_beyond_is_refused(item: str) -> None:
    low, high = BOUNDS[item]
    beyond = 1 if item in {"retries", "concurrency"} else 0.001
    partners: dict[str, dict[str, float]] = {"cap_seconds": {"base_seconds": 0.05}, "base_seconds": {"cap_seconds": 60}}
    partner = partners.get(item, {})
    for value in (low, high):
        assert read_overrides({"default": {item: value, **partner}})["default"].given()[item] == value
    assert "greater than or equal" in refused({"default": {item: low - beyond}})[f"default.{item}"]
    assert "less than or equal" in refused({"default": {item: high + beyond}})[f"default.{item}"]


@pytest.mark.parametrize("item", BOUNDS)
@pytest.mark.parametrize("value", ["8", True, [1], {}, float("nan"), float("inf"), "", -(10**400)])
def test_a_number_is_a_number(item: str, value: object) -> None:
    assert list(refused({"default": {item: value}})) == [f"default.{item}"]


@pytest.mark.parametrize("item", ["retries", "concurrency"])
def test_a_count_is_a_whole_number(item: str) -> None:
    assert list(refused({"default": {item: 1.5}})) == [f"default.{item}"]


@pytest.mark.parametrize("jitter", ["some", "FULL", "", 1])
def test_a_jitter_is_one_of_three(jitter: object) -> None:
    assert "'full', 'none' or 'bounded'" in refused({"default": {"jitter": jitter}})["default.jitter"]


@pytest.mark.parametrize(
    ("name", "meant"), [("crm.creat", "crm.create"), ("slack.posts", "slack.post"), ("pdf_render", "pdf.render")]
)
def test_an_unknown_class_is_refused_with_the_known_ones_and_the_one_that_was_meant(name: str, meant: str) -> None:
    reason = refused({name: {}})[name]
    assert f"did you mean {meant}?" in reason
    assert all(known in reason for known in POLICIES)


def test_a_class_like_no_other_is_refused_without_a_guess() -> None:
    reason = refused({"zzz": {"retries": 1}})["zzz"]
    assert "did you mean" not in reason
    assert all(known in reason for known in POLICIES)


@pytest.mark.parametrize("effect_class", sorted(POLICIES))
def test_semantics_and_unknown_items_cannot_be_overridden(effect_class: str) -> None:
    reasons = refused({effect_class: {"semantics": POLICIES[effect_class].semantics, "lane": "x", "retrys": 1}})
    assert "not a choice" in reasons[f"{effect_class}.semantics"]
    for item in ("lane", "retrys"):
        assert all(known in reasons[f"{effect_class}.{item}"] for known in RetryOverride.model_fields)


@pytest.mark.parametrize("overrides", [{"base_seconds": 60}, {"cap_seconds": 0.1}, {"base_seconds": 2, "cap_seconds": 1.9}])
def test_a_cap_below_the_base_is_refused_whichever_of_them_was_given(overrides: dict[str, float]) -> None:
    assert list(refused({"slack.post": overrides})) == ["slack.post.cap_seconds"]


def test_a_cap_may_equal_its_base() -> None:
    line = with_overrides({"slack.post": {"base_seconds": 5, "cap_seconds": 5, "jitter": "bounded"}})["slack.post"]
    assert set(line.waits()) == {(3.75, 5)}


def test_renderer_concurrency_cannot_be_raised_above_one() -> None:
    assert with_overrides({"pdf.render": {"concurrency": 1}}) == dict(POLICIES)
    assert "one renderer" in refused({"pdf.render": {"concurrency": 2}})["pdf.render.concurrency"]


@pytest.mark.parametrize("items", [[], 3, "x", None])
def test_a_class_is_given_a_table_of_items(items: object) -> None:
    assert refused({"default": items}) == {"default": "it must be a table of items"}


def test_every_bad_item_is_named_at_once() -> None:
    found = refused(
        {
            "crm.create": {"retries": 21, "semantics": "pure", "base_seconds": 61, "jitter": "some"},
            "crm.updat": {"timeout_seconds": 81, "concurrency": 0},
            "pdf.render": {"retries": -1, "concurrency": 2, "cap_seconds": 9},
            "slack.card": {"base_seconds": 40},
            "slack.post": 5,
            "llm.extract": {"max_age_seconds": 90 * DAY},
        }
    )
    assert set(found) == {
        "crm.create.retries", "crm.create.semantics", "crm.create.base_seconds", "crm.create.jitter",
        "crm.updat", "crm.updat.timeout_seconds", "crm.updat.concurrency",
        "pdf.render", "pdf.render.retries", "pdf.render.concurrency",
        "slack.card.cap_seconds", "slack.post",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "good"), [({"base_seconds": 61}, {"cap_seconds": 70}), ({"cap_seconds": 3601}, {"base_seconds": 50})]
)
@pytest.mark.parametrize("effect_class", ["pdf.render", "slack.post"])
def test_a_bad_end_of_the_backoff_is_not_blamed_on_the_other_end(
    effect_class: str, bad: dict[str, float], good: dict[str, float]
) -> None:
    assert list(refused({effect_class: {**bad, **good}})) == [f"{effect_class}.{name}" for name in bad]


def test_overrides_made_in_code_are_checked_for_class_and_relations_too() -> None:
    with pytest.raises(OverridesError) as error:
        policies({"crm.creat": RetryOverride(), "slack.post": RetryOverride(cap_seconds=0.1)})
    assert [misfit.place for misfit in error.value.misfits] == [("crm.creat",), ("slack.post", "cap_seconds")]


def test_overrides_that_were_read_before_are_read_again_as_they_are() -> None:
    once = read_overrides({"crm.create": WHOLE})
    assert read_overrides(once) == once


NUMBERS = {
    "retries": st.integers(0, 20),
    "base_seconds": st.floats(0.05, 60),
    "cap_seconds": st.floats(60, 3600),
    "factor": st.floats(1, 10),
    "jitter": st.sampled_from(JITTERS),
    "timeout_seconds": st.floats(1, 80),
    "max_age_seconds": st.floats(60, 90 * DAY),
}


@given(
    st.dictionaries(st.sampled_from(sorted(POLICIES)), st.fixed_dictionaries(NUMBERS)),
    st.sampled_from(sorted(POLICIES)),
    st.floats(0, 1),
    st.none() | st.floats(0, 4000),
)
def test_every_allowed_override_keeps_the_invariants_of_the_matrix(
    overrides: dict[str, Any], effect_class: str, share: float, retry_after: float | None
) -> None:
    matrix = Matrix(policies(read_overrides(overrides)))
    assert all(line.timeout_seconds + OVERRUN_SECONDS < LEASE_SECONDS_MIN for line in matrix.lines.values())
    line = matrix.of(effect_class)
    assert line.semantics == POLICIES[effect_class].semantics
    delays = [line.next_delay(failed, lambda low, high: low + share * (high - low), retry_after) for failed in range(1, 23)]
    kept = [delay for delay in delays if delay is not None]
    assert len(kept) == line.retries
    assert delays[: line.retries] == kept
    floor = retry_after or 0
    assert all(floor <= delay <= max(floor, line.backoff.cap_seconds) for delay in kept)


def test_no_allowed_time_out_outlives_the_shortest_lease() -> None:
    lines = with_overrides({name: {"timeout_seconds": TIMEOUT_SECONDS_MAX} for name in POLICIES})
    assert {line.timeout_seconds for line in lines.values()} == {TIMEOUT_SECONDS_MAX}
    assert TIMEOUT_SECONDS_MAX + OVERRUN_SECONDS < LEASE_SECONDS_MIN
    assert list(refused({"default": {"timeout_seconds": LEASE_SECONDS_MIN - OVERRUN_SECONDS}})) == ["default.timeout_seconds"]
