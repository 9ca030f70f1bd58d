"""Tests that a damaged file is detected, reported in words, and stops the bot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger.database import DamagedError
from ledger.sqlite.connections import check_integrity, damage
from quotebot.jobs.maintenance import Housekeeper, Job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.parts import Desk, ManualClock

PAGE = 4096


@pytest.fixture
async def damaged(desk: Desk, path: Path) -> Path:
    """Return a copy of a ledger in which a used page is overwritten, as by a failing disk."""
    for number in range(40):
        await desk.reserve(f"r{number}")
    desk.shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = desk.shell.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'operations'")
    content = bytearray(await asyncio.to_thread(path.read_bytes))
    content[(root - 1) * PAGE : (root - 1) * PAGE + 61] = b"\x05" + b"\xff" * 60
    copy = path.with_name("damaged.db")
    await asyncio.to_thread(copy.write_bytes, content)
    return copy


async def test_a_whole_file_has_no_problems_while_it_is_written(desk: Desk, path: Path) -> None:
    await asyncio.gather(desk.reserve("r1"), check_integrity(path), desk.reserve("r2"))
    assert damage(path) == []


async def test_damage_is_named_and_what_to_do_about_it(damaged: Path) -> None:
    assert damage(damaged)
    with pytest.raises(DamagedError, match=r"(?s)is damaged: .* the bot ends, .* newest backup"):
        await check_integrity(damaged)


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    assert damage(path) == ["file is not a database"]


async def test_damage_ends_the_housekeeper_which_ends_the_bot(damaged: Path, clock: ManualClock) -> None:
    keeper = Housekeeper([Job("integrity", 60, lambda: check_integrity(damaged))], clock)
    with pytest.raises(DamagedError):
        await keeper.step()


async def test_a_job_that_can_wait_is_done_when_its_first_time_has_come(clock: ManualClock) -> None:
    done: list[str] = []

    async def note() -> None:
        done.append("done")

    keeper = Housekeeper([Job("late", 60, note, first_seconds=30)], clock)
    assert await keeper.step() == []
    clock.advance(30_000)
    assert await keeper.step() == ["late"]
    clock.advance(30_000)
    assert await keeper.step() == []


async def test_a_job_of_the_whole_ledger_is_done_by_the_leader_and_at_once_by_a_new_one(clock: ManualClock) -> None:
    leading = [False]

    async def leads() -> bool:
        return leading[0]

    async def nothing() -> None:
        pass

    keeper = Housekeeper([Job("own", 60, nothing), Job("shared", 60, nothing, leader=True)], clock, leads=leads)
    assert await keeper.step() == ["own"]
    leading[0] = True
    assert await keeper.step() == ["shared"]
    clock.advance(59_000)
    assert await keeper.step() == []
