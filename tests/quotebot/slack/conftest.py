"""A served world and the real bot in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from quotebot.sandbox.world import World
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def deal(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    async with bot_in(world, tmp_path / "bot") as running:
        yield running
