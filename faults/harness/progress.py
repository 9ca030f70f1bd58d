"""Progress bar of a long suite run on stderr: the current part, the share that is done, and the estimated time left."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Seconds of history for the estimate: one scenario, seed or storm takes minutes, and their durations differ.
ESTIMATE_SECONDS: Final = 3600.0


def bar(*, hidden: bool = False) -> Progress:
    """Return the bar; add a task with its total and the amount that an earlier run completed."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), speed_estimate_period=ESTIMATE_SECONDS, disable=hidden)
