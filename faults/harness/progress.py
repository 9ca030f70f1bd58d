"""The bar that a long run of a suite shows on stderr: what, how much of how much, and how long it will still take."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# What is left is estimated from so much of the past: a story, a seed or a storm takes minutes, and each another time.
ESTIMATE_SECONDS: Final = 3600.0


def bar(*, hidden: bool = False) -> Progress:
    """Return it; add a task with what there is in all and what a run before has done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), speed_estimate_period=ESTIMATE_SECONDS, disable=hidden)
