from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from quotebot import words
from quotebot.app import LedgerInUseError, run_bot
from quotebot.sandbox.world import World
from tests.quotebot.parts import gate_held
from tests.rig import Deal, bot_in, eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RECONNECT_SECONDS = 10.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world", ack_seconds=0.5).serve() as served:
        yield served


async def reconnected(world: World, deal: Deal) -> None:
    """Wait until the old connection is gone and a command is answered over a new one."""
    await eventually(lambda: world.socket.connections == 0, "the connection to be cut", RECONNECT_SECONDS)
    await answered(deal, "help")


async def answered(deal: Deal, text: str) -> None:
    """Type a command until it is answered, as a person does; one typed while there is no connection is lost."""

    async def once() -> bool:
        return (await deal.slash(text))["ack"] is not None

    await eventually(once, f"an answer to /quote {text}", RECONNECT_SECONDS)


async def test_after_a_disconnect_it_connects_again_and_works(world: World, deal: Deal) -> None:
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    await answered(deal, "new for Acme: 1 pro")
    await deal.settled()
    assert await deal.cards()


async def test_a_refused_ticket_is_thrown_away_and_a_new_one_asked_for(world: World, deal: Deal) -> None:
    await deal.arm("socket", "refuse_ticket")
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    assert len([link for link in await deal.witness("link") if not link["applied"]]) == 1
    await answered(deal, "new for Acme: 1 pro")
    await deal.settled()
    assert await deal.cards()


async def test_a_disconnect_costs_one_new_connection(world: World, deal: Deal) -> None:
    await deal.arm("socket", "disconnect")
    await reconnected(world, deal)
    await answered(deal, "help")
    assert len(await deal.witness("apps.connections.open")) == 2


async def test_a_first_ticket_refused_at_start_is_survived(world: World, tmp_path: Path) -> None:
    world.weather.arm("socket", "refuse_ticket")
    async with asyncio.timeout(RECONNECT_SECONDS), bot_in(world, tmp_path / "bot") as deal:
        assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]


@pytest.mark.parametrize("kind", ["resend", "retry"])
async def test_after_a_lost_ack_the_redelivery_is_answered_from_the_ledger(deal: Deal, kind: str) -> None:
    await deal.arm("socket", "drop_ack")
    lost = await deal.slash()
    assert (lost["ack"], lost["error"]) == (None, "operation_timeout")
    await deal.settled()
    acks = await deal.redeliver(lost["request_id"], kind, 2)
    assert [ack["ack"]["text"].partition(":")[0] for ack in acks] == ["Created Q-2026-0001 for Acme"] * 2
    await deal.settled()
    assert len(await deal.cards()) == len(await deal.rows("SELECT 1 FROM operations")) == 1


async def test_an_event_it_takes_no_interest_in_is_acknowledged_once(deal: Deal) -> None:
    answer = await deal.post("message", user="U0REP", channel="C0DEALS", text="lunch?")
    assert answer["ack"] == {}
    assert await deal.rows("SELECT 1 FROM operations") == []


async def test_while_it_closes_the_last_command_is_acknowledged_and_a_new_one_is_not(tmp_path: Path) -> None:
    """What it will not execute it must not acknowledge: the world delivers it again to the next bot."""
    async with World(tmp_path / "world", ack_seconds=1.0).serve() as world, aiohttp.ClientSession() as session:
        stop = asyncio.Event()
        bot = asyncio.create_task(run_bot(settings_for(world, tmp_path / "bot"), stop))
        await eventually(lambda: world.socket.connections > 0, "the bot to connect")
        deal = Deal(world.url, tmp_path / "bot", session)
        with gate_held(deal.data_dir / "ledger.db"):
            last = asyncio.create_task(deal.slash("new for Last: 1 pro"))
            await eventually(lambda: len(world.socket._waiting) == 1, "the last command to be delivered")
            stop.set()
            too_late = asyncio.create_task(deal.slash("new for Late: 1 pro"))
            await eventually(lambda: len(world.socket._waiting) == 2, "a later one to be delivered")
        acknowledged, late = await last, await too_late
        await asyncio.wait_for(bot, 15.0)
        assert late["ack"] is None
        assert acknowledged["ack"]["text"].startswith(words.working(""))
        assert len(await deal.rows("SELECT 1 FROM operations")) == 1
        async with bot_in(world, deal.data_dir) as next_bot:
            await next_bot.redeliver(late["request_id"], "retry", 1)
            await next_bot.settled()
            assert len(await next_bot.cards()) == 2


async def test_one_ledger_has_one_bot(world: World, deal: Deal) -> None:
    with pytest.raises(LedgerInUseError, match="Another bot is running") as refused:
        await run_bot(settings_for(world, deal.data_dir), asyncio.Event())
    assert "This one did nothing" in str(refused.value)
    assert (await deal.slash())["ack"]["text"].startswith(words.working(""))
    await deal.settled()
