"""Every crash point of every scenario: the bot is killed there and restarts, and the end must equal the golden run's end.

    python -m faults.suites.crash_points                          every crash point of every scenario, and a sample of crashes
                                                                  during recovery
    python -m faults.suites.crash_points --only approve --apart   each crash a SIGKILL of a separate process
    python -m faults.suites.crash_points --only approve --window 37 --deed kill     one of them
    python -m faults.suites.crash_points --postgres --sample 3    three of each scenario, with the ledger in a database: by SIGKILL

No crash point is listed by hand: a run without faults records every passage of every choke point (each SQL statement, COMMIT before
and after, outbound request before, served, answered, acknowledgement, file step), and each passage is a crash point.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faults.harness.progress import bar
from faults.lab.player import Left, Window, left_at, play, play_on, prepared, wrongs
from faults.lab.processes import BrokenError, beside, in_a_fork, no_traceback_of_ctrl_c
from faults.lab.setting import ram, silence
from faults.lab.warm_up import warm_up
from faults.report.reports import Report, keep, keep_as, kept_as
from faults.scenarios.workflows import STORIES, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faults.lab.simulation import Cell

RECOVERIES_PER_STORY: Final = 2  # crashes during a recovery, drawn per change
RECOVERY_PASSAGES: Final = 60  # of which these are drawn: a start and its first steps. Nightly runs try the whole recovery
SECONDS_PER_DEATH: Final = 2  # crashes during each recovery in a nightly run with a database, drawn: it takes many times as long
DISTINCT: Final = "distinct windows"
SECOND: Final = "deaths during recovery"
UNTOLD: Final = "answers to one person let go of after two deaths"  # its process crashed twice while sending an ephemeral reply
POISONED: Final = "given up after three deaths"
TOGETHER: Final = 32  # crash points that are played in one fork, each from a twin of the cell

Came = dict[str, Any] | str  # the outcome of a play, or the traceback of an error
Ends = list[tuple[Window, Came]]


@dataclass(slots=True)
class Tried:
    """Results of one scenario; `counts` as in its report."""

    story: str
    counts: Counter[str]
    reached: set[str]
    violations: list[str]


def windows_of(passages: Sequence[str], states: Sequence[bytes], *, every: bool) -> list[Window]:
    """Return the faults to inject at each passage: a crash, and at a request also a lost answer or a refused connection.

    Consecutive crash points that leave identical files and identical records in the external services count as one: the last of
    them is tried, or with `every` all of them. (All statements of a transaction leave the same: nothing of it is in a file.)
    """
    found = []
    for index, point in enumerate(passages):
        if every or states[index] not in states[index + 1 : index + 2]:
            found.append(Window(index, point))
        if point.startswith("out:") and not point.startswith("out:pdf:"):
            if point.endswith(":sent"):
                found.append(Window(index, point, "lose"))
            elif point.endswith(":before"):
                found.append(Window(index, point, "refuse"))
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """Requested part of a scenario: one window or all; the number of crashes during recovery (None: all); the sample's seed."""

    only: Window | None = None
    recoveries: int | None = RECOVERIES_PER_STORY
    every: bool = False
    apart: bool = False  # whether each crash is a SIGKILL of a separate process
    seed: int = 1
    sample: int | None = None  # so many windows, drawn; None: all
    points: Path | None = None  # where to write the passages of the run without faults
    database: str | None = None  # address of an unused ledger to copy; None: the ledger is a file


def try_story(story: Story, folder: Path, asked: Asked) -> Tried:
    """Try the requested windows of one scenario."""
    with prepared(story, folder, _unused(asked.database)) as cell:
        golden = in_a_fork(lambda: play(cell.twin(), story, folder / "golden", None))
        passages = golden["passages"]
        counts = Counter({f"windows of {story.name}": len(passages), DISTINCT: 0, SECOND: 0})
        violations = [f"{story.name}, nothing wrong: {sentence}" for sentence in golden["violations"]]
        tried = Tried(story.name, counts, set(golden["reached"]), violations)
        if asked.points is not None:
            asked.points.mkdir(parents=True, exist_ok=True)
            begun = asked.points / f"{story.name}.part"  # for points_of
            begun.write_text(json.dumps({name: golden[name] for name in ("passages", "kinds", "classes")}), "utf-8")
            begun.replace(asked.points / f"{story.name}.json")
        windows = windows_of(passages, golden["states"], every=asked.every) if asked.only is None else [asked.only]
        if asked.sample is not None:
            windows = random.Random(f"{asked.seed} {story.name}").sample(windows, min(asked.sample, len(windows)))  # noqa: S311 -- as below
        pairs: list[Window] = []  # the first crashes of those that are to be followed by each crash in their recovery
        if asked.only is None and story.before != story.measured:
            deaths = [window for window in windows_of(passages, golden["states"], every=False) if window.deed == "kill"]
            if asked.recoveries is None:
                pairs = deaths
            else:
                chance = random.Random(asked.seed)  # noqa: S311 -- a sample
                drawn = chance.sample(deaths, min(asked.recoveries, len(deaths)))
                windows += [replace(window, second=chance.randrange(RECOVERY_PASSAGES)) for window in drawn]
        _try_all(tried, golden, windows, partial(_came_of_all, cell, story, folder, apart=asked.apart))
        _try_all(tried, golden, pairs, partial(_came_of_pairs, cell, story, folder, asked))
    return tried


