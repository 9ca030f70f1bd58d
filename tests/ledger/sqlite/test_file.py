"""Tests of the file: access, writing, and refusals."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sqlite3
import stat
import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import aiosqlite
import pytest

from ledger.database import DatabaseError, NotRecorded
from ledger.migrations import Migration
from ledger.sqlite import file
from ledger.sqlite.batch import COPY_AFTER
from ledger.sqlite.engine import SqliteDatabase
from ledger.sqlite.file import APPLICATION_ID
from ledger.sqlite.locks import has_instance_lock_open, hold_instance_lock, instance_holder
from tests.ledger.parts import MIGRATIONS, NOTE_STATEMENTS, NOTES, Held, note, notes, open_database, open_notebook, open_shell
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.database import Row, Tx
    from tests.ledger.parts import ManualClock

WRITES = 200
PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "temp_store": 2,
    "cache_size": -4000,
    "journal_size_limit": 67108864,
    "application_id": APPLICATION_ID,
}


def content(path: Path) -> bytes:
    return path.read_bytes()


def plant(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def start(checkout: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.ledger.programs", *arguments),
        cwd=checkout,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_a_new_ledger_is_readable_by_its_owner_alone(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "data" / "ledger.db"
    before = os.umask(0)
    try:
        database = await open_notebook(path, clock)
        await database.write("note", note("private"))
        files = {file.name: mode(file) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    await database.close()
    names = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.gate")
    assert files == dict.fromkeys(names, 0o600)
    assert mode(path.parent) == 0o700


async def test_the_writer_runs_in_wal_mode_with_every_commit_synced(path: Path, clock: ManualClock) -> None:
    database = await open_database(path, clock, statements={name: f"PRAGMA {name}" for name in PRAGMAS})

    def read(tx: Tx) -> dict[str, object]:
        rows = {name: tx.one(name) for name in PRAGMAS}
        return {name: row[name] for name, row in rows.items() if row is not None}

    assert await database.write("pragmas", read) == PRAGMAS
    await database.close()


async def test_foreign_database_is_refused_and_unchanged(path: Path, clock: ManualClock) -> None:
    stranger = sqlite3.connect(path)
    stranger.executescript("CREATE TABLE songs (title TEXT); INSERT INTO songs VALUES ('a'); PRAGMA application_id = 77;")
    stranger.close()
    before = content(path)
    with pytest.raises(DatabaseError, match="not a Quotebot ledger; it is unchanged"):
        await open_database(path, clock)
    assert content(path) == before


@pytest.mark.parametrize("letter", [b"A letter, not a database.\n" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
async def test_a_file_that_is_no_database_is_refused_and_unchanged(letter: bytes, path: Path, clock: ManualClock) -> None:
    plant(path, letter)
    with pytest.raises(DatabaseError, match=r"cannot be read as a ledger .*; it is unchanged. Choose another path"):
        await open_database(path, clock)
    assert content(path) == letter


async def test_an_empty_file_becomes_a_ledger(path: Path, clock: ManualClock) -> None:
    plant(path, b"")
    await (await open_database(path, clock)).close()
    shell = open_shell(path)
    assert shell.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    shell.close()


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (MIGRATIONS, "written by a newer build .*test/0001_notes.sql.* It is unchanged. Start the newer build"),
        ((*MIGRATIONS, replace(NOTES, sql=NOTES.sql + " -- again")), "test/0001_notes.sql was changed after it was applied"),
    ],
    ids=["newer", "changed"],
)
async def test_a_ledger_whose_schema_this_build_does_not_know_is_refused(
    later: Sequence[Migration], words: str, path: Path, clock: ManualClock
) -> None:
    await (await open_notebook(path, clock)).close()
    before = content(path)
    with pytest.raises(DatabaseError, match=words):
        await open_database(path, clock, migrations=later)
    assert content(path) == before


async def test_a_migration_is_applied_once_and_a_broken_one_not_at_all(path: Path, clock: ManualClock) -> None:
    broken = Migration("test", "0002_broken.sql", "CREATE TABLE halfway (a TEXT) STRICT;\nINSERT INTO nowhere VALUES (1);")
    for _ in range(2):
        await (await open_notebook(path, clock)).close()
    words = r"test/0002_broken.sql could not be applied \(no such table: nowhere\). The ledger is as it was before it"
    with pytest.raises(DatabaseError, match=words):
        await open_database(path, clock, migrations=(*MIGRATIONS, NOTES, broken))
    shell = open_shell(path)
    applied = [(row["component"], row["name"]) for row in shell.execute("SELECT * FROM schema_migrations ORDER BY 1, 2")]
    assert applied == [*(("ledger", migration.name) for migration in MIGRATIONS), ("test", "0001_notes.sql")]
    assert shell.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'halfway'").fetchone()[0] == 0
    shell.close()


async def test_readers_see_what_is_committed_and_do_not_wait_for_the_writer(path: Path, clock: ManualClock) -> None:
    def read(tx: Tx) -> list[Row]:
        return tx.all("notes")

    book = await open_notebook(path, clock)
    held = Held("under way")
    writing = asyncio.create_task(book.write("note", held))
    await held.begun()
    assert await asyncio.wait_for(book.read(read), 5) == []
    held.release()
    await writing
    assert [row["text"] for row in await book.read(read)] == ["under way"]
    await book.close()


async def test_a_reader_cannot_write_and_reads_on_afterwards(path: Path, clock: ManualClock) -> None:
    book = await open_notebook(path, clock)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await book.read(note("smuggled"))
    assert await book.read(lambda tx: tx.all("notes")) == []
    await book.close()


async def test_one_process_at_a_time_holds_the_instance_lock(path: Path) -> None:
    held = hold_instance_lock(path)
    assert held is not None
    assert hold_instance_lock(path) is None
    assert path.with_name("ledger.db.lock").read_text() == f"{os.getpid()}\n"
    held.close()
    again = hold_instance_lock(path)
    assert again is not None
    again.close()


def test_lock_file_that_names_a_living_process_holds_no_lock(path: Path) -> None:
    path.with_name("ledger.db.lock").write_text(f"{os.getppid()}\n")  # left by another machine with the same volume
    lock = hold_instance_lock(path)
    assert lock is not None
    assert instance_holder(path) == os.getpid()
    lock.close()


def test_only_a_process_that_has_the_lock_file_open_counts_as_the_holder(path: Path) -> None:
    lock = hold_instance_lock(path)
    assert lock is not None
    assert has_instance_lock_open(path, os.getpid())
    assert not has_instance_lock_open(path, os.getppid())  # after a reboot any program may have the pid that the file names
    lock.close()
    assert not has_instance_lock_open(path, os.getpid())
    path.with_name("ledger.db.lock").unlink()
    assert has_instance_lock_open(path, os.getppid())  # unknown


async def test_two_processes_write_side_by_side_and_neither_finds_the_file_locked(
    checkout: Path, path: Path, clock: ManualClock
) -> None:
    await (await open_notebook(path, clock)).close()
    writers = [await start(checkout, "write_many", str(path), name, str(WRITES)) for name in ("one", "other")]
    for writer in writers:
        assert writer.stdout is not None
        assert await asyncio.wait_for(writer.stdout.readline(), 30) == b"ready\n"
    ended = await asyncio.wait_for(asyncio.gather(*(writer.communicate(b"go\n") for writer in writers)), 60)
    assert [(writer.returncode, errors) for writer, (_, errors) in zip(writers, ended, strict=True)] == [(0, b""), (0, b"")]
    shell = open_shell(path)
    written = notes(shell)
    shell.close()
    for name in ("one", "other"):
        assert [text for text in written if text.startswith(f"{name} ")] == [f"{name} {number}" for number in range(WRITES)]
    turns = sum(text.split()[0] != following.split()[0] for text, following in pairwise(written))
    assert turns > 1, "neither had to wait for the other to be finished"


async def test_failed_commit_has_an_unknown_outcome_and_is_the_connections_last_write(
    checkout: Path, path: Path, clock: ManualClock
) -> None:
    program = await start(checkout, "outgrow", str(path))
    out, errors = await asyncio.wait_for(program.communicate(), 30)
    assert (program.returncode, errors) == (0, b"")
    told = json.loads(out)
    answers = told["answers"]
    assert {name: kind for name, (kind, _) in answers.items()} == {
        **dict.fromkeys(("big", "beside", "held"), "OutcomeUnknown"),
        **dict.fromkeys(("queued", "later"), "WritesRefused"),
    }
    assert "COMMIT failed (disk I/O error); whether it was recorded is not known" in answers["beside"][1]
    assert "later was not recorded: the ledger takes no writes until a restart" in answers["later"][1]
    assert told["readable"] == 1
    book = await open_notebook(path, clock)  # the restart: re-read, then write again
    assert [row["text"] for row in await book.read(lambda tx: tx.all("notes"))] == ["before"]
    assert await book.write("note", note("after")) == "after"
    await book.close()


async def test_an_idle_bot_copies_the_log_into_the_file_when_that_is_worth_it(path: Path, clock: ManualClock) -> None:
    """Restarting the WAL costs the next writer a second flush; a lone command would pay it every time."""
    book = await open_notebook(path, clock)
    for number in range(COPY_AFTER - 1):
        await book.write("note", note(f"note {number}"))
    await eventually(lambda: book._serving is None, "a pause")
    assert b"note 0" not in content(path)
    await book.write("note", note("the last"))
    await eventually(lambda: b"the last" in content(path), "the copy")
    assert b"note 0" in content(path)
    assert book.health.broken is None
    await book.close()


async def test_another_process_bounds_the_log_while_the_bot_changes_nothing(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that wait in one lane give the bot nothing to write, and an empty commit copies nothing."""
    monkeypatch.setattr(file, "WAL_PAGES_BESIDE", 64)
    bot = await open_notebook(path, clock)
    front = await SqliteDatabase.open(
        path, statements=NOTE_STATEMENTS, migrations=(*MIGRATIONS, NOTES), clock=clock, checkpoints=False, at_once=True
    )
    reader = open_shell(path)
    reader.execute("BEGIN")
    assert notes(reader) == []
    sizes = []
    for number in range(200):
        await front.write("reserve", note(f"{number}" * 4096))
        await bot.write("claim", lambda tx: bool(tx.all("notes")), brief=True)
        sizes.append(bot.health.wal_bytes)
        if number == 50:
            reader.close()
    await front.close()
    await bot.close()
    assert sizes[50] > sizes[0]  # what a reader still needs stays
    assert sizes[-1] == sizes[52]


