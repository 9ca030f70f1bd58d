"""Tests of some steps of a migration of a database; `python -m faults.suites.migrations --budget nightly` takes every one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from faults.lab.ledgers import ledger_server
from faults.suites.migrations import GOES_ON, KILLED, Origins, Trial, run_trials, trials_of
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    find_programs() is None and os.environ.get("CI") != "true", reason="no PostgreSQL server is installed"
)


@pytest.fixture(scope="module")
def origins() -> Iterator[Origins]:
    with ledger_server() as server:
        yield Origins(server)


@pytest.mark.takes(5)
@pytest.mark.timeout(600)
def test_crash_or_second_process_within_a_migration_leaves_the_schema_whole(origins: Origins) -> None:
    last = origins.steps["used"]
    trials = [
        Trial("used", 3 * last // 4, 0, KILLED),
        Trial("used", last - 2, last // 3, KILLED),
        Trial("used", 3 * last // 4, 0, GOES_ON),
    ]
    report = run_trials(origins, trials, 1)
    assert report.violations == ()
    assert report.counts == {"processes killed": 2, "pairs of processes": 1}


@pytest.mark.timeout(600)
def test_a_file_that_two_processes_apply_is_found(origins: Origins, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = origins.steps["used"]
    monkeypatch.setattr("ledger.postgres.migrations.pending", lambda _connection, files: list(files))
    step = 3 * steps // 4  # the first file is being applied
    found = run_trials(origins, [Trial("used", step, 0, GOES_ON)], 1).violations
    assert found[0].endswith(f"python -m faults.suites.migrations --trial used {step} 0 'goes on'")


def test_every_step_is_tried_with_and_without_a_second_process_under_way() -> None:
    trials = trials_of({"new": 3, "used": 2}, 1, None)
    assert len(trials) == 4 * (3 + 2)
    assert {(trial.ledger, trial.first, trial.then) for trial in trials if trial.second == 0} == {
        (ledger, step, then) for ledger, last in (("new", 3), ("used", 2)) for step in range(last) for then in (KILLED, GOES_ON)
    }
    assert trials_of({"new": 3, "used": 2}, 1, 4) == trials_of({"new": 3, "used": 2}, 1, 4)
