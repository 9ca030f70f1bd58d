"""One scenario, played once with one fault in it. Play it in a fork, because the cell keeps its state."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faults.lab import place
from faults.lab.loop import LabClock
from faults.lab.outcome import broken_now, difference, is_somebody_untold, outcome_of
from faults.lab.processes import DiedError
from faults.lab.setting import lab_settings
from faults.lab.simulation import Cell
from faults.lab.steps import Gesture, NothingThereError, Operates, Starts
from ledger.audit.keyring import load_keyring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from faults.lab.steps import Step
    from faults.lab.traps import Deed
    from faults.scenarios.workflows import Story


@dataclass(frozen=True, slots=True)
class Window:
    """One fault, injected once. `second` is the crash point of the recovery after it where the bot is killed again."""

    index: int
    point: str
    deed: Deed = "kill"
    second: int | None = None


@contextlib.contextmanager
def prepared(story: Story, folder: Path, database: str | None = None) -> Iterator[Cell]:
    """Yield the cell at the start of the measured part. A running bot is stopped; the measured part starts a new one.

    `database`: address of an unused ledger that is not a file.
    """
    (folder / "start").mkdir()
    if database is not None:
        load_keyring(folder / "start")  # a ledger that is there has its keys
    cell = Cell(lab_settings(folder / "start", ledger_url=database), LabClock(), seed=1)
    for step in story.before():
        step.do(cell)
    if cell.life is not None:
        cell.stop()
    yield cell


@dataclass(frozen=True, slots=True)
class Left:
    """State after a crash: a cell without its bot, the scenario's steps, and the index of the interrupted one."""

    cell: Cell
    steps: Sequence[Step]
    under_way: int

    def twin(self, folder: Path) -> Left:
        """Return a copy, with its ledger in `folder`."""
        return Left(self.cell.left(folder), copy.deepcopy(self.steps), self.under_way)


def play(
    cell: Cell, story: Story, folder: Path, window: Window | None, *, apart: bool = False, looks: bool = False
) -> dict[str, Any]:
    """Play the measured part once, in this process. Returns its outcome, and the passages if no fault was planned.

    The bot runs in this process too, unless `apart`, the scenario, or a second crash requires processes that are really killed.
    With `looks`, "recovery" lists the passages of the recovery from the crash, and "states" what another crash would leave at each.
    """
    steps = list(story.measured())
    _begin(cell, steps, folder, in_place=not apart and not story.apart and (window is None or window.second is None))
    if window is None:
        cell.measure()
    else:
        cell.measure(window.index, window.deed)
    cut_short, recovery = _do_all(cell, steps, None if window is None else window.second, looks=looks)
    died = recovery is not None and (cell.died_at is None or window is None or window.point in ("?", cell.died_at))
    measured = cell.unmeasured()
    # A window without a name ("?") counts as passed.
    if window is not None and window.deed != "kill":
        died = window.point == "?" or measured[window.index : window.index + 1] == [window.point]
    if window is not None and not died:
        raise AssertionError("this window was not passed: the run was not the golden run")
    return {"recovery": recovery or [], "cut_short": cut_short, **_end(cell, story, steps, measured)}


def left_at(cell: Cell, story: Story, folder: Path, windows: Sequence[Window]) -> dict[Window, Left]:
    """Play the measured part once without a fault, and keep the state that a crash at each of these windows leaves.

    This saves each window the way to its crash point. Windows at which a person in the World waits for the bot are left out.
    """
    at = {window.index: window for window in windows if window.deed == "kill" and window.second is None}
    found: dict[Window, Left] = {}
    steps = list(story.measured())
    under_way = newest = 0

    def look_on(number: int) -> None:
        nonlocal newest
        newest = number
        if number in at and not cell.in_company:
            found[at[number]] = Left(cell.left(folder / f"left-{number}"), copy.deepcopy(steps), under_way)

    _begin(cell, steps, folder, in_place=True)
    cell.looks_on = look_on
    cell.measure()
    for under_way, step in enumerate(steps):  # noqa: B007 -- look_on reads it
        if newest <= max(at, default=-1):
            step.do(cell)
    passages = cell.unmeasured()
    if cell.life is not None:
        cell.kill()
    if any(window.point not in ("?", passages[window.index]) for window in found):
        raise AssertionError("another window was passed: the run was not the golden run")
    return found


