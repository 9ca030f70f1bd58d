"""Processes of a session: every fork of a bot stays in the session of its start (fork_server.py), even after a crash of the bot."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_OVER = frozenset("ZX")  # dead, but not yet waited for


@dataclass(frozen=True, slots=True)
class Living:
    """A process as Linux shows it: `session` is the pid of its session leader."""

    pid: int
    session: int
    name: str


def living(sessions: Collection[int]) -> list[Living]:
    """Return every live process of these sessions (proc(5)); none on a system without /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            pid, _, rest = stat.read_text(errors="replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, _parent, _group, session = fields.split()[:4]
            if int(session) in sessions and state not in _OVER:
                found.append(Living(int(pid), int(session), name))
    return found
