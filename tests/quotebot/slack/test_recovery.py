"""Tests of the reconnection to Slack after every kind of break: commands typed meanwhile are neither lost nor repeated."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from quotebot.app.bot import run_bot
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError
from quotebot.slack.connections import CROWDED_SECONDS_MAX, PAUSE_SECONDS_MAX, TOO_MANY, pause_seconds
from tests.quotebot.parts import gate_held
from tests.rig import Deal, bot_in, eventually, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Fault = tuple[str, str, dict[str, Any]]  # target, effect, and the rest
BACK_SECONDS = 3.0
NOISE_SECONDS = 1.0  # tolerance on a busy machine: the goal is BACK_SECONDS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a world with a short acknowledgement timeout, so that commands on a dead connection are soon known to be lost."""
    async with World(tmp_path / "world", ack_seconds=0.25).serve() as served:
        yield served


async def trouble(deal: Deal, *faults: Fault) -> None:
    for target, effect, more in faults:
        await deal.arm(target, effect, **more)


def opening(effect: str, **more: Any) -> Fault:
    return ("slack", effect, {"method": "apps.connections.open", **more})


CUT: Fault = ("socket", "disconnect", {})
TROUBLES: dict[str, list[Fault]] = {
    "cut": [CUT],
    "refused tickets": [("socket", "refuse_ticket", {"times": 3}), CUT],
    "no ticket: Slack's servers fail": [opening("5xx", times=3), CUT],
    "no ticket: too many requests": [opening("429", retry_after=1), CUT],
    "no ticket: cut off": [opening("reset_before", times=2), CUT],
    "no ticket: unreadable": [opening("malformed", times=2), CUT],
    "half open": [("socket", "half_open", {"seconds": 60})],
    "never greeted": [("socket", "no_hello", {}), CUT],
    "warned, then cut": [("socket", "disconnect", {"method": "warning"}), CUT],
    "two cuts at once": [CUT, CUT],
    "reset": [("socket", "reset", {})],
    "all places taken": [("socket", "too_many_websockets", {"times": 2}), CUT],
}


@pytest.mark.parametrize("faults", TROUBLES.values(), ids=TROUBLES.keys())
async def test_the_bot_is_back_in_time_and_what_was_typed_meanwhile_is_done_once(deal: Deal, faults: list[Fault]) -> None:
    await deal.slash("new for Before: 1 pro")
    await deal.settled()
    began = time.monotonic()
    await trouble(deal, *faults)
    typed = await deal.slash("new for Meanwhile: 1 pro")

    async def answered() -> bool:
        return (await deal.slash("help"))["ack"] is not None

    await eventually(answered, "the bot to be back", BACK_SECONDS + NOISE_SECONDS)
    assert time.monotonic() - began < BACK_SECONDS + NOISE_SECONDS
    again = await deal.redeliver(typed["request_id"], "retry", 2)
    assert all(ack["ack"] is not None for ack in again)
    await deal.settled()
    assert len(await deal.rows("SELECT 1 FROM quotes")) == len(await deal.cards()) == 2


async def test_a_storm_of_disconnects_is_not_answered_by_a_storm_of_connections(world: World, deal: Deal) -> None:
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        await deal.arm("socket", "disconnect", method="refresh_requested")
        await eventually(lambda: world.socket.connections > 0, "the next connection", BACK_SECONDS + NOISE_SECONDS)
    assert len(await deal.witness("apps.connections.open")) <= 8  # by doubling pauses; without one it would be dozens
    assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]


async def test_a_warning_leaves_no_gap_what_comes_over_the_old_connection_is_answered(world: World, deal: Deal) -> None:
    await deal.arm("socket", "disconnect", method="warning")
    await eventually(lambda: world.socket.connections == 2, "the next connection beside the old one")
    acks = [(await deal.slash("help"))["ack"] for _ in range(8)]  # over either of them, at random
    assert all("Quotebot" in ack["text"] for ack in acks)


