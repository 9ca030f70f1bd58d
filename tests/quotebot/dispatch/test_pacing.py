"""Tests of pacing: one message per second and channel after the first few; delayed messages stay in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.policies import POLICIES, Matrix
from adapters.slack.api import ChannelFacts, PostedMessage
from quotebot.dispatch import services
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, EffectHandlers, Pace, Pacer
from quotebot.execution.executor import Executor
from quotebot.views.document import Seller
from tests.quotebot.parts import MATRIX, RULES, ManualClock, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench


def waits(pacer: Pacer, channel: str, ids: range) -> list[float]:
    return [round(pacer.wait_seconds(channel, each), 3) for each in ids]


def test_channel_gets_one_message_a_second_in_order_after_its_first_burst() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=3))
    assert waits(pacer, "C1", range(6)) == [0, 0, 0, 1, 2, 3]
    assert waits(pacer, "C2", range(10, 13)) == [0, 0, 0]  # another channel has a pace of its own
    clock.advance(1_000)
    assert waits(pacer, "C1", range(3, 6)) == [0, 1, 2]  # each keeps its turn
    assert waits(pacer, "C1", range(6, 8)) == [3, 4]
    clock.advance(60_000)
    assert waits(pacer, "C1", range(20, 24)) == [0, 0, 0, 1]


def test_message_with_a_long_wait_keeps_its_turn_and_checks_back_every_30_s() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=1))
    asleep = {number: pacer.put_off("C1", number) for number in range(71)}
    delays = {number: later.delay_ms for number, later in asleep.items() if later is not None}
    assert delays == {number: min(number, 30) * 1_000 for number in range(1, 71)}
    clock.advance(30_000)
    again = [later.delay_ms for number in (31, 61, 70) if (later := pacer.put_off("C1", number)) is not None]
    assert again == [1_000, 30_000, 30_000]
    clock.advance(31_000)
    assert pacer.put_off("C1", 61) is None, "its turn is the one that it had"


def test_one_persons_burst_keeps_nobody_else_waiting() -> None:
    clock = ManualClock()
    pacer = Pacer(clock, Pace(at_once=2))
    assert [pacer.wait_seconds("C1", number, "U1") for number in range(7)] == [0, 0, 1, 2, 3, 4, 5]
    assert [pacer.wait_seconds("C1", number, "U2") for number in (10, 11)] == [2, 4]  # in rotation
    assert pacer.wait_seconds("C1", 20, "U3") == 3
    assert [pacer.wait_seconds("C1", number, "U1") for number in range(2, 7)] == [1, 5, 6, 7, 8]
    went = []
    for _ in range(8):
        clock.advance(1_000)
        went += [
            number
            for number, person in [*((number, "U1") for number in range(2, 7)), (10, "U2"), (11, "U2"), (20, "U3")]
            if number not in went and not pacer.wait_seconds("C1", number, person)
        ]
    assert went == [2, 10, 20, 11, 3, 4, 5, 6], "one a second, and each person's in their order"


def test_what_is_remembered_is_limited() -> None:
    pacer = Pacer(ManualClock(), Pace(at_once=1))
    for channel in range(services.REMEMBERED_MAX + 5):
        pacer.wait_seconds(f"C{channel}", channel)
    assert pacer.wait_seconds("C0", -1) == 0  # evicted, the oldest first
    assert pacer.wait_seconds(f"C{services.REMEMBERED_MAX}", -2) == 1


class Posts:
    """A Slack that only accepts posts, at once."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.at: list[int] = []

    async def channel(self, **_: object) -> ChannelFacts:
        return ChannelFacts("public", ext_shared=False)

    async def post(self, **message: Any) -> PostedMessage:
        self.at.append(self._clock.now_ms())
        return PostedMessage(message["channel"], f"{len(self.at)}.0")


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
