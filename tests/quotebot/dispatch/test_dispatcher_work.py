"""Tests of the dispatcher: lanes, sleeps, wake-ups, drains, and independence of the classes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from adapters.policies import POLICIES
from ledger.database import NotRecorded
from ledger.ownership import SoleOwner
from quotebot.commands.payloads import SubmitQuote
from quotebot.worker_loop import POLL_SECONDS, nap_seconds
from tests.quotebot.deeds import DONE, Round, transient
from tests.quotebot.parts import request_for
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Database, Tx
    from ledger.records import Delivered, Effect, FollowUps
    from tests.quotebot.parts import Bench


AT_ONCE = POLICIES["crm.create"].concurrency
T = TypeVar("T")


@pytest.fixture
def play(bench: Bench) -> Round:
    return Round(bench)


async def test_one_lane_is_served_in_order_and_lanes_run_side_by_side(play: Round) -> None:
    gate = asyncio.Event()

    async def wait(_: Effect) -> Delivered:
        await gate.wait()
        return DONE

    for target in ("t", "u"):
        await play.owe("crm.create", target)
    play.performer.sends.extend([wait, wait])
    assert await play.dispatcher.step() == 2
    gate.set()
    await play.dispatcher.drain(5.0)
    assert (play.state("t")[0], play.state("u")[0]) == ("delivered", "delivered")


async def test_a_drain_waits_for_what_is_under_way(play: Round) -> None:
    gate = asyncio.Event()

    async def wait(_: Effect) -> Delivered:
        await gate.wait()
        return DONE

    await play.owe("crm.create")
    play.performer.sends.append(wait)
    await play.dispatcher.step()
    draining = asyncio.create_task(play.dispatcher.drain(5.0))
    gate.set()
    await draining
    assert play.state() == ("delivered", 1)


async def test_what_is_still_under_way_after_the_drain_is_left_to_the_next_start(play: Round) -> None:
    async def never(_: Effect) -> Delivered:
        await asyncio.Event().wait()
        raise AssertionError

    await play.owe("crm.create")
    play.performer.sends.append(never)
    await play.dispatcher.step()
    await play.dispatcher.drain(0.0)
    assert play.state() == ("in_flight", 0)


async def test_dispatcher_runs_until_cancelled_and_wakes_for_new_effects(play: Round) -> None:
    working = asyncio.create_task(play.dispatcher.run())
    play.performer.sends.append(DONE)
    await play.owe("crm.create")
    await eventually(lambda: play.state()[0] == "delivered", "the delivery", 5.0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def nap(play: Round) -> float:
    """Return how long the dispatcher would sleep now."""
    return await nap_seconds(lambda: play.bench.ledger.next_effect_due_at(tuple(POLICIES)), play.bench.clock)


async def test_the_nap_ends_when_the_next_effect_is_due(play: Round) -> None:
    assert await nap(play) == POLL_SECONDS
    await play.owe("crm.create")
    play.performer.sends.append(transient())
    await play.step()
    assert await nap(play) == 0.5
    play.bench.clock.advance(300)
    assert await nap(play) == pytest.approx(0.2)


async def test_a_command_waiting_behind_another_does_not_keep_the_dispatcher_awake(play: Round) -> None:
    await play.bench.ledger.reserve(request_for(SubmitQuote(), "1", quote_id="Q-2026-0001", version=1))
    play.bench.clock.advance(1)
    assert await nap(play) == POLL_SECONDS


async def test_a_class_that_hangs_never_holds_up_another(play: Round) -> None:
    gate = asyncio.Event()

    async def hang(_: Effect) -> Delivered:
        await gate.wait()
        return DONE

    play.performer.sends.extend([hang] * AT_ONCE)
    for number in range(AT_ONCE + 1):
        await play.owe("crm.create", f"c{number}")
    assert await play.dispatcher.step() == AT_ONCE
    await play.owe("slack.post", "p")
    play.performer.sends.append(DONE)
    assert await play.dispatcher.step() == 1
    await eventually(lambda: play.state("p")[0] == "delivered", "the post", 5.0)
    assert play.state(f"c{AT_ONCE}") == ("pending", 0)
    gate.set()
    await play.dispatcher.drain(5.0)


class Busy:
    """A database that refuses the writes of one name a number of times, as on a full disk."""

    def __init__(self, database: Database, name: str, refusals: int = 1) -> None:
        self._database = database
        self._name = name
        self.refusals = refusals
        self.read, self.tend, self.close, self.health = database.read, database.tend, database.close, database.health

    async def write(
        self,
        name: str,
        work: Callable[[Tx], T],
        *,
        urgent: bool = False,
        brief: bool = False,
        deadline: float | None = None,
        alone: bool = False,
    ) -> T:
        if name == self._name and self.refusals:
            self.refusals -= 1
            raise NotRecorded("the disk is full; nothing was recorded.")
        return await self._database.write(name, work, urgent=urgent, brief=brief, deadline=deadline, alone=alone)


async def test_a_result_outlives_a_ledger_that_cannot_be_written(play: Round) -> None:
    """Nothing new is claimed meanwhile, and nothing is sent twice."""
    play.bench.ledger.database = busy = Busy(play.bench.ledger.database, "settle")
    await play.owe("crm.create")
    play.performer.sends.append(DONE)
    await play.step()
    assert (play.state(), busy.refusals, len(play.performer.sent)) == (("delivered", 1), 0, 1)


async def test_a_step_that_could_not_be_written_is_no_bug_of_ours_and_burns_nothing(play: Round) -> None:
    async def upload(effect: Effect) -> Delivered:
        await play.bench.ledger.record_step(effect, "ticket", {"file_id": "F1"})
        return DONE

    play.bench.ledger.database = busy = Busy(play.bench.ledger.database, "record_step", refusals=3)
    await play.owe("slack.file")
    play.performer.visible = False
    play.performer.sends.extend([upload] * 4)
    for _ in range(3):
        assert await play.next_step() == 1  # the check, or the first attempt
        assert (play.state(), play.row()["category"]) == (("uncertain", 0), "transient")
        assert await play.next_step() == 1
        assert play.state() == ("pending", 0)
    assert await play.next_step() == 1
    assert (play.state(), busy.refusals) == (("delivered", 1), 0)


async def test_what_waits_for_the_one_renderer_is_not_claimed_meanwhile(play: Round) -> None:
    gate = asyncio.Event()

    async def wait(_: Effect) -> Delivered:
        await gate.wait()
        return DONE

    for target in ("t", "u"):
        await play.owe("pdf.render", target)
    play.performer.sends.extend([wait, DONE])
    assert await play.dispatcher.step() == 1
    assert await play.dispatcher.step() == 0
    assert play.row("u")["claims"] == 0
    gate.set()
    await play.dispatcher.drain(5.0)
    assert await play.step() == 1


async def test_expired_effect_whose_follow_ups_fail_is_dead_lettered_and_blocks_no_other(play: Round) -> None:
    def fail(tx: Tx, effect: Effect) -> FollowUps:
        raise LookupError(effect.target)

    await play.owe("crm.create", "old")
    play.bench.clock.advance(round(POLICIES["crm.create"].max_age_seconds * 1000) + 1)
    await play.owe("crm.create", "new")
    play.performer.follow_ups = fail  # type: ignore[method-assign]
    play.performer.sends.append(DONE)
    await play.step()
    assert play.state("old") == ("failed", 0)
    assert play.performer.sent == ["new"]


async def test_effect_without_a_slot_is_sent_once_a_slot_frees_without_a_poll(bench: Bench) -> None:
    play = Round(bench, poll_seconds=600.0)
    for number in range(AT_ONCE + 2):
        await play.owe("crm.create", f"c{number}")
    play.performer.sends.extend([DONE] * (AT_ONCE + 2))
    working = asyncio.create_task(play.dispatcher.run())
    await eventually(lambda: play.state(f"c{AT_ONCE + 1}")[0] == "delivered", "the last one", 10.0)
    working.cancel()
    await asyncio.wait({working})


async def test_what_waited_for_a_full_disk_to_end_is_sent_without_waiting_for_the_poll(bench: Bench) -> None:
    play = Round(bench, poll_seconds=600.0)
    bench.ledger.database = busy = Busy(bench.ledger.database, "settle")

    async def owe_another(_: Effect) -> Delivered:
        await play.owe("slack.post", "u")
        return DONE

    await play.owe("crm.create")
    play.performer.sends.extend([owe_another, DONE])
    working = asyncio.create_task(play.dispatcher.run())
    await eventually(lambda: play.state()[0] == "delivered" and play.state("u")[0] == "delivered", "both", 10.0)
    assert busy.refusals == 0
    working.cancel()
    await asyncio.wait({working})


@pytest.mark.parametrize(("replicas", "share"), [(1, AT_ONCE), (2, AT_ONCE / 2), (AT_ONCE + 1, 1)])
async def test_replicas_share_the_limit_of_a_class(play: Round, replicas: int, share: int) -> None:
    play.bench.ledger.ownership = Replicas(replicas)
    gate = asyncio.Event()

    async def wait(_: Effect) -> Delivered:
        await gate.wait()
        return DONE

    play.performer.sends.extend([wait] * AT_ONCE)
    for number in range(AT_ONCE):
        await play.owe("crm.create", f"c{number}")
    await play.dispatcher.share_limits()
    assert await play.dispatcher.step() == share
    gate.set()
    await play.dispatcher.drain(5.0)


class Replicas(SoleOwner):
    """View of one of several replicas."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def count(self) -> int:
        return self._number