async def test_with_two_connections_one_that_dies_is_not_noticed_by_anybody(world: World, tmp_path: Path) -> None:
    async with bot_in(world, tmp_path / "bot", socket_connections=2) as deal:
        await eventually(lambda: world.socket.connections == 2, "both connections")
        acks = await asyncio.gather(*(deal.slash(f"new for Acme {n}: 1 pro") for n in range(12)))
        assert all(ack["ack"] == {} for ack in acks)
        await world.socket._connections[0].socket.close()
        assert "Quotebot" in (await deal.slash("help"))["ack"]["text"]
        await eventually(lambda: world.socket.connections == 2, "the lost one to be replaced")
        await deal.settled()
        assert len(await deal.cards()) == 12


async def test_an_ack_whose_connection_is_gone_leaves_over_the_next_one(world: World, deal: Deal) -> None:
    """The reservation is delayed while the connection is replaced; Slack accepts an acknowledgement over any connection."""
    world.socket._ack_seconds = 3.0
    with gate_held(deal.data_dir / "ledger.db"):
        typed = asyncio.create_task(deal.slash("new for Acme: 1 pro"))
        await eventually(lambda: world.socket.is_waiting, "the command to be delivered")
        await deal.arm("socket", "disconnect")
        await eventually(lambda: world.socket.connections == 0, "the connection to be cut")
    assert (await typed)["ack"] == {}
    await deal.settled()


async def test_an_event_whose_ack_was_lost_comes_again_by_itself_and_is_done_once(deal: Deal) -> None:
    await deal.arm("socket", "drop_ack", method="events_api")
    assert (await deal.post("home", user="U0REP"))["ack"] is None

    async def retried() -> bool:
        return [ack["status"] for ack in await deal.witness("ack")] == [None, 200]

    await eventually(retried, "the retry to be acknowledged")
    await deal.settled()
    assert len(await deal.witness("views.publish")) == len(await deal.rows("SELECT 1 FROM operations")) == 1


@pytest.mark.parametrize("kind", ["resend", "retry"])
async def test_click_with_a_lost_ack_is_acknowledged_empty_on_redelivery_and_counts_once(deal: Deal, kind: str) -> None:
    await deal.slash("new for Acme: 1 pro")
    await deal.settled()
    await deal.arm("socket", "drop_ack", method="interactive")
    lost = await deal.click("quote.cancel", user="U0REP")
    acks = await deal.redeliver(lost["request_id"], kind, 2)
    assert (lost["ack"], [ack["ack"] for ack in acks]) == (None, [{}, {}])
    await deal.settled()
    assert [row["outcome"] for row in await deal.rows("SELECT outcome FROM operations ORDER BY id")] == ["applied", "applied"]


async def test_link_disabled_ends_the_bot_with_words(world: World, tmp_path: Path) -> None:
    bot = asyncio.create_task(run_bot(settings_for(world, tmp_path / "bot"), asyncio.Event()))
    await eventually(lambda: world.socket.connections == 1, "the bot to connect")
    async with aiohttp.ClientSession() as session:
        await Deal(world.url, tmp_path / "bot", session).arm("socket", "disconnect", method="link_disabled")
    with pytest.raises(ConfigurationError, match="Socket Mode off for this app") as said:
        await asyncio.wait_for(bot, 60.0)
    assert "recorded and goes on at the next start" in str(said.value)
    assert len([1 for seen in world.witness.since() if seen.method == "apps.connections.open"]) == 1


def test_pauses_double_up_to_their_bound_and_only_after_what_came_to_nothing() -> None:
    most = [pause_seconds(failures, "cut", lambda _, high: high) for failures in range(8)]
    assert most == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    crowded = [pause_seconds(failures, TOO_MANY, lambda _, high: high) for failures in range(1, 9)]
    assert crowded == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    for failures in (0, 1, 10, 10**6):
        assert 0 <= pause_seconds(failures, "cut", lambda low, _: low) <= PAUSE_SECONDS_MAX / 2
        assert pause_seconds(failures, TOO_MANY, lambda low, _: low) <= CROWDED_SECONDS_MAX / 2
