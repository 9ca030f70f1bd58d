"""Detection of a seeded bug: by the crash points of a scenario, simulated days, the model, or a disk that fails or loses power.

Every hunt stops at the first finding: a violated invariant, an end that differs from that of the run without the bug, a bot that
never comes to rest, or a disagreement with the model. A run that cannot be executed at all detects nothing.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from faults.lab.outcome import difference
from faults.lab.player import Window, play
from faults.lab.processes import BrokenError, in_a_fork
from faults.mutants.ground import NOWHERE, Caught, DoesNotFitError, Ground, Start, forked, last_line, plant_bug
from faults.suites import io_errors, model, power
from faults.suites.crash_points import windows_of
from faults.suites.power_artefacts import cut_artefacts
from faults.suites.simulate import live

if TYPE_CHECKING:
    from collections.abc import Callable
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
class Windows:
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
        found = forked(lambda: self._seeded(ground, plant))
        if found is not None and found.window is not None:
            self._without(ground, found.window)
        return found

    def _without(self, ground: Ground, caught: Window) -> None:
        start = ground.start(self.name)
        alike = [each for each in self._windows(start.golden["passages"]) if (each.point, each.deed) == (caught.point, caught.deed)]
        for window in alike[:ALIKE]:
            ended = self._play(ground, start, window)
            wrong = ended if isinstance(ended, Caught) else _wrong(start.golden, ended)
            if wrong is not None:
                raise DoesNotFitError(f"without any bug, too: {window.deed} at {window.point}: {wrong.says}")

    def _seeded(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        start = ground.start(self.name)
        plant_bug(plant, ground)
        came = self._play(ground, start, Window(NOWHERE, "?", "lose"))
        wrong = came if isinstance(came, Caught) else _wrong(start.golden, came)
        if wrong is not None or isinstance(came, Caught):
            return wrong
        for number, window in enumerate(self._windows(came["passages"])[: self.most], start=1):
            ended = self._play(ground, start, window)
            wrong = ended if isinstance(ended, Caught) else _wrong(start.golden, ended)
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
            deaths = [window for window in found if window.deed == "kill"]
            found = [Window(each.index, each.point, "kill", second) for each in deaths for second in AGAIN]
        return sorted(found, key=lambda each: (self.near not in each.point, each.deed == "refuse", each.index))

    def _play(self, ground: Ground, start: Start, window: Window) -> dict[str, Any] | Caught:
        folder = ground.folder / "played"
        try:
            return in_a_fork(lambda: play(start.cell, start.story, folder, window))  # type: ignore[no-any-return] # what play returns
        except BrokenError as error:
            return _unrest(str(error))
        finally:
            _remove(folder)


@dataclass(frozen=True, slots=True)
class Days:
    """One simulated day of each seed, from `first` on."""

    first: int
    seeds: int = 30

    def ready(self, ground: Ground) -> None:
        """Does nothing: no preparation is needed."""

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Simulate the days with the bug, until one has a finding."""
        for number in range(self.seeds):
            found = forked(lambda: self._seeded(ground, plant, self.first + number))  # noqa: B023 -- called before the next turn
            if found is not None:
                return replace(found, after=f"{number + 1} days, the last of seed {self.first + number}")
        return None

    def _seeded(self, ground: Ground, plant: Callable[[], None], seed: int) -> Caught | None:
        plant_bug(plant, ground)
        folder = ground.folder / "days"
        folder.mkdir()
        try:
            lived = live(seed, 1, folder)
        finally:
            _remove(folder)
        if not lived.violations:
            return None
        first = lived.violations[0]
        if "Traceback" in first:
            return _unrest(first)
        return _caught(first.partition(": ")[2], "a day")


@dataclass(frozen=True, slots=True)
class Model:
    """All blocks of the model, starting at `first`, until one disagrees that agrees without the bug."""

    first: int = 1
    blocks: int = model.BLOCKS["change"]

    def ready(self, ground: Ground) -> None:
        """Does nothing: no preparation is needed."""

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Run the blocks with the bug."""
        left, steps = [(self.first - 1 + number) % self.blocks + 1 for number in range(self.blocks)], 0
        while left:
            left = [block for block in left if ground.honest.get(block) is not False]
            some, before = left, steps
            ran, steps, says = forked(lambda: self._seeded(ground, plant, some, before))  # noqa: B023 -- called before the next turn
            if says is not None and ground.agrees(left[ran - 1]):
                return Caught("model", f"{steps:,} steps", says)
            left = left[ran:]
        return None

    def _seeded(self, ground: Ground, plant: Callable[[], None], blocks: list[int], steps: int) -> tuple[int, int, str | None]:
        """Return the number of blocks that ran, the steps so far, and the disagreement of the last block."""
        plant_bug(plant, ground)
        with model.empty_ledger() as template:
            for ran, block in enumerate(blocks, start=1):
                report = model.run_block(block, template, shrink=False)
                steps += report.counts["steps"]
                if report.violations:
                    return ran, steps, report.violations[0].partition("\n")[0]
        return len(blocks), steps, None


@dataclass(frozen=True, slots=True)
class PowerCuts:
    """Power cuts in the middle of a workload, or of storing files."""

    artefacts: bool = False
    one_of: int = 25  # cut after one of this many events

    def ready(self, ground: Ground) -> None:
        """Does nothing: no preparation is needed."""

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Cut the power with the bug seeded."""
        return forked(lambda: self._seeded(ground, plant))

    def _seeded(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        plant_bug(plant, ground)
        counts: Counter[str] = Counter()
        if self.artefacts:
            folder = ground.folder / "artefacts"
            folder.mkdir()
            try:
                violations = cut_artefacts(folder, counts)
            finally:
                _remove(folder)
            states = counts["artefact states"]
        else:
            report = power.run_seed(1, power.BUDGETS["change"], processes=(1,), part=(0, self.one_of))
            violations, states = list(report.violations), report.counts["states"]
        return Caught("power", f"{states:,} states", violations[0].partition("# ")[2]) if violations else None


@dataclass(frozen=True, slots=True)
class DiskErrors:
    """One failing disk call after another."""

    kind: str
    mode: str = "once"
    task: str = "errand"
    most: int = 40

    def ready(self, ground: Ground) -> None:
        """Does nothing: no preparation is needed."""

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Make the calls fail with the bug seeded."""
        return forked(lambda: self._seeded(ground, plant))

    def _seeded(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        plant_bug(plant, ground)
        trial = io_errors.Trial(self.task, self.kind, self.mode)
        for k in range(1, self.most + 1):
            report = trial.run(k)
            if report.violations:
                return Caught("I/O", f"{k} calls that failed", report.violations[0].partition("# ")[2])
        return None


def _wrong(golden: dict[str, Any], came: dict[str, Any]) -> Caught | None:
    sentences = [*came["violations"], *difference(golden["end"], came["end"])]
    return _caught(sentences[0], "a run without faults") if sentences else None


def _caught(sentence: str, after: str) -> Caught:
    name = INVARIANT.match(sentence)
    return Caught("golden" if name is None else name[0], after, sentence)


def _unrest(trace: str) -> Caught:
    """Return a catch if the bot never came to rest. Any other end of a run proves nothing; raises DoesNotFitError then."""
    last = last_line(trace)
    if any(words in last for words in NEVER_RESTS):
        return Caught("rest", "a run without faults", last)
    raise DoesNotFitError(last)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
