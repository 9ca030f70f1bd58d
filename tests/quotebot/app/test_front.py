"""Tests of the acknowledging process: it and the worker end together, and its messages reach the worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from adapters.slack.api import Identity
from faults.harness.rig import bot_process
from ledger.sqlite.locks import gate_holder
from quotebot.app import front as ingress
from quotebot.app.front import LINE_BYTES_MAX, Ingress, Wire
from quotebot.app.installation import IngressEndedError
from quotebot.cli import exits
from quotebot.observability.metrics import Metrics
from quotebot.sandbox.world import World
from quotebot.slack.connections import LinkDisabledError, TokenRefusedError
from quotebot.worker_loop import (
    BUSY,
    FLOOD,
    FLOOD_SECONDS,
    LATELY,
    AckPriority,
    shared_board,
)
from tests.quotebot.parts import ManualClock
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHO = Identity(team_id="T0HOME", bot_user_id="U0BOT", bot_id="B0BOT")


def in_front_of(pid: int) -> int:
    """Return the pid of a bot's acknowledging process: its only child while nothing is rendered."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return int(child)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_front_and_worker_end_together_and_acknowledged_work_goes_on_after_restart(
    tmp_path: Path,
) -> None:
    async with World(tmp_path / "world").serve() as world, bot_process(world, tmp_path) as (bot, deal):
        await bot.start()
        await deal.slash("new for Acme: 1 pro")
        await deal.settled()
        os.kill(in_front_of(bot.pid), signal.SIGKILL)
        assert await bot.ended() == exits.UNAVAILABLE
        assert "What was acknowledged is recorded and goes on" in bot.said()

        await bot.start()
        await deal.arm("slack", "slow", method="chat.postMessage", times=1, delay=30.0)
        assert (await deal.slash("new for Beta: 1 pro"))["ack"] is not None
        front = in_front_of(bot.pid)
        await bot.kill()
        await eventually(lambda: is_gone(front), "the process in front to end after the bot's")

        await deal.clear_faults()
        await bot.start()
        await deal.settled()
        assert len(await deal.rows("SELECT 1 FROM quotes")) == len(await deal.cards()) == 2
        assert await bot.stop() == 0
        assert [row["end_reason"] for row in await deal.rows("SELECT end_reason FROM epochs ORDER BY epoch DESC LIMIT 1")] == [
            "stopped"
        ]


async def test_an_acknowledgement_does_not_wait_for_a_bot_that_stands_still(tmp_path: Path) -> None:
    async with World(tmp_path / "world").serve() as world, bot_process(world, tmp_path) as (bot, deal):
        await bot.start()
        os.kill(bot.pid, signal.SIGSTOP)
        while gate_holder(deal.data_dir / "ledger.db") is not None:  # it was stopped inside a write: wait for its end
            os.kill(bot.pid, signal.SIGCONT)
            os.kill(bot.pid, signal.SIGSTOP)
        try:
            answer = await deal.slash("new for Acme: 1 pro")
        finally:
            os.kill(bot.pid, signal.SIGCONT)
        assert answer["ack"] == {}
        await deal.settled()
        assert len(await deal.cards()) == 1


