"""Tests of the ledger against its model: the budget of every change, and proof that the model detects bugs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from faults.harness.programs import run
from faults.mutants.model import BUGS
from faults.report.reports import keep
from faults.suites.model import BLOCKS, RUNS, STEPS, empty_ledger, run_blocks
from faults.suites.model_ledger import ARROWS, Verdict
from faults.suites.model_machine import DAY, SECOND, LedgerMachine, RunCounts
from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARDS = 6
PER_SHARD = BLOCKS["change"] // SHARDS
NOT_WALKED = {("failed_retryable", "failed_terminal")}  # SPEC §4 allows it; no verb of the ledger does it
SOON_FOUND = (  # in a block or two; `python -m faults.mutants.model` hunts them all
    "child not woken",
    "children of a dropped one kept waiting",
    "second claim in a lane",
    "order of a lane not kept",
    "claims not counted",
    "attempt burnt by a pause",
    "older update kept",
    "waits of a clock that was ahead",
    "append sent again after a crash",
    "suspects not looked up",
    "outage let through at once",
    "claim not audited",
    "head sealed as another chain's",
)


@contextmanager
def by_hand() -> Iterator[LedgerMachine]:
    """Yield a machine to be driven by hand; at the end model and ledger must agree."""
    with empty_ledger() as template:
        machine = type("Run", (LedgerMachine,), {"tally": RunCounts(), "template": template})()
        try:
            yield machine
            machine.agree()
        finally:
            machine.teardown()


@pytest.mark.takes(9)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_steps_leave_the_ledger_equal_to_its_model(shard: int) -> None:
    first = 1 + shard * PER_SHARD
    report = run_blocks(range(first, first + PER_SHARD))
    keep(report)
    assert report.violations == ()
    assert report.counts["steps"] >= PER_SHARD * RUNS * STEPS * 0.95
    assert len(report.reached) >= len(ARROWS) // 2


def test_a_change_is_given_20_000_steps_and_a_night_a_million() -> None:
    assert BLOCKS["change"] == SHARDS * PER_SHARD
    assert BLOCKS["change"] * RUNS * STEPS * 0.95 >= 20_000
    assert BLOCKS["nightly"] * RUNS * STEPS * 0.95 >= 1_000_000


def test_the_arrows_of_the_model_are_those_of_the_machines() -> None:
    drawn = {(source.value, target.value) for source, targets in OPERATION_ARROWS.items() for target in targets}
    drawn |= {(source.value, target.value) for source, targets in EFFECT_ARROWS.items() for target in targets}
    assert drawn == ARROWS
    assert NOT_WALKED < ARROWS


@pytest.mark.takes(14)
def test_model_detects_its_seeded_bugs() -> None:
    assert set(SOON_FOUND) <= set(BUGS)
    hunt = run("faults.mutants.model", "--only", *SOON_FOUND, seconds=110)
    assert (hunt.returncode, hunt.stderr) == (0, ""), hunt.stdout
    assert hunt.stdout.count(": found after ") == len(SOON_FOUND) >= 10


def test_model_accepts_an_update_superseded_with_its_dependents_inside_one_command() -> None:
    with by_hand() as machine:
        card = ("slack.card", "Q-1", None, None, None)
        machine.command("Q-1", [card, ("slack.post", "Q-1", "sibling", None, None), card])


def test_row_due_before_its_own_not_before_time_holds_its_lane() -> None:
    """The clock was ahead at the claim and was set back since: the effect is due at once, though its `not_before` is later."""
    with by_hand() as machine:
        machine.command("Q-1", [("slack.post", "Q-1", None, None, 10 * SECOND), ("slack.post", "Q-1", None, None, None)])
        machine.clock.put(DAY)
        machine.claim_effects(set(), 3, None)
        machine.settle(0, Verdict("bury"), [])
        machine.clock.put(-DAY)
        machine.say(0, "replay", anything=False, delay=0)
        machine.claim_effects(set(), 3, None)


@pytest.mark.parametrize("kind", ["effect", "operation"])
def test_late_result_does_not_clear_a_suspect(kind: str) -> None:
    """A row claimed at two crashes is tried alone: a late result must not make this process forget such a row."""
    with by_hand() as machine:
        machine.command("Q-1", [("slack.post", "Q-1", None, None, None)])
        machine.reserve_new("Q-1", 0)
        for _ in range(2):
            take(machine, kind)
            machine.interrupt("crash")
        take(machine, kind)
        if kind == "effect":
            machine.settle(0, Verdict("doubt"), [])
        else:
            machine.fail_operation(0, "shelve", 0, answered=False)
        machine.come_late(-1, Verdict("doubt"), "retry")
        machine.agree()
        take(machine, kind)


def take(machine: LedgerMachine, kind: str) -> None:
    """Claim the due rows of this kind."""
    if kind == "effect":
        machine.claim_effects(set(), 3, None)
    else:
        machine.claim_operations(1)
