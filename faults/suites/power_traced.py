"""Small programs to be run under strace: `python -m faults.suites.power_traced <program> <folder>`."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from faults.lab.sqlite_vfs import Deleted, Event, Synced, SyncedFolder, WatchedFolder
from faults.suites.power_workload import Diary, TickingClock, audit_of, live, run_to_end

if TYPE_CHECKING:
    from faults.suites.power_workload import Told, Work


class LoudDiary(Diary):
    """A diary that writes each caller's result to stdout, in one system call."""

    def note(self, what: str, at: int, sql: str, told: Told) -> None:
        """Note the result and write it to stdout."""
        super().note(what, at, sql, told)
        os.write(1, f"told {told}: {what}\n".encode())


async def _one_after_the_other(work: Work) -> None:
    for _ in range(3):
        await work.ask(work.creation())
        await work.execute()
        await work.deliver()


def answers(folder: Path) -> None:
    """Work on a ledger, one write at a time, and write each result to stdout."""
    run_to_end(live(folder, TickingClock(), audit_of(folder), LoudDiary(), random.Random(5), _one_after_the_other))  # noqa: S311 -- replayable


def syncs(folder: Path) -> None:
    """Work on a ledger, and print afterwards what was synced according to the recorder; "" is the folder."""
    events: list[Event] = []
    audit = audit_of(folder)
    sys.stderr.write("the ledger's files from here on\n")
    with WatchedFolder(folder, observer=events.append):
        run_to_end(live(folder, TickingClock(), audit, Diary(), random.Random(5), _one_after_the_other))  # noqa: S311 -- replayable
    said = []
    for event in events:
        if isinstance(event, Synced):
            said += [event.name] + [""] * event.folder
        elif isinstance(event, SyncedFolder) or (isinstance(event, Deleted) and event.folder):
            said.append("")
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    {"answers": answers, "syncs": syncs}[sys.argv[1]](Path(sys.argv[2]))
