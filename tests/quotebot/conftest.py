"""Fixtures of the tests of the bot's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.checks.wakeups import asleep_in
from quotebot.app.installation import speak
from quotebot.domain import language
from tests.quotebot.parts import Bench, bench_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_sleeps_for_good(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test on a bench that each unfinished row of its ledger has something that wakes it."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "bench" in request.fixturenames else None
    yield
    if folder is not None:
        assert asleep_in(folder / "ledger.db") == []


@pytest.fixture
def german() -> None:
    """Let the process speak German during a test."""
    speak("de")


@pytest.fixture(autouse=True)
def english_afterwards() -> Iterator[None]:
    """Return to English after a test that spoke another language."""
    yield
    if language.current() != "en":
        speak("en")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_at(tmp_path / "ledger.db") as opened:
        yield opened
