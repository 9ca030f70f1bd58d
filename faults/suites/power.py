"""Power cuts: after every event of the ledger's files, recovery starts on every possible disk. `python -m faults.suites.power`.

1. A few days of work run through production code over the machine's own SQLite, recorded at its file system (power_workload.py).
2. For every event, every state that a power cut at that moment may leave on the disk is made (power_images.py): unsynced data lost,
   kept or torn; unsynced names present or absent.
3. SQLite opens each state. What it reads must be, byte for byte, the ledger's content at some moment that is not before the last
   answer to any caller: so no acknowledged write is lost, nothing is partly written, nothing is corrupt.
4. Production starts on every new content, and on a sample of the files with a content seen before: keys, chain, effects, wake-ups
   and the answers given are checked (power_restart.py).

`--synchronous normal` removes the ledger's durability. It must fail.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import logging
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import closing
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

import structlog

from faults.harness.progress import bar
from faults.lab.processes import beside, no_traceback_of_ctrl_c
from faults.lab.setting import ram
from faults.lab.sqlite_vfs import OK, Unobservable, WatchedFolder, library
from faults.report.reports import Report, finish, keep_in, merged, read_all
from faults.suites.power_artefacts import cut_artefacts
from faults.suites.power_images import Disk, write_image
from faults.suites.power_restart import wrongs
from faults.suites.power_workload import FILE_NAME, Diary, TickingClock, Work, audit_of, live, run_to_end
from ledger.database import DatabaseError
from ledger.sqlite.file import PRAGMAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faults.lab.sqlite_vfs import Event
    from faults.suites.power_images import Image
    from faults.suites.power_workload import Fact
    from ledger.audit.events import Audit

SUITE: Final = "power"
PROCESSES: Final = (1, 1)  # rounds of work of each process of a recording
BALLAST: Final = f"{FILE_NAME}.ballast"
SYNCHRONOUS: Final = {"full": 2, "normal": 1}
AT_ONCE: Final = 2
_DRAWN: Final = re.compile(rb"ledger_id[0-9a-f]{8}")  # its row in meta
WRONG_ENOUGH: Final = 200  # enough violations to end a run
INDEX_BYTES: Final = 32_768
STARTS_PER_CONTENT: Final = 2  # from two images with this content, one after an event with an even number, one after an odd one
CHUNK_BYTES: Final = 65_536
_PERSIST_WAL: Final = 10  # SQLITE_FCNTL_PERSIST_WAL
_PASSIVE: Final = 0  # SQLITE_CHECKPOINT_PASSIVE


@dataclass(frozen=True, slots=True)
class Budget:
    """Extent of a run: `torn` mixtures per event; production starts on one of `every` files whose content was seen before."""

    seeds: tuple[int, ...]
    states: int  # enough to end the run
    torn: int
    every: int


# Seeds 1 and 6 together cover everything that the workload can do.
BUDGETS: Final = {
    "change": Budget(seeds=(1, 6), states=15_000, torn=5, every=105),
    "nightly": Budget(seeds=tuple(range(1, 1001)), states=500_000, torn=9, every=40),
}


def record(seed: int, processes: Sequence[int], synchronous: str) -> tuple[list[Event], list[Fact], Audit]:
    """Run one process after another on a fresh ledger; return the events on its files and the answers of its callers.

    Raises Unobservable.
    """
    events: list[Event] = []
    diary = Diary(lambda: len(events))
    clock = TickingClock()
    rng = random.Random(seed)  # noqa: S311 -- replayable
    # Production requests less durability from SQLite if it is told to, as the seeded bug does.
    less = mock.patch.dict(PRAGMAS, synchronous=SYNCHRONOUS[synchronous])
    with tempfile.TemporaryDirectory(dir=ram()) as folder, less:
        audit = audit_of(Path(folder))
        with WatchedFolder(Path(folder), observer=events.append):
            for rounds in processes:
                run_to_end(live(Path(folder), clock, audit, diary, rng, partial(Work.day, rounds=rounds)))
    if diary.ended_by is not None:
        raise DatabaseError(diary.ended_by)
    return events, diary.facts, audit


class Autopsy:
    """Cuts the power after every event of a recording and checks what is left. `keep_folder` takes the folders of violations.

    Making one records the workload.
    """

    def __init__(
        self, seed: int, budget: Budget, folder: Path, processes: Sequence[int], synchronous: str, keep_folder: Path | None
    ) -> None:
        self._seed = seed
        self._synchronous = synchronous
        self._events, self.facts, self._audit = record(seed, processes, synchronous)
        self._budget = budget
        self._reader = Reader(folder / "read")
        self._start = folder / "start"
        self._start.mkdir()
        self._keep = keep_folder
        self._known: dict[int, bytes] = {}  # the content of an image, by the image's hash
        self._held: dict[bytes, int] = {}  # the last event after which the ledger had this content
        self._started: set[tuple[int, bytes]] = set()  # contents that production has started on, per half of the events
        self._answered = sorted(fact.seen for fact in self.facts if fact.told == "recorded")
        self._chance = random.Random(seed)  # noqa: S311 -- replayable
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def run(self, only: tuple[int, str] | None = None, part: tuple[int, int] = (0, 1)) -> None:
        """Cut after every event, or only after event `only[0]`, into the state named `only[1]` ("" for all of them).

        `part` (which, of how many) divides the events among runs.
        """
        disk = Disk()
        for number in range(len(self._events) + 1):
            if number:
                disk.take(self._events[number - 1])
            self._held[self._content(disk.now())] = number  # what the next process finds after a crash without a power cut
            if (only is not None and number > only[0]) or len(self.violations) >= WRONG_ENOUGH:
                break
            if number % part[1] == part[0] if only is None else number == only[0]:
                for label, image in disk.after_a_cut(f"{self._seed}/{number}", self._budget.torn):
                    if only is None or only[1] in ("", label):
                        self._cut(number, label, image)
        self.counts |= Counter(
            {
                "events": len(self._events),
                "answers": len(self._answered),
                "distinct images": len(self._known),
                "distinct contents": len(self._held),
            }
        )

    def _content(self, image: Image) -> bytes:
        key = _hash_of(image)
        if key not in self._known:
            self._known[key] = self._reader.content(image)
        return self._known[key]

    def _cut(self, number: int, label: str, image: Image) -> None:
        self.counts["states"] += 1
        new_image = _hash_of(image) not in self._known
        before = bisect.bisect_right(self._answered, number)
        last_answer = self._answered[before - 1] if before else 0  # how many events had happened at that time
        try:
            content = self._content(image)
        except sqlite3.Error as error:
            self._wrong(number, label, image, f"CORRUPT: {error}")
            return
        met = (number % STARTS_PER_CONTENT, content)
        if content not in self._held:
            self._wrong(number, label, image, "TORN: SQLite reads what the ledger never held")
        elif self._held[content] < last_answer:
            self.counts["lost"] += 1
            self._wrong(number, label, image, f"LOST: what was answered by event {last_answer} is not there")
        elif met not in self._started or (new_image and self._chance.randrange(self._budget.every) == 0):
            self._started.add(met)
            self._start_on(number, label, image)

    def _start_on(self, number: int, label: str, image: Image) -> None:
        """Start production on the image, in half of the cases with a corrupt WAL index next to it."""
        self.counts["production starts"] += 1
        for path in self._start.iterdir():
            if path.name != BALLAST:
                path.unlink()
        write_image(image, self._start)
        if self._chance.randrange(2):
            (self._start / f"{FILE_NAME}-shm").write_bytes(self._chance.randbytes(INDEX_BYTES))
        told = [fact for fact in self.facts if fact.seen <= number]
        try:
            found = run_to_end(wrongs(self._start, self._audit, told))
        except (DatabaseError, sqlite3.Error) as error:
            found = [f"the start failed: {error}"]
        except TimeoutError:
            found = ["the start hangs"]
        for wrong in found:
            self._wrong(number, label, image, wrong)

    def _wrong(self, number: int, label: str, image: Image, what: str) -> None:
        asked = "" if self._synchronous == "full" else f" --synchronous {self._synchronous}"
        self.violations.append(f"python -m faults.suites.power --seed {self._seed}{asked} --only {number}:{label}  # {what}")
        if self._keep is not None:
            write_image(image, self._keep / f"{self._seed}-{number}-{label}")


class Reader:
    """Reader of a ledger's content after its recovery, with SQLite alone."""

    def __init__(self, folder: Path, *, any_ledger: bool = False) -> None:
        """Set up the folder. With `any_ledger`, two ledgers that differ only in their random ledger id have the same content."""
        folder.mkdir()
        self._last: deque[tuple[bytes, bytes]] = deque(maxlen=8)  # contents and their digests
        self._any_ledger = any_ledger
        self._path = folder / FILE_NAME
        self._there: dict[str, bytes | None] = {}  # the files' present content, by suffix; a missing suffix means unknown
        self._known: set[bytes] = set()  # digests of files that were read page by page

    def content(self, image: Image) -> bytes:
        """Return a digest of every page. Raises sqlite3.Error if the ledger cannot be read.

        Most images have the same content as one whose every page was read. SQLite then leaves that same file after it has recovered
        and checkpointed the WAL: this takes half the time, because no schema has to be parsed.
        """
        finished = self._finished(image)
        if finished not in self._known:
            finished = self._read(image)
            self._known.add(finished)
        return finished

    def _finished(self, image: Image) -> bytes | None:
        """Return the digest of the file that SQLite leaves after recovery, a checkpoint and a close; None if it fails.

        The WAL stays beside it as it was, so that only its difference to the next image's has to be written.
        """
        self._lay(image)
        self._there = {}
        if not _is_finished_by_sqlite(self._path) or self._beside("-journal").exists():
            return None
        wal, kept = image.get(f"{FILE_NAME}-wal") or b"", self._beside("-wal")
        size = kept.stat().st_size if kept.exists() else None
        self._there = {"": self._path.read_bytes(), "-journal": None}
        if size in (None, len(wal)):
            self._there["-wal"] = None if size is None else wal
        return self._digest(self._there[""] or b"")

    def _read(self, image: Image) -> bytes:
        """Read every page without a change to any file, except that a hot journal is rolled back."""
        self._lay(image)
        journal = image.get(f"{FILE_NAME}-journal")
        if journal is not None:
            self._there = {}
        target = f"{self._path.as_uri()}?mode={'ro' if journal is None else 'rw'}"
        with closing(sqlite3.connect(target, uri=True, isolation_level=None)) as connection:
            ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
            return self._digest(connection.serialize() if pages else b"")

    def _digest(self, content: bytes) -> bytes:
        """Return the content's digest. The same large one recurs: comparing it with the last few is faster than hashing it."""
        content = _DRAWN.sub(b"ledger_id", content) if self._any_ledger else content
        for known, digest in self._last:
            if content is known or content == known:
                return digest
        digest = hashlib.sha256(content).digest()
        self._last.appendleft((content, digest))
        return digest

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _lay(self, image: Image) -> None:
        """Write the files of the image to the folder."""
        for suffix in ("-wal", "-journal", ""):
            content = image.get(f"{FILE_NAME}{suffix}", None if suffix else b"")
            there = self._there.get(suffix)
            if content is None:
                if suffix not in self._there or there is not None:
                    self._beside(suffix).unlink(missing_ok=True)
            elif content != there:
                self._write(self._beside(suffix), content, there)
            self._there[suffix] = content

    def _write(self, path: Path, content: bytes, there: bytes | None) -> None:
        """Write only the difference to the present content: creating or rewriting a file costs more."""
        file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            if there is None:
                os.pwrite(file, content, 0)
            else:
                for begin in range(0, len(content), CHUNK_BYTES):
                    chunk = content[begin : begin + CHUNK_BYTES]
                    if chunk != there[begin : begin + CHUNK_BYTES]:
                        os.pwrite(file, chunk, begin)
            os.truncate(file, len(content))
        finally:
            os.close(file)