def _unused(database: str | None) -> str | None:
    """Return the address of a copy of the database, or None if there is none."""
    if database is None:
        return None
    from faults.lab import ledgers  # noqa: PLC0415 -- its driver is an extra

    return ledgers.copy_of(database)


def _try_all(tried: Tried, golden: dict[str, Any], windows: Sequence[Window], play_all: Callable[[Sequence[Window]], Ends]) -> None:
    """Play windows from the same start, many of them in one fork: a fork costs more than a twin."""
    for begin in range(0, len(windows), TOGETHER):
        together = windows[begin : begin + TOGETHER]
        try:
            ends = in_a_fork(partial(play_all, together))
        except BrokenError as error:
            ends = [(window, str(error).strip()) for window in together]
        for window, end in ends:
            _note(tried, golden, window, end)


def _came_of_all(cell: Cell, story: Story, folder: Path, windows: Sequence[Window], *, apart: bool) -> Ends:
    """Play each of these windows."""
    with _left_at(cell, story, folder / "left", windows if len(windows) > 1 and not apart else ()) as left:
        return [(window, _came_of(cell, left.get(window), story, folder / "played", window, apart=apart)) for window in windows]


def _came_of_pairs(cell: Cell, story: Story, folder: Path, asked: Asked, deaths: Sequence[Window]) -> Ends:
    """Play each distinct crash during the recovery from each of these crashes, or some of them if the ledger is in a database."""
    ends: Ends = []
    with _left_at(cell, story, folder / "left", deaths if asked.database is None else ()) as left:
        for first in deaths:  # each in its own fork: the memory of hundreds of plays fills a gigabyte
            ends += in_a_fork(partial(_came_of_its_pairs, cell, left.get(first), story, folder, asked, first))
    return ends


def _came_of_its_pairs(cell: Cell, left: Left | None, story: Story, folder: Path, asked: Asked, first: Window) -> Ends:
    def came(window: Window, *, looks: bool = False) -> Came:
        there = None if left is None else left.twin(folder / "twin")
        return _came_of(cell, there, story, folder / "played", window, looks=looks)

    looked = came(first, looks=True)
    if isinstance(looked, str):
        return [(first, looked)]
    seconds = windows_of(looked["recovery"], looked["states"], every=False)
    pairs = [replace(first, second=second.index) for second in seconds if second.deed == "kill"]
    if asked.database is not None:
        chance = random.Random(f"{asked.seed} {story.name} {first.index}")  # noqa: S311 -- a sample
        pairs = chance.sample(pairs, min(SECONDS_PER_DEATH, len(pairs)))
    return [(pair, came(pair)) for pair in pairs]


@contextmanager
def _left_at(cell: Cell, story: Story, folder: Path, windows: Sequence[Window]) -> Iterator[dict[Window, Left]]:
    """Yield the states after a crash at each of these windows, as far as a play need not repeat the way there."""
    try:
        yield left_at(cell.twin(), story, folder, windows) if windows and not story.apart else {}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _came_of(
    cell: Cell, left: Left | None, story: Story, folder: Path, window: Window, *, apart: bool = False, looks: bool = False
) -> Came:
    """Play one window: from the state after the crash if there is one, else from the start."""
    played = cell.twin() if left is None else left.cell
    try:
        if left is None:
            return play(played, story, folder, window, apart=apart, looks=looks)
        return play_on(left, story, window.second, looks=looks)
    except Exception:  # noqa: BLE001 -- a violation like any other
        return traceback.format_exc().strip()
    finally:
        played.end()
        shutil.rmtree(folder if left is None else played.settings.data_dir, ignore_errors=True)


def _note(tried: Tried, golden: dict[str, Any], window: Window, end: Came) -> None:
    tried.counts[DISTINCT if window.second is None else SECOND] += 1
    if isinstance(end, str):
        wrong = [end]
    else:
        wrong = wrongs(golden, end)
        tried.counts.update([UNTOLD] * bool(end["untold"]) + [POISONED] * end["poisoned"])
        tried.reached |= set(end["reached"])
    again = f"python -m faults.suites.crash_points --only {tried.story!r} --window {window.index} --deed {window.deed}"
    again += "" if window.second is None else f" --second {window.second}"
    tried.violations += [
        f"{tried.story} / {window.deed} at {window.point} (#{window.index}): {sentence} -- {again}" for sentence in wrong
    ]


def _tried(asked: Asked, name: str) -> tuple[Tried, float]:
    began = time.monotonic()
    story = next(story for story in STORIES if story.name == name)
    with tempfile.TemporaryDirectory(prefix="quotebot-windows-", dir=ram()) as folder:
        return try_story(story, Path(folder), asked), time.monotonic() - began


