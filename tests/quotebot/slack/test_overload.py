"""Tests of overload: excess commands are refused in time, and every message is true. The socket is replaced by a list."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack.api import Identity, SlackApi
from quotebot.slack.receiver import AT_ONCE, WAITING_MAX, Envelopes, SocketReceiver, bolt_app, refusal
from quotebot.slack.surface import RULESET_REFRESH_SECONDS, Reserver, Surface
from quotebot.store.rulesets import ActiveRuleset
from quotebot.views import messages
from quotebot.worker_loop import BUSY, FLOOD, FLOOD_SECONDS, LATELY, QUIET, AckPriority
from tests.quotebot.access_parts import OpenGate
from tests.quotebot.parts import RULES, Bench, ManualClock
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.domain.access import Viewer
    from quotebot.slack.connections import Inbox, Link, Links
    from quotebot.slack.gate import AccessGate
    from quotebot.views.card import Card

BUDGET_SECONDS = 2.0
LINK = cast("Link", None)  # only the wire uses it


class Wire:
    """The far end of the socket: records the sent frames."""

    alive = True

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.sending: Callable[[], object] = lambda: None

    async def send(self, text: str, link: Link) -> None:
        assert link is LINK
        self.sending()
        self.sent.append(json.loads(text))

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def texts(self) -> list[str]:
        return [ack.get("payload", {}).get("text", "") for ack in self.sent]


class Desk:
    """The real path from an envelope to the ledger, without a worker."""

    def __init__(self, bench: Bench, commands_per_minute: int | None = None) -> None:
        self.wire, self.ack_priority, arrivals = Wire(), AckPriority(bench.clock), dict[str, float]()
        client = AsyncWebClient(token="xoxb-none", retry_handlers=[])
        surface = Surface(
            desk=Reserver(
                bench.ledger,
                team_id="T0HOME",
                ack_budget_seconds=BUDGET_SECONDS,
                arrivals=arrivals,
                commands_per_minute=commands_per_minute,
                reserving=self.ack_priority.reserving,
            ),
            ledger=bench.ledger,
            slack=SlackApi(client, response_url_hosts=frozenset()),
            rules=RULES,
            active=ActiveRuleset(RULES.ruleset),
            status=_no_card,
            gate=cast("AccessGate", OpenGate()),
        )
        self.last_read = surface.last_read
        self.receiver = SocketReceiver(
            Envelopes(bolt_app(client, Identity("T0HOME", "U0BOT", "B0BOT"), surface)),
            self._links,
            surface.desk.drop,
            clock=bench.clock,
            ack_budget_seconds=BUDGET_SECONDS,
            arrivals=arrivals,
            ack_priority=self.ack_priority,
        )

    def _links(self, inbox: Inbox) -> Links:
        del inbox
        return cast("Links", self.wire)

    def type(self, number: int) -> None:
        payload = {
            "command": "/quote",
            "text": f"new for Acme {number}: 1 pro",
            "user_id": "U0REP",
            "user_name": "rep",
            "team_id": "T0HOME",
            "channel_id": "C0SALES",
            "trigger_id": f"{number}.bench",
            "response_url": "https://hooks.slack.com/commands/T0HOME/1/x",
        }
        self.receiver.take({"type": "slash_commands", "envelope_id": f"E{number}", "payload": payload}, LINK)


async def _no_card(quote_id: str, viewer: Viewer) -> Card | None:
    del quote_id, viewer
    return None


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench)


async def test_a_burst_is_recorded_in_a_few_commits_and_each_ack_is_of_a_recorded_command(bench: Bench, desk: Desk) -> None:
    before = bench.ledger.database.health.commits
    for number in range(4 * AT_ONCE):
        desk.type(number)
    await _all_answered(desk, 4 * AT_ONCE)
    assert set(desk.wire.texts()) == {""}
    assert bench.row("SELECT count(*) AS n FROM operations")["n"] == 4 * AT_ONCE
    assert bench.ledger.database.health.commits - before <= 12


async def test_what_waited_past_its_budget_is_refused_and_nothing_of_it_is_recorded(bench: Bench, desk: Desk) -> None:
    for number in range(2 * AT_ONCE):
        desk.type(number)
    bench.clock.advance(round(BUDGET_SECONDS * 1000))  # before any of them reached the ledger, or even Bolt
    await _all_answered(desk, 2 * AT_ONCE)
    assert desk.wire.texts() == [messages.NOTHING_RECORDED] * (2 * AT_ONCE)
    assert bench.rows("SELECT 1 FROM operations") == []


async def test_beyond_what_may_wait_it_is_refused_at_once(bench: Bench, desk: Desk) -> None:
    for number in range(AT_ONCE + WAITING_MAX + 5):
        desk.type(number)
    bench.clock.advance(round(BUDGET_SECONDS * 1000))  # so that the test does not record thousands
    await _all_answered(desk, AT_ONCE + WAITING_MAX + 5)
    assert set(desk.wire.texts()) == {messages.NOTHING_RECORDED}
    first = {ack["envelope_id"] for ack in desk.wire.sent[: AT_ONCE + 5]}
    assert {f"E{AT_ONCE + WAITING_MAX + number}" for number in range(5)} <= first


async def test_expired_ruleset_cache_is_refreshed_only_after_the_acknowledgement(bench: Bench, desk: Desk) -> None:
    desk.type(0)
    await _all_answered(desk, 1)
    before, seen = desk.last_read.at, list[float]()
    bench.clock.advance(round(RULESET_REFRESH_SECONDS * 1000))
    desk.wire.sending = lambda: seen.append(desk.last_read.at)
    desk.type(1)
    await eventually(lambda: desk.last_read.at > before, "another look")
    assert seen == [before]


def test_refusal_without_a_place_for_text_sends_no_acknowledgement() -> None:
    def refused(kind: str, **payload: Any) -> dict[str, Any] | None:
        return refusal(SocketModeRequest(kind, "E1", payload))

    form = {"blocks": [{"type": "input", "block_id": "reason"}, {"type": "divider"}]}
    assert refused("slash_commands") == {"text": messages.NOTHING_RECORDED}
    assert refused("interactive", type="view_submission", view=form) == {
        "response_action": "errors",
        "errors": {"reason": messages.NOTHING_RECORDED},
    }
    assert refused("interactive", type="block_actions") is None
    assert refused("events_api", type="event_callback") is None


async def test_workers_yield_to_a_waiting_acknowledgement_for_a_bounded_time() -> None:
    clock = ManualClock()
    ack_priority = AckPriority(clock)
    assert await ack_priority.turn() == QUIET
    ack_priority.begin()
    assert await ack_priority.turn() == BUSY  # also later, although none was answered
    waiting = asyncio.create_task(ack_priority.turn())
    await asyncio.wait([waiting], timeout=0.001)
    ack_priority.end()
    assert await waiting == LATELY
    clock.advance(1_000)
    assert await ack_priority.turn() == QUIET


async def test_workers_pause_during_overload_until_it_ends_or_a_limit_is_reached() -> None:
    clock = ManualClock()
    ack_priority = AckPriority(clock)
    for _ in range(FLOOD):
        ack_priority.begin()
        ack_priority.reserving()
        ack_priority.end()
    assert ack_priority.flooded
    assert await ack_priority.turn() == BUSY  # it takes one: pending effects are never stopped
    waiting = asyncio.create_task(ack_priority.turn())
    await asyncio.wait([waiting], timeout=0.001)
    assert not waiting.done()
    clock.advance(round(FLOOD_SECONDS * 1000) + 1)
    assert await waiting == LATELY


async def test_commands_that_are_recorded_count_towards_a_flood(bench: Bench, desk: Desk) -> None:
    for number in range(FLOOD):
        desk.type(number)
    await _all_answered(desk, FLOOD)
    assert desk.ack_priority.flooded
    await bench.ledger.noted()


async def test_refused_commands_do_not_make_the_workers_rest(bench: Bench) -> None:
    desk = Desk(bench, commands_per_minute=5)
    for number in range(5 + 3 * FLOOD):
        desk.type(number)
    await _all_answered(desk, 5 + 3 * FLOOD)
    assert [text.startswith("That's more than") for text in desk.wire.texts()].count(True) == 3 * FLOOD
    assert not desk.ack_priority.flooded
    await bench.ledger.noted()


async def _all_answered(desk: Desk, count: int) -> None:
    await eventually(lambda: len(desk.wire.sent) == count, "every envelope to be answered")
