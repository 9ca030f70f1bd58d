"""Tests that seeded bugs are caught by the suites' checks, and that changes that are not bugs are not reported."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from faults.harness.programs import run
from faults.mutants.model import BUGS as MODEL_BUGS
from faults.report.reports import FOLDER_VARIABLE
from faults.suites.mutants import BENIGN, BUGS, POSTGRES, seeded
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

SHARDS: Final = 4

_UNREPORTED: Final = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}

HUNT_ONE: Final = """
import sys
from faults.suites import mutants
from faults.mutants import clients
from faults.mutants.catalogue import Bug
from faults.mutants.detection import Windows
from faults.mutants.patching import put, sql
from quotebot.dispatch.slack_post import PostHandler
{plant}
mutants.BUGS = (Bug('planted', 'for this test', plant, Windows('create', most=2)),)
mutants.BENIGN = ()
sys.exit(mutants.main([]))
"""


def hunted(plant: str) -> subprocess.CompletedProcess[str]:
    """Hunt one bug, defined by the program text `plant`, in a process of its own."""
    return run("faults.suites.test_mutants", plant, seconds=60, hash_seed="0", environment=_UNREPORTED)


def main(arguments: Sequence[str]) -> None:
    """Run as that process."""
    exec(HUNT_ONE.format(plant=arguments[0]), {})  # noqa: S102 -- the text of a test below


@pytest.mark.takes(15)
@pytest.mark.parametrize("shard", range(1, SHARDS + 1))
def test_every_seeded_bug_is_caught_and_no_harmless_change_is_flagged(shard: int) -> None:
    chosen = seeded("change")[shard - 1 :: SHARDS]

    hunt = run("faults.suites.mutants", "--shard", f"{shard}/{SHARDS}", seconds=300, hash_seed="0")

    assert (hunt.returncode, hunt.stderr) == (0, ""), hunt.stdout
    assert hunt.stdout.count(": caught by ") == sum(bug in BUGS for bug in chosen)
    assert hunt.stdout.count(": let pass") == sum(bug in BENIGN for bug in chosen)


@pytest.mark.takes(30)
@pytest.mark.timeout(600)
def test_every_seeded_bug_of_the_engine_for_postgresql_is_caught() -> None:
    if find_programs() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no PostgreSQL server is installed")

    hunt = run("faults.suites.mutants", "--budget", "postgres", seconds=580, hash_seed="0")

    assert (hunt.returncode, hunt.stderr) == (0, ""), hunt.stdout
    assert hunt.stdout.count(": caught by ") == len({bug.name for bug in POSTGRES}) == len(POSTGRES) >= 12


def test_at_least_forty_bugs_are_seeded_besides_those_of_the_model() -> None:
    names = Counter(bug.name for bug in (*BUGS, *BENIGN))

    assert set(names.values()) == {1}
    assert set(MODEL_BUGS) < set(names)
    assert len(BUGS) - len(MODEL_BUGS) >= 40
    assert len(BENIGN) >= 2


def test_a_bug_that_survives_fails_the_suite_and_is_named() -> None:
    hunt = hunted("plant = lambda: None")

    assert hunt.returncode == 1
    assert "planted: SURVIVED" in hunt.stdout
    assert "planted survived (for this test) -- python -m faults.suites.mutants --only 'planted'" in hunt.stdout


def test_a_bug_that_no_longer_fits_fails_the_suite_and_is_named() -> None:
    hunt = hunted("plant = sql('due_effects', ('not in it', 'x'))")

    assert hunt.returncode == 1
    assert "planted: DOES NOT FIT" in hunt.stdout
    assert "the planted bug has to follow" in hunt.stdout


def test_error_inside_the_seeded_code_does_not_count_as_caught() -> None:
    hunt = hunted("plant = lambda: put(PostHandler, '_post_in_thread', clients.key_per_attempt)")  # it takes no arguments

    assert hunt.returncode == 1
    assert "0 of 1 caught" in hunt.stdout
