"""Tests of group commit: one commit serves concurrent writers; each still has its own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown
from ledger.writes import MAX_BATCH
from tests.ledger.parts import Held, applied, note, notes, open_notebook, open_shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ledger.database import Tx
    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import Desk, ManualClock


@pytest.fixture
async def book(path: Path, clock: ManualClock) -> AsyncIterator[SqliteDatabase]:
    opened = await open_notebook(path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def page(book: SqliteDatabase, path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_shell(path)
    yield connection
    connection.close()


async def test_the_writes_of_one_tick_share_one_commit(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    before = book.commits
    texts = [f"{number}" for number in range(100)]
    assert await asyncio.gather(*(book.write("note", note(text)) for text in texts)) == texts
    assert book.commits == before + 1
    assert notes(page) == texts


async def test_a_lone_operation_takes_three_commits(desk: Desk, database: SqliteDatabase) -> None:
    before = database.commits
    await desk.reserve()
    operation = await desk.ledger.claim_operation()
    assert operation is not None
    await desk.ledger.execute(operation, applied())
    assert database.commits == before + 3


async def test_no_write_is_lost_when_more_wait_than_a_batch_holds(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    before = book.commits
    urgent = [book.write("note", note(f"urgent {number}"), urgent=True) for number in range(MAX_BATCH + 20)]
    patient = [book.write("note", note(f"patient {number}")) for number in range(MAX_BATCH)]
    await asyncio.wait_for(asyncio.gather(*urgent, *patient), 10)
    assert len(notes(page)) == 2 * MAX_BATCH + 20
    assert book.commits == before + 3


async def test_urgent_work_goes_first_and_the_rest_keeps_its_order(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    first = Held("first")
    running = asyncio.create_task(book.write("note", first))
    await first.begun()
    waiting = [
        asyncio.create_task(book.write("note", note(text), urgent=text.startswith("urgent")))
        for text in ("a", "b", "urgent 1", "c", "urgent 2")
    ]
    await asyncio.wait(waiting, timeout=0.01)
    first.release()
    await asyncio.gather(running, *waiting)
    assert notes(page) == ["first", "urgent 1", "urgent 2", "a", "b", "c"]


async def test_batch_closes_after_20_ms_and_its_rest_runs_after_newer_urgent_work(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    def slow(tx: Tx) -> None:
        note("slow")(tx)
        clock.advance(21)

    async def slow_then_urgent() -> None:
        await book.write("note", slow)
        await book.write("urgent", note("urgent"), urgent=True)

    before = book.commits
    held = Held("held")
    first = asyncio.create_task(book.write("first", held))
    await held.begun()
    works = [book.write("note", note("a")), slow_then_urgent(), book.write("note", note("b")), book.write("note", note("c"))]
    waiting = [asyncio.create_task(work) for work in works]
    await asyncio.wait(waiting, timeout=0.01)
    held.release()
    await asyncio.gather(first, *waiting)
    assert notes(page) == ["held", "a", "slow", "urgent", "b", "c"]
    assert book.commits == before + 3


async def test_urgent_work_waits_2_ms_for_a_batch_and_then_takes_one_other_write_along(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    """So an acknowledgement does not wait for command transactions, and they do not wait without end."""

    def slow(text: str) -> Callable[[Tx], str]:
        def work(tx: Tx) -> str:
            clock.advance(3)
            return note(text)(tx)

        return work

    first = Held("first")
    running = [asyncio.create_task(book.write("note", first))]
    running += [asyncio.create_task(book.write("note", slow(f"{number}"))) for number in range(6)]
    await first.begun()
    urgent = [asyncio.create_task(book.write("note", slow(f"urgent {number}"), urgent=True)) for number in range(3)]
    await asyncio.wait(urgent, timeout=0.01)
    before = book.commits
    first.release()
    await asyncio.gather(*running, *urgent)
    assert notes(page) == ["first", "0", "urgent 0", "urgent 1", "urgent 2", "1", "2", "3", "4", "5"]
    assert book.commits == before + 3  # the shortened batch, the urgent ones and one more, the rest


async def test_a_failing_write_is_rolled_back_alone(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    def broken(tx: Tx) -> None:
        tx.one("note", text="half done")
        raise LookupError("no such quote")

    before = book.commits
    results = await asyncio.gather(
        book.write("note", note("a")), book.write("note", broken), book.write("note", note("b")), return_exceptions=True
    )
    assert list(results[0::2]) == ["a", "b"]
    assert isinstance(results[1], LookupError)
    assert notes(page) == ["a", "b"]
    assert book.commits == before + 1


async def test_nobody_hears_of_success_before_the_commit(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    last = Held("last")
    first_done = asyncio.create_task(book.write("note", note("first")))
    last_done = asyncio.create_task(book.write("note", last))
    await last.begun()
    assert not first_done.done()
    assert notes(page) == []
    last.release()
    assert list(await asyncio.gather(first_done, last_done)) == ["first", "last"]
    assert notes(page) == ["first", "last"]


def over_full(book_size: list[int], *, swallow: bool) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        book_size.append(1)
        tx.one("stop_growing")
        try:
            tx.one("big_note", text="too big")
        except sqlite3.OperationalError:
            if not swallow:
                raise

    return work


@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "swallowed"])
async def test_a_full_disk_fails_the_one_who_met_it_and_the_others_commit_again_without_it(
    book: SqliteDatabase, page: sqlite3.Connection, *, swallow: bool
) -> None:
    await book.write("note", note("old"))
    before, ran, seen = book.commits, [], []

    def counted(tx: Tx) -> str:
        ran.append("a")
        return note("a")(tx)

    first = asyncio.create_task(book.write("note", counted))
    first.add_done_callback(lambda _: seen.extend(notes(page)))
    offences: list[int] = []
    others = asyncio.gather(
        first, book.write("note", over_full(offences, swallow=swallow)), book.write("note", note("b")), return_exceptions=True
    )
    results = await asyncio.wait_for(others, 60)
    assert isinstance(results[1], NotRecorded)
    assert list(results[0::2]) == ["a", "b"]
    assert ran == ["a", "a"], "the whole batch was rolled back, so its first member ran twice"
    assert offences == [1]
    assert notes(page) == ["old", "a", "b"]
    assert seen == ["old", "a", "b"], "it resolved only when its second run was on disk"
    assert book.commits == before + 1
    await book.write("note", lambda tx: tx.one("grow_again"))
    assert await book.write("note", lambda tx: tx.one("big_note", text="fits")) is None


async def test_nothing_more_can_be_written_by_work_whose_transaction_is_gone(
    book: SqliteDatabase, page: sqlite3.Connection
) -> None:
    offences: list[int] = []

    def stubborn(tx: Tx) -> None:
        over_full(offences, swallow=True)(tx)
        tx.one("note", text="would commit by itself")

    with pytest.raises(DatabaseError, match="rolled back before note; nothing of it is recorded"):
        await book.write("note", stubborn)
    assert notes(page) == []


async def test_a_write_that_did_not_start_before_its_deadline_is_provably_not_recorded(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    slow = Held("slow")
    running = asyncio.create_task(book.write("slow", slow))
    await slow.begun()
    with pytest.raises(NotRecorded, match="reserve did not start before its deadline; nothing was recorded"):
        await book.write("reserve", note("late"), urgent=True, deadline=clock.monotonic() + 0.02)
    slow.release()
    await running
    await book.write("note", note("next"))
    assert notes(page) == ["slow", "next"]


async def test_each_waiting_write_has_a_deadline_of_its_own_whichever_came_first(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    slow = Held("slow")
    running = asyncio.create_task(book.write("slow", slow))
    await slow.begun()
    patient = asyncio.create_task(book.write("patient", note("patient"), deadline=clock.monotonic() + 60))
    for name in ("hasty", "as hasty"):  # one gets its result, then the other
        with pytest.raises(NotRecorded, match=f"^{name} did not start before its deadline"):
            await book.write(name, note(name), deadline=clock.monotonic() + 0.02)
    together = await asyncio.gather(
        *(book.write(f"{number}", note(f"{number}"), deadline=clock.monotonic() + 0.01 * number) for number in (3, 1, 2)),
        return_exceptions=True,
    )
    assert [type(told) for told in together] == [NotRecorded] * 3
    assert not patient.done()
    slow.release()
    await asyncio.gather(running, patient)
    assert notes(page) == ["slow", "patient"]


async def test_a_write_whose_deadline_passed_in_the_queue_is_dropped_by_the_writer(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    slow = Held("slow")
    running = asyncio.create_task(book.write("slow", slow))
    await slow.begun()
    late = asyncio.create_task(book.write("reserve", note("late"), deadline=clock.monotonic() + 9))
    await asyncio.wait([late], timeout=0.01)
    clock.advance(9_000)
    slow.release()
    with pytest.raises(NotRecorded, match="waited past its deadline; nothing was recorded"):
        await late
    await running
    assert notes(page) == ["slow"]


async def test_a_write_under_way_at_its_deadline_is_waited_for(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    slow = Held("slow")
    running = asyncio.create_task(book.write("reserve", slow, deadline=clock.monotonic() + 0.02))
    await slow.begun()
    done, _ = await asyncio.wait([running], timeout=0.05)
    assert not done
    slow.release()
    assert await running == "slow"
    assert notes(page) == ["slow"]


async def test_a_write_that_does_not_end_long_after_its_deadline_is_of_unknown_outcome(
    book: SqliteDatabase, page: sqlite3.Connection, clock: ManualClock
) -> None:
    slow = Held("slow")
    with pytest.raises(OutcomeUnknown, match="whether it was recorded is not known yet"):
        await book.write("reserve", slow, deadline=clock.monotonic() + 0.01)
    slow.release()
    await book.write("note", note("next"))
    assert notes(page) == ["slow", "next"]


async def test_the_started_write_of_a_cancelled_caller_stands(book: SqliteDatabase, page: sqlite3.Connection) -> None:
    slow = Held("slow")
    caller = asyncio.create_task(book.write("note", slow))
    await slow.begun()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    slow.release()
    await book.write("note", note("next"))
    assert notes(page) == ["slow", "next"]


async def test_closing_finishes_what_is_queued(path: Path, clock: ManualClock) -> None:
    book = await open_notebook(path, clock)
    writes = [asyncio.create_task(book.write("note", note(f"{number}"))) for number in range(5)]
    await asyncio.wait(writes, timeout=0)
    await book.close()
    assert await asyncio.gather(*writes) == [f"{number}" for number in range(5)]
    shell = open_shell(path)
    assert len(notes(shell)) == 5
    shell.close()
