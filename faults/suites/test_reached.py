"""Tests that every interesting state is reached, on purpose and in seconds: a state that no run reaches proves nothing."""

from __future__ import annotations

import pytest

from faults.harness.programs import run


@pytest.mark.takes(28)
def test_every_interesting_state_is_reached_and_nothing_is_violated_on_the_way() -> None:
    done = run("faults.suites.reaching", seconds=300, hash_seed="0")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
