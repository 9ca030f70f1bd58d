"""Tests of the gate between writing processes: its holder, and fairness."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from bench.lifecycle.machine import disk_folder
from ledger.database import NotRecorded, WritesRefused
from ledger.sqlite.batch import COPY_AFTER, COPY_OVERDUE, BatchRunner
from ledger.sqlite.engine import LONE_AFTER
from ledger.sqlite.flushing import QUICK_SECONDS
from ledger.sqlite.locks import WriteGate, gate_holder, hold_instance_lock, instance_holder
from tests.ledger.engine.parts import all_ready, ended, open_book, start
from tests.ledger.parts import Held, note, notes, open_shell
from tests.rig import eventually

if TYPE_CHECKING:
    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import ManualClock


@pytest.mark.parametrize(("checkpoints", "role"), [(True, "bot"), (False, "cli")])
async def test_the_gate_names_its_holder_while_it_is_held_and_nobody_afterwards(
    path: Path, clock: ManualClock, role: str, *, checkpoints: bool
) -> None:
    assert gate_holder(path) is None
    book = await open_book(path, clock, checkpoints=checkpoints)
    held = Held("under way")
    writing = asyncio.create_task(book.write("note", held))
    await held.begun()
    assert gate_holder(path) == f"{os.getpid()} {role}"
    held.release()
    await writing
    assert gate_holder(path) is None
    await book.close()


async def test_a_writer_waits_for_the_gate_and_not_for_ever(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    gate = WriteGate(path, "cli")
    with gate:
        writing = asyncio.create_task(book.write("note", note("patient")))
        done, _ = await asyncio.wait([writing], timeout=0.05)
        assert not done
        assert gate_holder(path) == f"{os.getpid()} cli"
    assert await writing == "patient"
    gate.close()
    await book.close()


async def written_by(book: SqliteDatabase) -> int:
    """Write something; return the id of the thread that did it."""
    return await book.write("note", lambda tx: (note("written")(tx), threading.get_ident())[1])


async def test_write_with_at_once_runs_on_the_event_loop_thread(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock, checkpoints=False, at_once=True)
    assert await written_by(book) == threading.get_ident()
    assert gate_holder(path) is None
    await book.close()


@pytest.mark.parametrize("options", [{}, {"checkpoints": False}, {"at_once": True}], ids=["a bot", "a cli", "a bot asks for it"])
async def test_checkpoint_owner_and_writers_without_at_once_use_a_thread_of_their_own(
    path: Path, clock: ManualClock, options: dict[str, bool]
) -> None:
    book = await open_book(path, clock, **options)
    assert await written_by(book) != threading.get_ident()
    await book.close()


@pytest.fixture
def begun_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the threads that waited at the start of each batch."""
    threads: list[int] = []
    begin = BatchRunner.begin

    def noting(runner: BatchRunner) -> bool:
        threads.append(threading.get_ident())
        return begin(runner)

    monkeypatch.setattr(BatchRunner, "begin", noting)
    return threads


async def test_writer_waits_for_a_taken_gate_off_the_loop_and_shares_its_commit(
    path: Path, clock: ManualClock, begun_by: list[int]
) -> None:
    book = await open_book(path, clock, checkpoints=False, at_once=True)
    gate = WriteGate(path, "cli")
    with gate:
        writing = [asyncio.create_task(written_by(book))]
        await eventually(lambda: bool(begun_by), "it to wait")
        writing.append(asyncio.create_task(written_by(book)))
        done, _ = await asyncio.wait(writing, timeout=0.05)
        assert not done
    assert await asyncio.gather(*writing) == [threading.get_ident()] * 2
    assert book.commits == 1
    assert threading.get_ident() not in begun_by
    assert await written_by(book) == threading.get_ident()
    assert len(begun_by) == 1
    gate.close()
    await book.close()


async def test_lock_taken_outside_the_gate_is_awaited_off_the_loop_within_deadlines(
    path: Path, clock: ManualClock, begun_by: list[int]
) -> None:
    book = await open_book(path, clock, checkpoints=False, at_once=True)
    stranger = open_shell(path)
    stranger.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(written_by(book))
    await eventually(lambda: bool(begun_by), "it to wait")
    with pytest.raises(NotRecorded, match="did not start before its deadline; nothing was recorded"):
        await book.write("note", note("late"), deadline=clock.monotonic() + 0.05)
    stranger.execute("ROLLBACK")
    assert await waiting == threading.get_ident()
    assert len(begun_by) == 1
    assert threading.get_ident() not in begun_by
    assert await written_by(book) == threading.get_ident()
    assert notes(stranger) == ["written", "written"]
    stranger.close()
    await book.close()


