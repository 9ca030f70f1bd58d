"""Tests of the retry matrix: the decision for every kind of failure and every class, written out in full."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from adapters.failures import INVALID_VALUE, AdapterError, Failure
from adapters.policies import POLICIES, RetryDecision, policy_for, verdict

WORDS = {
    "R": RetryDecision.RETRY,
    "W": RetryDecision.WAIT,
    "P": RetryDecision.PAUSE,
    "U": RetryDecision.UNCERTAIN,
    "D": RetryDecision.DEAD,
}

# The failure: whether the call may have been applied, its status, and whether it occurred before in this cycle.
#   nothing, nothing2   provably nothing was done, the first and the second time
#   lost, lost2         the answer was lost
#   5xx, 5xx2           an answer that leaves the outcome open
HOW = {
    "nothing": (False, None, 0),
    "nothing2": (False, None, 1),
    "lost": (True, None, 0),
    "lost2": (True, None, 1),
    "5xx": (True, 503, 0),
    "5xx2": (True, 503, 1),
}
ORDER = ["slack.card", "slack.post", "slack.direct", "slack.direct_card", "slack.reply", "slack.unfurl", "slack.file",
         "crm.create", "crm.update", "crm.read", "pdf.render", "llm.extract", "llm.summarize", "default"]  # fmt: skip

# Retry, Wait (uses no attempt), Pause the class, Uncertain (check first), Dead.
MATRIX = """
                        card  post  dm    dm=   reply link   file  crm+  crm=  crm?  pdf   llm1  llm2  default
