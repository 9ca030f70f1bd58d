"""Every crash window of every story: the bot is SIGKILLed there, starts again, and the end must be the golden run's end.

    python -m faults.windows                          every window of every story, and a sample of crashes during recovery
    python -m faults.windows --only approve --window 37 --deed kill     one of them, with its story told

Nothing is listed by hand: a run without faults notes every passage of every choke point (each SQL statement, COMMIT before and
after, outbound request before, served, answered, acknowledgement, file step), and each passage is a window.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faults.lab.cell import BrokenError, Cell, DiedError
from faults.lab.loop import LabClock
from faults.lab.outcome import broken_now, difference, outcome_of
from faults.lab.processes import end_with_parent
from faults.lab.setting import lab_settings, ram, silence
from faults.lab.steps import Gesture, Operates, Starts
from faults.lab.warmth import warm_up
from faults.report import Report, keep
from faults.stories import STORIES, Story

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faults.lab.steps import Step
    from faults.lab.traps import Deed

RECOVERIES_PER_STORY: Final = 2  # deaths during a recovery, drawn per change
RECOVERY_PASSAGES: Final = 60  # a start and the first things after it


@dataclass(frozen=True, slots=True)
class Window:
    """One thing that goes wrong, once. `second`: the window of the recovery after it, where it is killed again."""

    index: int
    point: str
    deed: Deed = "kill"
    second: int | None = None


@dataclass(slots=True)
class Tried:
    """What came of one story."""

    story: str
    windows: int = 0
    recoveries: int = 0
    passages: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)


def in_a_fork(work: Any) -> Any:
    """Run `work` in a fork of this process, which keeps nothing of it, and return its result."""
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        ours.close()
        try:
            theirs.send((True, work()))
        except BaseException:  # noqa: BLE001 -- told to the parent
            theirs.send((False, traceback.format_exc()))
        finally:
            os._exit(0)
    theirs.close()
    try:
        good, result = ours.recv()
    except EOFError:
        good, result = False, "the process ended without a word"
    ours.close()
    os.waitpid(pid, 0)
    if not good:
        raise BrokenError(result)
    return result


@contextlib.contextmanager
def prepared(story: Story, folder: Path) -> Iterator[Cell]:
    """Give the cell at the beginning of the measured part; its bot, if any runs, is ended and started again."""
    (folder / "start").mkdir()
    cell = Cell(lab_settings(folder / "start"), LabClock(), seed=1)
    for step in story.before():
        step.do(cell)
    if cell.life is not None:
        cell.stop()
    yield cell


def play(cell: Cell, story: Story, folder: Path, window: Window | None) -> dict[str, Any]:
    """Play the measured part once, in this process: returns what came of it and the passages when nothing went wrong."""
    shutil.copytree(cell.settings.data_dir, folder)
    cell.settings = cell.settings.model_copy(update={"data_dir": folder})
    cell.in_place = window is not None and window.deed != "kill" and not story.apart
    steps = list(story.measured())
    needs_bot = not _begins_without(steps)
    if needs_bot:
        cell.start()
    if window is None:
        cell.measure()
    else:
        cell.measure(window.index, window.deed)
    died = False
    for step in steps:
        try:
            step.do(cell)
        except DiedError:
            died = True
            _recover(cell, step, window)
    measured = cell.unmeasured()
    if window is not None and not (died if window.deed == "kill" else _passed(window, measured)):
        raise AssertionError("this window was not passed: the run was not the golden run")
    _deliver_all_again(cell, steps)
    return {"passages": measured, "states": cell.states, **outcome_of(cell, at_rest=story.at_rest)}


def _passed(window: Window, passages: Sequence[str]) -> bool:
    """Tell whether the deed was done where it was meant; a window that nobody named, or beyond the end, is none."""
    return window.point == "?" or passages[window.index : window.index + 1] == [window.point]


def _begins_without(steps: Sequence[Step]) -> bool:
    return isinstance(steps[0], Starts | Operates)


def _recover(cell: Cell, step: Step, window: Window | None) -> None:
    """Start it again, killed once more on the way if the window says so, and go on with what was interrupted."""
    cell.unmeasured()
    if isinstance(step, Operates) and step.alone:
        step.again(cell)
        return
    second = None if window is None else window.second
    if second is not None:
        cell.measure(second)
    while True:
        try:
            if cell.life is None:
                cell.in_place = second is None
                cell.start()
            cell.settle()
        except DiedError:
            cell.unmeasured()
            second = None
            continue
        break
    cell.unmeasured()
    cell.broken += broken_now(cell)  # before anything is delivered again, which would heal the loss of what was acknowledged
    step.again(cell)


def _deliver_all_again(cell: Cell, steps: Sequence[Step]) -> None:
    if cell.life is None:
        cell.in_place = True
        cell.start()
    for step in steps:
        if isinstance(step, Gesture) and step.request_id is not None:
            step.again(cell)
    cell.settle()
    cell.stop()


def windows_of(passages: Sequence[str], states: Sequence[bytes], *, every: bool) -> list[Window]:
    """Return what can go wrong at each passage: a death, and at a request also a lost answer or a refused connection.

    Deaths at passages in a row that would leave the same, byte for byte, in every file and outside, are one: the last of them is
    tried, unless `every` one is wanted. (All statements of a transaction leave the same: nothing of it is in a file.)
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


