"""Fixtures: a real ledger per test, a manual clock, and the connection of a second program."""

from __future__ import annotations

import functools
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from faults.checks.wakeups import asleep_for_good
from ledger.ledger import Ledger
from ledger.operator.dead_letters import DeadLetters
from ledger.recovery import begin_epoch
from tests.ledger.parts import AUDIT, HISTORY, Desk, ManualClock
from tests.ledger.places import SqlitePlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ledger.database import Database
    from tests.ledger.places import Place, Shell


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def engine_name(request: pytest.FixtureRequest) -> str:
    """Return the engine of the test's ledgers."""
    name: str = request.param
    return name


@pytest.fixture
def place(engine_name: str, path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """Yield an empty ledger."""
    if engine_name == "sqlite":
        with closing(SqlitePlace(path)) as made:
            yield made
    else:
        with closing(on_postgres(request)) as database:
            yield database
        request.getfixturevalue("postgres").drop(database.address)


def on_postgres(request: pytest.FixtureRequest) -> Place:
    """Create an empty ledger on the worker's server."""
    from tests.ledger.postgres.places import create  # noqa: PLC0415 -- imports the driver

    return create(request.getfixturevalue("postgres"))


@pytest.fixture(scope="session")
def kept_places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Place]]:
    """Yield a function that returns an empty ledger, the same one each time: its tests roll back what they write."""
    with ExitStack() as until_the_end:

        @functools.cache
        def kept(engine_name: str) -> Place:
            on_sqlite = engine_name == "sqlite"
            made = SqlitePlace(tmp_path_factory.mktemp("kept") / "ledger.db") if on_sqlite else on_postgres(request)
            return until_the_end.enter_context(closing(made))

        yield kept


@pytest.fixture
def kept_place(engine_name: str, kept_places: Callable[[str], Place]) -> Place:
    """Return an empty ledger that many tests share. A test rolls back what it writes."""
    return kept_places(engine_name)


@pytest.fixture(autouse=True)
def nothing_sleeps_for_good(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test on a ledger that each unfinished row has something that wakes it."""
    place: Place | None = request.getfixturevalue("place") if "database" in request.fixturenames else None
    yield
    if place is not None:
        assert asleep_for_good(place.shell()) == []


@pytest.fixture
async def database(place: Place, clock: ManualClock) -> AsyncIterator[Database]:
    opened = await place.open(clock)
    yield opened
    await opened.close()


@pytest.fixture
def shell(database: Database, place: Place) -> Shell:
    """Return the connection of a second program to the open ledger."""
    return place.shell()


@pytest.fixture
async def ledger(database: Database, clock: ManualClock) -> Ledger:
    """Return the ledger of a bot: it has an epoch, so it may claim."""
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
    return Ledger(database, clock, AUDIT, epoch=epoch)


@pytest.fixture
def desk(ledger: Ledger, clock: ManualClock, shell: Shell) -> Desk:
    return Desk(ledger, clock, shell)


@pytest.fixture
def grown(desk: Desk) -> Desk:
    """Return a ledger with thousands of finished rows."""
    for statement in ("BEGIN", *HISTORY.split(";\n")[:-1], "COMMIT"):
        desk.shell.execute(statement)
    return desk


@pytest.fixture
def letters(ledger: Ledger) -> DeadLetters:
    return DeadLetters(ledger, build="1.1")
