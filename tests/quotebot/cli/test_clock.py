"""Tests of a wrong clock: a jump, a downtime, a clock that Slack contradicts, and a person's confirmation; none ends a quote."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger.clock import SystemClock
from quotebot.app.bot import Ports, run_bot
from quotebot.cli import terminal
from quotebot.sandbox.world import World
from tests.rig import bot_in, eventually, read_ledger, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run
    from tests.rig import Deal

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLOCK = "SELECT event_type, actor, after FROM audit_events WHERE aggregate_id = 'clock' ORDER BY id"


class JumpingClock(SystemClock):
    """The machine's clocks, with a wall clock that tests set forward and back."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def seconds(self) -> float:
        return self.now_ms() / 1000


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


def ports(clock: JumpingClock) -> Ports:
    return Ports(clock=clock, draw=lambda low, _: low)


def events(folder: Path) -> list[tuple[str, str | None]]:
    """Return the audit events about the clock, each with its cause."""
    found = read_ledger(folder / "bot" / "ledger.db", CLOCK)
    return [(row["event_type"].removeprefix("clock."), json.loads(row["after"])["cause"]) for row in found]


async def recorded(folder: Path, *expected: tuple[str, str]) -> None:
    await eventually(lambda: events(folder) == list(expected), f"{expected} in the audit")


async def states(deal: Deal) -> list[str]:
    return [row["state"] for row in await deal.rows("SELECT state FROM quotes ORDER BY quote_id")]


async def three_quotes(deal: Deal) -> None:
    """Make three quotes; the last waits for its approval."""
    for customer in ("Acme", "Beta"):
        await deal.slash(f"new for {customer}: 5 pro")
    await deal.settled()
    await deal.submitted_deal()
    await deal.settled()
    assert await states(deal) == ["priced", "priced", "pending_approval"]


# -------------------------------------------------------------------------------------------------------------- a jump


@pytest.mark.parametrize("days", [60, -60])
async def test_a_jump_of_sixty_days_for_seconds_ends_nothing(tmp_path: Path, clock: JumpingClock, days: int) -> None:
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot", ports(clock)) as deal:
        await three_quotes(deal)
        clock.ahead_ms = days * DAY_MS
        await recorded(tmp_path, ("suspended", "slack"))
        await deal.click("approval.approve", user="U0MANAGER")  # valid_until is tested by the time it would be
        await deal.settled()
        assert await states(deal) == ["priced", "priced", "approved"]
        clock.ahead_ms = 0
        await recorded(tmp_path, ("suspended", "slack"), ("resumed", "slack"))
        assert await states(deal) == ["priced", "priced", "approved"]
        assert await deal.rows("SELECT 1 FROM audit_events WHERE event_type GLOB 'retention.*'") == []


async def test_a_quote_made_under_a_wrong_clock_is_valid_as_long_as_any(tmp_path: Path, clock: JumpingClock) -> None:
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot", ports(clock)) as deal:
        await deal.slash("new for Acme: 5 pro")
        await deal.settled()
        clock.ahead_ms = 400 * DAY_MS
        await recorded(tmp_path, ("suspended", "slack"))
        await deal.slash("new for Beta: 5 pro")
        await deal.settled()
        first, second = await deal.rows("SELECT quote_id, valid_until FROM quotes ORDER BY quote_id")
    assert abs(first["valid_until"] - second["valid_until"]) < HOUR_MS
    assert first["quote_id"][:6] == second["quote_id"][:6]  # of the same year


async def test_a_sleep_of_the_machine_that_slack_confirms_suspends_nothing(tmp_path: Path, clock: JumpingClock) -> None:
    """The wall clock continues while a laptop sleeps; the monotonic clock does not."""
    async with (
        World(tmp_path / "world", now=clock.seconds).serve() as world,
        bot_in(world, tmp_path / "bot", ports(clock)) as deal,
    ):
        await three_quotes(deal)
        clock.ahead_ms = 60 * DAY_MS
        await eventually(lambda: all_expired(deal), "every quote to expire")
    assert events(tmp_path) == []


async def all_expired(deal: Deal) -> bool:
    return set(await states(deal)) == {"expired"}


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_leap_of_an_hour_suspends_nothing(tmp_path: Path, clock: JumpingClock, hours: int) -> None:
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot", ports(clock)) as deal:
        clock.ahead_ms = hours * HOUR_MS
        await deal.slash("new for Acme: 5 pro")
        await deal.settled()
    assert events(tmp_path) == []


# -------------------------------------------------------------------------------------------------------------- a start