async def test_failed_wait_for_the_gate_is_reported_releases_the_gate_and_blocks_writes(
    path: Path, clock: ManualClock, begun_by: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(_: WriteGate) -> bool:
        raise OSError("no file system")

    book = await open_book(path, clock, checkpoints=False, at_once=True)
    gate = WriteGate(path, "cli")
    with gate:
        writing = asyncio.create_task(book.write("note", note("refused")))
        await eventually(lambda: bool(begun_by), "it to wait")
        monkeypatch.setattr(WriteGate, "leads_elsewhere", torn)
    with pytest.raises(WritesRefused, match=r"note was not recorded.*the ledger's writer failed \(OSError\('no file system'\)\)"):
        await writing
    assert gate_holder(path) is None
    gate.close()
    await book.close()


@pytest.mark.parametrize("waits", [False, True], ids=["the gate is free", "the gate is taken"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_writer_on_a_replaced_file_records_nothing_and_releases_both_locks(
    path: Path, clock: ManualClock, *, at_once: bool, waits: bool
) -> None:
    book = await open_book(path, clock, checkpoints=False, at_once=at_once)
    await book.write("note", note("before"))
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)
    gate = WriteGate(path, "cli")
    with gate if waits else contextlib.nullcontext():
        writing = asyncio.create_task(book.write("note", note("late")))
        if waits:
            await asyncio.wait([writing], timeout=0.05)
    with pytest.raises(NotRecorded, match="old generation"):
        await writing
    gate.close()
    assert not book._runner._connection.in_transaction
    assert gate_holder(path) is None
    await book.close()


def test_the_bot_s_lock_says_which_process_took_it(path: Path) -> None:
    assert instance_holder(path) is None
    lock = hold_instance_lock(path)
    assert lock is not None
    assert instance_holder(path) == os.getpid()
    lock.close()


async def test_two_hot_processes_get_their_fair_share_of_the_commits(checkout: Path, clock: ManualClock) -> None:
    with TemporaryDirectory(dir=disk_folder()) as folder:  # in memory commits never wait: no gate is needed to be fair
        path = Path(folder) / "ledger.db"
        await (await open_book(path, clock)).close()
        writers = [await start(checkout, "write_hot", str(path), "3") for _ in range(2)]
        await all_ready(*writers)
        commits = [int(out) for out in await ended(*writers, said=b"go\n")]
    assert min(commits) >= 0.4 * sum(commits), commits


async def briefly_written_by(book: SqliteDatabase, *, urgent: bool = False) -> int:
    """Write something as brief work; return the id of the thread that did it."""
    return await book.write("note", lambda tx: (note("written")(tx), threading.get_ident())[1], urgent=urgent, brief=True)


@pytest.mark.parametrize("urgent", [False, True])
async def test_single_brief_write_runs_on_the_event_loop_thread(path: Path, clock: ManualClock, *, urgent: bool) -> None:
    book = await open_book(path, clock)
    assert await briefly_written_by(book, urgent=urgent) == threading.get_ident()
    assert gate_holder(path) is None
    await book.close()


async def test_brief_writes_that_come_together_share_a_commit_on_the_thread(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    before = book.commits
    writers = await asyncio.gather(briefly_written_by(book), briefly_written_by(book))
    assert threading.get_ident() not in writers
    assert book.commits == before + 1
    for _ in range(LONE_AFTER):
        assert await briefly_written_by(book) != threading.get_ident()
    assert await briefly_written_by(book) == threading.get_ident()
    await book.close()


async def test_after_a_slow_commit_a_brief_write_runs_on_the_thread(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    book._runner.last_commit_seconds = QUICK_SECONDS
    assert await briefly_written_by(book) != threading.get_ident()
    assert await briefly_written_by(book) == threading.get_ident()  # the clock did not advance in that commit
    await book.close()


async def test_brief_write_does_not_wait_on_the_loop_for_another_writer(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    gate = WriteGate(path, "cli")
    with gate:
        writing = asyncio.create_task(briefly_written_by(book))
        done, _ = await asyncio.wait([writing], timeout=0.05)
        assert not done
    assert await writing != threading.get_ident()
    gate.close()
    await book.close()


async def test_brief_write_never_uses_the_connection_while_the_thread_does(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    with book._runner._gate:  # as during a checkpoint on the thread
        writing = asyncio.create_task(briefly_written_by(book))
        done, _ = await asyncio.wait([writing], timeout=0.05)
        assert not done
    assert await writing != threading.get_ident()
    await book.close()


async def test_write_that_cannot_take_the_gate_is_not_recorded_and_holds_nothing(path: Path, clock: ManualClock) -> None:
    book = await open_book(path, clock)
    gate, opened = book._runner._gate, book._runner._gate._gate
    gate._gate = -1  # flock(2) fails
    with pytest.raises(NotRecorded, match=r"the ledger's writer failed \(.*file descriptor"):
        await book.write("note", note("refused"))
    gate._gate = opened
    assert gate.take_if_free()
    gate.let_go()
    await book.close()


@pytest.mark.parametrize("overdue", [False, True], ids=["in an idle pause", "without a pause"])
async def test_thread_copies_the_log_after_many_brief_writes_on_the_loop(path: Path, clock: ManualClock, *, overdue: bool) -> None:
    book = await open_book(path, clock)
    copied_by: list[int] = []
    checkpoint = book._runner.checkpoint

    def noting(mode: str) -> None:
        copied_by.append(threading.get_ident())
        checkpoint(mode)

    book._runner.checkpoint = noting  # type: ignore[method-assign] # noted
    writers = {await briefly_written_by(book) for _ in range(COPY_AFTER - 1)}
    assert writers == {threading.get_ident()}
    assert not copied_by
    await briefly_written_by(book)
    if overdue:
        for _ in range(COPY_OVERDUE * 20):
            await briefly_written_by(book)
            if copied_by:
                break
    await eventually(lambda: bool(copied_by), "the copy")
    assert threading.get_ident() not in copied_by
    await eventually(lambda: book._serving is None, "the thread to rest")
    await book.close()
