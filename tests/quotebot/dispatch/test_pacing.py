"""Tests of pacing: one message per second and channel after the first few; delayed messages stay in the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.policies import POLICIES, Matrix, RetryOverride, policies
from adapters.slack.api import ChannelFacts, PostedMessage
from ledger.records import Delivered
from quotebot.app.installation import speak
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch import services
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, EffectHandlers, Pace, Pacer
from quotebot.execution.executor import Executor
from quotebot.views.document import Seller
from tests.quotebot.deeds import Round, transient
from tests.quotebot.parts import MATRIX, RULES, ManualClock, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from ledger.records import Effect
    from tests.quotebot.parts import Bench


async def waits(pacer: Pacer, channel: str, ids: range) -> list[float]:
    return [round(await pacer.wait_seconds(channel, each), 3) for each in ids]


async def test_channel_gets_one_message_a_second_in_order_after_its_first_burst() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=3))
    assert await waits(pacer, "C1", range(6)) == [0, 0, 0, 1, 2, 3]
    assert await waits(pacer, "C2", range(10, 13)) == [0, 0, 0]  # another channel has a pace of its own
    clock.advance(1_000)
    assert await waits(pacer, "C1", range(3, 6)) == [0, 1, 2]  # each keeps its turn
    assert await waits(pacer, "C1", range(6, 8)) == [3, 4]
    clock.advance(60_000)
    assert await waits(pacer, "C1", range(20, 24)) == [0, 0, 0, 1]


async def test_message_with_a_long_wait_keeps_its_turn_and_checks_back_every_30_s() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=1))
    asleep = {number: await pacer.put_off("C1", number) for number in range(71)}
    delays = {number: later.delay_ms for number, later in asleep.items() if later is not None}
    assert delays == {number: min(number, 30) * 1_000 for number in range(1, 71)}
    clock.advance(30_000)
    again = [later.delay_ms for number in (31, 61, 70) if (later := await pacer.put_off("C1", number)) is not None]
    assert again == [1_000, 30_000, 30_000]
    clock.advance(31_000)
    assert await pacer.put_off("C1", 61) is None, "its turn is the one that it had"


async def test_a_wait_for_a_turn_is_told_in_german() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=1))
    speak("de")
    try:
        later = [await pacer.put_off("C1", number) for number in range(3)][-1]
    finally:
        speak("en")
    assert later is not None
    assert later.trouble.error == (
        "Dieser Kanal nimmt eine Nachricht pro Sekunde an: diese wartet 2 s, bis sie an der Reihe ist. Nichts wurde gesendet."
    )


async def test_one_persons_burst_keeps_nobody_else_waiting() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=2))
    assert [await pacer.wait_seconds("C1", number, "U1") for number in range(7)] == [0, 0, 1, 2, 3, 4, 5]
    assert [await pacer.wait_seconds("C1", number, "U2") for number in (10, 11)] == [2, 4]  # in rotation
    assert await pacer.wait_seconds("C1", 20, "U3") == 3
    assert [await pacer.wait_seconds("C1", number, "U1") for number in range(2, 7)] == [1, 5, 6, 7, 8]
    went = []
    for _ in range(8):
        clock.advance(1_000)
        went += [
            number
            for number, person in [*((number, "U1") for number in range(2, 7)), (10, "U2"), (11, "U2"), (20, "U3")]
            if number not in went and not await pacer.wait_seconds("C1", number, person)
        ]
    assert went == [2, 10, 20, 11, 3, 4, 5, 6], "one a second, and each person's in their order"


async def test_what_is_remembered_is_limited() -> None:
    pacer = Pacer(ManualClock(), Pace(at_once=1))
    for channel in range(services.REMEMBERED_MAX + 5):
        await pacer.wait_seconds(f"C{channel}", channel)
    assert await pacer.wait_seconds("C0", -1) == 0  # evicted, the oldest first
    assert await pacer.wait_seconds(f"C{services.REMEMBERED_MAX}", -2) == 1


class Posts:
    """A Slack that only accepts posts, at once."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.at: list[int] = []
        self.updated: list[int] = []

    async def channel(self, **_: object) -> ChannelFacts:
        return ChannelFacts("public", ext_shared=False)

    async def post(self, **message: Any) -> PostedMessage:
        self.at.append(self._clock.now_ms())
        return PostedMessage(message["channel"], f"{len(self.at)}.0")

    async def update(self, **_: object) -> None:
        self.updated.append(self._clock.now_ms())


