"""Traps: the laboratory's reactions when the bot passes a choke point. Each passage has a name and a number, and is a crash point.

Names: `sql:<write>/<statement>`, `commit:<writes>:before|after`, `out:<system>:<method>:before|sent|answered`, `ack:before|sent`,
`file:<step>`.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Literal

from adapters.artefacts import Files
from ledger.sqlite.disk import Disk
from quotebot.sandbox.wire import Cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Trap:
    """A trap, which is called at every choke point. This one does nothing."""

    commits = 0  # of a ledger that is not a file, whose state cannot be hashed

    def passes(self, point: str) -> None:
        """Note that the bot passes this point; a trap that kills may not return."""


class UnreachableError(Exception):
    """Raised by a trap to refuse a connection: nothing was sent."""


class KilledError(BaseException):
    """Raised inside a bot that is killed in a process that lives on: none of its later actions has an effect."""


Deed = Literal["kill", "lose", "refuse"]


class Switch(Trap):
    """A trap that does nothing until armed; then it records every passage and, with a window, injects its fault there, once.

    kill: crash inside the call, by SIGKILL of this process or, with its own `die`, of one bot in it. lose: the answer to a served
    request never arrives. refuse: the connection is refused before anything is sent.
    """

    def __init__(self, tell: Callable[[], object], die: Callable[[str], object] | None = None) -> None:
        """Set the callbacks.

        `tell` is called at every passage while there is no window, and before a crash, so that the state it leaves can be recorded.
        `die` kills the bot; the default is SIGKILL of this process.
        """
        self.passages: list[str] = []
        self._tell = tell
        self._die = die or (lambda _point: os.kill(os.getpid(), signal.SIGKILL))
        self._dead = False
        self._armed = False
        self._window: int | None = None
        self._deed: Deed = "kill"
        self._done = False

    def arm(self, window: int | None, deed: Deed = "kill") -> None:
        """Start to count passages, from 0."""
        self.passages = []
        self._window = window
        self._deed = deed
        self._armed = True

    def disarm(self) -> None:
        """Stop to count passages and to inject faults."""
        self._armed = False

    def passes(self, point: str) -> None:
        """Record the passage, or inject the fault."""
        if self._dead:
            raise KilledError
        if not self._armed:
            return
        if self._window is None:
            if not self._done:
                self._tell()
        elif len(self.passages) == self._window:
            self._window, self._done = None, True
            if self._deed == "kill":
                self._tell()  # to pass on the time: clocks continue after a crash
                self._dead = True
                self._die(point)
                raise KilledError
            self.passages.append(point)
            raise Cut if self._deed == "lose" else UnreachableError
        self.passages.append(point)


class TrappedFiles(Files):
    """The production's file steps; `trap` is passed before every change of the disk."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap
        for step in ("make_folder", "sync_folder", "create", "sync", "rename", "remove"):
            setattr(self, step, _after_passing(trap, f"file:{step}", getattr(self, step)))

    def write(self, descriptor: int, content: bytes) -> None:
        """Pass the trap, write the first half, pass the trap, write the rest: a process may crash between two writes."""
        self._trap.passes("file:write")
        super().write(descriptor, content[: len(content) // 2])
        self._trap.passes("file:write_rest")
        super().write(descriptor, content[len(content) // 2 :])


class TrappedDisk(Disk):
    """Disk steps; `trap` is passed before every step in which the ledger's own files are copied, put aside or put in place."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap
        for step in ("make_folder", "create", "sync", "link", "remove"):
            setattr(self, step, _after_passing(trap, f"disk:{step}", getattr(self, step)))

    def rename(self, path: Path, to: Path) -> None:
        """Pass the trap, then do the step."""
        self._trap.passes(f"disk:rename{to.suffix}")
        super().rename(path, to)


def _after_passing(trap: Trap, point: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def passed(*arguments: Any) -> Any:
        trap.passes(point)
        return step(*arguments)

    return passed
