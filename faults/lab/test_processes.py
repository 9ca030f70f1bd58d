"""Tests of parallel work in forks: every result arrives, and Ctrl-C ends everything at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from faults.lab.processes import beside

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS: Final = """
import os, sys, tempfile, time
from faults.lab.processes import beside, no_traceback_of_ctrl_c

def wait(_):
    with tempfile.TemporaryDirectory(dir=sys.argv[1]):
        os.write(1, f"{os.getpid()}\\n".encode())  # in one piece, for the other writes there too
        while True:  # signal.pause() would miss a signal that comes right before it
            time.sleep(0.05)

with no_traceback_of_ctrl_c():
    list(beside(wait, [1, 2], 2))
"""


def test_everything_comes_back_from_forks() -> None:
    assert sorted(beside(abs, [-1, 2, -3], 2)) == [1, 2, 3]


def test_one_forked_run_at_a_time_runs_in_this_process_in_order() -> None:
    assert list(beside(lambda number: (number, os.getpid()), [3, 1, 2], 1)) == [(number, os.getpid()) for number in (3, 1, 2)]


def test_ctrl_c_ends_every_fork_without_a_traceback_and_each_tidies_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            forks = [int(program.stdout.readline()) for _ in range(2)]
            assert len(list(tmp_path.iterdir())) == 2
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=60)
        except BaseException:
            program.kill()  # leaving the block waits for it
            raise
    assert (program.returncode, said) == (130, "")
    assert list(tmp_path.iterdir()) == []
    for fork in forks:
        with pytest.raises(ProcessLookupError):
            os.kill(fork, 0)
