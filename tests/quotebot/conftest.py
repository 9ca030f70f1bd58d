"""What tests of the bot's core share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.quotebot.parts import Bench, bench_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_at(tmp_path / "ledger.db") as opened:
        yield opened
