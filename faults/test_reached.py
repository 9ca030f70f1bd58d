"""Every interesting state is come to, on purpose and in seconds: a state that nothing reaches any more proves nothing."""

from __future__ import annotations

import os
import subprocess
import sys


def test_every_interesting_state_is_reached_and_nothing_is_violated_on_the_way() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = (sys.executable, "-m", "faults.reaching")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
