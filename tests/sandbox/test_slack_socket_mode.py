"""Tests of Socket Mode: connections, envelopes, acks and missing acks, with Bolt and with a bare client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from quotebot.sandbox.slack.socket_mode import CONNECTIONS_MAX
from quotebot.sandbox.world import ACK_SECONDS, World
from tests.sandbox.conftest import (
    DEADLINE_SECONDS,
    Hand,
    Wire,
    bolt_app,
    client_of,
    dial,
    eventually,
    running,
    sightings,
    ticket_url,
    wired,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import ClientSession


async def test_a_slash_command_is_answered_by_its_ack(world: World, hand: Hand) -> None:
    app = bolt_app(world)
    seen: list[Any] = []

    @app.command("/quote")
    async def quote(ack: Any, body: Any) -> None:
        seen.append(body)
        await ack(text=f"got {body['text']}")

    async with running(app, world):
        answer = await hand.slash("show Q-1 to @deal-desk in #general")
    assert answer["ack"] == {"text": "got show Q-1 to <@U0DEALDESK|deal-desk> in <#C0GENERAL|general>"}
    assert 0 < answer["ack_ms"] < 3000
    (body,) = seen
    assert (body["user_id"], body["channel_name"], body["is_enterprise_install"]) == ("U0REP", "deals", "false")
    assert body["trigger_id"]
    assert body["response_url"].startswith(f"{world.url}/hooks/commands/")
    (message,) = await hand.messages()
    assert (message["ephemeral_for"], message["bot_id"]) == ("U0REP", "B0QUOTEBOT")


async def test_an_in_channel_answer_shows_the_typed_command_too(world: World, hand: Hand) -> None:
    async with wired(world, hand) as wire:
        typing = asyncio.create_task(hand.slash("new"))
        await wire.ack(await wire.envelope(), {"text": "done", "response_type": "in_channel"})
        await typing
    assert [(m["user"], m["text"], m["ephemeral_for"]) for m in await hand.messages()] == [
        ("U0REP", "/quote new", None),
        ("U0QUOTEBOT", "done", None),
    ]


async def test_a_command_nobody_acks_times_out_before_the_person(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    async with wired(impatient, hand):
        answer = await hand.slash("new")
    assert (answer["ack"], answer["ack_ms"], answer["error"]) == (None, None, "operation_timeout")
    (notice,) = await hand.messages()
    assert notice["text"] == '/quote failed with the error "operation_timeout"'
    assert (notice["ephemeral_for"], notice["bot_id"]) == ("U0REP", None)


async def test_a_command_without_a_bot_is_not_dispatched(hand: Hand) -> None:
    answer = await hand.slash("new")
    assert answer["error"] == "dispatch_failed"
    assert await hand.texts() == ['/quote failed with the error "dispatch_failed"']


async def test_an_answer_slack_cannot_show_fails_the_command(world: World, hand: Hand) -> None:
    async with wired(world, hand) as wire:
        typing = asyncio.create_task(hand.slash("new"))
        await wire.ack(await wire.envelope(), {"text": "x", "blocks": [{"type": "hologram"}]})
        assert (await typing)["error"].startswith("invalid_command_response")
    assert await hand.texts() == ['/quote failed with the error "invalid_command_response"']


def test_slack_waits_three_seconds() -> None:
    assert ACK_SECONDS == 3.0


async def test_a_ticket_opens_one_connection(world: World, hand: Hand) -> None:
    url = await ticket_url(world, hand)
    async with hand.session.ws_connect(url):
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await hand.session.ws_connect(url)


async def test_a_ticket_expires_by_the_worlds_clock(world: World, hand: Hand) -> None:
    url = await ticket_url(world, hand)
    await hand.post("clock", offset_seconds=61)
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await hand.session.ws_connect(url)


async def test_hello_comes_first_and_counts_connections(world: World, hand: Hand) -> None:
    async with wired(world, hand) as first, wired(world, hand) as second:
        hellos = [await first.next(), await second.next()]
    assert [hello["type"] for hello in hellos] == ["hello", "hello"]
    assert [hello["num_connections"] for hello in hellos] == [1, 2]


async def test_the_eleventh_connection_is_told_to_go(world: World, hand: Hand) -> None:
    sockets = [await dial(world, hand) for _ in range(CONNECTIONS_MAX + 1)]
    frame = await Wire(sockets[-1]).next()
    assert (frame["type"], frame["reason"]) == ("disconnect", "too_many_websockets")
    assert world.socket.connections == CONNECTIONS_MAX
    for socket in sockets:
        await socket.close()


async def test_pings_go_both_ways(world: World, hand: Hand) -> None:
    url = await ticket_url(world, hand)
    async with hand.session.ws_connect(url, autoping=False) as socket:
        await socket.ping(b"sdk-ping-pong:1")
        seen: dict[aiohttp.WSMsgType, Any] = {}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not {aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG} <= seen.keys():
                message = await socket.receive()
                seen[message.type] = message.data
    assert seen[aiohttp.WSMsgType.PONG] == b"sdk-ping-pong:1"


async def test_an_envelope_goes_to_one_connection_and_its_ack_may_come_over_another(world: World, hand: Hand) -> None:
    async with wired(world, hand) as first, wired(world, hand) as second:
        await first.next()
        await second.next()
        for _ in range(8):
            typing = asyncio.create_task(hand.slash("new"))
            arrivals = {asyncio.create_task(wire.next()): other for wire, other in ((first, second), (second, first))}
            done, pending = await asyncio.wait(arrivals, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            for task in done:
                await arrivals[task].ack(task.result())
            assert (await typing)["ack"] == {}
            for task in pending:
                task.cancel()
                await asyncio.wait([task])


async def test_a_late_ack_and_a_foreign_ack_change_nothing(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    async with wired(impatient, hand) as wire:
        answer = await hand.slash("new")
        assert answer["error"] == "operation_timeout"
        await wire.ack(await wire.envelope(), {"text": "too late"})
        await wire.ack({"envelope_id": "never-sent"})
        await wire.socket.send_str("not json")
        await eventually(lambda: bool(sightings(impatient, "frame")), impatient)
    acks = sightings(impatient, "ack")
    assert [(ack.applied, ack.status) for ack in acks] == [(False, "late"), (False, "unknown_envelope")]
    assert "too late" not in await hand.texts()


async def test_a_resent_delivery_is_byte_identical_and_a_retry_is_not(world: World, hand: Hand) -> None:
    async with wired(world, hand) as wire:
        typing = asyncio.create_task(hand.slash("new"))
        first = await wire.envelope()
        await wire.ack(first, {"text": "done"})
        request_id = (await typing)["request_id"]

        again = asyncio.create_task(hand.post("redeliver", request_id=request_id, kind="resend", times=3))
        resent = [await wire.next() for _ in range(3)]
        assert resent == [first] * 3
        for envelope in resent:
            await wire.ack(envelope, {"text": "stored answer"})
        assert [ack["ack"] for ack in (await again)["acks"]] == [{"text": "stored answer"}] * 3

        again = asyncio.create_task(hand.post("redeliver", request_id=request_id, kind="retry"))
        retried = await wire.next()
        assert retried["payload"] == first["payload"]
        assert retried["envelope_id"] != first["envelope_id"]
        await wire.ack(retried, {"text": "stored answer"})
        await again
    assert await hand.texts() == ["done"]  # the person sees the first answer only


async def test_an_event_reaches_bolt_and_a_mention_is_two_events(world: World, hand: Hand) -> None:
    app = bolt_app(world)
    seen: list[tuple[str, str]] = []

    @app.event("app_mention")
    async def mentioned(event: Any, say: Any) -> None:
        seen.append(("app_mention", event["text"]))
        await say("hello", thread_ts=event["ts"])

    @app.event("message")
    async def written(event: Any) -> None:
        seen.append(("message", event["text"]))

    async with running(app, world):
        answer = await hand.post("message", user="U0REP", channel="C0DEALS", text="hey @quotebot")
        await eventually(lambda: len(world.slack.messages.all()) == 2 and len(seen) == 2, world)
        await hand.post("message", user="U0REP", channel="U0REP", text="in private")
        await eventually(lambda: len(seen) == 3, world)
    assert [event["type"] for event in answer["events"]] == ["app_mention", "message"]
    assert all(event["ack"] == {} for event in answer["events"])
    assert sorted(seen[:2]) == [("app_mention", "hey <@U0QUOTEBOT>"), ("message", "hey <@U0QUOTEBOT>")]
    assert seen[2] == ("message", "in private")
    reply = (await hand.messages())[1]
    assert (reply["text"], reply["thread_ts"]) == ("hello", answer["ts"])


async def test_an_event_without_an_ack_is_retried_at_once_after_a_minute_and_after_five(
    impatient: World, session: ClientSession
) -> None:
    hand = Hand(impatient, session)
    async with wired(impatient, hand) as wire:
        await hand.post("message", user="U0REP", channel="C0DEALS", text="hello")
        attempts = [await wire.envelope(), await wire.next()]
        await eventually(lambda: not impatient.socket.is_waiting, impatient)
        await hand.post("clock", offset_seconds=60)
        attempts.append(await wire.next())
        await eventually(lambda: not impatient.socket.is_waiting, impatient)
        await hand.post("clock", offset_seconds=300)
        attempts.append(await wire.next())
        await wire.ack(attempts[-1])
    assert [attempt["retry_attempt"] for attempt in attempts] == [0, 1, 2, 3]
    assert [attempt["retry_reason"] for attempt in attempts] == ["", "timeout", "timeout", "timeout"]
    assert len({attempt["payload"]["event_id"] for attempt in attempts}) == 1
    assert len({attempt["envelope_id"] for attempt in attempts}) == 4


async def test_an_event_raised_while_no_bot_was_there_arrives_later(world: World, hand: Hand) -> None:
    answer = await hand.post("message", user="U0REP", channel="C0DEALS", text="anybody?")
    assert answer["error"] == "dispatch_failed"
    async with wired(world, hand) as wire:
        await hand.post("clock", offset_seconds=61)
        envelope = await wire.envelope()
        await wire.ack(envelope)
    assert envelope["retry_attempt"] == 2
    assert envelope["payload"]["event"]["text"] == "anybody?"


async def test_opening_the_home_tab_raises_its_event(world: World, hand: Hand) -> None:
    app = bolt_app(world)

    @app.event("app_home_opened")
    async def opened(event: Any, client: Any) -> None:
        view = {"type": "home", "blocks": [{"type": "divider"}]}
        await client.views_publish(user_id=event["user"], view=view)

    async with running(app, world):
        answer = await hand.post("home", user="U0CFO")
        assert answer["ack"] == {}
        await eventually(lambda: "U0CFO" in world.slack.views.homes, world)
    assert (await hand.get("state"))["homes"]["U0CFO"]["type"] == "home"


async def test_bolt_reconnects_after_a_disconnect(world: World, hand: Hand) -> None:
    app = bolt_app(world)

    @app.command("/quote")
    async def quote(ack: Any) -> None:
        await ack(text="still here")

    async with running(app, world):
        await hand.post("faults", target="socket", effect="disconnect")
        await eventually(lambda: len(sightings(world, "apps.connections.open")) == 2, world)
        await eventually(lambda: world.socket.connections == 1, world)
        assert (await hand.slash())["ack"] == {"text": "still here"}


async def test_a_refused_ticket_is_refused_once(world: World, hand: Hand) -> None:
    await hand.post("faults", target="socket", effect="refuse_ticket")
    url = await ticket_url(world, hand)
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await hand.session.ws_connect(url)
    async with wired(world, hand) as wire:
        assert (await wire.next())["type"] == "hello"


async def test_a_dropped_ack_is_as_good_as_none(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    app = bolt_app(impatient)
    calls: list[str] = []

    @app.command("/quote")
    async def quote(ack: Any, body: Any) -> None:
        calls.append(body["trigger_id"])
        await ack(text="done")

    async with running(app, impatient):
        await hand.post("faults", target="socket", effect="drop_ack", method="slash_commands")
        answer = await hand.slash("new")
        again = await hand.post("redeliver", request_id=answer["request_id"], kind="resend", times=1)
    assert answer["error"] == "operation_timeout"
    assert again["acks"][0]["ack"] == {"text": "done"}
    assert len(calls) == 2
    assert len(set(calls)) == 1
    assert [(ack.applied, ack.status) for ack in sightings(impatient, "ack")] == [(False, None), (True, 200)]


async def test_a_half_open_connection_swallows_everything_until_it_ends(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    async with wired(impatient, hand) as wire:
        assert (await wire.next())["type"] == "hello"
        await hand.post("faults", target="socket", effect="half_open")
        await eventually(lambda: impatient.weather.describe()[0]["hits"] == 1, impatient)
        assert (await hand.slash())["error"] == "operation_timeout"
        await wire.ack({"envelope_id": "sent into the void"})
        assert not sightings(impatient, "ack")
        async with wired(impatient, hand) as healthy:  # a new connection is served
            typing = asyncio.create_task(hand.slash())
            await healthy.ack(await healthy.envelope())
            assert (await typing)["ack"] == {}
        await hand.session.delete(f"{impatient.url}/_sandbox/faults")
        await eventually(lambda: len(sightings(impatient, "ack")) == 2, impatient)
        typing = asyncio.create_task(hand.slash())
        await wire.ack(await wire.envelope())
        assert (await typing)["ack"] == {}


async def test_acks_are_witnessed_under_their_envelope(world: World, hand: Hand) -> None:
    async with wired(world, hand) as wire:
        typing = asyncio.create_task(hand.slash())
        envelope = await wire.envelope()
        await wire.ack(envelope)
        await typing
    (ack,) = sightings(world, "ack")
    assert (ack.system, ack.key, ack.applied, ack.status) == ("socket", envelope["envelope_id"], True, 200)


async def test_the_bots_own_messages_come_back_with_its_bot_id_when_asked_for(tmp_path: Path, session: ClientSession) -> None:
    async with World(tmp_path / "echo", echo_own_messages=True).serve() as world:
        hand = Hand(world, session)
        async with wired(world, hand) as wire:
            await client_of(world).chat_postMessage(channel="C0DEALS", text="me")
            envelope = await wire.envelope()
            await wire.ack(envelope)
    event = envelope["payload"]["event"]
    assert (event["type"], event["bot_id"], event["channel_type"]) == ("message", "B0QUOTEBOT", "channel")
