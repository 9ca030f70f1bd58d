"""Tests of COMMIT without a flush: callers get results only after a later flush, and one flush serves all earlier commits."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, WritesRefused
from ledger.sqlite.flushing import QUICK_SECONDS
from ledger.sqlite.locks import gate_holder
from ledger.sqlite.wal import Wal
from ledger.writes import MAX_BATCH
from tests.ledger.engine.parts import open_book
from tests.ledger.parts import note, notes, open_shell
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.database import Tx
    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import ManualClock


class Disk:
    """A disk whose flushes are recorded, and can be held and made to fail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._flush: Callable[[Wal], None] = Wal.flush
        self._let_on = threading.Semaphore(0)
        self.held = False
        self.fails = False
        self.flushed_by: list[int] = []
        self.flushed: list[list[str]] = []  # the notes committed when each flush began

    def flush(self, wal: Wal) -> None:
        """Record the flush in place of the real one, and hold or fail it."""
        shell = open_shell(self._path)
        self.flushed_by.append(threading.get_ident())
        self.flushed.append(notes(shell))
        shell.close()
        if self.held:
            assert self._let_on.acquire(timeout=10)
        if self.fails:
            raise OSError(5, "Input/output error")
        self._flush(wal)

    def let_on(self) -> None:
        """Release one held flush."""
        self._let_on.release()


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(path)

    def flush(wal: Wal) -> None:
        made.flush(wal)

    monkeypatch.setattr(Wal, "flush", flush)
    return made


async def open_at_once(path: Path, clock: ManualClock, *, slow: bool = False) -> SqliteDatabase:
    """Open a notebook that flushes by itself; a slow one has seen a slow flush."""
    book = await open_book(path, clock, checkpoints=False, at_once=True)
    if slow:
        book._runner.last_flush_seconds = QUICK_SECONDS
    return book


async def test_only_the_self_flushing_database_commits_without_a_sync(path: Path, clock: ManualClock, disk: Disk) -> None:
    def synchronous(tx: Tx) -> int:
        del tx
        ((level,),) = book._runner._connection.execute("PRAGMA synchronous").fetchall()
        return int(level)

    for options, expected in (({}, 2), ({"checkpoints": False}, 2), ({"at_once": True}, 2)):
        book = await open_book(path, clock, **options)
        assert await book.write("look", synchronous) == expected
        await book.close()
    assert disk.flushed == []
    book = await open_at_once(path, clock)
    assert await book.write("look", synchronous) == 1
    assert len(disk.flushed) == 1
    await book.close()


async def test_write_returns_after_its_flush_and_the_file_is_unlocked_meanwhile(path: Path, clock: ManualClock, disk: Disk) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    writing = asyncio.create_task(book.write("note", note("durable")))
    await eventually(lambda: disk.flushed == [["durable"]], "the flush to begin")
    assert gate_holder(path) is None
    stranger = open_shell(path)
    stranger.execute("BEGIN IMMEDIATE")
    stranger.execute("ROLLBACK")
    stranger.close()
    assert not writing.done()
    disk.let_on()
    assert await writing == "durable"
    await book.close()


async def test_commits_during_a_flush_share_the_next_flush_and_return_only_after_it(
    path: Path, clock: ManualClock, disk: Disk
) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    first = asyncio.create_task(book.write("note", note("first")))
    await eventually(lambda: len(disk.flushed) == 1, "the first flush to begin")
    later = []
    for text in ("second", "third"):
        committed = book.commits
        later.append(asyncio.create_task(book.write("note", note(text))))
        await eventually(lambda before=committed: book.commits > before, "it to be committed")  # type: ignore[misc] # bound now
    disk.let_on()
    assert await first == "first"
    await eventually(lambda: len(disk.flushed) == 2, "the second flush to begin")
    assert [each.done() for each in later] == [False, False]
    disk.let_on()
    assert await asyncio.gather(*later) == ["second", "third"]
    assert disk.flushed == [["first"], ["first", "second", "third"]]
    assert book.commits == 3
    await book.close()


async def test_refusal_waits_for_the_flush_of_the_rows_it_read_and_otherwise_for_none(
    path: Path, clock: ManualClock, disk: Disk
) -> None:
    def refused_if_there(tx: Tx) -> None:
        assert [row["text"] for row in tx.all("notes")] == seen
        raise LookupError(str(seen))

    book = await open_at_once(path, clock, slow=True)
    seen: list[str] = []
    with pytest.raises(LookupError):
        await book.write("look", refused_if_there)
    assert disk.flushed == []
    disk.held = True
    writing = asyncio.create_task(book.write("note", note("there")))
    await eventually(lambda: len(disk.flushed) == 1, "the flush to begin")
    seen.append("there")
    looking = asyncio.create_task(book.write("look", refused_if_there))
    await asyncio.wait([looking], timeout=0.05)
    assert not looking.done()
    disk.let_on()
    disk.let_on()
    assert await writing == "there"
    with pytest.raises(LookupError, match="there"):
        await looking
    await book.close()


