"""The journal that all replicas of a fault suite share: one line for each thing that one of them did.

A line survives the process that wrote it. All processes of the machine share its clock.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what a replica did, when (monotonic seconds), to what, and under which key.

    | event | what | key |
    |---|---|---|
    | up | epoch | |
    | acknowledged | aggregate | operation key |
    | execute | operation id | aggregate |
    | call, look, late | effect id | aggregate |

    `call` is the message itself: from then on it is seen.
    """

    at: float
    name: str
    pid: int
    event: str
    what: str
    key: str


class Journal:
    """One process's access to the journal. Without a name it only reads."""

    def __init__(self, path: Path, name: str = "") -> None:
        self._name = name
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._read = 0
        self.lines: list[Line] = []

    def write(self, event: str, what: object, key: str = "-") -> None:
        """Append a line."""
        os.write(self._file, f"{time.monotonic():.6f} {self._name} {os.getpid()} {event} {what} {key}\n".encode())

    def follow(self) -> list[Line]:
        """Read the new lines, and return all."""
        while whole := os.pread(self._file, _AT_ONCE, self._read).rpartition(b"\n")[0]:
            for line in whole.decode().split("\n"):
                at, name, pid, event, what, key = line.split(" ")
                self.lines.append(Line(float(at), name, int(pid), event, what, key))
            self._read += len(whole) + 1
        return self.lines

    def of(self, *events: str, since: float = 0.0) -> Iterator[Line]:
        """Yield the known lines about such events."""
        return (line for line in self.lines if line.event in events and line.at >= since)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
