"""Fixtures: a real SQLite file per test, a manual clock, and a second plain connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.checks.wakeups import asleep_in
from ledger.ledger import Ledger
from ledger.operator.dead_letters import DeadLetters
from ledger.recovery import begin_epoch
from tests.fresh import lay
from tests.ledger.parts import AUDIT, MIGRATIONS, Desk, ManualClock, open_database, open_shell

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ledger.sqlite.engine import SqliteDatabase


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture(autouse=True)
def nothing_sleeps_for_good(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test on a ledger that each unfinished row has something that wakes it."""
    file: Path | None = request.getfixturevalue("path") if "database" in request.fixturenames else None
    yield
    if file is not None:
        assert asleep_in(file) == []


@pytest.fixture
async def database(path: Path, clock: ManualClock) -> AsyncIterator[SqliteDatabase]:
    lay(path, MIGRATIONS, clock.now_ms())
    opened = await open_database(path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def shell(database: SqliteDatabase, path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection of a second program to the same file."""
    connection = open_shell(path)
    yield connection
    connection.close()


@pytest.fixture
async def ledger(database: SqliteDatabase, clock: ManualClock) -> Ledger:
    """Return the ledger of a bot: it has an epoch, so it may claim."""
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
    return Ledger(database, clock, AUDIT, epoch=epoch)


@pytest.fixture
def desk(ledger: Ledger, clock: ManualClock, shell: sqlite3.Connection) -> Desk:
    return Desk(ledger, clock, shell)


@pytest.fixture
def letters(ledger: Ledger) -> DeadLetters:
    return DeadLetters(ledger, build="1.1")
