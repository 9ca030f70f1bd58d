"""Traps: what a laboratory does when the bot passes a choke point. Every passage has a name, and the n-th of a run is a window.

Names: `sql:<write>/<statement>`, `commit:<writes>:before|after`, `out:<system>:<method>:before|sent|answered`, `ack:before|sent`,
`file:<step>:before|after`, `chance:<what>`.
"""

from __future__ import annotations

import os
import signal
from typing import Protocol


class Trap(Protocol):
    """Stands at every choke point."""

    def passes(self, point: str) -> None:
        """Note that the bot passes this point; a deadly trap may not return."""
        ...


class OpenTrap:
    """Lets everything pass."""

    def passes(self, point: str) -> None:
        """Let it pass."""


class Recorder:
    """Notes every passage, in order."""

    def __init__(self) -> None:
        self.passages: list[str] = []

    def passes(self, point: str) -> None:
        """Note it."""
        self.passages.append(point)


class Deadly:
    """SIGKILLs this process at its `window`-th passage, counted from 0. The kernel ends it inside this call."""

    def __init__(self, window: int) -> None:
        self._left = window

    def passes(self, point: str) -> None:
        """Let it pass, or die."""
        del point
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
