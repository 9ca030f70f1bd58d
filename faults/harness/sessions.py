"""Who lives in a session of processes: whatever a bot forks stays in the session its start opened (zygote.py), dead bot or not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_OVER = frozenset("ZX")  # dead, and waited for by nobody yet


@dataclass(frozen=True, slots=True)
class Living:
    """A process as Linux knows it: `session` is the pid of the one that opened it."""

    pid: int
    session: int
    name: str


def living(sessions: Collection[int]) -> list[Living]:
    """Return every process of these sessions that lives (proc(5)); none where a system has no /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            pid, _, rest = stat.read_text(errors="replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, _parent, _group, session = fields.split()[:4]
            if int(session) in sessions and state not in _OVER:
                found.append(Living(int(pid), int(session), name))
    return found
