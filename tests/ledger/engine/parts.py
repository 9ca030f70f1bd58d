"""A notebook on any engine: a ledger file with one table of notes, and the access to it from outside."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Protocol

from ledger.sqlite.engine import SqliteDatabase
from tests.ledger.parts import NOTE_STATEMENTS, NOTES, ManualClock, note, notes, open_shell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.clock import Clock
    from ledger.database import Database, Tx

STATEMENTS = {**NOTE_STATEMENTS, "blob": "INSERT INTO notes (text) VALUES (:text || hex(zeroblob(:size)))"}


class Engine(Protocol):
    """Interface that the conformance suite needs in addition to the Database protocol."""

    async def open(self, **options: Any) -> Database:
        """Open the notebook, the second time as a second process would. `options`: finish."""
        ...

    def seen(self) -> list[str]:
        """Return the notes that are recorded, as any other program sees them."""
        ...

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        """Start a program of programs.py on the same notebook, in its own process."""
        ...


class SqliteEngine:
    """The SQLite engine, with its own file per test."""

    def __init__(self, path: Path, clock: ManualClock, checkout: Path, *, at_once: bool = False) -> None:
        self.path = path
        self._clock = clock
        self._checkout = checkout
        self._at_once = at_once

    async def open(self, **options: Any) -> SqliteDatabase:
        if self._at_once:
            options |= {"at_once": True, "checkpoints": False}
        return await open_book(self.path, self._clock, **options)

    def seen(self) -> list[str]:
        shell = open_shell(self.path)
        try:
            return notes(shell)
        finally:
            shell.close()

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        return await start(self._checkout, program, str(self.path), *arguments)


async def open_book(path: Path, clock: Clock, **options: Any) -> SqliteDatabase:
    """Open a file that contains only notes."""
    return await SqliteDatabase.open(path, statements=STATEMENTS, migrations=(NOTES,), clock=clock, **options)


async def start(checkout: Path, program: str, *arguments: str, inside: Sequence[str] = ()) -> asyncio.subprocess.Process:
    """Start a program of programs.py; `inside` is a command line that wraps it."""
    return await asyncio.create_subprocess_exec(
        *(*inside, sys.executable, "-m", "tests.ledger.engine.programs", program, *arguments),
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(*programs: asyncio.subprocess.Process, said: bytes = b"", seconds: float = 60) -> list[bytes]:
    """Send `said` to programs, wait until they exit with 0, and return their output. None of them outlives the test."""
    try:
        told = await asyncio.wait_for(asyncio.gather(*(program.communicate(said) for program in programs)), seconds)
    finally:
        for program in programs:
            if program.returncode is None:
                program.kill()
    assert [(program.returncode, errors.decode()) for program, (_, errors) in zip(programs, told, strict=True)] == [(0, "")] * len(
        told
    )
    return [out for out, _ in told]


async def all_ready(*programs: asyncio.subprocess.Process) -> None:
    """Wait until each program has reported that it is ready."""
    for program in programs:
        assert program.stdout is not None
        assert await asyncio.wait_for(program.stdout.readline(), 30) == b"ready\n"


def blob(text: str, size: int) -> Any:
    """Return work that writes a note: its text, then `size` zero bytes in hexadecimal."""

    def work(tx: Tx) -> str:
        tx.one("blob", text=text, size=size)
        return text

    return work


def emitting(text: str, *, fails: bool = False) -> Any:
    """Return work that writes one note and emits its text."""

    def work(tx: Tx) -> str:
        note(text)(tx)
        tx.emit(text)
        if fails:
            raise LookupError(text)
        return text

    return work
