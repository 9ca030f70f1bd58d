"""Tests of lost order, reset connections, late acknowledgements and delayed events, with slack_sdk's unmodified client."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

from quotebot.sandbox.slack.courier import DELAYED_EVENT_SECONDS, EVENT_RETRY_SECONDS
from quotebot.sandbox.slack.directory import APP_TOKEN
from quotebot.sandbox.world import World
from tests.sandbox.conftest import Hand, client_of, eventually, sightings, ticket_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiohttp import ClientSession
    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[list[SocketModeRequest]]:
    """Connect slack_sdk's client, which acknowledges everything; yield the received requests."""
    came: list[SocketModeRequest] = []

    async def take(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        came.append(request)
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

    client = SocketModeClient(APP_TOKEN, web_client=client_of(world), ping_interval=0.5)
    client.socket_mode_request_listeners.append(take)
    await client.connect()  # type: ignore[no-untyped-call] # slack_sdk publishes no types for it
    await eventually(lambda: world.socket.connections > 0, world)
    try:
        yield came
    finally:
        await client.close()  # type: ignore[no-untyped-call] # as above


def texts(came: list[SocketModeRequest]) -> list[str]:
    return [str(request.payload["text"]) for request in came]


async def test_an_envelope_can_be_overtaken_by_the_next_one_of_any_kind(world: World, hand: Hand) -> None:
    async with listening(world) as came:
        await hand.post("faults", target="socket", effect="out_of_order", method="slash_commands", delay=30)
        first = asyncio.create_task(hand.slash("first"))
        await eventually(lambda: world.weather.describe()[0]["hits"] == 1, world)
        assert (await hand.slash("second"))["ack"] == {}
        assert (await first)["ack"] == {}
    assert texts(came) == ["second", "first"]


async def test_an_envelope_that_nothing_overtakes_comes_late(world: World, hand: Hand) -> None:
    async with listening(world) as came:
        await hand.post("faults", target="socket", effect="out_of_order", delay=0.05)
        assert (await hand.slash("alone"))["ack"] == {}
    assert texts(came) == ["alone"]


async def test_an_acknowledgement_can_be_late_or_too_late(impatient: World, session: ClientSession) -> None:
    hand = Hand(impatient, session)
    async with listening(impatient) as came:
        await hand.post("faults", target="socket", effect="delay_ack", delay=0.05)
        in_time = await hand.slash("in time")
        assert in_time["ack"] == {}
        assert in_time["ack_ms"] >= 50
        await hand.post("faults", target="socket", effect="delay_ack", delay=0.4)
        assert (await hand.slash("too late"))["error"] == "operation_timeout"
        await eventually(lambda: len(sightings(impatient, "ack")) == 2, impatient)
    assert texts(came) == ["in time", "too late"]
    assert [(ack.applied, ack.status) for ack in sightings(impatient, "ack")] == [(True, 200), (False, "late")]


async def test_a_reset_is_one_on_the_wire(world: World, hand: Hand) -> None:
    address = urlsplit(await ticket_url(world, hand))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    headers = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    )
    writer.write(f"GET {address.path}?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\n{headers}\r\n\r\n".encode())
    assert b"hello" in await asyncio.wait_for(reader.readuntil(b"connection_info"), 5)
    await hand.post("faults", target="socket", effect="reset")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()


async def test_a_client_whose_link_was_reset_finds_back(world: World, hand: Hand) -> None:
    async with listening(world) as came:
        await hand.post("faults", target="socket", effect="reset")
        await eventually(lambda: len(sightings(world, "apps.connections.open")) == 2 and world.socket.connections == 1, world)
        assert (await hand.slash("back"))["ack"] == {}
    assert texts(came) == ["back"]


async def test_unacknowledged_delayed_events_are_retried_hourly_for_a_day(tmp_path: Path, session: ClientSession) -> None:
    async with World(tmp_path / "delayed", delayed_events=True).serve() as world:
        hand = Hand(world, session)
        written = await hand.post("message", user="U0REP", channel="C0DEALS", text="anybody?")
        assert written["error"] == "dispatch_failed"
        attempts = len(EVENT_RETRY_SECONDS)
        for hour in range(1, 4):
            await hand.post("clock", offset_seconds=3600 * hour + 1)
            attempts += 1
            await eventually(lambda wanted=attempts: _attempt(world) == wanted, world)  # type: ignore[misc] # a bound default
        async with listening(world) as came:
            await hand.post("clock", offset_seconds=3600 * 4 + 1)
            await eventually(lambda: len(came) == 1, world)
            await hand.post("clock", offset_seconds=3600 * 6)  # it was acknowledged: it is not sent again
            assert (await hand.slash("last"))["ack"] == {}
    retried: Any = came[0]
    assert (retried.payload["event"]["text"], retried.retry_attempt, retried.retry_reason) == ("anybody?", attempts + 1, "timeout")
    assert len(came) == 2
    assert (len(DELAYED_EVENT_SECONDS), DELAYED_EVENT_SECONDS[-1]) == (24, 86_400)


def _attempt(world: World) -> int:
    last = world.courier.last
    return -1 if last is None else last.attempt
