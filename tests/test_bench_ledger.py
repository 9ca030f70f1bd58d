"""Tests of the ledger benchmark: the same rows in all variants, a check for every figure, and verdicts only on valid ones.

No test depends on a duration.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.lifecycle import environment, rounds
from bench.lifecycle.deed import open_ledger, request
from bench.lifecycle.footprint import NOW_MS, Footprint, record
from bench.lifecycle.history import build
from bench.lifecycle.machine import in_memory
from bench.lifecycle.measure import check, mark
from bench.lifecycle.naive import run_naive
from bench.lifecycle.product import run_product
from bench.lifecycle.raw import run_same_rows
from bench.lifecycle.rounds import NO_POSTGRES, NOT_INSTALLED
from bench.lifecycle.verdicts import AGAIN, FIRST, LIMIT, LIMIT_AGAIN, goals, judge, table
from bench.peers import postgres
from ledger.clock import SystemClock
from ledger.records import DedupeResult

BRIEF = 0.05  # seconds a variant runs
MEMORY = Path("/dev/shm")  # noqa: S108 -- only inspected, and only if it is in memory
TIMES = {"at", "received_at", "last_seen_at", "aged_from"}


async def make(path: Path) -> None:
    _, database = await open_ledger(path, SystemClock())
    await database.close()


def rows(path: Path) -> dict[str, list[list[tuple[Any, ...]]]]:
    """Return every value of every table as its type and size, and numbers unchanged: times and keys differ between two runs."""

    def form(column: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, int) and not (column in TIMES or column.endswith(("_at", "_until"))):
            return (column, value)
        return (column, type(value).__name__, len(value) if isinstance(value, str | bytes) else None)

    found = {}
    with contextlib.closing(sqlite3.connect(path)) as shell:
        for (name,) in shell.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall():
            if name in ("epochs", "schema_migrations") or name.startswith("sqlite_"):
                continue
            cursor = shell.execute(f"SELECT * FROM {name}")  # noqa: S608 -- a name from the schema
            columns = [column for column, *_ in cursor.description]
            found[name] = sorted(
                ([form(column, value) for column, value in zip(columns, row, strict=True)] for row in cursor), key=repr
            )
    return found


def guards(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as shell:
        return sorted(shell.execute("SELECT type, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"))


@pytest.fixture
async def footprint() -> Footprint:
    return await record()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def test_the_limit_writes_the_very_rows_the_product_writes(path: Path, tmp_path: Path, footprint: Footprint) -> None:
    await make(path)
    product = await run_product(path, BRIEF, 1, 1)
    other = tmp_path / "limit" / "ledger.db"
    await make(other)
    with contextlib.closing(sqlite3.connect(other, isolation_level=None)) as shell:
        placed = footprint.placed(shell)
        for turn in range(product.submitted):
            for commit in placed.commits:
                shell.execute("BEGIN")
                for step in commit:
                    shell.execute(step.sql, step.values(turn))
                shell.execute("COMMIT")
    assert product.submitted > 1
    assert rows(other) == rows(path)


@pytest.mark.parametrize("batch", [1, 64])
async def test_the_limit_passes_the_checks_of_the_product(batch: int, path: Path, footprint: Footprint) -> None:
    await make(path)
    before = mark(path)
    run = run_same_rows(path, footprint, BRIEF, batch)
    check(path, before, run, footprint)
    assert run.problems == []
    assert (run.commits, len(run.latencies)) == (3 * run.submitted // batch, run.submitted)


async def test_the_naive_program_passes_the_checks_of_the_product(path: Path, footprint: Footprint) -> None:
    await make(path)
    before = mark(path)
    run = await run_naive(path, footprint, BRIEF, 8)
    check(path, before, run, footprint)
    assert run.problems == []
    assert run.commits == 3 * run.submitted


async def test_a_command_that_is_missing_is_named_everywhere_it_should_be(path: Path, footprint: Footprint) -> None:
    await make(path)
    before = mark(path)
    run = run_same_rows(path, footprint, BRIEF, 1)
    run.submitted += 1
    check(path, before, run, footprint)
    assert [problem.partition(":")[0] for problem in run.problems] == [
        "operations by state",
        "effects owed",
        "quotes",
        "audit events",
    ]


async def test_a_command_that_is_still_due_is_a_problem(path: Path, footprint: Footprint) -> None:
    await make(path)
    before = mark(path)
    run = run_same_rows(path, footprint, BRIEF, 1)
    ledger, database = await open_ledger(path, SystemClock())
    await ledger.reserve(request(run.submitted + 1, NOW_MS))
    await database.close()
    run.submitted += 1
    check(path, before, run, footprint)
    assert "operations due: 1 instead of 0" in run.problems


async def test_a_history_leaves_the_guards_as_they_were_and_only_what_waits_is_due(path: Path, footprint: Footprint) -> None:
    await make(path)
    before = guards(path)
    build(path, footprint, finished=50, reserved=5)
    assert guards(path) == before

    with contextlib.closing(sqlite3.connect(path)) as shell:
        assert shell.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert shell.execute("PRAGMA foreign_key_check").fetchall() == []
        assert dict(shell.execute("SELECT state, count(*) FROM operations GROUP BY state")) == {"completed": 50, "reserved": 5}
        assert dict(shell.execute("SELECT state, count(*) FROM effects GROUP BY state")) == {"delivered": 150}

    ledger, database = await open_ledger(path, SystemClock())
    again = await ledger.reserve(request(7, NOW_MS))
    claimed = await ledger.claim_operations(100)
    await database.close()
    assert (again.sighting, again.operation.id) == (DedupeResult.DUPLICATE, 7)
    assert [operation.id for operation in claimed] == [51, 52, 53, 54, 55]


def run_script(checkout: Path, name: str, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, f"bench/{name}.py", *options]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_quick_look_reports_every_variant_with_its_checks_passed(checkout: Path, tmp_path: Path) -> None:
    wanted = [LIMIT, "bare", "batch 64", "naive c=64", "quotebot c=1", FIRST, AGAIN, LIMIT_AGAIN]
    options = [
        "--quick",
        "--force",
        "--json",
        "--rounds",
        "1",
        "--seconds",
        str(BRIEF),
        "--dir",
        str(tmp_path),
        "--only",
        ",".join(wanted),
    ]
    status, out, err = run_script(checkout, "ledger", *options)
    assert status in (0, 1), err  # 1: a goal was missed, which is meaningless in such a short run
    report = json.loads(out)
    assert report.keys() == {"header", "rounds", "seconds", "payload_bytes", "rows", "noise", "goals"}
    assert [row["variant"] for row in report["rows"]] == wanted
    assert [row["problems"] for row in report["rows"]] == [[]] * len(wanted)
    assert all(row["ops"] > 0 and row["ratio"]["min"] <= row["ratio"]["median"] <= row["ratio"]["max"] for row in report["rows"])
    assert report["header"]["pragmas"]["journal_mode"] == "wal"
    assert report["header"]["pragmas"]["synchronous"] == 2
    commits = {row["variant"]: row["commits_per_op"] for row in report["rows"]}
    assert (commits["limit"], commits["batch 64"], commits["naive c=64"]) == (3, 3 / 64, 3)
    assert commits[FIRST] < 3
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_is_not_installed_says_how_to_install_it_and_is_not_judged(checkout: Path, tmp_path: Path) -> None:
    options = ["--force", "--dir", str(tmp_path), "--only", "dbos c=1", "--rounds", "1", "--peers-python", str(tmp_path / "none")]
    status, out, err = run_script(checkout, "ledger", *options)
    assert (status, err) == (0, "")
    assert f"dbos c=1             {NOT_INSTALLED}" in out
    assert f"[no verdict: {NOT_INSTALLED}] quotebot c=1 at 0: throughput >= 3.5x dbos c=1" in out


@pytest.mark.skipif(not MEMORY.is_dir() or not in_memory(MEMORY), reason="no folder kept in memory is known here")
@pytest.mark.parametrize("script", ["ledger", "recovery"])
def test_a_folder_kept_in_memory_is_refused(script: str, checkout: Path) -> None:
    status, out, err = run_script(checkout, script, "--dir", str(MEMORY))
    assert (status, out) == (64, "")
    assert "Nothing was run" in err


def test_a_restarted_bot_takes_back_executes_and_attempts(checkout: Path, tmp_path: Path) -> None:
    options = ["--finished", "200", "--waiting", "400", "--force", "--json", "--dir", str(tmp_path)]
    status, out, err = run_script(checkout, "recovery", *options)
    assert status in (0, 1), err
    report = json.loads(out)
    assert report["problems"] == []
    assert (report["claimed"], report["duplicates"]) == (300, 300)
    assert list(report["phases_s"]) == ["imports", "open", "take back", "execute", "claim effects"]
    assert {goal["verdict"] for goal in report["goals"]} <= {"ok", "missed", "too noisy, no verdict"}


def figures(**ops_per_s: float) -> dict[tuple[int, str], dict[str, Any]]:
    """Return one round: throughput by variant (`c64` for `quotebot c=64`)."""
    names = {"c1": "quotebot c=1", "c16": "quotebot c=16", "c64": FIRST, "again": AGAIN, "limit": LIMIT, "limit_again": LIMIT_AGAIN}
    return {
        (0, names[name]): {"ops_per_s": value, "file_per_op": 1500.0, "ops": 9, "problems": []} for name, value in ops_per_s.items()
    }


def verdicts(*rounds: dict[tuple[int, str], dict[str, Any]]) -> Counter[str]:
    """Count the verdicts on the three goals against the limit, and on the bytes."""
    return Counter(line["verdict"] for line in judge(list(rounds), [0], 1000) if line["found"] is not None)


def test_the_median_of_the_rounds_is_judged() -> None:
    good = figures(limit=100, c1=50, c16=400, c64=500, again=500)
    slow = figures(limit=100, c1=10, c16=400, c64=100, again=100)
    assert verdicts(good, good, slow) == {"ok": 4}
    assert verdicts(good, slow, slow) == {"ok": 2, "missed": 2}


def test_identical_variants_that_differ_by_more_than_a_fifth_give_no_verdict() -> None:
    noisy = figures(limit=100, c1=50, c16=400, c64=500, again=390)
    assert verdicts(noisy) == {"too noisy, no verdict": 3, "ok": 1}  # bytes have no noise
    assert verdicts(figures(limit=100, c1=50, c16=400, c64=500, again=450)) == {"ok": 4}
    shaky = figures(limit=100, limit_again=79, c1=50, c16=400, c64=500, again=500)
    assert verdicts(shaky) == {"too noisy, no verdict": 3, "ok": 1}


def test_without_the_second_identical_run_nothing_is_judged() -> None:
    assert verdicts(figures(limit=100, c64=500)) == {"no verdict: noise was not measured": 1, "ok": 1}


def test_a_figure_whose_check_failed_is_neither_printed_nor_judged() -> None:
    failed = figures(limit=100, c64=500, again=500)
    failed[0, FIRST]["problems"] = ["operations due: 1 instead of 0"]
    assert verdicts(failed) == {}
    sound = figures(limit=100, c64=500, again=500)
    assert verdicts(sound, failed, sound) == {}  # one bad round invalidates the others
    lines = {line["variant"]: line for line in table([failed])}
    assert lines[FIRST] == {"size": 0, "variant": FIRST, "problems": ["operations due: 1 instead of 0"]}


def test_the_goals_are_ratios_to_the_limit_and_to_others() -> None:
    assert [str(goal) for goal in goals([0])] == [
        "quotebot c=1 at 0: throughput >= 0.5x limit",
        "quotebot c=16 at 0: throughput >= 2.2x limit",
        "quotebot c=64 at 0: throughput >= 3x limit",
        "quotebot c=64 at 0: throughput >= 0.47x batch 64",
        "quotebot c=1 at 0: throughput >= 3.5x dbos c=1",
        "quotebot c=64 at 0: throughput >= 12x dbos c=64",
        "quotebot c=64 at 0: throughput >= 3.5x huey c=64",
        "quotebot c=64 at 0: throughput >= 9x naive c=64",
    ]


def run_missing(folder: Path, variant: str) -> list[str]:
    """Return the problems of a run of one variant that cannot start."""
    plan = rounds.Plan((variant,), (0,), 1, BRIEF, folder, sys.executable)
    ((summary,),) = (done.values() for done in rounds.run_rounds(plan, {}, lambda _: None))
    problems: list[str] = summary["problems"]
    return problems


def test_a_peer_without_its_server_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_installed", lambda *_: True)
    monkeypatch.setattr(postgres, "programs", lambda: None)
    assert run_missing(tmp_path, "procrastinate c=1") == [NO_POSTGRES]


def test_a_run_that_says_nothing_is_a_problem_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_installed", lambda *_: True)
    monkeypatch.setattr(rounds, "_ended", lambda _: (3, "", "first\nno disk\n"))
    assert run_missing(tmp_path, "huey c=1") == ["failed with status 3: no disk"]


def test_the_environment_of_the_peers_is_made_once_for_each_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, folder = tmp_path / "some.lock", tmp_path / "environment"
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        if "venv" in command:
            environment.python_of(folder).parent.mkdir(parents=True)
            environment.python_of(folder).touch()
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(subprocess, "run", run)
    lock.write_text("one==1\n")
    status = 0
    assert environment.interpreter(folder) == sys.executable
    environment.install(lock, folder)
    environment.install(lock, folder)
    assert len(asked) == 2  # the environment, and its packages
    assert "--require-hashes" in asked[1]
    assert environment.interpreter(folder) == str(environment.python_of(folder))

    lock.write_text("one==2\n")
    status = 1
    with pytest.raises(environment.CannotInstallError):
        environment.install(lock, folder)
    status = 0
    environment.install(lock, folder)  # the failed one left nothing that looks finished
    assert len(asked) == 5