@pytest.mark.parametrize("checkpoints", [True, False], ids=["the bot", "a command"])
async def test_only_the_bot_copies_the_log_into_the_file_when_it_closes(
    path: Path, clock: ManualClock, *, checkpoints: bool
) -> None:
    await (await open_notebook(path, clock)).close()
    other = open_shell(path)  # SQLite checkpoints when the last connection closes; this one stays open
    assert notes(other) == []
    book = await SqliteDatabase.open(
        path, statements=NOTE_STATEMENTS, migrations=(*MIGRATIONS, NOTES), clock=clock, checkpoints=checkpoints
    )
    await book.write("note", note("recorded at the end"))
    await book.close()
    assert (b"recorded at the end" in content(path)) is checkpoints
    assert (path.with_name("ledger.db-wal").stat().st_size == 0) is checkpoints
    assert notes(other) == ["recorded at the end"]
    other.close()


async def test_health_counts_what_was_written_and_what_waits(path: Path, clock: ManualClock) -> None:
    book = await open_notebook(path, clock)

    def half_a_second(tx: Tx) -> None:
        note("slow")(tx)
        clock.advance(500)

    await asyncio.gather(*(book.write("note", note(f"{number}")) for number in range(3)))
    held = Held("held")
    running = asyncio.create_task(book.write("note", held))
    await held.begun()
    queued = [asyncio.create_task(book.write("note", half_a_second)) for _ in range(2)]
    await asyncio.wait(queued, timeout=0.01)
    health = book.health
    assert (health.broken, health.full_since, health.waiting, health.commits, health.writes) == (None, None, 2, 1, 3)
    assert (health.ballast, health.wal_bytes > 4096, health.commit_seconds, health.last_commit_seconds) == (False, True, 0.0, 0.0)
    held.release()
    await asyncio.gather(running, *queued)
    assert (book.health.commits, book.health.writes, book.health.waiting) == (4, 6, 0)
    await book.close()


