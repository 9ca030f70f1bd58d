"""Small programs that tests run as separate processes: `python -m tests.ledger.engine.programs <program> <ledger path> ...`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.clock import SystemClock
from ledger.database import DatabaseError, NotRecorded
from ledger.migrations import Migration
from ledger.sqlite.migrations import migrate
from tests.ledger.engine.parts import blob, open_book, open_postgres_book
from tests.ledger.parts import NOTES, ManualClock, note

if TYPE_CHECKING:
    from ledger.database import Database, Tx


async def write_until_killed(address: str) -> None:
    """Write notes one after another and print each one that is recorded. `address`: a file, or the URL of a server's database."""
    book: Database
    if address.startswith("postgresql:"):
        book = await open_postgres_book(address, ManualClock())
    else:
        book = await open_book(Path(address), ManualClock())
    number = 0
    while True:
        say(await book.write("note", note(f"{number}")))
        number += 1


async def write_hot(path: Path, seconds: float) -> None:
    """Keep 16 writers busy from the start signal on; print how many commits this process made in `seconds`.

    If the system allows it, it stays on the first processor, as its rival does, so that both are equally fast on a busy machine.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    book = await open_book(path, ManualClock(), checkpoints=False)
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    clock = SystemClock()
    end = clock.monotonic() + seconds

    async def writer() -> None:
        while clock.monotonic() < end:
            await book.write("note", note("hot"))

    await asyncio.gather(*(writer() for _ in range(16)))
    say(str(book.commits))
    await book.close()


async def fail_a_commit(path: Path) -> None:
    """Let a COMMIT fail at the kernel: the file may not grow. Print the result of each caller."""
    book = await open_book(path, ManualClock())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size + 8192, hard))
    works = {"a": note("a"), "b": blob("b", 50_000)}
    told = await asyncio.gather(*(book.write(name, work) for name, work in works.items()), return_exceptions=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    told += await asyncio.gather(book.write("later", note("later")), return_exceptions=True)
    say(json.dumps(dict(zip([*works, "later"], [type(answer).__name__ for answer in told], strict=True))))
    await book.close()


async def fail_a_statement(path: Path) -> None:
    """Let a statement fail at the kernel, in the middle of a batch. Print the result of each caller."""
    book = await open_book(path, ManualClock())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size + 8192, hard))
    works = {"a": note("a"), "huge": _spill, "b": note("b")}
    told = await asyncio.gather(*(book.write(name, work) for name, work in works.items()), return_exceptions=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    told += await asyncio.gather(book.write("later", note("later")), return_exceptions=True)
    say(json.dumps({name: [type(end).__name__, str(end)] for name, end in zip([*works, "later"], told, strict=True)}))
    await book.close()


async def fill_the_disk(path: Path, ballast: int, wal: str) -> None:
    """Write on a full disk, then with free space again; print the results. `wal`: "checkpointed" before it is full, or not."""
    clock = ManualClock()
    book = await open_book(path, clock, ballast_bytes=ballast)
    steps: dict[str, object] = {"ballast": book.health.ballast}
    recorded = 0
    filler = path.with_name("filler")
    if wal == "checkpointed":  # the next batch restarts the WAL
        shell = sqlite3.connect(path)
        shell.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        shell.close()
    with filler.open("wb", buffering=0) as disk, contextlib.suppress(OSError):
        while True:
            disk.write(bytes(4096))
    for number in range(1000):
        try:
            await asyncio.gather(*(book.write("note", blob(f"{number}.{part}", 20_000)) for part in range(3)))
        except NotRecorded as error:
            steps["error"] = str(error)
            break
        recorded += 3
        if book.health.full_since is not None and "recorded when the ballast went" not in steps:
            steps["recorded when the ballast went"] = recorded
    health = book.health
    steps |= {"recorded": recorded, "broken": health.broken, "full": health.full_since, "ballast left": health.ballast}
    await book.tend()
    steps["remade too early"] = book.health.ballast
    filler.unlink()
    steps["after"] = await book.write("note", note("after"))
    clock.advance(60_000)
    await book.tend()
    steps["remade"] = book.health.ballast
    steps["full at last"] = book.health.full_since
    steps["read"] = await book.read(lambda tx: len(tx.all("notes")))
    await book.close()
    with filler.open("wb", buffering=0) as disk, contextlib.suppress(OSError):
        while True:
            disk.write(bytes(4096))
    try:
        book = await open_book(path, clock, ballast_bytes=ballast)
    except DatabaseError as error:
        steps["restart"] = str(error)
    else:
        steps["restart"] = await book.write("note", note("restarted"))
        await book.close()
    filler.unlink()
    steps["check"] = sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0]
    say(json.dumps(steps))


def die_in_a_migration(path: Path, statement: int) -> None:
    """Apply a migration of four statements whose process is killed right before the one numbered `statement`."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    lines = [f"CREATE TABLE step_{number} (a TEXT) STRICT;" for number in range(3)] + ["INSERT INTO notes VALUES ('migrated');"]
    lines.insert(statement, "SELECT die();")
    migrate(connection, [NOTES, Migration("test", "0002_steps.sql", "\n".join(lines))], 0)


def say(line: str) -> None:
    """Print a line and flush."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _spill(tx: Tx) -> None:
    for _ in range(60):  # more than the page cache holds, so it reaches the disk before COMMIT
        tx.one("blob", text="huge", size=250_000)


def main(program: str, address: str, *arguments: str) -> None:
    """Run one program."""
    path = Path(address)
    if program == "write_until_killed":
        asyncio.run(write_until_killed(address))
    elif program == "write_hot":
        asyncio.run(write_hot(path, float(arguments[0])))
    elif program == "fail_a_commit":
        asyncio.run(fail_a_commit(path))
    elif program == "fail_a_statement":
        asyncio.run(fail_a_statement(path))
    elif program == "fill_the_disk":
        asyncio.run(fill_the_disk(path, int(arguments[0]), arguments[1]))
    else:
        die_in_a_migration(path, int(arguments[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
