"""Tests of the sessions of a PostgreSQL engine: what they do when the server, the schema or the network changes under them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from faults.cluster.proxy import Proxy
from ledger.database import MissingRow
from ledger.postgres import sessions
from ledger.postgres.engine import PostgresDatabase
from ledger.postgres.replicas import LockSearch
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ledger.database import Tx
    from tests.ledger.parts import ManualClock
    from tests.ledger.postgres.places import PostgresPlace

STATEMENTS = {
    "writers": "SELECT w.*, w.writer AS name FROM writers AS w ORDER BY w.writer",
    "touch": "UPDATE writers SET taken_at = taken_at RETURNING *, writer AS name",
    "wrong": "SELECT 1 / 0 AS n",
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
    monkeypatch.setattr(sessions, "SETUP_SECONDS", 1.0)
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
