"""Tests of three hundred simulated days in shards, and that a seed gives the same run every time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from faults.harness.programs import run

ROOT: Final = Path(__file__).parents[2]
SHARDS: Final = 4
DAYS: Final = 75  # per shard
SEEDS_OF_A_SHARD: Final = 25


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("faults.suites.simulate", *arguments, seconds=580, hash_seed="0")


def simulate_by_itself(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faults.suites.simulate", *arguments]
    at_once = {**os.environ, "PYTHONHASHSEED": "0"}  # as the program would set it, so that it need not restart itself
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False, env=at_once)


def trace(output: str) -> list[str]:
    return re.findall(r"trace ([0-9a-f]{16})", output)


@pytest.mark.takes(36)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_after_every_day_whatever_happened_in_it_everything_holds(shard: int) -> None:
    done = simulate("--days", str(DAYS), "--seed", str(1 + shard * SEEDS_OF_A_SHARD))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert len(trace(done.stdout)) == SEEDS_OF_A_SHARD


@pytest.mark.takes(7)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", ["799", "895"])
def test_busy_days_of_earlier_failures_have_no_violations(seed: str) -> None:
    done = simulate("--days", "3", "--seed", seed, "--busy")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.mark.takes(8)
@pytest.mark.timeout(600)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    first, other = (trace(simulate("--days", "1", "--seed", seed).stdout) for seed in ("2007", "2008"))
    again = trace(simulate_by_itself("--days", "1", "--seed", "2007").stdout)
    assert len(first) == 1
    assert first == again
    assert first != other
