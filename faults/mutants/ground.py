"""What all hunts share: stories at their beginning without any bug, forks to plant bugs in, and what counts as a catch."""

from __future__ import annotations

import logging
import re
import resource
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog

from faults.lab.player import Window, play, prepared
from faults.lab.processes import BrokenError, in_a_fork
from faults.mutants import scenarios as more_stories
from faults.scenarios import workflows
from faults.suites import model

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from faults.lab.simulation import Cell
    from faults.scenarios.workflows import Story

T = TypeVar("T")

CPU_SECONDS: Final = 40  # of one process; a bug may make it spin
NOWHERE: Final = 10**9
PLANTED: Final = str(Path(__file__).parent)
MISFIT: Final = re.compile(r"\(\) (takes|missing|got) ")  # what a call says that does not fit what it calls
STORIES: Final = {story.name: story for story in (*workflows.STORIES, *more_stories.STORIES)}


class DoesNotFitError(Exception):
    """The planted bug cannot be run: it proves nothing, and has to follow what it changes."""


@dataclass(frozen=True, slots=True)
class Caught:
    """By what (an invariant's name, "golden", "rest", "model"...), after how much of what, and the sentence."""

    by: str
    after: str
    says: str
    window: Window | None = None


@dataclass(slots=True)
class Start:
    """A story ready to be played, and how it ends without any bug."""

    story: Story
    cell: Cell
    golden: dict[str, Any]


@dataclass(slots=True)
class Ground:
    """What the hunts of one process share, all of it made before the first bug is planted: stories at their beginning."""

    folder: Path
    stack: contextlib.ExitStack
    starts: dict[str, Start] = field(default_factory=dict)
    honest: dict[int, bool] = field(default_factory=dict)  # whether model and ledger agree on a block without a bug

    @property
    def unfit(self) -> Path:
        """Where an error of planted code is noted."""
        return self.folder / "unfit"

    def start(self, name: str) -> Start:
        """Return the story's beginning. Raises DoesNotFitError when it goes wrong without any bug."""
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

    def agrees(self, block: int) -> bool:
        """Tell whether ledger and model agree on a block of the model as they are."""
        if block not in self.honest:
            self.honest[block] = in_a_fork(lambda: disagreement(block)) is None
        return self.honest[block]


class Hunt(Protocol):
    """One way to look for a bug."""

    def ready(self, ground: Ground) -> None:
        """Prepare, in the process that starts the hunts, without the bug."""
        ...

    def chase(self, ground: Ground, plant: Callable[[], None]) -> Caught | None:
        """Plant the bug in forks of this process and look until something is wrong; None: nothing ever was."""
        ...


def disagreement(block: int) -> str | None:
    """Run one block of the model; return what ledger and model disagree about, None when they agree."""
    with model.empty_ledger() as template:
        violations = model.run_block(block, template, shrink=False).violations
    return violations[0] if violations else None


def plant_bug(plant: Callable[[], None], ground: Ground) -> None:
    """Plant it. Production survives the errors of its own parts: those of the planted code are noted, for they catch nothing."""

    def note(_logger: object, _method: str, _event: Any) -> Any:
        _note_unfit(ground.unfit, sys.exc_info()[1])
        raise structlog.DropEvent

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.ReturnLoggerFactory(),
        processors=[note],
        cache_logger_on_first_use=False,
    )
    bolt = logging.getLogger("slack_bolt")
    bolt.setLevel(logging.ERROR)
    bolt.propagate = False
    bolt.addHandler(_Noting(ground.unfit))
    plant()


class _Noting(logging.Handler):
    """Notes what Bolt says of listeners that failed."""

    def __init__(self, unfit: Path) -> None:
        super().__init__()
        self._unfit = unfit

    def emit(self, record: logging.LogRecord) -> None:
        """Note its error, if planted code made it."""
        del record
        _note_unfit(self._unfit, sys.exc_info()[1])


def _note_unfit(unfit: Path, error: BaseException | None) -> None:
    """Note an error that was raised in planted code, or by a call that does not fit it."""
    where = None if error is None else error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    misfit = isinstance(error, TypeError) and MISFIT.search(str(error)) is not None
    if misfit or (where is not None and where.tb_frame.f_code.co_filename.startswith(PLANTED)):
        unfit.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def forked(work: Callable[[], T]) -> T:
    """Run it in a fork of this process; what goes wrong there with the hunt itself is a bug that does not fit."""
    try:
        return in_a_fork(work)  # type: ignore[no-any-return] # what the work returned
    except BrokenError as error:
        raise DoesNotFitError(last_line(str(error))) from error


def last_line(trace: str) -> str:
    """Return the last line of a traceback: what it was."""
    return trace.strip().rpartition("\n")[2]
