"""Test of a ten-minute total outage with new work every second: the real dispatcher, the real matrix, a virtual clock."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from adapters.failures import AdapterError, Failure
from adapters.policies import POLICIES, Matrix, policy_for
from ledger.records import Delivered, Effect, EffectIntent, FollowUps, Outcome
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch.dispatcher import Dispatcher
from tests.quotebot.parts import request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from tests.quotebot.parts import Bench

MINUTES = 10
PER_MINUTE = 60
ENQUEUED = MINUTES * PER_MINUTE
RETRY_AFTER_MS = 7_000


class OutOfOrder:
    """A service that fails every request in one way until it recovers; records the time (ms) of each."""

    def __init__(self, bench: Bench, failure: AdapterError) -> None:
        self._bench = bench
        self.failure: AdapterError | None = failure
        self.requests: list[int] = []

    async def perform(self, effect: Effect) -> Delivered:
        self.requests.append(self._bench.clock.now_ms())
        if self.failure is not None:
            raise self.failure
        return Delivered(effect.target, {})

    async def find(self, effect: Effect) -> Delivered | None:
        raise AssertionError(f"{effect.effect_class} is keyed: there is nothing to look up")

    def may_have_happened(self, effect: Effect) -> bool:
        return effect.maybe_sent

    async def start_over(self, effect: Effect) -> None:
        raise AssertionError(f"{effect.effect_class} has no steps")

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        del tx, effect
        return FollowUps()


class Minutes:
    """A bot's effect worker in virtual time: it steps only when the ledger has a due effect."""

    def __init__(self, bench: Bench, failure: AdapterError) -> None:
        self._bench = bench
        self.other_side = OutOfOrder(bench, failure)
        draw = random.Random(7).uniform  # noqa: S311 -- jitter, not a secret
        self._dispatcher = Dispatcher(bench.ledger, self.other_side, draw, Matrix(POLICIES), settle_delay_seconds=30)

    async def pass_by(self) -> None:
        """Let ten minutes pass, with a new effect of another quote every second."""
        for minute in range(MINUTES):
            await self._owe_for_a_minute(minute)
            await self._work_until(self._bench.clock.now_ms() + 60_000)

    async def recover(self) -> None:
        """Let the service recover, and execute everything."""
        self.other_side.failure = None
        await self._work_until(self._bench.clock.now_ms() + 3_600_000)

    async def _owe_for_a_minute(self, minute: int) -> None:
        await self._bench.ledger.reserve(request_for(SubmitQuote(), f"minute:{minute}", quote_id=f"Q-{minute}"))
        (claimed,) = await self._bench.ledger.claim_operations(1)
        now = self._bench.clock.now_ms()
        owed = tuple(
            EffectIntent(
                "crm.create", policy_for("crm.create").semantics, f"{minute}:{second}", "Q", {}, not_before=now + second * 1_000
            )
            for second in range(PER_MINUTE)
        )
        await self._bench.ledger.execute(claimed, lambda _: Outcome("applied", {"text": "ok"}, owed))

    async def _work_until(self, end: int) -> None:
        while True:
            while await self._dispatcher.step():
                await self._dispatcher.drain(5.0)
            due = await self._bench.ledger.next_effect_due_at(("crm.create",))
            if due is None or due > end:
                self._bench.clock.advance(end - self._bench.clock.now_ms())
                return
            self._bench.clock.advance(due - self._bench.clock.now_ms())


def failing(failure: Failure, retry_after_seconds: float | None = None) -> AdapterError:
    return AdapterError(failure, "http", "No.", http_status=503, retry_after_seconds=retry_after_seconds)


@pytest.mark.parametrize(
    "failure",
    [
        failing(Failure.TRANSIENT),
        failing(Failure.TRANSIENT, 1.0),
        failing(Failure.TRANSIENT, RETRY_AFTER_MS / 1000),
        AdapterError(Failure.TIMEOUT, "timeout", "No answer.", possibly_applied=True),
    ],
    ids=["5xx", "5xx and 1 s", "5xx and 7 s", "no answer"],
)
async def test_a_total_outage_costs_no_more_requests_than_there_are_effects_and_no_effect(
    failure: AdapterError, bench: Bench
) -> None:
    minutes = Minutes(bench, failure)
    await minutes.pass_by()
    assert len(minutes.other_side.requests) <= 1.1 * ENQUEUED
    assert bench.rows("SELECT 1 FROM dead_letters") == []
    assert bench.row("SELECT count(*) AS n FROM audit_events WHERE event_type = 'class.paused'")["n"] == 1
    await minutes.recover()
    assert {row["state"] for row in bench.rows("SELECT state FROM effects")} == {"delivered"}


async def test_retry_after_during_an_outage_is_never_undercut_and_costs_no_attempt(bench: Bench) -> None:
    minutes = Minutes(bench, failing(Failure.THROTTLED, RETRY_AFTER_MS / 1000))
    await minutes.pass_by()
    requests = minutes.other_side.requests
    assert all(later == earlier or later - earlier >= RETRY_AFTER_MS for earlier, later in pairwise(requests))
    assert len(requests) <= 1.1 * ENQUEUED
    assert bench.row("SELECT max(attempts) AS n FROM effects")["n"] == 0
    await minutes.recover()
    assert {tuple(row.values()) for row in bench.rows("SELECT state, attempts FROM effects")} == {("delivered", 1)}