async def test_a_burst_of_cards_is_posted_one_a_second_and_burns_no_attempt(bench: Bench) -> None:
    slack: Any = Posts(bench.clock)
    unused: Any = None
    adapters = Adapters(slack=slack, pdf=unused, artefacts=unused, salesforce=None)
    pacer = Pacer(bench.clock, Pace(at_once=2))
    performer = EffectHandlers(
        bench.ledger, adapters, RULES, Seller("Seller", ()), handlers=HANDLERS, settle_delay_seconds=1, pacer=pacer
    )
    dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, Matrix(POLICIES), settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in range(5):
        await bench.ledger.reserve(request_for(create_command(str(number)), f"{number}"))
    while await executor.step():
        pass
    began = bench.clock.now_ms()
    for _ in range(60):
        while await dispatcher.step():
            await dispatcher.drain(5.0)
        bench.clock.advance(100)
    assert [at - began for at in slack.at] == [0, 0, 1_000, 2_000, 3_000]
    assert bench.rows("SELECT DISTINCT state, attempts, claims FROM effects WHERE class = 'slack.post'") == [
        {"state": "delivered", "attempts": 1, "claims": 0}
    ]
    assert bench.row("SELECT count(*) AS n FROM attempts WHERE category = 'throttled'")["n"] == 3


async def test_a_colleagues_card_comes_within_5_s_of_one_persons_flood(bench: Bench) -> None:
    slack: Any = Posts(bench.clock)
    performer = handlers_of(bench, slack=slack)
    dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, Matrix(POLICIES), settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in range(61):
        actor = "U0VP" if number == 60 else "U0REP"
        await bench.ledger.reserve(request_for(create_command(str(number)), f"{number}", actor=actor))
    while await executor.step():
        pass
    began = bench.clock.now_ms()
    for _ in range(50):
        while await dispatcher.step():
            await dispatcher.drain(5.0)
        bench.clock.advance(100)
    assert bench.clock.now_ms() - began == 5_000
    posted = "SELECT e.state FROM effects AS e JOIN operations AS o ON o.id = e.operation_id WHERE e.class = 'slack.post'"
    assert bench.rows(f"{posted} AND o.actor = 'U0VP'") == [{"state": "delivered"}]
    assert len(slack.at) < 25


# ------------------------------------------------------------------------------------------------------- methods, channels


@pytest.mark.parametrize(
    ("method", "at_once", "seconds"),
    [
        *(("chat.update", 50, 1.2), ("views.publish", 100, 0.6)),
        *(("chat.postEphemeral", 100, 0.6), ("files.completeUploadExternal", 100, 0.6)),
    ],
)
async def test_a_method_has_the_rate_of_its_tier_over_all_channels(method: str, at_once: int, seconds: float) -> None:
    clock = ManualClock()
    pacer = Pacer(clock)
    assert await waits(pacer, method, range(at_once)) == [0] * at_once
    later = await pacer.put_off(method, at_once)
    assert later is not None
    assert (later.delay_ms, later.spent, later.trouble.category, later.trouble.asked) == (seconds * 1000, False, "throttled", False)
    assert f"{method} a minute" in later.trouble.error
    assert await pacer.put_off("C1", 300) is None, "a channel has a pace of its own"
    clock.advance(62_000)
    assert await waits(pacer, method, range(400, 400 + at_once)) == [0] * at_once, "a minute's calls in a minute"


async def test_an_update_that_a_newer_one_replaces_leaves_its_turn_to_it() -> None:
    pacer = Pacer(ManualClock())
    await waits(pacer, "chat.update", range(50))
    assert [round(await pacer.wait_seconds("chat.update", "card:Q-1"), 3) for _ in range(3)] == [1.2] * 3


async def test_cards_beyond_the_rate_of_their_method_wait_and_burn_no_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CALLS_PER_MINUTE", {"chat.update": 2})
    slack: Any = Posts(bench.clock)
    performer = handlers_of(bench, slack=slack, pacer=Pacer(bench.clock, Pace(at_once=2, seconds=0.1)))
    dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, Matrix(POLICIES), settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)

    async def work(seconds: int) -> None:
        for _ in range(10 * seconds):
            while await executor.step() or await dispatcher.step():
                await dispatcher.drain(5.0)
            bench.clock.advance(100)

    for number in range(4):
        await bench.ledger.reserve(request_for(create_command(str(number)), f"{number}"))
    await work(2)
    began = bench.clock.now_ms()
    for row in bench.rows("SELECT quote_id FROM quotes"):
        await bench.ledger.reserve(request_for(SubmitQuote(), row["quote_id"], quote_id=row["quote_id"], version=1))
    await work(70)
    assert [round((at - began) / 1000) for at in slack.updated] == [0, 0, 30, 60]
    cards = bench.rows("SELECT DISTINCT state, attempts, claims FROM effects WHERE class = 'slack.card' AND state = 'delivered'")
    assert cards == [{"state": "delivered", "attempts": 1, "claims": 0}]


