"""Tests of the sessions of a PostgreSQL engine: what they do when the server, the schema or the network changes under them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ledger.postgres.engine import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.ledger.parts import ManualClock
    from tests.ledger.postgres.places import PostgresPlace

STATEMENTS = {
    "writers": "SELECT w.*, w.writer AS name FROM writers AS w ORDER BY w.writer",
    "touch": "UPDATE writers SET taken_at = taken_at RETURNING *, writer AS name",
    "sleep": "SELECT pg_sleep(1.2)",
}


@pytest.fixture
def engine_name() -> str:
    return "postgres"


@asynccontextmanager
async def opened(place: PostgresPlace, clock: ManualClock, **options: Any) -> AsyncIterator[PostgresDatabase]:
    """Yield a database with these statements."""
    database = await PostgresDatabase.open(place.address, statements=STATEMENTS, clock=clock, writer="me", **options)
    yield database
    await database.close()


async def test_column_that_a_newer_build_adds_is_no_trouble_to_open_sessions(place: PostgresPlace, clock: ManualClock) -> None:
    async with opened(place, clock) as database:
        for _ in range(2):
            read = await database.read(lambda tx: tx.required("writers")["name"])
            written = await database.write("touch", lambda tx: tx.required("touch")["name"])
            assert (read, written) == ("me", "me")
            place.shell().execute("ALTER TABLE writers ADD COLUMN IF NOT EXISTS newer TEXT NOT NULL DEFAULT 'newer'")
