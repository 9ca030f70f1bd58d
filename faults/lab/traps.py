"""Traps: what a laboratory does when the bot passes a choke point. Every passage has a name, and the n-th of a run is a window.

Names: `sql:<write>/<statement>`, `commit:<writes>:before|after`, `out:<system>:<method>:before|sent|answered`, `ack:before|sent`,
`file:<step>`.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Literal, Protocol

from quotebot.sandbox.wire import Cut

if TYPE_CHECKING:
    from collections.abc import Callable


class Trap(Protocol):
    """Stands at every choke point."""

    def passes(self, point: str) -> None:
        """Note that the bot passes this point; a deadly trap may not return."""
        ...


class OpenTrap:
    """Lets everything pass."""

    def passes(self, point: str) -> None:
        """Let it pass."""


class UnreachableError(Exception):
    """A trap's way to refuse a connection: nothing was sent."""


class KilledError(BaseException):
    """What a bot feels that dies inside a process that lives on: nothing that it does from here on reaches anything."""


Deed = Literal["kill", "lose", "refuse"]


class Switch:
    """Lets everything pass until it is armed; then notes every passage and, with a window, does its deed there, once.

    kill: death inside the call, by SIGKILL of this process or, with a `die` of its own, of one bot in it. lose: the answer of a
    request that was served never comes. refuse: the connection is refused before anything is sent.
    """

    def __init__(self, tell: Callable[[], object], die: Callable[[str], object] | None = None) -> None:
        """`tell` is called at every passage while there is no window, and before a death: somebody looks at what it leaves."""
        self.passages: list[str] = []
        self._tell = tell
        self._die = die or _sigkill
        self._dead = False
        self._armed = False
        self._window: int | None = None
        self._deed: Deed = "kill"
        self._done = False

    def arm(self, window: int | None, deed: Deed = "kill") -> None:
        """Begin to count, from 0."""
        self.passages = []
        self._window = window
        self._deed = deed
        self._armed = True

    def disarm(self) -> None:
        """Let everything pass again."""
        self._armed = False

    def passes(self, point: str) -> None:
        """Note it, or do the deed."""
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
                self._tell()  # what time it is: clocks go on when a process dies
                self._dead = True
                self._die(point)
                raise KilledError
            self.passages.append(point)
            raise Cut if self._deed == "lose" else UnreachableError
        self.passages.append(point)


def _sigkill(point: str) -> None:
    del point
    os.kill(os.getpid(), signal.SIGKILL)
