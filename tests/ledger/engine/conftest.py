"""Fixtures: every engine, each with its own notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.engine.parts import POSTGRES_SCHEMA, Engine, PostgresEngine, SqliteEngine, open_book

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import ManualClock


@pytest.fixture(params=["sqlite", "sqlite at once"])
def sqlite_engine(request: pytest.FixtureRequest, path: Path, clock: ManualClock, checkout: Path) -> SqliteEngine:
    return SqliteEngine(path, clock, checkout, at_once=request.param == "sqlite at once")


@pytest.fixture(params=["sqlite", "sqlite at once", "postgres"])
def engine(request: pytest.FixtureRequest, path: Path, clock: ManualClock, checkout: Path) -> Engine:
    if request.param == "postgres":
        found: Engine = request.getfixturevalue("postgres_engine")
        return found
    return SqliteEngine(path, clock, checkout, at_once=request.param == "sqlite at once")


@pytest.fixture(params=["sqlite", "postgres"])
def waiting_engine(request: pytest.FixtureRequest, path: Path, clock: ManualClock, checkout: Path) -> Engine:
    """Return an engine that does not block the loop: for work that waits for the test's own actions."""
    if request.param == "postgres":
        found: Engine = request.getfixturevalue("postgres_engine")
        return found
    return SqliteEngine(path, clock, checkout)


@pytest.fixture
def postgres_engine(create_database: Callable[[Sequence[str]], str], clock: ManualClock, checkout: Path) -> PostgresEngine:
    return PostgresEngine(create_database([POSTGRES_SCHEMA]), clock, checkout)


@pytest.fixture
async def book(path: Path, clock: ManualClock) -> AsyncIterator[SqliteDatabase]:
    opened = await open_book(path, clock)
    yield opened
    await opened.close()