def try_story(
    story: Story,
    folder: Path,
    *,
    only: Window | None = None,
    recoveries: int | None = RECOVERIES_PER_STORY,
    every: bool = False,
    seed: int = 1,
) -> Tried:
    """Try every window of one story, or only one."""
    tried = Tried(story.name)
    with prepared(story, folder) as cell:
        golden = in_a_fork(lambda: play(cell, story, folder / "golden", None))
        tried.violations += [f"{story.name}, nothing wrong: {sentence}" for sentence in golden["violations"]]
        tried.reached |= set(golden["reached"])
        passages = golden["passages"]
        windows = windows_of(passages, golden["states"], every=every) if only is None else [only]
        tried.passages = Counter(_family(point) for point in passages)
        if only is None and story.before != story.measured:
            windows += _twice(windows, recoveries, random.Random(seed))  # noqa: S311 -- a sample
        for number, window in enumerate(windows):
            _try_window(tried, cell, story, folder / f"w{number}", window, golden)
    return tried


def _twice(windows: Sequence[Window], recoveries: int | None, chance: random.Random) -> list[Window]:
    """Return deaths during the recovery from a death: so many, drawn, or with None every pair."""
    deaths = [window for window in windows if window.deed == "kill"]
    if recoveries is None:
        return [replace(window, second=second) for window in deaths for second in range(RECOVERY_PASSAGES)]
    drawn = chance.sample(deaths, min(recoveries, len(deaths)))
    return [replace(window, second=chance.randrange(RECOVERY_PASSAGES)) for window in drawn]


def _try_window(tried: Tried, cell: Cell, story: Story, folder: Path, window: Window, golden: dict[str, Any]) -> None:
    try:
        came = in_a_fork(lambda: play(cell, story, folder, window))
        wrong = [*came["violations"], *difference(golden["end"], came["end"])]
        tried.reached |= set(came["reached"])
    except BrokenError as error:
        wrong = [str(error).strip()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tried.windows += window.second is None
    tried.recoveries += window.second is not None
    again = f"python -m faults.windows --only {story.name!r} --window {window.index} --deed {window.deed}"
    again += "" if window.second is None else f" --second {window.second}"
    tried.violations += [
        f"{story.name} / {window.deed} at {window.point} (#{window.index}): {sentence} -- {again}" for sentence in wrong
    ]


def _family(point: str) -> str:
    return point.partition(":")[0]


def points_of(stories: Sequence[Story]) -> dict[str, list[str]]:
    """Return every point that the stories pass, every kind of command they execute and every class of effects they owe."""
    found: dict[str, set[str]] = {"points": set(), "kinds": set(), "classes": set()}
    for story in stories:
        with tempfile.TemporaryDirectory(prefix="quotebot-windows-", dir=ram()) as folder, prepared(story, Path(folder)) as cell:
            golden = in_a_fork(lambda cell=cell, story=story, folder=folder: play(cell, story, Path(folder) / "golden", None))
        found["points"] |= set(golden["passages"])
        found["kinds"] |= set(golden["kinds"])
        found["classes"] |= set(golden["classes"])
    return {name: sorted(values) for name, values in found.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Try windows from the command line."""
    parser = argparse.ArgumentParser(prog="python -m faults.windows", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="a story's name (may be given several times)")
    parser.add_argument("--window", type=int)
    parser.add_argument("--deed", choices=("kill", "lose", "refuse"), default="kill")
    parser.add_argument("--second", type=int)
    parser.add_argument("--recoveries", type=int, default=RECOVERIES_PER_STORY, help="deaths during a recovery, per story")
    parser.add_argument("--every", action="store_true", help="a death at every passage, even where the next leaves the same")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", action="store_true", help="let the bot's own log be seen")
    parser.add_argument("--points", action="store_true", help="print, as JSON, what the stories pass when nothing goes wrong")
    parser.add_argument("--budget", choices=("change", "nightly"), default="change", help="nightly: --every, and all pairs")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each story's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    if not options.log:
        silence()
    warm_up()
    stories = [story for story in STORIES if not options.only or story.name in options.only]
    if options.points:
        print(json.dumps(points_of(stories)))
        return 0
    only = None if options.window is None else Window(options.window, "?", options.deed, options.second)
    nightly = options.budget == "nightly"
    wrong = 0
    for story in stories:
        done = None if options.resume is None else options.resume / f"{story.name}.json"
        if done is not None and done.exists():
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="quotebot-windows-", dir=ram()) as folder:
            tried = try_story(
                story,
                Path(folder),
                only=only,
                recoveries=None if nightly else options.recoveries,
                every=options.every or nightly,
                seed=options.seed,
            )
        seconds = time.monotonic() - began
        for sentence in tried.violations:
            print(sentence)
        passages = sum(tried.passages.values())
        print(
            f"{story.name}: {passages} windows, {tried.windows} distinct, {tried.recoveries} in recovery, "
            f"{len(tried.violations)} violations ({seconds:.1f} s)"
        )
        counts = {
            f"windows of {story.name}": passages,
            "distinct windows": tried.windows,
            "deaths during recovery": tried.recoveries,
        }
        report = Report("windows", counts, tuple(tried.violations), tuple(sorted(tried.reached)), (options.seed,), seconds)
        keep(report)
        if done is not None:
            done.parent.mkdir(parents=True, exist_ok=True)
            done.write_text(report.to_text(), "utf-8")
        wrong += len(tried.violations)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
