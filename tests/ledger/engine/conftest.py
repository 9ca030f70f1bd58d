"""Fixtures: every engine, each with its own notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.engine.parts import Engine, SqliteEngine, open_book

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger.sqlite.engine import SqliteDatabase
    from tests.ledger.parts import ManualClock


@pytest.fixture(params=["sqlite", "sqlite at once"])
def engine(request: pytest.FixtureRequest, path: Path, clock: ManualClock, checkout: Path) -> Engine:
    return SqliteEngine(path, clock, checkout, at_once=request.param == "sqlite at once")


@pytest.fixture(params=["sqlite"])
def waiting_engine(path: Path, clock: ManualClock, checkout: Path) -> Engine:
    """Return an engine that does not block the loop: for work that waits for the test's own actions."""
    return SqliteEngine(path, clock, checkout)


@pytest.fixture
async def book(path: Path, clock: ManualClock) -> AsyncIterator[SqliteDatabase]:
    opened = await open_book(path, clock)
    yield opened
    await opened.close()
