"""A served world for every fault test."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from faults.rig import BotProcess, Deal, bot_process
from faults.wakeups import asleep_in
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector away from what stays for the whole run: thousands of tests would be looked through again and again."""
    del session
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Return a local world that is being served."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def rig(world: World, tmp_path: Path) -> AsyncIterator[tuple[BotProcess, Deal]]:
    """Return a bot process that is not started yet, and the hands for it."""
    async with bot_process(world, tmp_path) as pair:
        yield pair
    ledger = tmp_path / "bot" / "ledger.db"
    if ledger.exists():
        assert asleep_in(ledger) == []