def play_on(left: Left, story: Story, second: int | None = None, *, looks: bool = False) -> dict[str, Any]:
    """Play what follows a crash; returns its outcome, as `play` does.

    `second`: passage of the recovery at which it is killed again.
    """
    cell, steps = left.cell, left.steps
    recovery = _recover(cell, steps[left.under_way], second, looks=looks)
    cut_short, _ = _do_all(cell, steps[left.under_way + 1 :], None)
    return {"recovery": recovery, "cut_short": cut_short, **_end(cell, story, steps, [])}


def wrongs(golden: dict[str, Any], came: dict[str, Any]) -> list[str]:
    """Return sentences on what is wrong with the end of a play: violations, and differences from the golden run.

    There is nothing to compare if a person does not go on because an ephemeral reply to them was given up after two crashes, or if
    an effect claimed at three crashes (two crashes in a scenario that starts with one) waits for an operator.
    """
    differs = [] if came["cut_short"] or came["poisoned"] else difference(golden["end"], came["end"], came["untold"])
    return [*came["violations"], *differs]


def _begin(cell: Cell, steps: Sequence[Step], folder: Path, *, in_place: bool) -> None:
    """Give the cell its own ledger in `folder`, and start its bot unless the scenario does."""
    cell.settings = place.copied(cell.settings, folder / "ledger")
    cell.in_place = in_place
    if not isinstance(steps[0], Starts | Operates):
        cell.start()


def _end(cell: Cell, story: Story, steps: Sequence[Step], measured: list[str]) -> dict[str, Any]:
    """Deliver every request again, stop the bot and return the outcome."""
    if cell.life is None:
        cell.in_place = True
        cell.start()
    for step in steps:
        if isinstance(step, Gesture) and step.request_id is not None:
            step.again(cell)
    cell.settle()
    cell.stop()
    outcome = outcome_of(cell, at_rest=story.at_rest)
    place.forget(cell.settings)
    return {"passages": measured, "states": cell.states, **outcome}


def _do_all(cell: Cell, steps: Sequence[Step], second: int | None, *, looks: bool = False) -> tuple[bool, list[str] | None]:
    """Do steps; recover from each crash. Returns the passages of the recovery, None without a crash.

    Before that, returns true if no person can do a step, because an ephemeral reply to them was given up after two crashes.
    """
    recovery: list[str] | None = None
    for step in steps:
        try:
            step.do(cell)
        except DiedError:
            recovery = [*(recovery or []), *_recover(cell, step, second, looks=looks)]
        except NothingThereError:
            if not is_somebody_untold(cell):
                raise
            return True, recovery
    return False, recovery


def _recover(cell: Cell, step: Step, second: int | None, *, looks: bool = False) -> list[str]:
    """Start the bot again, kill it at the `second` passage of the recovery, and continue the interrupted step.

    Returns the passages of the recovery if `looks`. An operator's command that must run `alone` is repeated before the bot starts.
    """
    cell.unmeasured()
    comes_first = isinstance(step, Operates) and step.alone
    if second is not None or looks:
        cell.measure(second)
    while True:
        try:
            if cell.life is None:
                cell.in_place = second is None
                if not comes_first:
                    cell.start()
            if comes_first:
                step.again(cell)
            else:
                cell.settle()
        except DiedError:
            cell.unmeasured()
            second = None
            continue
        break
    if second is not None:
        raise AssertionError("the second death did not come: the recovery was over")
    passed = cell.unmeasured()
    if not comes_first:
        cell.broken += broken_now(cell)  # before redeliveries, which would repair the loss of an acknowledged command
        step.again(cell)
    return passed
