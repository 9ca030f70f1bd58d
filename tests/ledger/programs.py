"""Small programs that tests run as separate processes: `python -m tests.ledger.programs <program> <ledger path> ...`."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ledger.parts import Held, ManualClock, note, open_notebook

if TYPE_CHECKING:
    from ledger.database import Tx


async def write_many(path: Path, name: str, count: int) -> None:
    """Write `count` notes one after another, after the parent's start signal."""
    database = await open_notebook(path, ManualClock())
    _say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(count):
        await database.write("note", note(f"{name} {number}"))
    await database.close()


async def outgrow_the_file_size_limit(path: Path) -> None:
    """Let COMMIT fail at the kernel: the WAL may not grow. Print the result of each caller."""
    database = await open_notebook(path, ManualClock())
    await database.write("note", note("before"))
    wal = path.with_name(path.name + "-wal").stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    held = Held("held")
    told = {
        "big": asyncio.create_task(database.write("big", _big)),
        "beside": asyncio.create_task(database.write("beside", note("beside"))),
        "held": asyncio.create_task(database.write("held", held)),
    }
    await held.begun()
    told["queued"] = asyncio.create_task(database.write("queued", note("queued")))
    await asyncio.wait([told["queued"]], timeout=0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 8192, hard))
    held.release()
    await asyncio.wait(told.values())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # the disk has free space again; the database still refuses to write
    told["later"] = asyncio.create_task(database.write("later", note("later")))
    await asyncio.wait([told["later"]])
    answers = {name: [type(task.exception()).__name__, str(task.exception())] for name, task in told.items()}
    readable = await database.read(lambda tx: len(tx.all("notes")))
    _say(json.dumps({"answers": answers, "readable": readable}))
    await database.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _big(tx: Tx) -> None:
    tx.one("big_note", text="big")


if __name__ == "__main__":
    program, place, *arguments = sys.argv[1:]
    if program == "write_many":
        asyncio.run(write_many(Path(place), arguments[0], int(arguments[1])))
    else:
        asyncio.run(outgrow_the_file_size_limit(Path(place)))
