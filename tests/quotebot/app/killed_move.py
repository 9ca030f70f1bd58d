"""A move that kills its own process at one of its steps, for a fork of the fork server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ledger.clock import SystemClock
from ledger.sqlite.disk import Disk
from quotebot.app.moves import move
from quotebot.settings import Settings


class Steps:
    """Steps of a move: each report of progress, and each change of a name on the disk. The first new one kills the process.

    `path` has the names of those at which an earlier run was killed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = set(path.read_text("utf-8").splitlines()) if path.exists() else set()

    def step(self, name: str) -> None:
        """Pass a step."""
        if name not in self._known:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def progress(self, what: str, done: int, total: int) -> None:
        """Pass a report; of the tables only the first, and of the checks, which change nothing, only that of the copy."""
        del total
        if what == "Checking the copy" or not ((done and what.startswith("Copying")) or what.startswith("Checking")):
            self.step(what)


def main() -> None:
    """Move: data folder, address of the ledger or `file`, target, file of the known steps."""
    folder, origin, target, known = sys.argv[1:]
    steps = Steps(Path(known))
    for name in ("rename", "write"):
        original = getattr(Disk, name)

        def passed(self: Disk, path: Path, other: Any, original: Any = original, name: str = name) -> None:
            original(self, path, other)
            steps.step(f"{name} {path.name}")

        setattr(Disk, name, passed)
    url = None if origin == "file" else origin
    settings = Settings(_env_file=None, data_dir=Path(folder), ledger_url=url, ledger_durability="local")
    asyncio.run(move(settings, target, SystemClock(), actor="operator", progress=steps.progress))
