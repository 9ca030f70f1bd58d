"""Tests of power cuts: no answered write is lost, nothing is partly written; and code that would lose data is detected."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from faults.lab.setting import ram
from faults.lab.sqlite_vfs import (
    SECTOR,
    Deleted,
    Event,
    MadeFolder,
    Opened,
    Renamed,
    Synced,
    SyncedFolder,
    Truncated,
    Unobservable,
    Wrote,
    library,
)
from faults.report.reports import FOLDER_VARIABLE, keep
from faults.suites.power import BUDGETS, main, run_artefacts, run_seed
from faults.suites.power_artefacts import RecordedFiles, cut_artefacts
from faults.suites.power_images import Disk
from faults.suites.power_restart import TORN, wrongs
from faults.suites.power_workload import FILE_NAME, IN_AUDIT, Diary, Fact, TickingClock, Work, audit_of, live, run_to_end
from faults.suites.test_ack_after_fsync import steps_of

try:
    library()
    UNOBSERVABLE = ""
except Unobservable as reason:
    UNOBSERVABLE = str(reason)

CHECKOUT = Path(__file__).parents[2]
needs_the_library = pytest.mark.skipif(bool(UNOBSERVABLE), reason=UNOBSERVABLE)
A, B = b"a" * SECTOR, b"b" * SECTOR


def found(disk: Disk, name: str = "f") -> set[bytes | None]:
    """Return the possible contents of the file after a power cut; None where it does not exist."""
    return {image.get(name) for _, image in disk.after_a_cut("seed", 5)}


def disk_of(*events: Event) -> Disk:
    disk = Disk()
    for event in events:
        disk.take(event)
    return disk


def test_what_was_synced_is_there_and_what_was_not_may_be_there_in_part() -> None:
    safe = (Opened("f"), Wrote("f", 0, A), Synced("f", folder=True))

    assert found(disk_of(*safe)) == {A}
    assert found(disk_of(*safe, Wrote("f", SECTOR, B))) == {A, A + B}
    assert found(disk_of(*safe, Wrote("f", 0, B), Wrote("f", SECTOR, B))) == {A, B, A + B, B + B}
    assert found(disk_of(*safe, Truncated("f", 3), Synced("f"))) == {b"aaa"}


def test_a_name_is_safe_only_once_its_folder_was_synced() -> None:
    new = (Opened("f"), Wrote("f", 0, A), Synced("f"))

    assert found(disk_of(*new)) == {A, None}
    assert found(disk_of(*new, SyncedFolder(""))) == {A}
    assert found(disk_of(*new, SyncedFolder(""), Deleted("f"))) == {A, None}
    assert found(disk_of(*new, SyncedFolder(""), Deleted("f", folder=True))) == {None}


def test_a_name_in_a_folder_that_is_not_there_is_not_there_either() -> None:
    inside = (MadeFolder("d"), Opened("d/f"), Wrote("d/f", 0, A), Synced("d/f"), SyncedFolder("d"))

    assert found(disk_of(*inside), "d/f") == {A, None}
    assert found(disk_of(*inside, SyncedFolder("")), "d/f") == {A}


def test_a_file_that_takes_anothers_name_leaves_one_of_the_two() -> None:
    old = (Opened("f"), Wrote("f", 0, A), Synced("f", folder=True))
    new = (Opened("t"), Wrote("t", 0, B), Synced("t", folder=True), Renamed("t", "f"))

    assert found(disk_of(*old, *new)) == {A, B}
    assert found(disk_of(*old, *new, SyncedFolder(""))) == {B}


@needs_the_library
@pytest.mark.takes(60)
@pytest.mark.parametrize("seed", BUDGETS["change"].seeds)
@pytest.mark.timeout(600)
def test_after_a_power_cut_at_any_event_nothing_answered_is_lost_and_nothing_is_torn(seed: int) -> None:
    budget = BUDGETS["change"]

    report = run_seed(seed, budget)

    keep(report)
    assert report.violations == ()
    assert report.counts["states"] >= budget.states / len(budget.seeds)
    assert report.counts["distinct images"] >= report.counts["states"] / 2
    assert report.counts["production starts"] >= 2 * (report.counts["distinct contents"] - 1)
    kinds = ("reserve quote.create", "claim", "execute", "claim effects", "settle delivered", "settle bury", "replay", "epoch")
    assert set(report.reached) >= {f"power cut after: {kind}" for kind in kinds}


@needs_the_library
@pytest.mark.takes(9)
def test_synchronous_normal_loses_commands_and_each_report_line_reproduces_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)  # the losses here are intended
    report = run_seed(1, BUDGETS["change"], processes=(1,), synchronous="normal", part=(0, 10))
    assert report.counts["lost"] > 100

    number = re.search(r"--only (\d+):lost  # LOST", "\n".join(report.violations))
    assert number is not None
    status = main(["--seed", "1", "--only", number[1], "--synchronous", "normal"])

    assert status == 1
    again = rf"python -m faults\.suites\.power --seed 1 --synchronous normal --only {number[1]}:\S+  # LOST"
    assert re.search(again, capsys.readouterr().out)


def test_a_rendered_file_that_was_stored_is_there_whole_after_any_power_cut() -> None:
    report = run_artefacts()

    keep(report)
    assert report.violations == ()
    assert report.counts["artefact states"] >= 500
    assert report.counts["artefact kills"] >= 13


class NoFolderSync(RecordedFiles):
    """File steps of a store that does not sync its folder."""

    def sync_folder(self, folder: Path) -> None:
        """Skip the sync."""


class NoSync(RecordedFiles):
    """File steps of a store that does not sync the content."""

    def sync(self, descriptor: int) -> None:
        """Skip the sync."""


@pytest.mark.parametrize(("kind", "code"), [(NoFolderSync, "artefact_missing"), (NoSync, "artefact_damaged")])
def test_a_sync_that_is_missing_is_seen(tmp_path: Path, kind: type[RecordedFiles], code: str) -> None:

    assert any(line.endswith(f"was stored and {code} now") for line in cut_artefacts(tmp_path, Counter(), kind))


async def _one_quote(work: Work) -> None:
    await work.ask(work.creation())
    await work.execute()
    await work.deliver()


def one_quote_at(folder: Path) -> Diary:
    """Run a bot that makes one quote in a new ledger."""
    diary = Diary()
    run_to_end(live(folder, TickingClock(), audit_of(folder), diary, random.Random(1), _one_quote))  # noqa: S311 -- replayable
    return diary


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("DELETE FROM effects WHERE id = 1", "is owed, and it is not"),
        ("UPDATE operations SET state = 'in_progress', outcome = NULL", "the audit says operation.applied"),
        ("DELETE FROM audit_events WHERE event_type = 'operation.applied'", "is completed 0 times in the audit"),
        ("DELETE FROM quotes", "its quote is not there"),
        ("DELETE FROM operations", "its operation is not applied"),
    ],
)
def test_a_command_done_by_half_is_seen(tmp_path: Path, damage: str, sentence: str) -> None:
    one_quote_at(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as ledger:
        assert ledger.execute(TORN).fetchall() == []
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            ledger.execute(f"DROP TRIGGER {trigger}")
        ledger.execute("PRAGMA ignore_check_constraints = ON")
        ledger.execute(damage)

        assert sentence in "\n".join(line for (line,) in ledger.execute(TORN))


def test_an_answer_that_was_not_true_is_seen(tmp_path: Path) -> None:
    audit = audit_of(tmp_path)
    diary = one_quote_at(tmp_path)
    true = next(fact for fact in diary.facts if fact.what == "execute")
    facts = [
        Fact("reserve", true.at + 1, "SELECT 0 WHERE ? > 0", "recorded", 0),
        Fact("execute", true.at, IN_AUDIT, "not recorded", 0),
    ]

    assert run_to_end(wrongs(tmp_path, audit, diary.facts, finish=True)) == []
    assert run_to_end(wrongs(tmp_path, audit, facts)) == [
        f"LOST: reserve at {true.at + 1} was acknowledged and is not there",
        f"LIE: execute at {true.at} was said not to be recorded, and it is there",
    ]


def test_every_write_returns_after_the_wal_is_written_and_synced(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (.ci/run installs it)")
    folder = tmp_path / "ledger"
    folder.mkdir()
    calls = ("-f", "-yy", "-s", "32", "-e", "trace=fdatasync,fsync,pwrite64,write")
    program = (sys.executable, "-m", "faults.suites.power_traced", "answers", str(folder))

    done = subprocess.run(
        (strace, *calls, "-o", str(tmp_path / "trace"), *program),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    trace = (tmp_path / "trace").read_text()
    told = [number for number, line in enumerate(trace.splitlines(), start=1) if '"told recorded: ' in line]
    order = sorted([(step.line, step.what) for step in steps_of(trace)] + [(line, "told") for line in told])
    words = "".join({"wal_write": "w", "wal_sync": "s", "told": "t"}[what] for _, what in order)
    assert len(told) == done.stdout.count("told recorded") >= 13
    assert "wt" not in words, "written, and told before it was synced"
    assert "wst" in words
    assert words.startswith("w")


def test_hanging_run_with_an_open_connection_times_out() -> None:
    let_go = threading.Event()

    async def hangs() -> None:
        threading.Thread(target=let_go.wait, name="Thread-1 (_connection_worker_thread)").start()
        await asyncio.Event().wait()

    try:
        with pytest.raises(TimeoutError):
            run_to_end(hangs(), hangs_seconds=0.01, ending_seconds=0.01)
    finally:
        let_go.set()


def test_scratch_folder_is_writable() -> None:
    assert os.access(ram() or tempfile.gettempdir(), os.W_OK)
