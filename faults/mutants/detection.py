"""Detection of a seeded bug: by the crash points of a scenario, simulated days, the model, or a disk that fails or loses power.

Every hunt stops at the first finding: a violated invariant, an end that differs from that of the run without the bug, a bot that
never comes to rest, or a disagreement with the model. A run that cannot be executed at all detects nothing.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from faults.lab.outcome import difference
from faults.lab.player import Window, play
from faults.lab.processes import BrokenError, in_a_fork
from faults.mutants.ground import NOWHERE, Caught, DoesNotFitError, Ground, Hunt, Start, last_line
from faults.mutants.model import run_blocks
from faults.suites import io_errors, model, power
from faults.suites.crash_points import windows_of
from faults.suites.power_artefacts import cut_artefacts
from faults.suites.simulate import live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AGAIN: Final = (8, 16, 30)  # passages of a recovery at which the bot crashes again
ALIKE: Final = 2  # number of windows that are tried without the bug beside the one that caught it
NEVER_RESTS: Final = (
    "after half an hour something was still",
    "every task waits, and no timer",
    "something was still under way after a month",
)
INVARIANT: Final = re.compile(r"(I|L)\d+(?=: )")


@dataclass(frozen=True, slots=True)
class Windows(Hunt):
    """A scenario without faults, then its crash points, those whose name begins with `near` first, up to `most` of them.

    With `twice` each crash is followed by one in the recovery after it.
    """

    name: str
    near: str = ""
    deeds: tuple[str, ...] = ("kill", "lose", "refuse")
    most: int = 40
    twice: bool = False

    def ready(self, ground: Ground) -> None:
        """Play the scenario up to the start of its measured part."""
        ground.start(self.name)

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Play the scenario with the bug. A finding that also occurs at the same crash point without the bug does not count."""
        found = Hunt.chase(self, ground, plant)
        if found is not None and found.window is not None:
            start, caught = ground.start(self.name), (found.window.point, found.window.deed)
            alike = [each for each in self._windows(start.golden["passages"]) if (each.point, each.deed) == caught]
            for window in alike[:ALIKE]:
                wrong, _ = _play(ground, start, window)
                if wrong is not None:
                    raise DoesNotFitError(f"without any bug, too: {window.deed} at {window.point}: {wrong.says}")
        return found

    def seeded(self, ground: Ground) -> Caught | None:
        """Play the scenario with the bug seeded: without faults, then at its crash points, up to the first finding."""
        start = ground.start(self.name)
        wrong, passages = _play(ground, start, Window(NOWHERE, "?", "lose"))
        if wrong is not None:
            return wrong
        for number, window in enumerate(self._windows(passages)[: self.most], start=1):
            wrong, _ = _play(ground, start, window)
            if wrong is not None:
                return Caught(
                    wrong.by, f"{number} windows of {self.name!r}", f"{window.deed} at {window.point}: {wrong.says}", window
                )
        return None

    def _windows(self, passages: list[str]) -> list[Window]:
        """Leave out the statements inside a transaction: a crash at any of them leaves the same as one before its COMMIT."""
        found = [
            window
            for window in windows_of(passages, [], every=True)
            if window.deed in self.deeds and not window.point.startswith("sql:")
        ]
        if self.twice:
            found = [Window(each.index, each.point, "kill", second) for each in found if each.deed == "kill" for second in AGAIN]
        return sorted(found, key=lambda each: (self.near not in each.point, each.deed == "refuse", each.index))


@dataclass(frozen=True, slots=True)
class Days(Hunt):
    """One simulated day of each seed, from `first` on."""

    first: int
    seeds: int = 30

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Simulate the days with the bug, until one has a finding."""
        for number in range(self.seeds):
            found = ground.with_bug(plant, lambda: _day(ground, self.first + number))  # noqa: B023 -- called before the next turn
            if found is not None:
                return replace(found, after=f"{number + 1} days, the last of seed {self.first + number}")
        return None


@dataclass(frozen=True, slots=True)
class Model(Hunt):
    """All blocks of the model, starting at `first`, until one disagrees that agrees without the bug."""

    first: int = 1
    blocks: int = model.BLOCKS["change"]

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Run the blocks with the bug."""
        left, steps = [(self.first - 1 + number) % self.blocks + 1 for number in range(self.blocks)], 0
        while left:
            left = [block for block in left if ground.honest.get(block) is not False]
            ran, made, says = ground.with_bug(plant, lambda: run_blocks(left))  # noqa: B023 -- called before the next turn
            steps += made
            if says is not None and ground.agrees(left[ran - 1]):
                return Caught("model", f"{steps:,} steps", says.partition("\n")[0])
            left = left[ran:]
        return None


@dataclass(frozen=True, slots=True)
class PowerCuts(Hunt):
    """Power cuts in the middle of a workload, or of storing files."""

    artefacts: bool = False
    one_of: int = 25  # cut after one of this many events

    def seeded(self, ground: Ground) -> Caught | None:
        """Cut the power with the bug seeded."""
        if self.artefacts:
            counts: Counter[str] = Counter()
            with _folder(ground, "artefacts") as folder:
                violations = cut_artefacts(folder, counts)
            states = counts["artefact states"]
        else:
            report = power.run_seed(1, power.BUDGETS["change"], processes=(1,), part=(0, self.one_of))
            violations, states = list(report.violations), report.counts["states"]
        return Caught("power", f"{states:,} states", violations[0].partition("# ")[2]) if violations else None


@dataclass(frozen=True, slots=True)
class DiskErrors(Hunt):
    """One failing disk call after another."""

    kind: str
    mode: str = "once"
    task: str = "errand"
    most: int = 40

    def seeded(self, _ground: Ground) -> Caught | None:
        """Make the calls fail with the bug seeded."""
        trial = io_errors.Trial(self.task, self.kind, self.mode)
        for k in range(1, self.most + 1):
            report = trial.run(k)
            if report.violations:
                return Caught("I/O", f"{k} calls that failed", report.violations[0].partition("# ")[2])
        return None


def _play(ground: Ground, start: Start, window: Window) -> tuple[Caught | None, list[str]]:
    """Play the scenario with this window; return the finding and the passages."""
    folder = ground.folder / "played"
    try:
        came = in_a_fork(lambda: play(start.cell, start.story, folder, window))
    except BrokenError as error:
        return _unrest(str(error)), []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sentences = [*came["violations"], *difference(start.golden["end"], came["end"])]
    return _caught(sentences[0], "a run without faults") if sentences else None, came["passages"]


def _day(ground: Ground, seed: int) -> Caught | None:
    with _folder(ground, "days") as folder:
        violations = live(seed, 1, folder).violations
    if not violations:
        return None
    return _unrest(violations[0]) if "Traceback" in violations[0] else _caught(violations[0].partition(": ")[2], "a day")


@contextmanager
def _folder(ground: Ground, name: str) -> Iterator[Path]:
    folder = ground.folder / name
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _caught(sentence: str, after: str) -> Caught:
    name = INVARIANT.match(sentence)
    return Caught("golden" if name is None else name[0], after, sentence)


def _unrest(trace: str) -> Caught:
    """Return a catch if the bot never came to rest. Any other end of a run proves nothing; raises DoesNotFitError then."""
    last = last_line(trace)
    if any(words in last for words in NEVER_RESTS):
        return Caught("rest", "a run without faults", last)
    raise DoesNotFitError(last)
