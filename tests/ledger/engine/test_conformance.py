"""Conformance tests of any engine. A new engine is one more parameter of the `engine` fixture."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown
from tests.ledger.engine.parts import emitting
from tests.ledger.parts import Held, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Database, Tx
    from tests.ledger.engine.parts import Engine
    from tests.ledger.parts import ManualClock


def read_notes(tx: Tx) -> list[str]:
    return [row["text"] for row in tx.all("notes")]


async def test_a_write_is_recorded_when_it_returns_and_still_there_after_reopening(engine: Engine) -> None:
    book = await engine.open()
    assert await book.write("note", note("kept")) == "kept"
    assert engine.seen() == ["kept"]
    await book.close()
    book = await engine.open()
    assert await book.read(read_notes) == ["kept"]
    await book.close()


@pytest.mark.parametrize("company", [0, 3], ids=["alone", "in company"])
async def test_work_that_raises_is_rolled_back_whole_and_nobody_else_is(engine: Engine, company: int) -> None:
    def half(tx: Tx) -> None:
        note("half")(tx)
        raise LookupError("no such quote")

    book = await engine.open()
    others = [book.write("note", note(f"{number}")) for number in range(company)]
    failed, *kept = await asyncio.gather(book.write("half", half), *others, return_exceptions=True)
    assert isinstance(failed, LookupError)
    assert kept == engine.seen() == [f"{number}" for number in range(company)]
    await book.write("note", note("after"))
    assert engine.seen() == [*kept, "after"]
    await book.close()


async def test_each_write_sees_what_was_written_before_it(engine: Engine) -> None:
    def count(tx: Tx) -> int:
        seen = len(tx.all("notes"))
        note(f"{seen}")(tx)
        return seen

    books = [await engine.open(), await engine.open()]
    counted = await asyncio.gather(*(book.write("count", count, alone=True) for book in books for _ in range(20)))
    assert sorted(counted) == list(range(40)), "two processes never built on the same state"
    for book in books:
        await book.close()


async def test_many_rows_go_in_with_one_statement(engine: Engine) -> None:
    book = await engine.open()
    await book.write("notes", lambda tx: tx.many("note", [{"text": f"{number}"} for number in range(5)]))
    await book.write("nothing", lambda tx: tx.many("note", []))
    assert engine.seen() == ["0", "1", "2", "3", "4"]
    await book.close()


async def test_emitted_events_are_finished_once_per_commit_in_order_in_the_transaction(engine: Engine) -> None:
    calls: list[list[str]] = []

    def finish(tx: Tx, events: Sequence[Any]) -> None:
        calls.append(list(events))
        tx.many("note", [{"text": f"finished {event}"} for event in events])

    book = await engine.open(finish=finish)
    works = [emitting("a"), emitting("lost", fails=True), note("silent"), emitting("b")]
    await asyncio.gather(*(book.write("note", work) for work in works), return_exceptions=True)
    assert calls == [["a", "b"]]
    assert engine.seen() == ["a", "silent", "b", "finished a", "finished b"]
    await asyncio.gather(book.write("lost", emitting("lost", fails=True)), book.write("note", note("c")), return_exceptions=True)
    assert calls == [["a", "b"]], "nothing was emitted by what was committed"
    await book.close()


async def test_nothing_is_recorded_when_the_batch_cannot_be_finished(engine: Engine) -> None:
    def finish(tx: Tx, events: Sequence[Any]) -> None:
        if "bad" in events:
            note("half finished")(tx)
            raise ValueError("no key to sign with")

    book = await engine.open(finish=finish)
    failed = await asyncio.gather(
        book.write("a", emitting("a")),
        book.write("b", emitting("bad")),
        book.write("c", emitting("c", fails=True)),
        return_exceptions=True,
    )
    assert [type(error) for error in failed] == [NotRecorded, NotRecorded, LookupError]
    assert "what ends every batch failed (ValueError('no key to sign with')); nothing was recorded" in str(failed[0])
    assert engine.seen() == []
    assert await book.write("d", emitting("d")) == "d", "it writes on"
    await book.close()


async def test_nothing_can_be_emitted_by_a_read_or_while_finishing(engine: Engine) -> None:
    def finish(tx: Tx, events: Sequence[Any]) -> None:
        tx.emit("more")

    book = await engine.open(finish=finish)
    with pytest.raises(DatabaseError, match="Nothing can be emitted here"):
        await book.read(lambda tx: tx.emit("a"))
    with pytest.raises(NotRecorded, match="Nothing can be emitted here"):
        await book.write("note", emitting("a"))
    await book.close()


async def test_a_read_is_one_snapshot_that_writes_neither_wait_for_nor_change(engine: Engine) -> None:
    book = await engine.open()
    await book.write("note", note("old"))
    loop = asyncio.get_running_loop()

    def read_around_a_write(tx: Tx) -> tuple[list[str], list[str]]:
        before = read_notes(tx)
        asyncio.run_coroutine_threadsafe(book.write("note", note("new")), loop).result(10)
        return before, read_notes(tx)

    assert await book.read(read_around_a_write) == (["old"], ["old"])
    assert await book.read(read_notes) == ["old", "new"]
    await book.close()


async def test_a_read_cannot_write(engine: Engine) -> None:
    book = await engine.open()
    for work in (note("sneaked in"), lambda tx: tx.many("note", [{"text": "sneaked in"}])):
        with pytest.raises(Exception, match=r"read-?only"):
            await book.read(work)
    assert engine.seen() == []
    await book.close()


async def test_work_whose_deadline_passed_before_it_began_never_runs(waiting_engine: Engine, clock: ManualClock) -> None:
    book = await waiting_engine.open()
    slow = Held("slow")
    running = asyncio.create_task(book.write("slow", slow))
    await slow.begun()
    with pytest.raises(NotRecorded, match="nothing was recorded"):
        await book.write("late", note("late"), deadline=clock.monotonic() + 0.01)
    slow.release()
    await running
    await book.write("note", note("next"))
    assert waiting_engine.seen() == ["slow", "next"]
    await book.close()


async def test_work_under_way_long_after_its_deadline_is_of_unknown_outcome(waiting_engine: Engine, clock: ManualClock) -> None:
    book = await waiting_engine.open()
    slow = Held("slow")
    with pytest.raises(OutcomeUnknown):
        await book.write("slow", slow, deadline=clock.monotonic() + 0.5)  # time enough to begin
    slow.release()
    await book.close()
    assert waiting_engine.seen() == ["slow"]


async def test_cancelling_callers_loses_no_write_theirs_or_others(waiting_engine: Engine) -> None:
    book = await waiting_engine.open()
    slow = Held("begun")
    begun = asyncio.create_task(book.write("note", slow))
    await slow.begun()
    queued = [asyncio.create_task(book.write("note", note(text))) for text in ("a", "b", "c")]
    await asyncio.wait(queued, timeout=0.01)
    begun.cancel()
    queued[1].cancel()
    slow.release()
    ended = await asyncio.gather(begun, *queued, return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError, str, asyncio.CancelledError, str]
    assert waiting_engine.seen() == ["begun", "a", "b", "c"], "what was asked for is done; only the answers are not waited for"
    await book.close()


async def test_every_write_acknowledged_before_a_kill_is_in_the_ledger(engine: Engine) -> None:
    writer = await engine.start("write_until_killed")
    assert writer.stdout is not None
    told = [(await asyncio.wait_for(writer.stdout.readline(), 30)).decode().strip() for _ in range(50)]
    writer.kill()
    rest, _ = await writer.communicate()
    told += rest.decode().split("\n")[:-1]
    seen = engine.seen()
    assert seen[: len(told)] == told
    assert len(seen) - len(told) in {0, 1}, "one may have been recorded and not yet told"
    book = await engine.open()
    await book.write("note", note("after"))
    assert engine.seen() == [*seen, "after"]
    await book.close()


async def test_a_queue_that_is_full_refuses_at_once_and_what_it_took_is_recorded(waiting_engine: Engine) -> None:
    book: Database = await waiting_engine.open()
    slow = Held("slow")
    running = asyncio.create_task(book.write("slow", slow))
    await slow.begun()
    queued = [asyncio.create_task(book.write("note", note(f"{number}"))) for number in range(4100)]
    done, _ = await asyncio.wait(queued, timeout=0.01)
    refused = [task for task in queued if task in done]
    assert refused == queued[4096:]
    with pytest.raises(NotRecorded, match=r"The ledger is busy: 4,096 writes are waiting. note was not recorded"):
        refused[0].result()
    slow.release()
    await running
    await asyncio.gather(*queued[:4096])
    assert waiting_engine.seen() == ["slow", *(f"{number}" for number in range(4096))]
    assert [type(task.exception()) for task in refused] == [NotRecorded] * 4
    await book.close()