def _is_finished_by_sqlite(path: Path) -> bool:
    """Let SQLite recover the files of a ledger and move all of the WAL to the database; false if it does not.

    Python's sqlite3 cannot ask SQLite to keep the WAL at the close, whose removal takes as long as the rest.
    """
    sqlite, ledger, one = library(), c_void_p(), c_int(1)
    in_wal, moved = c_int(), c_int()
    try:
        return (
            sqlite.sqlite3_open(os.fsencode(path), byref(ledger)) == OK
            and sqlite.sqlite3_file_control(ledger, b"main", _PERSIST_WAL, byref(one)) == OK
            and sqlite.sqlite3_exec(ledger, b"PRAGMA data_version", None, None, None) == OK
            and sqlite.sqlite3_wal_checkpoint_v2(ledger, b"main", _PASSIVE, byref(in_wal), byref(moved)) == OK
            and in_wal.value == moved.value
        )
    finally:
        sqlite.sqlite3_close(ledger)


def _hash_of(image: Image) -> int:
    """Return 64 bits that identify an image: the probability that two images of a run share them is about 10^-11.

    A cryptographic hash took a fifth of the run time. The content read from an image, by which it is judged, has one.
    """
    return hash(tuple((name, image[name]) for name in sorted(image)))


def run_seed(
    seed: int,
    budget: Budget,
    *,
    processes: Sequence[int] = PROCESSES,
    synchronous: str = "full",
    only: tuple[int, str] | None = None,
    part: tuple[int, int] = (0, 1),
    keep_folder: Path | None = None,
) -> Report:
    """Record one workload and cut the power after each of its events. Raises Unobservable."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=ram()) as folder:
        autopsy = Autopsy(seed, budget, Path(folder), processes, synchronous, keep_folder)
        autopsy.run(only, part)
    reached = tuple(sorted({f"power cut after: {fact.what}" for fact in autopsy.facts}))
    return Report(SUITE, dict(autopsy.counts), tuple(autopsy.violations), reached, (seed,), time.perf_counter() - began)


def run_artefacts(only: str = "") -> Report:
    """Cut the power over the rendered files."""
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=ram()) as folder:
        violations = cut_artefacts(Path(folder), counts)
    return Report(SUITE, dict(counts), tuple(line for line in violations if only in line), seconds=time.perf_counter() - began)


def _run_all(budget: Budget, seeds: Sequence[int], folder: Path | None, synchronous: str, keep_folder: Path | None) -> list[Report]:
    """Run seed after seed, AT_ONCE in parallel, until there are enough states; seeds with a report in `folder` are skipped."""
    reports = [] if folder is None else read_all(folder)
    done = {seed for report in reports for seed in report.seeds}
    left = [seed for seed in seeds if seed not in done] if _states(reports) < budget.states else []
    one = partial(run_seed, budget=budget, synchronous=synchronous, keep_folder=keep_folder)
    with bar() as progress, closing(beside(one, left, AT_ONCE)) as finished:
        task = progress.add_task("power cuts", total=budget.states, completed=_states(reports))
        for report in finished:
            reports.append(report)
            if folder is not None:
                keep_in(folder, report)
            progress.update(task, completed=_states(reports))
            if _states(reports) >= budget.states:
                break
    return reports


def _states(reports: Sequence[Report]) -> int:
    return sum(report.counts.get("states", 0) for report in reports)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and return the exit status: 1 if anything was violated, 69 if this Python's SQLite cannot be reached."""
    parser = argparse.ArgumentParser(
        prog="python -m faults.suites.power", description="Cuts the power after every event of the disk."
    )
    parser.add_argument("--budget", choices=BUDGETS, default="change")
    parser.add_argument("--seed", type=int, help="run this workload alone")
    parser.add_argument("--only", default="", metavar="EVENT[:STATE]", help="cut only there (with --seed)")
    parser.add_argument("--synchronous", choices=SYNCHRONOUS, default="full", help="normal: what must fail")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of each violation there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each seed's report there, and leave out what is in it")
    asked = parser.parse_args(arguments)
    budget = BUDGETS[asked.budget]
    try:
        if asked.only.startswith("artefacts"):
            reports = [run_artefacts(asked.only)]
        elif asked.seed is not None:
            event, _, state = asked.only.partition(":")
            only = (int(event), state) if event else None
            reports = [run_seed(asked.seed, budget, synchronous=asked.synchronous, only=only, keep_folder=asked.keep)]
        else:
            reports = _run_all(budget, budget.seeds, asked.resume, asked.synchronous, asked.keep)
            reports.append(run_artefacts())
    except Unobservable as error:
        sys.stdout.write(f"Nothing was tried: {error}\n")
        return 69
    report = merged(reports)
    return finish(report, asked.json, lines_of(report))


def lines_of(report: Report) -> Iterable[str]:
    """Return the lines to print: what was tried, and the violations."""
    counts = {**report.counts, "violations": len(report.violations)}
    return [*(f"{count:>12,} {name}" for name, count in counts.items()), *report.violations]


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main())