async def test_a_closed_ledger_takes_no_writes(path: Path, clock: ManualClock) -> None:
    book = await open_notebook(path, clock)
    await book.close()
    with pytest.raises(NotRecorded, match="note was not recorded: the ledger is closed"):
        await book.write("note", note("late"))
    await book.close()


async def test_the_two_private_names_of_aiosqlite_behave(path: Path) -> None:
    connection = await aiosqlite.connect(path)
    assert inspect.iscoroutinefunction(connection._execute)
    assert isinstance(connection._conn, sqlite3.Connection)
    order: list[int] = []

    def work(inner: sqlite3.Connection, number: int) -> int:
        order.append(number)
        (one,) = inner.execute("SELECT 1").fetchone()  # raises on any thread but the connection's
        return int(one) + number

    def fail(inner: sqlite3.Connection) -> None:
        inner.execute("SELECT nothing")

    calls = [connection._execute(work, connection._conn, number) for number in (1, 2, 3)]  # type: ignore[no-untyped-call] # private
    assert await asyncio.gather(*calls) == [2, 3, 4]
    assert order == [1, 2, 3]
    with pytest.raises(sqlite3.OperationalError, match="nothing"):
        await connection._execute(fail, connection._conn)  # type: ignore[no-untyped-call] # private
    await connection.close()
