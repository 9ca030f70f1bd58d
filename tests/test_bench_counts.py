"""Tests of the instruction count: what is in a window, what callgrind's files say, and the verdicts. Nothing is counted here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from bench import counts
from bench.lifecycle import callgrind, counted
from bench.lifecycle.child import make
from bench.lifecycle.footprint import record
from bench.lifecycle.measure import Run, check, mark
from ledger.sqlite import engine

if TYPE_CHECKING:
    from pathlib import Path

# As callgrind writes it: names once, then by number; relative lines; the line after calls= is the callee's cost, counted there.
FILE = """\
# callgrind format
version: 1
positions: line
events: Ir
desc: Trigger: --dump-before=sched_get_priority_min

ob=(1) /usr/bin/python3.11
fl=(1) ???
fn=(1) _PyEval_EvalFrameDefault
0 100
cob=(2) /usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6
cfn=(2) sqlite3_step
calls=3 0
0 7000
+3 20

ob=(2)
fn=(2)
* 50
-2 4
fn=(3) sqlite3_finalize
0 1
cob=(3) /usr/lib/x86_64-linux-gnu/libc.so.6
cfn=(4) malloc
calls=1 0
0 900

ob=(3)
fn=(4)
0 7
totals: 182
"""


def test_instructions_are_added_up_by_library_without_those_of_called_functions() -> None:
    assert callgrind.by_library(FILE.splitlines()) == Counter(python=120, sqlite=55, libc=7)


@pytest.mark.parametrize("text", [FILE.replace("totals: 182", "totals: 183"), FILE.replace("totals: 182\n", "")])
def test_parts_that_do_not_add_up_to_the_total_are_refused(text: str) -> None:
    with pytest.raises(callgrind.CallgrindError, match="add up to 182"):
        callgrind.by_library(text.splitlines())


@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("/usr/bin/python3.11", "python"),
        ("/opt/lib/libpython3.13.so.1.0", "python"),
        ("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6", "sqlite"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc"),
        ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "crypto"),
        ("/usr/lib/python3.11/lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so", "other"),
        ("/x/orjson/orjson.cpython-311-x86_64-linux-gnu.so", "other"),
        ("???", "other"),
    ],
)
def test_a_library_has_its_column(path: str, column: str) -> None:
    assert callgrind.library(path) == column


def commands_in(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as shell:
        found: int = shell.execute("SELECT count(*) FROM operations WHERE state = 'completed'").fetchone()[0]
    return found


@pytest.mark.parametrize("variant", ["quotebot c=1", "quotebot c=4", "limit"])
def test_a_window_holds_its_commands_and_neither_start_nor_warm_up(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    asyncio.run(make(path))
    before = mark(path)
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(counted, "lift_time_limits", lambda: None)
    for name in (counted.BEGIN, counted.END):
        monkeypatch.setattr(os, name, lambda _, name=name: seen.append((name, commands_in(path))))
    counted.run_windows(variant, path, warm_up=4, commands=8, windows=2)
    assert seen == [(counted.BEGIN, 4), (counted.END, 12), (counted.BEGIN, 12), (counted.END, 20)]
    run = Run(20, 0.0, [], 0)
    check(path, before, run, asyncio.run(record()))
    assert run.problems == []


def test_a_batch_of_commands_is_written_in_three_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    asyncio.run(make(path))
    monkeypatch.setattr(counted, "BATCHES", {"batch 64": 4})
    counted.run_windows("batch 64", path, warm_up=4, commands=8, windows=1)
    assert commands_in(path) == 12


def test_waits_for_the_real_clock_are_lifted_for_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in counted.REAL_TIMES:
        monkeypatch.setattr(engine, name, getattr(engine, name))
    kept = sys.getswitchinterval()
    try:
        counted.lift_time_limits()
        assert [getattr(engine, name) for name in counted.REAL_TIMES] == [counted.NEVER_SECONDS] * len(counted.REAL_TIMES)
        assert sys.getswitchinterval() == counted.NEVER_SECONDS
    finally:
        sys.setswitchinterval(kept)
    monkeypatch.setattr(counted, "REAL_TIMES", ("NO_SUCH_SECONDS",))
    with pytest.raises(LookupError, match="NO_SUCH_SECONDS"):
        counted.lift_time_limits()


def pretend(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "valgrind").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_each_window_has_a_file_and_the_hash_seed_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample").write_text(FILE)
    pretend(
        tmp_path, f'cd {tmp_path}; echo "$PYTHONHASHSEED $*" >asked; for one in 1 2; do cp sample counts.$one; done', monkeypatch
    )
    assert callgrind.count(("limit", "file", "4", "8"), tmp_path, 2) == [Counter(python=120, sqlite=55, libc=7)] * 2
    seed, *words = (tmp_path / "asked").read_text().split()
    assert seed == "0"
    assert {f"--zero-before={counted.BEGIN}", f"--dump-before={counted.END}"} <= set(words)
    assert words[-6:] == ["bench.lifecycle.counted", "limit", "file", "4", "8", "2"]


@pytest.mark.parametrize(
    ("script", "words"), [("true", "did not write counts.1, counts.2"), ("echo no disk >&2; exit 3", "status 3: no disk")]
)
def test_a_count_that_went_wrong_says_what_is_lacking(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, script, monkeypatch)
    with pytest.raises(callgrind.CallgrindError, match=words):
        callgrind.count(("limit",), tmp_path, 2)


def test_without_valgrind_it_says_how_to_install_it_and_exits_69(checkout: Path) -> None:
    command = [sys.executable, "bench/counts.py", "--json"]
    done = subprocess.run(
        command, cwd=checkout, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (69, "", f"{callgrind.MISSING}\n")
    assert "apt-get install valgrind" in callgrind.MISSING


def test_instructions_are_divided_by_the_commands_of_a_window() -> None:
    variant = counts.Variant("limit", warm_up=64, commands=10)
    found = counts.row(
        variant, [Counter(python=100, sqlite=20), Counter(python=140, sqlite=20), Counter(python=120, sqlite=20)], []
    )
    assert found["instructions"] == {"median": 14.0, "min": 12.0, "max": 16.0}
    assert found["parts"] == {"python": 12.0, "sqlite": 2.0, "libc": 0.0, "crypto": 0.0, "other": 0.0}


def test_the_goals_are_those_of_one_command_and_of_64() -> None:
    goals = {variant.name: variant.most for variant in counts.VARIANTS if variant.most is not None}
    assert goals == {"quotebot c=1": 2_600_000, "quotebot c=64": 2_100_000}
    assert all(variant.commands % 64 == variant.warm_up % 64 == 0 for variant in counts.VARIANTS)  # full batches


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"instructions": {"median": 2_100_000.0, "min": 2_000_000.0, "max": 2_200_000.0}, "problems": []}, "ok"),
        ({"instructions": {"median": 2_110_000.0, "min": 2_000_000.0, "max": 2_200_000.0}, "problems": []}, "missed"),
        ({"problems": ["operations due: 1 instead of 0"]}, "no verdict: operations due: 1 instead of 0"),
        ({"problems": []}, "no verdict: not counted"),
    ],
)
def test_the_median_of_the_windows_is_judged(found: dict[str, Any], verdict: str) -> None:
    (goal,) = counts.judge(counts.VARIANTS[1], found)
    assert (goal["goal"], goal["verdict"]) == ("quotebot c=64: instructions per command <= 2.1 M", verdict)
    assert list(counts.judge(counts.VARIANTS[2], found)) == []
