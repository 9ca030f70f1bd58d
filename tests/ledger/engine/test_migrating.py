"""Tests that a schema change is atomic and never happens under a running bot."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from ledger.database import DatabaseError
from ledger.migrations import Migration
from ledger.sqlite.engine import SqliteDatabase
from ledger.sqlite.locks import hold_instance_lock
from tests.ledger.engine.parts import STATEMENTS, open_book, start
from tests.ledger.parts import NOTES, note, notes, open_shell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.ledger.parts import ManualClock

MORE = Migration("test", "0002_more.sql", "CREATE TABLE more (a TEXT) STRICT;")
STEPS = 4  # statements of the migration during which programs.py dies


async def open_beside_a_bot(path: Path, clock: ManualClock, migrations: Sequence[Migration]) -> SqliteDatabase:
    return await SqliteDatabase.open(
        path, statements=STATEMENTS, migrations=migrations, clock=clock, checkpoints=False, may_migrate=False
    )


async def test_beside_a_running_bot_an_older_ledger_is_refused_and_unchanged(path: Path, clock: ManualClock) -> None:
    lock = hold_instance_lock(path)
    assert lock is not None
    await (await open_book(path, clock)).close()
    before = path.read_bytes()  # noqa: ASYNC240 -- a test may wait for its own file
    words = (
        rf"The ledger's schema is older than this build, and a bot \(pid {os.getpid()}\) is running on it; it is unchanged. "
        "Restart the bot with this build, then try again."
    )
    with pytest.raises(DatabaseError, match=words):
        await open_beside_a_bot(path, clock, (NOTES, MORE))
    assert path.read_bytes() == before  # noqa: ASYNC240 -- a test may wait for its own file
    lock.close()


@pytest.mark.parametrize("there", [False, True], ids=["no file", "an empty file"])
async def test_beside_a_bot_that_has_not_made_its_ledger_yet_nothing_is_made(
    path: Path, clock: ManualClock, *, there: bool
) -> None:
    if there:
        path.touch()  # noqa: ASYNC240 -- a test may wait for its own file
    with pytest.raises(DatabaseError, match="older than this build"):
        await open_beside_a_bot(path, clock, (NOTES,))
    assert (path.stat().st_size if path.exists() else None) == (0 if there else None)  # noqa: ASYNC240 -- its own file


async def test_beside_a_running_bot_of_the_same_build_the_ledger_opens_and_writes(path: Path, clock: ManualClock) -> None:
    bot = await open_book(path, clock)
    beside = await open_beside_a_bot(path, clock, (NOTES,))
    assert await beside.write("note", note("from the terminal")) == "from the terminal"
    await beside.close()
    await bot.close()


@pytest.mark.parametrize("statement", range(STEPS + 1))
async def test_a_migration_killed_at_any_statement_leaves_nothing_of_itself(
    statement: int, checkout: Path, path: Path, clock: ManualClock
) -> None:
    book = await open_book(path, clock)
    await book.write("note", note("before"))
    await book.close()
    killed = await start(checkout, "die_in_a_migration", str(path), str(statement))
    _, errors = await asyncio.wait_for(killed.communicate(), 30)
    assert (killed.returncode, errors) == (-signal.SIGKILL, b"")
    shell = open_shell(path)
    tables = {row["name"] for row in shell.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == {"notes", "schema_migrations"}
    assert notes(shell) == ["before"]
    shell.close()
    book = await open_book(path, clock)
    assert await book.write("note", note("after")) == "after"
    await book.close()