async def test_calls_that_wait_for_their_turn_do_not_hide_an_outage_from_the_breaker(bench: Bench) -> None:
    play, pacer = Round(bench), Pacer(bench.clock)
    await waits(pacer, "chat.update", range(50))

    async def put_off(effect: Effect) -> Any:
        return await pacer.put_off("chat.update", effect.id)

    for number in range(5):
        for name, answer in ((f"paced {number}", put_off), (f"lost {number}", transient())):
            await play.owe("slack.card", name)
            play.performer.sends.append(answer)
            assert await play.step() == 1
    assert bench.row("SELECT state, cause FROM gates WHERE name = 'slack.card'") == {"state": "held", "cause": "breaker"}


class HalfSilent(Posts):
    """A Slack that never answers a message into one channel."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.in_flight, self.most, self.arrived = 0, 0, asyncio.Event()

    async def post(self, **message: Any) -> PostedMessage:
        if message["channel"] == "C0SLOW":
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            await asyncio.Event().wait()
        self.arrived.set()
        return await super().post(**message)


async def test_a_slow_channel_holds_up_only_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PLACE_SECONDS", 0.01)
    slack: Any = HalfSilent(bench.clock)
    performer = handlers_of(bench, slack=slack)
    dispatcher = Dispatcher(bench.ledger, performer, lambda low, _: low, Matrix(POLICIES), settle_delay_seconds=1)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for number in range(7):
        channel = "C0SLOW" if number < 6 else "C0FAST"
        await bench.ledger.reserve(request_for(replace(create_command(str(number)), channel=channel), f"{number}"))
    while await executor.step():
        pass
    running = asyncio.create_task(dispatcher.run())
    try:
        async with asyncio.timeout(60):
            await slack.arrived.wait()
    finally:
        running.cancel()
        await dispatcher.drain(0)
    assert slack.most == services.IN_FLIGHT_MAX
    waiting = bench.rows("SELECT DISTINCT attempts FROM effects WHERE class = 'slack.post' AND category = 'throttled'")
    assert waiting == [{"attempts": 0}]


class Org:
    """Performer of an org that counts the calls in flight."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.in_flight, self.most, self.done, self.all_done = 0, 0, 0, asyncio.Event()

    async def perform(self, effect: Effect) -> Delivered:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        for _ in range(20):
            await asyncio.sleep(0)
        self.in_flight -= 1
        self.done += 1
        if self.done == self._expected:
            self.all_done.set()
        return Delivered(effect.target, {})


async def test_salesforce_gets_two_calls_at_once_over_all_classes_without_a_pause(bench: Bench) -> None:
    play = Round(bench, poll_seconds=600)
    names = ("crm.create", "crm.update", "crm.read")
    for effect_class in names:
        for number in range(3):
            await play.owe(effect_class, f"{effect_class} {number}")
    org = Org(expected=9)
    play.performer.perform = org.perform  # type: ignore[method-assign]
    running = asyncio.create_task(play.dispatcher.run())
    try:
        async with asyncio.timeout(60):
            await org.all_done.wait()
    finally:
        running.cancel()
        await play.dispatcher.drain(5)
    assert org.most == 2
    assert {row["state"] for row in bench.rows("SELECT state FROM effects")} == {"delivered"}


async def test_a_higher_concurrency_of_one_class_is_that_of_the_org(bench: Bench) -> None:
    matrix = Matrix(policies({"crm.create": RetryOverride(concurrency=3)}))
    assert matrix.concurrency_of("crm") == 3
    play = Round(bench)
    org: Any = Org(expected=4)
    play.dispatcher = Dispatcher(bench.ledger, play.performer, lambda low, _: low, matrix, settle_delay_seconds=1)
    play.performer.perform = org.perform  # type: ignore[method-assign]
    for effect_class in ("crm.create", "crm.update"):
        for number in range(2):
            await play.owe(effect_class, f"{effect_class} {number}")
    assert await play.step() == 3
