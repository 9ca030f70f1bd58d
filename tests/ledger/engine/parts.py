"""A notebook on any engine: a ledger with one table of notes, and the access to it from outside."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg

from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.sessions import Limits
from ledger.sqlite.engine import SqliteDatabase
from tests.ledger.parts import NOTE_STATEMENTS, NOTES, ManualClock, note, notes, open_shell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.clock import Clock
    from ledger.database import Database, Tx

STATEMENTS = {**NOTE_STATEMENTS, "blob": "INSERT INTO notes (text) VALUES (:text || hex(zeroblob(:size)))"}

# The notebook on PostgreSQL.
POSTGRES_SCHEMA: Final = (
    "CREATE TABLE writers (writer TEXT PRIMARY KEY, n BIGINT NOT NULL, taken_at BIGINT NOT NULL DEFAULT 0);"
    "CREATE TABLE notes (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
)
POSTGRES_STATEMENTS: Final = {
    "note": "INSERT INTO notes (text) VALUES (:text)",
    "notes": "SELECT text FROM notes ORDER BY id",
    "pause": "SELECT pg_sleep(:seconds)",
    "end_session": "SELECT pg_terminate_backend(pg_backend_pid())",
}
LIMITS: Final = Limits(lock=5_000, statement=20_000, idle=20_000)  # a test on a busy machine may pause for long
_NUMBERS: Final = itertools.count(1)


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


class PostgresEngine:
    """The PostgreSQL engine, with its own database per test."""

    def __init__(self, url: str, clock: Clock, checkout: Path) -> None:
        self.url = url
        self._clock = clock
        self._checkout = checkout

    async def open(self, **options: Any) -> PostgresDatabase:
        return await open_postgres_book(self.url, self._clock, **options)

    def seen(self) -> list[str]:
        with psycopg.connect(self.url) as shell:
            return [text for (text,) in shell.execute(POSTGRES_STATEMENTS["notes"]).fetchall()]

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        return await start(self._checkout, program, self.url, *arguments)


async def open_postgres_book(url: str, clock: Clock, **options: Any) -> PostgresDatabase:
    """Open a database that contains only notes, each time as another writer."""
    return await PostgresDatabase.open(
        url,
        clock=clock,
        **{"statements": POSTGRES_STATEMENTS, "writer": f"test/{os.getpid()}/{next(_NUMBERS)}", "limits": LIMITS, **options},
    )


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
