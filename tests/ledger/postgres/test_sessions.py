"""Tests of the sessions of a PostgreSQL engine: what they do when the server, the schema or the network changes under them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from faults.cluster.proxy import Proxy
from ledger.clock import SystemClock
from ledger.database import MissingRow
from ledger.postgres import engine, sessions
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.replicas import LockSearch
from ledger.postgres.sessions import does_answer
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ledger.database import Row, Tx
    from tests.ledger.parts import ManualClock
    from tests.ledger.postgres.places import PostgresPlace

STATEMENTS = {
    "writers": "SELECT w.*, w.writer AS name FROM writers AS w ORDER BY w.writer",
    "touch": "UPDATE writers SET taken_at = taken_at RETURNING *, writer AS name",
    "wrong": "SELECT 1 / 0 AS n",
    "sleep": "SELECT pg_sleep(1)",
}


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@asynccontextmanager
async def opened(url: str, clock: ManualClock) -> AsyncIterator[PostgresDatabase]:
    """Yield a database with these statements."""
    database = await PostgresDatabase.open(url, statements=STATEMENTS, clock=clock, writer="me")
    yield database
    await database.close()


async def test_column_that_a_newer_build_adds_is_no_trouble_to_open_sessions(place: PostgresPlace, clock: ManualClock) -> None:
    async with opened(place.address, clock) as database:
        for _ in range(2):
            read = await database.read(lambda tx: tx.required("writers")["name"])
            written = await database.write("touch", lambda tx: tx.required("touch")["name"])
            assert (read, written) == ("me", "me")
            place.shell().execute("ALTER TABLE writers ADD COLUMN IF NOT EXISTS newer TEXT NOT NULL DEFAULT 'newer'")


async def test_read_that_fails_with_answers_it_never_read_leaves_the_session_usable(
    place: PostgresPlace, clock: ManualClock
) -> None:
    def fail(tx: Tx) -> None:
        tx.each("wrong", [{}])
        raise MissingRow("wrong")

    async with opened(place.address, clock) as database:
        for _ in range(2):
            with pytest.raises(MissingRow):
                await database.read(fail)
        assert await database.read(lambda tx: tx.required("writers")["name"]) == "me"


def silent_at_first(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the next session get no answer to its first question; return the number of sessions that have asked since."""
    honest, asked = sessions.read_position, []

    def read_position(connection: Any) -> tuple[str, int]:
        asked.append(connection)
        if len(asked) == 1:
            proxy.swallow()
            proxy.come_back()  # for later ones
        return honest(connection)

    monkeypatch.setattr(sessions, "read_position", read_position)
    monkeypatch.setattr(sessions, "SETUP_SECONDS", 2.5)
    return lambda: len(asked)


async def test_write_ends_though_a_new_session_gets_no_answer(
    place: PostgresPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(place.address) as proxy:
        async with opened(proxy.url, clock) as database:
            asked = silent_at_first(proxy, monkeypatch)
            place.shell().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'quotebot me'")
            assert await database.write("touch", lambda tx: tx.required("touch")["name"]) == "me"
            assert asked() >= 2


async def test_lock_is_taken_again_though_a_new_session_gets_no_answer(
    place: PostgresPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(place.address) as proxy:
        lock = LockSearch(proxy.url, "one", 0, clock).hold()
        assert lock is not None
        silent_at_first(proxy, monkeypatch)
        place.shell().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '% one %'")
        await eventually(lambda: lock.term == 1, "the lock in a new session")
        lock.close()


async def test_write_that_runs_alone_waits_for_one_batch_of_urgent_ones(place: PostgresPlace, clock: ManualClock) -> None:
    def work(tx: Tx) -> Row:
        return tx.required("touch")

    async with opened(place.address, clock) as database:
        alone = asyncio.create_task(database.write("alone", work, alone=True))
        urgent = 0
        while not alone.done() and urgent < 100:
            await database.write("urgent", work, urgent=True)
            urgent += 1
        await alone
        assert urgent <= 3


async def test_read_of_a_canceled_caller_ends_without_an_answer(
    place: PostgresPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "READ_SECONDS", 0.0)
    with Proxy(place.address) as proxy:
        async with opened(proxy.url, clock) as database:
            proxy.swallow()
            reading = asyncio.create_task(database.read(lambda tx: tx.all("writers")))
            await eventually(lambda: database._reader.session is not None and database._reader.session.call is not None, "the call")
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert database._reader.session is None, "it was given up"


async def test_lock_outlasts_a_file_of_timelines_that_cannot_be_read(place: PostgresPlace, tmp_path: Path) -> None:
    timelines = tmp_path / "timelines"
    lock = LockSearch(place.address, "one", 0, SystemClock(), timelines).hold()
    assert lock is not None
    kept = timelines.rename(tmp_path / "kept")
    timelines.mkdir()
    await eventually(lambda: not lock.is_held(), "the lock to count as lost")
    timelines.rmdir()
    kept.rename(timelines)
    await eventually(lock.is_held, "the lock")
    assert lock.term == 0
    lock.close()


def test_server_that_refuses_a_connection_answers(place: PostgresPlace) -> None:
    server = conninfo_to_dict(place.address)
    assert does_answer(server)
    assert does_answer({**server, "dbname": "unknown"})
    assert not does_answer({**server, "host": "127.0.0.1", "port": "1"})


async def test_slow_server_is_asked_though_the_threads_of_the_loop_are_busy(
    place: PostgresPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, free = threading.Event(), threading.Event()

    def answer(_: object) -> bool:
        asked.set()
        return True

    monkeypatch.setattr(sessions, "does_answer", answer)
    async with opened(place.address, clock) as database:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        busy = asyncio.create_task(asyncio.to_thread(free.wait, 60))
        while not asked.is_set() and not busy.done():  # each statement is slow enough
            await database.write("slow", lambda tx: tx.all("sleep"))
        assert not busy.done()
        free.set()
        await busy