transient   nothing     R     R     R     R     R     R     R     R     R     R     R     R     R     R
transient   nothing2    R     R     R     R     R     R     R     R     R     R     R     R     R     R
transient   lost        R     U     U     R     R     R     U     R     R     R     R     R     R     U
transient   lost2       R     U     U     R     D     R     U     R     R     R     R     R     R     U
transient   5xx         R     U     U     R     R     R     U     R     R     R     R     R     R     U
transient   5xx2        R     U     U     R     R     R     U     R     R     R     R     R     R     U
timeout     nothing     R     R     R     R     R     R     R     R     R     R     R     R     R     R
timeout     nothing2    R     R     R     R     R     R     R     R     R     R     R     R     R     R
timeout     lost        R     U     U     R     R     R     U     R     R     R     R     R     R     U
timeout     lost2       R     U     U     R     D     R     U     R     R     R     R     R     R     U
timeout     5xx         R     U     U     R     R     R     U     R     R     R     R     R     R     U
timeout     5xx2        R     U     U     R     R     R     U     R     R     R     R     R     R     U
throttled   nothing     W     W     W     W     W     W     W     W     W     W     W     W     W     W
throttled   nothing2    W     W     W     W     W     W     W     W     W     W     W     W     W     W
throttled   lost        W     W     W     W     W     W     W     W     W     W     W     W     W     W
throttled   lost2       W     W     W     W     W     W     W     W     W     W     W     W     W     W
throttled   5xx         W     W     W     W     W     W     W     W     W     W     W     W     W     W
throttled   5xx2        W     W     W     W     W     W     W     W     W     W     W     W     W     W
auth        nothing     P     P     P     P     P     P     P     P     P     P     P     P     P     P
auth        nothing2    P     P     P     P     P     P     P     P     P     P     P     P     P     P
auth        lost        P     P     P     P     P     P     P     P     P     P     P     P     P     P
auth        lost2       P     P     P     P     P     P     P     P     P     P     P     P     P     P
auth        5xx         P     P     P     P     P     P     P     P     P     P     P     P     P     P
auth        5xx2        P     P     P     P     P     P     P     P     P     P     P     P     P     P
mapping     nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
mapping     nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
mapping     lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
mapping     lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
mapping     5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
mapping     5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
validation  5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
not_found   5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
conflict    5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
render      nothing     R     R     R     R     R     R     R     R     R     R     R     R     R     R
render      nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
render      lost        R     U     U     R     R     R     U     R     R     R     R     R     R     U
render      lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
render      5xx         R     U     U     R     R     R     U     R     R     R     R     R     R     U
render      5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
llm_schema  5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
uncertain   nothing     U     U     U     U     U     U     U     U     U     U     U     U     U     U
uncertain   nothing2    U     U     U     U     U     U     U     U     U     U     U     U     U     U
uncertain   lost        U     U     U     U     U     U     U     U     U     U     U     U     U     U
uncertain   lost2       U     U     U     U     U     U     U     U     U     U     U     U     U     U
uncertain   5xx         U     U     U     U     U     U     U     U     U     U     U     U     U     U
uncertain   5xx2        U     U     U     U     U     U     U     U     U     U     U     U     U     U
poison      nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
poison      nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
poison      lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
poison      lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
poison      5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
poison      5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     nothing     D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     lost        D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     5xx         D     D     D     D     D     D     D     D     D     D     D     D     D     D
expired     5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
internal    nothing     R     R     R     R     R     R     R     R     R     R     R     R     R     R
internal    nothing2    D     D     D     D     D     D     D     D     D     D     D     D     D     D
internal    lost        R     U     U     R     R     R     U     R     R     R     R     R     R     U
internal    lost2       D     D     D     D     D     D     D     D     D     D     D     D     D     D
internal    5xx         R     U     U     R     R     R     U     R     R     R     R     R     R     U
internal    5xx2        D     D     D     D     D     D     D     D     D     D     D     D     D     D
"""


@dataclass(frozen=True, slots=True)
class Cell:
    failure: Failure
    how: str
    effect_class: str
    expected: RetryDecision

    def judged(self, code: str = "x") -> RetryDecision:
        possibly_applied, http_status, alike_before = HOW[self.how]
        error = AdapterError(self.failure, code, "it failed", http_status=http_status, possibly_applied=possibly_applied)
        return verdict(policy_for(self.effect_class), error, alike_before=alike_before)


def read_cells() -> list[Cell]:
    cells = []
    for line in MATRIX.strip().splitlines()[1:]:
        failure, how, *marks = line.split()
        cells += [Cell(Failure(failure), how, name, WORDS[mark]) for name, mark in zip(ORDER, marks, strict=True)]
    return cells


CELLS = read_cells()


def test_the_table_holds_every_failure_in_every_way_for_every_class_once() -> None:
    assert len(Failure) == 14
    assert sorted(ORDER) == sorted(POLICIES)
    assert {(cell.failure, cell.how, cell.effect_class) for cell in CELLS} == {
        (failure, how, name) for failure in Failure for how in HOW for name in POLICIES
    }
    assert len(CELLS) == 14 * 6 * 14


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("effect_class", ORDER)
def test_every_failure_is_judged_as_the_table_says(failure: Failure, effect_class: str) -> None:
    mine = [cell for cell in CELLS if (cell.failure, cell.effect_class) == (failure, effect_class)]
    assert {cell.how: cell.judged() for cell in mine} == {cell.how: cell.expected for cell in mine}


@pytest.mark.parametrize("effect_class", ORDER)
@pytest.mark.parametrize("how", HOW)
def test_a_template_error_is_final_at_first_sight(effect_class: str, how: str) -> None:
    assert Cell(Failure.RENDER, how, effect_class, RetryDecision.DEAD).judged("template_error") is RetryDecision.DEAD


@pytest.mark.parametrize("effect_class", ORDER)
@pytest.mark.parametrize("how", HOW)
def test_an_invalid_value_is_final_at_first_sight(effect_class: str, how: str) -> None:
    assert Cell(Failure.INTERNAL, how, effect_class, RetryDecision.DEAD).judged(INVALID_VALUE) is RetryDecision.DEAD


@pytest.mark.parametrize("effect_class", ORDER)
@pytest.mark.parametrize(("lost", "answered"), [("lost", "5xx"), ("lost2", "5xx2")])
def test_an_answer_that_cannot_be_read_is_a_lost_one_whatever_its_status(effect_class: str, lost: str, answered: str) -> None:
    unread = Cell(Failure.TRANSIENT, answered, effect_class, RetryDecision.RETRY).judged("unreadable")
    assert unread is Cell(Failure.TRANSIENT, lost, effect_class, RetryDecision.RETRY).judged()


@pytest.mark.parametrize("effect_class", ORDER)
def test_budget_ends_after_the_first_try_and_all_retries(effect_class: str) -> None:
    line = policy_for(effect_class)
    outcomes = []
    for failed in range(1, line.retries + 2):
        judged = verdict(line, AdapterError(Failure.TRANSIENT, "http_503", "it failed", http_status=503), alike_before=failed - 1)
        outcomes.append(judged is RetryDecision.RETRY and line.next_delay(failed, lambda low, _: low, None) is not None)
    assert outcomes == [True] * line.retries + [False]