@pytest.mark.parametrize("downtime_ms", [2 * 60_000, 64 * HOUR_MS, 40 * DAY_MS])
async def test_no_downtime_suspends_anything_when_slack_agrees(tmp_path: Path, clock: JumpingClock, downtime_ms: int) -> None:
    async with World(tmp_path / "world", now=clock.seconds).serve() as world:
        async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
            await three_quotes(deal)
        clock.ahead_ms = downtime_ms
        async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
            if downtime_ms > 30 * DAY_MS:
                await eventually(lambda: all_expired(deal), "every quote to expire")
            else:
                await deal.slash("new for Gamma: 5 pro")
                await deal.settled()
                assert (await states(deal))[:2] == ["priced", "priced"]
    assert events(tmp_path) == []


async def test_a_start_under_a_wrong_clock_waits_until_it_is_right(tmp_path: Path, clock: JumpingClock) -> None:
    async with World(tmp_path / "world").serve() as world:
        async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
            await three_quotes(deal)
        clock.ahead_ms = 60 * DAY_MS
        for _ in range(2):  # it survives a restart
            async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
                await recorded(tmp_path, ("suspended", "slack"))
                assert await states(deal) == ["priced", "priced", "pending_approval"]
        clock.ahead_ms = 0
        async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
            await recorded(tmp_path, ("suspended", "slack"), ("resumed", "slack"))
            assert await states(deal) == ["priced", "priced", "pending_approval"]


# ----------------------------------------------------------------------------------------------------- without Slack


@contextlib.asynccontextmanager
async def without_slack(tmp_path: Path, clock: JumpingClock, **overrides: Any) -> AsyncIterator[None]:
    """Run a bot on the ledger of an earlier one, 64 hours later, while Slack does not answer."""
    async with World(tmp_path / "world").serve() as world:
        async with bot_in(world, tmp_path / "bot", ports(clock)) as deal:
            await three_quotes(deal)
            await deal.arm("slack", "5xx", seconds=600)
        clock.ahead_ms = 64 * HOUR_MS
        stop = asyncio.Event()
        bot = asyncio.create_task(run_bot(settings_for(world, tmp_path / "bot", **overrides), stop, ports(clock)))
        try:
            await recorded(tmp_path, ("suspended", "unknown"))
            yield
        finally:
            stop.set()
            await bot


async def test_without_slack_a_person_confirms_the_clock(quotebot: Run, tmp_path: Path, clock: JumpingClock) -> None:
    async def command(*arguments: str) -> tuple[int, dict[str, Any]]:
        ended = await asyncio.to_thread(quotebot, *arguments, "--json")
        return ended.returncode, json.loads(ended.stdout)

    async with without_slack(tmp_path, clock):
        status, told = await command("clock", "status")
        assert (status, told["trusted"], told["suspension"]["cause"]) == (3, False, "unknown")
        assert (await command("doctor", "--only", "clock.trusted"))[0] == 3
        pruned = await asyncio.to_thread(quotebot, "ledger", "prune")
        assert (pruned.returncode, "The clock is suspended" in pruned.stderr) == (3, True)
        status, told = await command("clock", "confirm")
        assert (status, told["outcome"]) == (0, "confirmed")
        assert (await command("clock", "confirm"))[0] == 4
        assert (await command("clock", "status"))[0] == 0
        assert (await command("audit", "verify"))[0] == 0
    newest = read_ledger(tmp_path / "bot" / "ledger.db", CLOCK)[-1]
    assert (newest["event_type"], newest["actor"]) == ("clock.confirmed", terminal.user())
    assert json.loads(newest["after"])["terminal_user"] == terminal.user()


async def test_a_clock_that_slack_contradicts_cannot_be_confirmed(quotebot: Run, tmp_path: Path, clock: JumpingClock) -> None:
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot", ports(clock)):
        clock.ahead_ms = 60 * DAY_MS
        await recorded(tmp_path, ("suspended", "slack"))
        refused = await asyncio.to_thread(quotebot, "clock", "confirm")
        assert (refused.returncode, refused.stdout) == (3, "")
        assert "about 60 d ahead" in refused.stderr
        assert "set this machine's clock" in refused.stderr
    assert events(tmp_path) == [("suspended", "slack")]


def test_a_trusted_clock_needs_no_confirmation(command: Run, dead: Path) -> None:
    assert dead.exists()
    assert command("clock", "status").stdout == "The clock is trusted.\n"
    assert (command("clock", "confirm").returncode, events(dead.parent.parent)) == (4, [])
