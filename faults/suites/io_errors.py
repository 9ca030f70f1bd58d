"""A disk that fails at its k-th call, for every k: once, or from then on. `python -m faults.suites.io_errors`.

The same production code runs over the machine's own SQLite as in power.py, with an error in place of one call. The process may
refuse a request or report an unknown outcome, but it may not report a false one. Afterwards, on a working disk: every write
reported as recorded is there, every write reported as not recorded is not, the file and the audit are intact, and the next process
finishes everything. A failed sync may also have lost the data it was to sync: that is checked too, at once and after the next
process has worked on what it found in memory.

A first start writes one migration after another, each a transaction that depends on the file only. So for its k-th write the
failing process starts where another one was interrupted, after the last migration before it: the rest of the start makes the same
writes, by offset and length (test_io_errors.py checks that), and the earlier writes need not be repeated for each k.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from faults.harness.progress import bar
from faults.lab.processes import beside, no_traceback_of_ctrl_c
from faults.lab.setting import ram
from faults.lab.sqlite_vfs import (
    BUSY,
    FULL,
    IOERR_FSYNC,
    IOERR_READ,
    IOERR_WRITE,
    OK,
    Call,
    Synced,
    Unobservable,
    WatchedFolder,
    Wrote,
)
from faults.report.reports import Report, finish, keep_in, merged, read_all
from faults.suites.power import BALLAST, Reader, lines_of
from faults.suites.power_images import Disk, write_image
from faults.suites.power_restart import wrongs
from faults.suites.power_workload import FILE_NAME, MORNING_MS, Diary, TickingClock, Work, audit_of, live, run_to_end
from ledger.database import DatabaseError
from ledger.sqlite.ballast import BALLAST_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from faults.lab.sqlite_vfs import Event
    from faults.suites.power_images import Image
    from faults.suites.power_workload import Fact

SUITE: Final = "io_errors"
AT_ONCE: Final = 2
LATER_MS: Final = 60_000
WRONG_ENOUGH: Final = 50
CUTS: Final = 3  # power cuts while the next process works on what a failed sync may have left
SAMPLE: Final = 25  # production starts on one in this many files with content that was seen before
KINDS: Final = {
    "FULL": (Call.WRITE, FULL),
    "IOERR_WRITE": (Call.WRITE, IOERR_WRITE),
    "IOERR_FSYNC": (Call.SYNC, IOERR_FSYNC),
    "IOERR_READ": (Call.READ, IOERR_READ),
    "BUSY": (Call.LOCK, BUSY),
}
MODES: Final = ("once", "sticky")


async def _nothing(work: Work) -> None:
    """Do nothing: the process only opens, recovers and closes."""
    del work


# The failing process's task, and whether the ledger exists before it.
TASKS: Final[dict[str, tuple[Callable[[Work], Awaitable[None]], bool]]] = {
    "first start": (_nothing, False),
    "errand": (Work.one_of_each, True),
    "day": (partial(Work.day, rounds=1), True),
}
BUDGETS: Final = {"change": ("first start", "errand"), "nightly": ("first start", "errand", "day")}


@dataclass(slots=True)
class KthCall:
    """Fault that fails the k-th call of a kind, or all from the k-th on."""

    call: Call
    code: int
    k: int
    sticky: bool
    calls: int = 0

    def __call__(self, call: Call, name: str) -> int:
        """Return the result code of the call."""
        del name
        if call is not self.call:
            return OK
        self.calls += 1
        return self.code if self.calls == self.k or (self.sticky and self.calls > self.k) else OK


@dataclass(frozen=True, slots=True)
class CutOff:
    """A first start that ended after `writes` writes, between two migrations, and the files it left."""

    writes: int
    left: Image


def cut_offs(start: Sequence[Event], folder: Path) -> list[CutOff]:
    """Return each point of a recorded first start, in order, at which one more migration was complete. `folder` is used for it."""
    disk, writes, found, done = Disk(), 0, [CutOff(0, {})], 0
    for event in start:
        disk.take(event)
        writes += isinstance(event, Wrote) and not event.again
        if event == Synced(f"{FILE_NAME}-wal"):
            left = disk.now()
            shutil.rmtree(folder, ignore_errors=True)
            write_image(left, folder)
            with closing(sqlite3.connect(folder / FILE_NAME)) as ledger:
                there = ledger.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'").fetchone()
                now_done = ledger.execute("SELECT count(*) FROM schema_migrations").fetchone()[0] if there else 0
            if now_done > done:
                found.append(CutOff(writes, left))
                done = now_done
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to fail, tried for every k."""

    task: str
    kind: str
    mode: str
    seed: int = 1

    @property
    def name(self) -> str:
        """A name for the trial's files."""
        return f"{self.task}-{self.kind}-{self.mode}-{self.seed}".replace(" ", "-")

    def run(self, only: int | None = None) -> Report:
        """Fail at every k, until the process ends before its k-th call. Raises Unobservable."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=ram()) as scratch_folder:
            bench = Bench(self, Path(scratch_folder))
            for k in count(1) if only is None else (only,):
                if not bench.fail(k) or len(bench.violations) >= WRONG_ENOUGH:
                    break
                bench.counts[f"{self.kind} {self.mode}"] += 1
                bench.counts["I/O errors"] += 1
        seconds = time.perf_counter() - began
        return Report(SUITE, dict(bench.counts), tuple(bench.violations), tuple(sorted(bench.reached)), (self.seed,), seconds)


def run_trial(trial: Trial) -> tuple[Trial, Report]:
    """Try one way to fail, for every k."""
    return trial, trial.run()


class Bench:
    """Bench of one trial: the failing process's folder, and the findings so far."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self._trial = trial
        self._folder = folder
        self._task, there = TASKS[trial.task]
        self._base = folder / "base"
        self._base.mkdir()
        self._audit = audit_of(self._base)
        if there:
            run_to_end(live(self._base, TickingClock(), self._audit, Diary(), self._chance(), Work.one_of_each))
            (self._base / BALLAST).unlink()
        self._safe = _files(self._base)
        skips = not there and KINDS[trial.kind][0] is Call.WRITE
        self._cut_offs = cut_offs(self.record(self._safe), folder / "cut off") if skips else [CutOff(0, self._safe)]
        self._reader = Reader(folder / "read", any_ledger=True)
        self._started: set[tuple[bytes, tuple[Fact, ...]]] = set()  # pairs of content and answers that production has started on
        self._luck = self._chance()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.reached: set[str] = set()

    def _chance(self) -> random.Random:
        return random.Random(self._trial.seed)  # noqa: S311 -- replayable

    def record(self, ledger: Image) -> list[Event]:
        """Run the task in one process on a working disk, and return its events on the ledger's files."""
        events: list[Event] = []
        folder = self._copy("live", ledger)
        with WatchedFolder(folder, observer=events.append):
            run_to_end(live(folder, TickingClock(MORNING_MS + LATER_MS), self._audit, Diary(), self._chance(), self._task))
        return events

    def fail(self, k: int) -> bool:
        """Run one process on a disk that fails at call k, then check the result; false if it never made that call."""
        trial = self._trial
        begin = max((each for each in self._cut_offs if each.writes < k), key=lambda each: each.writes)
        folder = self._copy("live", begin.left)
        events: list[Event] = []
        forgetful = trial.kind == "IOERR_FSYNC"  # the kernel may have dropped what it could not sync
        diary = Diary()
        fault = KthCall(*KINDS[trial.kind], k - begin.writes, trial.mode == "sticky")
        clock = TickingClock(MORNING_MS + LATER_MS)
        try:
            observer = events.append if forgetful else None
            with WatchedFolder(folder, observer=observer, fault=fault, failing=(fault.call,), hurry=trial.kind == "BUSY"):
                run_to_end(live(folder, clock, self._audit, diary, self._chance(), self._task))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the bot would end with a traceback instead of a message
            self._wrong(k, f"UNCLEAN: {type(error).__name__}: {error}")
        self.reached |= {f"{trial.kind}: {fact.told}" for fact in diary.facts}
        if diary.ended_by is not None:
            self.reached.add(f"{trial.kind}: the process ended")
        self._restart(k, "", _files(folder), diary)
        if forgetful:
            disk = Disk(self._safe)
            for event in events:
                disk.take(event)
            for label, image in disk.after_a_cut(f"{trial.seed}", 1):
                self._restart(k, f"({label}) ", image, diary)
            self._build_upon(k, folder, events, diary)
        return fault.calls >= fault.k

    def _build_upon(self, k: int, folder: Path, events: list[Event], diary: Diary) -> None:
        """Run the next process on state that may exist only in memory, and cut the power, during its work and at its end."""
        begun = len(events)
        clock = TickingClock(max((fact.at for fact in diary.facts), default=MORNING_MS) + 2 * LATER_MS)
        later = Diary(lambda: len(events))
        with WatchedFolder(folder, observer=events.append):
            run_to_end(live(folder, clock, self._audit, later, self._chance(), Work.one_of_each))
        if later.ended_by is not None:
            self._wrong(k, f"the next process did not start: {later.ended_by}")
        cuts = {*self._luck.sample(range(begun, len(events)), CUTS), len(events)}
        disk = Disk(self._safe, forgets=True)
        for number, event in enumerate(events, start=1):
            disk.take(event)
            if number in cuts:
                answered = Diary(facts=[fact for fact in later.facts if fact.seen <= number])
                for label, image in disk.after_a_cut(f"{self._trial.seed}", 1):
                    self._restart(k, f"(forgotten, {label}) ", image, answered)

    def _restart(self, k: int, where: str, image: Image, diary: Diary) -> None:
        """Start on the remaining files if their content or the answers given are new, and otherwise at random."""
        try:
            met = (self._reader.content(image), tuple(diary.facts))
            if met in self._started and self._luck.randrange(SAMPLE):
                return
            self._started.add(met)
            self.counts["production starts"] += 1
            found = run_to_end(wrongs(self._copy("again", image), self._audit, diary.facts, finish=True))
        except (DatabaseError, sqlite3.Error, TimeoutError) as error:
            found = [f"the next start failed: {type(error).__name__}: {error}"]
        for what in found:
            self._wrong(k, f"{where}{what}")

    def _copy(self, name: str, ledger: Image) -> Path:
        """Return a folder with the files that a process finds, and a sparse ballast, whose size is not measured."""
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_image(ledger, folder)
        with (folder / BALLAST).open("wb") as ballast:
            ballast.truncate(BALLAST_BYTES)
        return folder

    def _wrong(self, k: int, what: str) -> None:
        trial = self._trial
        seed = "" if trial.seed == 1 else f" --seed {trial.seed}"
        where = f'--task "{trial.task}" --kind {trial.kind} --mode {trial.mode} --only {k}{seed}'
        self.violations.append(f"python -m faults.suites.io_errors {where}  # {what}")


