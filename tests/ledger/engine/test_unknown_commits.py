"""Tests of COMMITs without a clear answer, lost sessions and conflicts on PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from faults.cluster.proxy import CommitFault, Proxy
from faults.harness.rig import eventually
from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown, WritesRefused
from ledger.postgres import marks, sessions, writer
from ledger.postgres.connections import read_snapshot
from ledger.postgres.marks import STRIDE, MarkNote, WriterMark
from ledger.postgres.sessions import Address, Limits
from tests.ledger.engine.parts import LIMITS, POSTGRES_STATEMENTS, emitting, open_postgres_book
from tests.ledger.parts import Held, note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ledger.database import Tx
    from ledger.postgres.engine import PostgresDatabase
    from tests.ledger.engine.parts import PostgresEngine
    from tests.ledger.parts import ManualClock


@pytest.fixture
def proxy(postgres_engine: PostgresEngine) -> Iterator[Proxy]:
    with Proxy(postgres_engine.url) as proxy:
        yield proxy


@pytest.fixture
async def book(proxy: Proxy, clock: ManualClock) -> AsyncIterator[PostgresDatabase]:
    """Yield a notebook behind the proxy."""
    opened = await open_postgres_book(proxy.url, clock)
    yield opened
    await opened.close()


@pytest.mark.parametrize("fault", [CommitFault.LOST, CommitFault.SENT, CommitFault.UNANSWERED])
async def test_a_commit_that_breaks_is_resolved_and_recorded_exactly_once(
    book: PostgresDatabase, proxy: Proxy, postgres_engine: PostgresEngine, fault: CommitFault
) -> None:
    await book.write("note", note("before"))
    proxy.at_next_commit(fault)
    assert await asyncio.gather(*(book.write("note", note(text)) for text in "abc")) == ["a", "b", "c"]
    assert book.unknown == 1
    assert await book.write("note", note("after")) == "after"
    assert postgres_engine.seen() == ["before", "a", "b", "c", "after"]


async def test_a_commit_that_arrives_late_cannot_record_what_ran_again(
    book: PostgresDatabase, proxy: Proxy, postgres_engine: PostgresEngine
) -> None:
    proxy.at_next_commit(CommitFault.LATE)
    writing = asyncio.create_task(book.write("note", note("once")))
    await asyncio.to_thread(proxy.wait_until_struck)
    assert not (await asyncio.wait([writing], timeout=0.1))[0], "the open transaction holds the mark"
    proxy.release()
    assert await writing == "once"
    assert postgres_engine.seen() == ["once"]


async def test_a_commit_without_an_answer_is_cut_and_resolved(
    book: PostgresDatabase, proxy: Proxy, postgres_engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "COMMIT_SECONDS", 0.1)
    proxy.at_next_commit(CommitFault.SILENT)
    assert await book.write("note", note("a")) == "a"
    assert (book.unknown, postgres_engine.seen()) == (1, ["a"])


@pytest.mark.parametrize("limit", ["a second connection gets no answer", "the call takes too long"])
async def test_swallowed_packets_end_the_session_and_the_write_runs_again(
    book: PostgresDatabase, proxy: Proxy, postgres_engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    session = book._writer.session
    assert session is not None
    if limit == "the call takes too long":
        session._seconds = 0.1
    else:
        monkeypatch.setattr(sessions, "SILENT_SECONDS", 0.05)
        monkeypatch.setattr(sessions, "PROBE_SECONDS", 0.05)
    proxy.swallow()
    writing = asyncio.create_task(book.write("note", note("a")))
    await eventually(lambda: session.lost, "the end of the session")
    assert not writing.done()
    proxy.come_back()
    assert await writing == "a"
    assert (book.unknown, postgres_engine.seen()) == (0, ["a"])


async def test_a_slow_statement_of_a_server_that_answers_is_left_alone(
    book: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SILENT_SECONDS", 0.0)
    runs: list[str] = []

    def slow(tx: Tx) -> None:
        runs.append("slow")
        tx.one("pause", seconds=0.5)

    await book.write("slow", slow)
    assert runs == ["slow"]


async def test_a_commit_with_a_warning_is_resolved_though_the_server_says_success(
    postgres_engine: PostgresEngine, clock: ManualClock
) -> None:
    """A deferred trigger warns inside COMMIT, as a canceled wait for a standby does."""
    with psycopg.connect(postgres_engine.url) as shell:
        shell.execute(
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'perhaps lost'; RETURN NEW; END$$;"
            "CREATE CONSTRAINT TRIGGER warns AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION warn()"
        )
    book = await open_postgres_book(postgres_engine.url, clock)
    assert await book.write("note", note("a")) == "a"
    assert (book.unknown, postgres_engine.seen()) == (1, ["a"])
    await book.close()


async def test_a_commit_that_cannot_be_resolved_is_unknown_and_ends_all_writing(
    book: PostgresDatabase, proxy: Proxy, postgres_engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "RESOLVE_SECONDS", 0.1)
    proxy.at_next_commit(CommitFault.UNANSWERED)
    writing = asyncio.create_task(book.write("note", note("a")))
    await asyncio.to_thread(proxy.wait_until_struck)
    proxy.go_away()
    with pytest.raises(OutcomeUnknown, match="whether it was recorded is not known"):
        await writing
    with pytest.raises(WritesRefused, match="takes no writes until a restart"):
        await book.write("note", note("b"))
    proxy.come_back()
    assert postgres_engine.seen() == ["a"]


async def test_a_write_whose_session_ends_before_commit_runs_again_on_a_new_one(
    book: PostgresDatabase, postgres_engine: PostgresEngine
) -> None:
    runs: list[str] = []

    def breaks_once(tx: Tx) -> str:
        note("a")(tx)
        runs.append("a")
        if len(runs) == 1:
            tx.one("end_session")
        return "a"

    written = await asyncio.gather(book.write("note", breaks_once), book.write("note", note("b")))
    assert list(written) == ["a", "b"]
    assert (runs, book.unknown, sorted(postgres_engine.seen())) == (["a", "a"], 0, ["a", "b"])


async def test_a_write_that_always_ends_its_session_is_refused_and_no_other_is(
    book: PostgresDatabase, postgres_engine: PostgresEngine
) -> None:
    works: list[Any] = [note("a"), lambda tx: tx.one("end_session"), note("b")]
    *kept, ended = await asyncio.gather(
        *(book.write("note", work) for work in (works[0], works[2], works[1])), return_exceptions=True
    )
    assert kept == ["a", "b"]
    assert isinstance(ended, NotRecorded)
    assert postgres_engine.seen() == ["a", "b"]


async def test_without_a_server_writes_wait_to_their_deadlines_and_record_nothing(
    book: PostgresDatabase, proxy: Proxy, clock: ManualClock, postgres_engine: PostgresEngine
) -> None:
    proxy.go_away()
    waiting = asyncio.create_task(book.write("note", note("waits")))
    with pytest.raises(NotRecorded, match="nothing was recorded"):
        await book.write("note", note("late"), deadline=clock.monotonic() + 0.05)
    proxy.come_back()
    assert await waiting == "waits"
    assert await book.read(lambda tx: [row["text"] for row in tx.all("notes")]) == ["waits"]
    assert postgres_engine.seen() == ["waits"]


async def test_a_server_that_stays_away_refuses_writes_until_it_is_back(
    book: PostgresDatabase, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "AWAY_SECONDS", 0.05)
    proxy.go_away()
    with pytest.raises(NotRecorded, match=r"the database does not take writes .* nothing was recorded"):
        await book.write("note", note("a"))
    proxy.come_back()
    assert await book.write("note", note("b")) == "b"


async def test_a_unique_key_taken_in_the_same_batch_fails_its_member_alone(
    book: PostgresDatabase, postgres_engine: PostgresEngine
) -> None:
    kept, failed, last = await asyncio.gather(*(book.write("note", note(text)) for text in ("a", "a", "b")), return_exceptions=True)
    assert (kept, last, type(failed)) == ("a", "b", psycopg.errors.UniqueViolation)
    assert postgres_engine.seen() == ["a", "b"]


async def test_a_lock_held_by_another_process_delays_the_write(postgres_engine: PostgresEngine, clock: ManualClock) -> None:
    book = await open_postgres_book(postgres_engine.url, clock, limits=LIMITS._replace(lock=50))
    with psycopg.connect(postgres_engine.url) as shell:
        shell.execute("LOCK TABLE notes IN EXCLUSIVE MODE")
        writing = asyncio.create_task(book.write("note", note("a")))
        assert not (await asyncio.wait([writing], timeout=0.08))[0]
    assert await writing == "a"
    await book.close()


async def test_work_that_handles_a_database_error_is_not_recorded(book: PostgresDatabase, postgres_engine: PostgresEngine) -> None:
    def swallows(tx: Tx) -> str:
        note("a")(tx)
        try:
            tx.one("pause", seconds="never")
        except psycopg.Error:
            return "done"
        raise AssertionError

    with pytest.raises(NotRecorded, match="invalid input syntax"):
        await book.write("note", swallows)
    assert postgres_engine.seen() == []


async def test_a_conflict_in_the_last_step_of_a_batch_runs_the_batch_again(
    postgres_engine: PostgresEngine, clock: ManualClock
) -> None:
    finished: list[list[Any]] = []

    def finish(tx: Tx, events: Any) -> None:
        finished.append(list(events))
        note("taken" if len(finished) == 1 else "free")(tx)

    book = await open_postgres_book(postgres_engine.url, clock)
    await book.write("note", note("taken"))
    await book.close()
    book = await open_postgres_book(postgres_engine.url, clock, finish=finish)
    written = await asyncio.gather(book.write("a", emitting("a")), book.write("b", emitting("b")))
    assert list(written) == ["a", "b"]
    assert finished == [["a", "b"]] * 2
    assert postgres_engine.seen() == ["taken", "a", "b", "free"]
    await book.close()


async def test_an_earlier_process_of_the_same_name_cannot_write_any_more(
    postgres_engine: PostgresEngine, clock: ManualClock
) -> None:
    old = await open_postgres_book(postgres_engine.url, clock, writer="bot")
    await old.write("note", note("a"))
    new = await open_postgres_book(postgres_engine.url, clock, writer="bot")
    with pytest.raises(NotRecorded, match="another process writes under the name bot"):
        await old.write("note", note("b"))
    with pytest.raises(WritesRefused):
        await old.write("note", note("c"))
    assert await new.write("note", note("d")) == "d"
    assert postgres_engine.seen() == ["a", "d"]
    await old.close()
    await new.close()


async def test_reads_leave_a_former_primary_when_a_write_has_found_the_new_one(book: PostgresDatabase) -> None:
    await book.read(lambda tx: tx.all("notes"))
    session = book._reader.session
    assert session is not None
    session.timeline -= 1  # as if it had been opened before a failover
    await book.read(lambda tx: tx.all("notes"))
    assert session.lost
    assert book._reader.session is not session


async def test_writes_leave_a_former_primary_when_a_read_has_found_the_new_one(book: PostgresDatabase) -> None:
    await book.write("note", note("a"))
    session = book._writer.session
    assert session is not None
    session.timeline -= 1  # as if it had been opened before a failover
    await book.write("note", note("b"))
    assert session.lost
    assert book.unknown == 0


async def test_lost_commits_that_were_acknowledged_end_all_writing(book: PostgresDatabase, postgres_engine: PostgresEngine) -> None:
    await book.write("note", note("a"))
    with psycopg.connect(postgres_engine.url) as shell:
        shell.execute("UPDATE writers SET n = n - 1")  # as a standby that was behind has it
    with pytest.raises(NotRecorded, match="the database lost commits that were acknowledged"):
        await book.write("note", note("b"))
    with pytest.raises(WritesRefused):
        await book.write("note", note("c"))


async def test_while_a_write_runs_alone_no_other_process_commits(postgres_engine: PostgresEngine, clock: ManualClock) -> None:
    book, other = [await open_postgres_book(postgres_engine.url, clock) for _ in range(2)]
    held = Held("alone")
    running = asyncio.create_task(book.write("note", held, alone=True))
    await held.begun()
    waiting = asyncio.create_task(other.write("note", note("after")))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    held.release()
    await asyncio.gather(running, waiting)
    assert postgres_engine.seen() == ["alone", "after"]
    for each in (book, other):
        await each.close()


@pytest.mark.parametrize("lost", [0, 2], ids=["first update answered", "two updates unanswered"])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_mark_says_what_was_recorded_however_many_updates_got_lost(
    postgres_engine: PostgresEngine, lost: int, *, recorded: bool
) -> None:
    def open_session() -> sessions.Session:
        return Address(postgres_engine.url).connect(name="test", limits=Limits(), writes=True)

    session = open_session()
    mark = WriterMark("o'brien")
    mark.take(session)
    mark.begin(session, alone=False)
    session.run("COMMIT" if recorded else "ROLLBACK")
    for _ in range(lost):
        session.run(f"UPDATE writers SET n = n + {STRIDE}")  # noqa: S608 -- a number
    found, new = mark.resolve(open_session)
    assert found is recorded
    mark.begin(new, alone=False)
    assert new.commit() is None
    session.close()
    new.close()


@pytest.mark.parametrize("batches", [0, 1])
def test_a_mark_that_was_taken_over_resolves_no_commit_of_the_earlier_process(
    postgres_engine: PostgresEngine, batches: int
) -> None:
    def open_session() -> sessions.Session:
        return Address(postgres_engine.url).connect(name="test", limits=Limits(), writes=True)

    old, new = open_session(), open_session()
    earlier, later = WriterMark("bot"), WriterMark("bot")
    earlier.take(old)
    earlier.begin(old, alone=False)
    old.close()  # before COMMIT, whose answer the earlier process waits for
    later.take(new)
    for _ in range(batches):
        later.begin(new, alone=False)
        assert new.commit() is None
        later.recorded()
    with pytest.raises(marks.MarkError, match="another process writes under the name bot"):
        earlier.resolve(open_session)
    later.begin(new, alone=False)
    assert new.commit() is None
    new.close()


async def test_a_read_outlasts_a_server_that_is_refused_at_first(book: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, refusals = book._reader, [DatabaseError("it is a former primary")]
    connect, session = reader._connect, reader.session
    assert session is not None
    session.close()

    def connect_later() -> sessions.Session:
        if refusals:
            raise refusals.pop()
        return connect()

    monkeypatch.setattr(reader, "_connect", connect_later)
    assert await book.read(lambda tx: tx.all("notes")) == []


def hides_the_end_of_its_session(runs: list[str]) -> Callable[[Tx], str]:
    """Return a read that reports the loss of its session as damage, in its first run."""

    def work(tx: Tx) -> str:
        runs.append("run")
        try:
            tx.one("end_session" if len(runs) == 1 else "notes")
        except psycopg.Error:
            return "a row cannot be read"
        return "sound"

    return work


async def test_a_read_that_takes_the_loss_of_its_session_for_damage_runs_again(book: PostgresDatabase) -> None:
    assert await book.read(hides_the_end_of_its_session([])) == "sound"


def test_a_snapshot_that_takes_the_loss_of_its_session_for_damage_fails(postgres_engine: PostgresEngine) -> None:
    with pytest.raises(DatabaseError, match="cannot be used"):
        read_snapshot(postgres_engine.url, POSTGRES_STATEMENTS, hides_the_end_of_its_session([]))


def test_the_noted_mark_is_a_private_file(tmp_path: Path) -> None:
    path, note = tmp_path / "mark", MarkNote("bot/main", "a1", 1, 2)
    note.write(path)
    assert (MarkNote.read(path), path.stat().st_mode & 0o077) == (note, 0)