def reported(tried: Tried, seconds: float, asked: Asked) -> Report:
    """Print the results of a scenario, and return its report."""
    suite, counts = "windows", tried.counts
    for sentence in tried.violations:
        print(sentence)
    print(
        f"{tried.story}: {counts[f'windows of {tried.story}']} windows, {counts[DISTINCT]} distinct, {counts[SECOND]} in recovery, "
        f"{len(tried.violations)} violations ({seconds:.1f} s)"
    )
    if asked.database is not None:
        suite, counts = "postgres_windows", Counter({"crash windows": counts[DISTINCT], SECOND: counts[SECOND]})
    return Report(suite, dict(counts), tuple(tried.violations), tuple(sorted(tried.reached)), (asked.seed,), seconds)


def points_of(stories: Sequence[Story], left: Path | None = None) -> dict[str, list[str]]:
    """Return every passage of the scenarios, every kind of command they execute and every class of effects they enqueue.

    A scenario whose passages are in `left` is not played again.
    """
    found: dict[str, set[str]] = {"points": set(), "kinds": set(), "classes": set()}
    for story in stories:
        file = None if left is None else left / f"{story.name}.json"
        golden = _golden(story) if file is None or not file.exists() else json.loads(file.read_text("utf-8"))
        found["points"] |= set(golden["passages"])
        found["kinds"] |= set(golden["kinds"])
        found["classes"] |= set(golden["classes"])
    return {name: sorted(values) for name, values in found.items()}


def _golden(story: Story) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="quotebot-windows-", dir=ram()) as folder, prepared(story, Path(folder)) as cell:
        cell.looks_on = lambda _number: None
        golden = play(cell, story, Path(folder) / "golden", None)
        cell.end()
    return golden


def main(argv: Sequence[str] | None = None) -> int:
    """Try windows from the command line."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.crash_points", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="a scenario's name (may be given several times)")
    parser.add_argument("--window", type=int)
    parser.add_argument("--deed", choices=("kill", "lose", "refuse"), default="kill")
    parser.add_argument("--second", type=int)
    parser.add_argument("--recoveries", type=int, default=RECOVERIES_PER_STORY, help="crashes during a recovery, per scenario")
    parser.add_argument("--every", action="store_true", help="a crash at every passage, even where the next leaves the same")
    parser.add_argument("--apart", action="store_true", help="each crash a SIGKILL of a process of its own, as every night")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="keep the ledger in a database of a server that is started for it")
    parser.add_argument("--sample", type=int, metavar="N", help="try N crash points of each scenario, drawn by the seed")
    parser.add_argument("--log", action="store_true", help="let the bot's own log be seen")
    parser.add_argument("--points", action="store_true", help="print, as JSON, what the scenarios pass when nothing goes wrong")
    parser.add_argument(
        "--left", type=Path, metavar="FOLDER", help="leave there what each scenario passes; --points looks there first"
    )
    parser.add_argument("--budget", choices=("change", "nightly"), default="change", help="nightly: --every, and all pairs")
    parser.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="keep each scenario's report there, and leave out what is in it"
    )
    options = parser.parse_args(argv)
    if not options.log:
        silence()
    stories = [story for story in STORIES if not options.only or story.name in options.only]
    if options.postgres:
        stories = [story for story in stories if not story.needs_file]
    if options.points:
        print(json.dumps(points_of(stories, options.left)))
        return 0
    warm_up()
    only = None if options.window is None else Window(options.window, "?", options.deed, options.second)
    nightly = options.budget == "nightly"
    recoveries = None if nightly else options.recoveries
    every = options.every or (nightly and not options.postgres)  # in a database, most statements of a transaction leave the same
    apart = options.apart or nightly or options.postgres
    asked = Asked(only, recoveries, every, apart, options.seed, options.sample, options.left)
    if options.postgres:
        from faults.lab.ledgers import ledger_server  # noqa: PLC0415 -- its driver is an extra

        with ledger_server() as server:
            return _try_stories(stories, replace(asked, database=server.create()), options.resume, nightly=nightly)
    return _try_stories(stories, asked, options.resume, nightly=nightly)


def _try_stories(stories: Sequence[Story], asked: Asked, resume: Path | None, *, nightly: bool) -> int:
    """Try and report each story; those whose report is in `resume` are left out. Returns 1 if anything was violated."""
    before = {story.name: report for story in stories if (report := kept_as(resume, story.name)) is not None}
    for report in before.values():  # findings of an interrupted run count
        keep(report)
    todo = [story for story in stories if story.name not in before]
    wrong = sum(len(report.violations) for report in before.values())
    with bar(hidden=not nightly) as progress:
        task = progress.add_task("stories", total=len(stories), completed=len(stories) - len(todo))
        for tried, seconds in beside(
            partial(_tried, asked), [story.name for story in todo], (os.cpu_count() or 1) if nightly else 1
        ):
            progress.update(task, advance=1)
            report = reported(tried, seconds, asked)
            keep(report)
            if resume is not None:
                keep_as(resume, tried.story, report)
            wrong += len(tried.violations)
    return 1 if wrong else 0


if __name__ == "__main__":
    with no_traceback_of_ctrl_c():
        sys.exit(main())
