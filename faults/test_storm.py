"""A small kill storm in every run; `python -m faults.storm` makes larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.storm import run_storm

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 6


async def test_a_bot_killed_at_random_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    storm = await run_storm(tmp_path, seed=1, kills=KILLS)
    assert storm.kills == KILLS
    assert len(storm.acked) >= 1
