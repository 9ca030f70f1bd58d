"""Shared parts of all hunts: scenarios at their start without any bug, forks to seed bugs in, and the definition of a catch."""

from __future__ import annotations

import logging
import re
import resource
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from faults.lab.player import Window, play, prepared
from faults.lab.processes import BrokenError, in_a_fork
from faults.mutants import scenarios as more_stories
from faults.mutants.model import run_blocks
from faults.scenarios import workflows

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from faults.lab.simulation import Cell
    from faults.scenarios.workflows import Story
    from quotebot.sandbox.cluster import Cluster

T = TypeVar("T")

CPU_SECONDS: Final = 40  # of one process; a bug may make it spin
NOWHERE: Final = 10**9
PLANTED: Final = str(Path(__file__).parent)
MISFIT: Final = re.compile(r"\(\) (takes|missing|got) ")  # error text of a call whose arguments do not fit
STORIES: Final = {story.name: story for story in (*workflows.STORIES, *more_stories.STORIES)}


class DoesNotFitError(Exception):
    """The seeded bug cannot be run: it proves nothing, and must be adapted to the code it changes."""


@dataclass(frozen=True, slots=True)
class Caught:
    """A detected bug: `by` is an invariant's name or "golden", "rest", "model" and so on; `after` is the amount of work."""

    by: str
    after: str
    says: str
    window: Window | None = None


@dataclass(slots=True)
class Start:
    """A scenario that is ready to be played, and its outcome without any bug."""

    story: Story
    cell: Cell
    golden: dict[str, Any]


@dataclass(slots=True)
class Ground:
    """State that the hunts of one process share, all of it made before the first bug is seeded: scenarios at their start."""

    folder: Path
    stack: contextlib.ExitStack
    starts: dict[str, Start] = field(default_factory=dict)
    honest: dict[int, bool] = field(default_factory=dict)  # whether model and ledger agree on a block without a bug
    server: Cluster | None = None
    passing: set[str] = field(default_factory=set)  # tests that pass without a bug

    @property
    def unfit(self) -> Path:
        """File to which an error of seeded code is written."""
        return self.folder / "unfit"

    def start(self, name: str) -> Start:
        """Return the scenario's start. Raises DoesNotFitError if the scenario fails without any bug."""
        if name not in self.starts:
            story = STORIES[name]
            folder = self.folder / f"story-{len(self.starts)}"
            folder.mkdir()
            cell = self.stack.enter_context(prepared(story, folder))
            golden = forked(lambda: play(cell, story, folder / "golden", Window(NOWHERE, "?", "lose")))
            if golden["violations"]:
                raise DoesNotFitError(f"without any bug: {golden['violations'][0]}")
            self.starts[name] = Start(story, cell, golden)
        return self.starts[name]

    def with_bug(self, plant: Callable[[], None], work: Callable[[], T]) -> T:
        """Seed the bug in a fork of this process and run `work` there."""

        def seeded() -> T:
            plant_bug(plant, self)
            return work()

        return forked(seeded)

    def agrees(self, block: int) -> bool:
        """Tell whether ledger and model agree on a block of the model without a bug."""
        if block not in self.honest:
            self.honest[block] = in_a_fork(lambda: run_blocks([block]))[2] is None
        return self.honest[block]


class Hunt:
    """One way to detect a bug. A hunt that needs a single fork defines `seeded`, another one `chase`."""

    def ready(self, ground: Ground) -> None:
        """Prepare, in the process that starts the hunts, without the bug."""

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Seed the bug in forks of this process and run until something is wrong; None if nothing ever was."""
        return ground.with_bug(plant, lambda: self.seeded(ground))

    def seeded(self, ground: Ground) -> Caught | None:
        """Run with the bug, in the fork in which it was seeded."""
        raise NotImplementedError


def plant_bug(plant: Callable[[], None], ground: Ground) -> None:
    """Seed the bug.

    Production code survives errors of its parts, so errors of seeded code are written down: they are not a catch.
    """

    def note(*_logged: object) -> Any:
        note_unfit(ground.unfit, sys.exc_info()[1])
        raise structlog.DropEvent

    def note_listener(_record: logging.LogRecord) -> bool:
        note_unfit(ground.unfit, sys.exc_info()[1])
        return False

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.ReturnLoggerFactory(),
        processors=[note],
        cache_logger_on_first_use=False,
    )
    listeners = logging.Handler()
    listeners.addFilter(note_listener)
    bolt = logging.getLogger("slack_bolt")
    bolt.setLevel(logging.ERROR)
    bolt.propagate = False
    bolt.addHandler(listeners)
    plant()


def note_unfit(unfit: Path, error: BaseException | None) -> None:
    """Write down an error that was raised in seeded code, or by a call whose arguments do not fit it."""
    where = None if error is None else error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    misfit = isinstance(error, TypeError) and MISFIT.search(str(error)) is not None
    if misfit or (where is not None and where.tb_frame.f_code.co_filename.startswith(PLANTED)):
        unfit.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def forked(work: Callable[[], T]) -> T:
    """Run `work` in a fork of this process. If it fails there, raise DoesNotFitError."""
    try:
        return in_a_fork(work)  # type: ignore[no-any-return] # what the work returned
    except BrokenError as error:
        raise DoesNotFitError(last_line(str(error))) from error


def last_line(trace: str) -> str:
    """Return the last line of a traceback: the error itself."""
    return trace.strip().rpartition("\n")[2]