async def test_flush_runs_on_the_event_loop_only_if_the_previous_one_was_quick(path: Path, clock: ManualClock, disk: Disk) -> None:
    book = await open_at_once(path, clock)
    here = threading.get_ident()
    await book.write("note", note("quick"))
    book._runner.last_flush_seconds = QUICK_SECONDS
    await book.write("note", note("after a slow one"))
    await book.close()
    again = await open_at_once(path, clock)
    await again.write("note", note("after a quick one"))
    await again.close()
    assert [thread == here for thread in disk.flushed_by] == [True, False, True]


@pytest.mark.parametrize("slow", [False, True], ids=["on the loop", "beside it"])
async def test_failed_flush_reports_an_unknown_outcome_and_blocks_further_writes(
    path: Path, clock: ManualClock, disk: Disk, *, slow: bool
) -> None:
    book = await open_at_once(path, clock, slow=slow)
    disk.fails = True
    with pytest.raises(OutcomeUnknown, match=r"flushing the WAL failed.*not known\. Restart to re-read by key"):
        await book.write("note", note("doubtful"))
    assert book.health.broken is not None
    disk.fails = False
    with pytest.raises(WritesRefused, match="flushing the WAL failed"):
        await book.write("note", note("refused"))
    assert disk.flushed == [["doubtful"]]
    await book.close()


async def test_failed_flush_is_unknown_to_its_commits_and_to_those_made_meanwhile(
    path: Path, clock: ManualClock, disk: Disk
) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = disk.fails = True
    first = asyncio.create_task(book.write("note", note("first")))
    await eventually(lambda: len(disk.flushed) == 1, "the flush to begin")
    second = asyncio.create_task(book.write("note", note("second")))
    await eventually(lambda: book.commits == 2, "the second to be committed")
    for _ in range(2):
        disk.let_on()
    for doubtful in (first, second):
        with pytest.raises(OutcomeUnknown):
            await doubtful
    await book.close()


async def test_closing_waits_for_the_flush_and_tells(path: Path, clock: ManualClock, disk: Disk) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    writing = asyncio.create_task(book.write("note", note("last")))
    await eventually(lambda: len(disk.flushed) == 1, "the flush to begin")
    closing = asyncio.create_task(book.close())
    await asyncio.wait([closing], timeout=0.05)
    assert not closing.done()
    disk.let_on()
    await closing
    assert await writing == "last"


async def test_caller_cancelled_during_the_flush_does_not_affect_the_others(path: Path, clock: ManualClock, disk: Disk) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    gone = asyncio.create_task(book.write("note", note("gone")))
    stays = asyncio.create_task(book.write("note", note("stays")))
    await eventually(lambda: len(disk.flushed) == 1, "the flush to begin")
    gone.cancel()
    disk.let_on()
    assert await stays == "stays"
    await book.close()


async def test_a_log_whose_name_cannot_be_made_durable_is_not_opened(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int) -> None:
        raise OSError(5, os.strerror(5), str(descriptor))

    await (await open_book(path, clock)).close()
    monkeypatch.setattr("ledger.sqlite.wal.os.fsync", refused)
    with pytest.raises(DatabaseError, match=r"cannot be opened.*Input/output error.*No command was touched"):
        await open_at_once(path, clock)
    assert gate_holder(path) is None


async def test_deadline_that_passes_during_the_flush_still_returns_the_result(path: Path, clock: ManualClock, disk: Disk) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    writing = asyncio.create_task(book.write("note", note("late"), deadline=clock.monotonic() + 0.01))
    await asyncio.wait([writing], timeout=0.1)
    assert not writing.done()
    disk.let_on()
    assert await writing == "late"
    disk.held = False
    clock.advance(1000)
    with pytest.raises(NotRecorded):
        await book.write("note", note("too late"), deadline=clock.monotonic() - 1)
    await book.close()


async def test_full_batch_awaiting_a_flush_blocks_commits_and_deadlines_still_refuse(
    path: Path, clock: ManualClock, disk: Disk
) -> None:
    book = await open_at_once(path, clock, slow=True)
    disk.held = True
    committed = [asyncio.create_task(book.write("note", note(str(number)))) for number in range(MAX_BATCH)]
    await eventually(lambda: len(disk.flushed) == 1, "the flush to begin")
    with pytest.raises(NotRecorded, match="did not start before its deadline; nothing was recorded"):
        await book.write("note", note("refused"), deadline=clock.monotonic() + 0.05)
    waiting = asyncio.create_task(book.write("note", note("in time")))
    await asyncio.wait([waiting], timeout=0.05)
    assert book.commits == 1
    for _ in range(2):  # the second flush may be quick enough to run on the loop
        disk.let_on()
    assert await asyncio.gather(*committed) == [str(number) for number in range(MAX_BATCH)]
    assert await waiting == "in time"
    assert len(disk.flushed[1]) == MAX_BATCH + 1
    await book.close()
