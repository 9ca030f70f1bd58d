"""Reaches every interesting state on purpose: all scenarios once, the special ones, the scenes, and two crashes at named points.

python -m faults.suites.reaching          prints the states that were not reached, and the violations on the way
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.checks.reachability import STATES
from faults.lab.bot import remember_tasks
from faults.lab.days import Office
from faults.lab.loop import LabClock, VirtualLoop
from faults.lab.outcome import outcome_of
from faults.lab.player import Window, play, prepared
from faults.lab.processes import BrokenError, in_a_fork
from faults.lab.setting import lab_settings, ram, silence
from faults.lab.simulation import Cell
from faults.lab.warm_up import warm_up
from faults.report.reports import Report, finish
from faults.scenarios.rare_sequences import SCENES
from faults.scenarios.rare_states import SPECIAL
from faults.scenarios.workflows import STORIES
from faults.suites.simulate import Lived, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faults.scenarios.rare_sequences import Scene
    from faults.scenarios.workflows import Story

# A scenario, and the passage of it at which the bot is killed, for states that no step and no scene reaches.
DEATHS: Final = (("recovery", "commit:begin_epoch:after"), ("approve", "out:salesforce:graph:sent"))
Came = tuple[set[str], list[str]]  # states, violations


def play_scenario(story: Story, folder: Path) -> Came:
    """Play a scenario once, in this process, without its crash points."""
    cell = Cell(lab_settings(folder), LabClock(), seed=1)
    for step in (*story.before(), *story.measured()):
        step.do(cell)
    if cell.life is not None:
        cell.stop()
    came = outcome_of(cell, at_rest=story.at_rest)
    return set(came["reached"]), came["violations"]


def cut(story: Story, point: str, folder: Path) -> Came:
    """Play a scenario with a crash at this point. Raises ValueError if the scenario does not pass it."""
    with prepared(story, folder) as cell:
        passages = in_a_fork(lambda: play(cell, story, folder / "golden", None))["passages"]
        came = play(cell, story, folder / "cut", Window(passages.index(point), point))
    return set(came["reached"]), came["violations"]


def played(scene: Scene, folder: Path) -> Came:
    """Play a scene in this process."""
    clock = LabClock()
    loop = VirtualLoop(clock)
    remember_tasks(loop)
    asyncio.set_event_loop(loop)
    office, lived = Office(lab_settings(folder / "bot"), clock, seed=1), Lived(1)

    async def whole() -> None:
        await scene(office)
        await office.stop()
        check(office, lived)

    loop.run_until_complete(whole())
    return lived.reached, lived.violations


def scenarios_by_name() -> Iterator[tuple[str, Callable[[Path], Came]]]:
    """Yield all plays, by name."""
    for story in (*STORIES, *SPECIAL):
        yield story.name, partial(play_scenario, story)
    for scene in SCENES:
        yield scene.__name__, partial(played, scene)
    by_name = {story.name: story for story in STORIES}
    for name, point in DEATHS:
        yield f"{name}, killed at {point}", partial(cut, by_name[name], point)


def main(argv: Sequence[str]) -> int:
    """Play everything, or what is named; returns 1 if a state was not reached or something was violated."""
    silence()
    warm_up()
    began = time.monotonic()
    seen: set[str] = set()
    wrong: list[str] = []
    count = 0
    for name, journey in scenarios_by_name():
        if argv and name not in argv:
            continue
        count += 1
        with tempfile.TemporaryDirectory(prefix="quotebot-reaching-", dir=ram()) as folder:
            try:
                states, violations = in_a_fork(partial(journey, Path(folder)))
            except BrokenError as error:
                states, violations = set(), [str(error).strip()]
        seen |= states
        wrong += [f"{name}: {sentence} -- python -m faults.suites.reaching {name!r}" for sentence in violations]
    if not argv:
        wrong += [f"nothing came to this state: {state}" for state in sorted(STATES - seen)]
    report = Report("reaching", {"journeys": count}, tuple(wrong), tuple(sorted(seen)), (1,), time.monotonic() - began)
    summary = f"{len(seen)} of {len(STATES)} states reached, {len(wrong)} violations ({report.seconds:.1f} s)"
    return finish(report, None, [*wrong, summary])


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of texts affects the order of events
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "faults.suites.reaching", *sys.argv[1:]])  # noqa: S606 -- itself
    sys.exit(main(sys.argv[1:]))