class Front:
    """The other end of an ingress, played by the test in place of the process."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.reserved = 0
        self.metrics = Metrics()

    def note(self) -> None:
        self.reserved += 1


@contextlib.asynccontextmanager
async def front() -> AsyncIterator[tuple[Ingress, Front]]:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    it, other = Ingress(process.pid, ours, shared_board()), Front(await Wire.over(theirs))
    await it.open(WHO, reserved=other.note, observer=other.metrics)
    who = {"team_id": "T0HOME", "bot_user_id": "U0BOT", "bot_id": "B0BOT", "enterprise_id": None, "url": ""}
    assert await other.wire.receive() == (ingress.OPEN, who)
    try:
        yield it, other
    finally:
        await other.wire.close()
        await it.close(0.0)


async def test_messages_of_the_front_reach_the_worker_and_the_metrics() -> None:
    async with front() as (it, other):
        for word, value in (
            (ingress.ALIVE, True),
            (ingress.COUNTED, [["connected"], ["reserved", 0.002], ["acked", "slash_commands", 0.004]]),
            (ingress.RESERVED, None),
        ):
            other.wire.tell(word, value)
        await eventually(lambda: other.reserved == 1, "the new command to be told of")

        assert await it.is_alive()
        count = other.metrics.registry.get_sample_value
        assert count("quotebot_socket_connections_total") == 1
        assert count("quotebot_reserve_seconds_sum") == 0.002
        assert count("quotebot_ack_seconds_sum", {"source": "slack_slash"}) == 0.004
        other.wire.tell(ingress.ALIVE, value=False)
        await eventually(lambda: not it._alive, "the end of the connection to be told of")


async def test_command_burst_wakes_the_worker_once_at_once_and_once_for_the_rest() -> None:
    async with front() as (_, other):
        nudge = ingress._WakeUp(other.wire)
        for _ in range(100):
            nudge()
        assert not other.wire._unsaid, "nothing is sent in the turn of the loop that sends the acknowledgement"
        await eventually(lambda: other.reserved == 2, "the others to be told of")
        await eventually(lambda: not nudge._resting, "the moment to be over")
        assert other.reserved == 2
        nudge()
        await eventually(lambda: other.reserved == 3, "one that came later to be told of")


async def test_large_counter_update_is_received_whole_and_does_not_end_the_front() -> None:
    async with front() as (it, other):
        tally = ingress._Counters()
        for _ in range(6_000):
            tally.observe_ack("slash_commands", 0.123456789012345)
            tally.observe_reserve(0.123456789012345)
        tally.tell(other.wire)
        other.wire.tell(ingress.RESERVED)
        await eventually(lambda: other.reserved == 1, "what comes after the counts to be heard")

        assert await it.is_alive() is False
        count = other.metrics.registry.get_sample_value
        assert count("quotebot_ack_seconds_count", {"source": "slack_slash"}) == 6_000
        assert count("quotebot_reserve_seconds_count") == 6_000


async def test_message_over_the_line_limit_is_refused_by_the_sender() -> None:
    ours, theirs = socket.socketpair()
    one, other = await Wire.over(ours), await Wire.over(theirs)
    with pytest.raises(ValueError, match=r"counted: 65552 bytes are more than a line holds \(65536\)"):
        one.tell(ingress.COUNTED, "x" * LINE_BYTES_MAX)
    one.tell(ingress.COUNTED, "x" * (LINE_BYTES_MAX - 16))
    assert await other.receive() == (ingress.COUNTED, "x" * (LINE_BYTES_MAX - 16))
    await one.close()
    await other.close()


async def test_workers_see_acks_pending_in_a_forked_process_through_shared_memory() -> None:
    clock, board = ManualClock(), shared_board()
    workers = AckPriority(clock)
    workers.follow(board)
    quiet = (workers.busy, workers.flooded)
    if (pid := os.fork()) == 0:
        socket_side = AckPriority(clock, board)
        for _ in range(FLOOD):
            socket_side.begin()
            socket_side.reserving()
        os._exit(0)
    await asyncio.to_thread(os.waitpid, pid, 0)
    assert (quiet, workers.busy, workers.flooded) == ((False, False), True, True)
    assert await workers.turn() == BUSY
    for _ in range(FLOOD):
        workers.end()
    clock.advance(round(FLOOD_SECONDS * 1000) + 1)
    assert (workers.busy, workers.flooded) == (False, False)
    assert await workers.turn() == LATELY


@pytest.mark.parametrize(
    ("word", "value", "error"),
    [
        (ingress.REFUSED, "invalid_auth", TokenRefusedError),
        (ingress.DISABLED, None, LinkDisabledError),
        (None, None, IngressEndedError),
    ],
)
async def test_end_of_the_front_ends_the_bot_with_the_same_error(word: str | None, value: object, error: type[Exception]) -> None:
    async with front() as (it, other):
        if word is None:
            await other.wire.close()
        else:
            other.wire.tell(word, value)
        with pytest.raises(error, match=None if value is None else str(value)):
            await it.run()
        assert not await it.is_alive()


async def test_silent_front_is_killed_and_ends_the_bot() -> None:
    ours, theirs = socket.socketpair()
    hanging = await asyncio.create_subprocess_exec("sleep", "60")
    it, other = Ingress(hanging.pid, ours, shared_board(), silent_seconds=0.01), Front(await Wire.over(theirs))
    await it.open(WHO, reserved=other.note, observer=other.metrics)
    with pytest.raises(IngressEndedError):
        await it.run()
    assert await hanging.wait() == -signal.SIGKILL
    await it.close(0.0)
    await other.wire.close()


async def test_incomplete_line_of_a_killed_front_is_treated_as_its_end() -> None:
    ours, theirs = socket.socketpair()
    wire = await Wire.over(ours)
    theirs.sendall(b'["reserved", null]\n["acked", ["slash_')
    theirs.close()
    assert await wire.receive() == ("reserved", None)
    assert await wire.receive() is None
    wire.tell("close", 1.0)
    await wire.close()