def _files(folder: Path) -> Image:
    """Return the ledger's own files in a folder."""
    names = (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-journal")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def trials(budget: str, seed: int = 1) -> list[Trial]:
    """Return every way to fail."""
    return [Trial(task, kind, mode, seed) for task in BUDGETS[budget] for kind in KINDS for mode in MODES]


def _run_all(budget: str, seed: int, folder: Path | None) -> list[Report]:
    """Run every trial, AT_ONCE in parallel; trials whose reports are in `folder` are not repeated."""
    every = trials(budget, seed)
    before = {trial: read_all(folder / trial.name) for trial in every} if folder is not None else {}
    reports = [report for some in before.values() for report in some]
    left = [trial for trial in every if not before.get(trial)]
    with bar() as progress:
        task = progress.add_task("I/O errors", total=len(reports) + len(left), completed=len(reports))
        for trial, report in beside(run_trial, left, AT_ONCE):
            reports.append(report)
            if folder is not None:
                keep_in(folder / trial.name, report)
            progress.update(task, advance=1)
    return reports


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and return the exit status: 1 if anything was violated, 69 if this Python's SQLite cannot be reached."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.io_errors", description="Fails every call to the disk in turn.")
    parser.add_argument("--budget", choices=BUDGETS, default="change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--task", choices=TASKS, help="with --kind and --mode: this one alone")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--only", type=int, metavar="K", help="fail only the K-th call")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each report there, and leave out what is in it")
    asked = parser.parse_args(arguments)
    try:
        if asked.task and asked.kind and asked.mode:
            reports = [Trial(asked.task, asked.kind, asked.mode, asked.seed).run(asked.only)]
        else:
            reports = _run_all(asked.budget, asked.seed, asked.resume)
    except Unobservable as error:
        sys.stdout.write(f"Nothing was tried: {error}\n")
        return 69
    report = merged(reports)
    return finish(report, asked.json, lines_of(report))


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main())
