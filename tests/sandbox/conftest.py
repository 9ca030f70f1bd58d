"""Fixtures: a served world, a client of its control API, and bots made of Slack's own unmodified libraries."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.sandbox.slack.directory import APP_TOKEN, BOT_TOKEN
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from quotebot.sandbox.request_log import LoggedRequest

DEADLINE_SECONDS = 10.0
Json = dict[str, Any]


class Hand:
    """Client of the control API over HTTP."""

    def __init__(self, world: World, session: aiohttp.ClientSession) -> None:
        self.world = world
        self.session = session

    async def post(self, name: str, *, expect: int = 200, **body: object) -> Any:
        """POST to /_sandbox/<name> and check the status."""
        async with self.session.post(f"{self.world.url}/_sandbox/{name}", json=body) as response:
            assert response.status == expect, await response.text()
            return await response.json()

    async def get(self, name: str, *, expect: int = 200) -> Any:
        """GET /_sandbox/<name> and check the status."""
        async with self.session.get(f"{self.world.url}/_sandbox/{name}") as response:
            assert response.status == expect, await response.text()
            return await response.json()

    async def slash(self, text: str = "", *, command: str = "/quote", user: str = "U0REP") -> Json:
        """Type a slash command in #deals."""
        answer: Json = await self.post("slash", user=user, channel="C0DEALS", command=command, text=text)
        return answer

    async def messages(self) -> list[Json]:
        """Return the messages of the state."""
        messages: list[Json] = (await self.get("state"))["messages"]
        return messages

    async def texts(self) -> list[str]:
        """Return the texts of the messages, oldest first."""
        return [message["text"] for message in await self.messages()]


class Wire:
    """Bare Socket Mode client: it records frames, and acknowledges only when the test does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> Json:
        """Return the next frame."""
        frame: Json = await asyncio.wait_for(self.socket.receive_json(), DEADLINE_SECONDS)
        return frame

    async def envelope(self) -> Json:
        """Return the next envelope; skips hellos."""
        while (frame := await self.next())["type"] == "hello":
            pass
        return frame

    async def ack(self, envelope: Json, payload: Json | None = None) -> None:
        """Acknowledge an envelope."""
        frame: Json = {"envelope_id": envelope["envelope_id"]}
        await self.socket.send_json(frame if payload is None else {**frame, "payload": payload})


async def eventually(seen: Callable[[], bool], world: World) -> None:
    """Wait until `seen()` holds; it is checked after every change of the state and every logged request."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not seen():
            waits = [
                asyncio.ensure_future(world.slack.changes.after(world.slack.changes.version, 0.1)),
                asyncio.ensure_future(world.witness.wait()),
            ]
            _, pending = await asyncio.wait(waits, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            for wait in pending:
                wait.cancel()


def sightings(world: World, method: str) -> list[LoggedRequest]:
    """Return the request log's entries of one method."""
    return [sighting for sighting in world.witness.since() if sighting.method == method]


def client_of(world: World, **options: Any) -> AsyncWebClient:
    """Make slack_sdk's own client with its retries off, so that one call is one request."""
    return AsyncWebClient(token=BOT_TOKEN, base_url=f"{world.url}/api/", retry_handlers=[], **options)


def bolt_app(world: World) -> AsyncApp:
    """Make an unmodified Bolt app that talks to the world."""
    return AsyncApp(client=client_of(world))


@asynccontextmanager
async def running(app: AsyncApp, world: World) -> AsyncIterator[AsyncSocketModeHandler]:
    """Connect a Bolt app over Socket Mode and wait until the world sees it."""
    handler = AsyncSocketModeHandler(app, APP_TOKEN)
    await handler.connect_async()  # type: ignore[no-untyped-call] # Bolt publishes no types for it
    await eventually(lambda: world.socket.connections > 0, world)
    try:
        yield handler
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call] # as above


@asynccontextmanager
async def wired(world: World, hand: Hand) -> AsyncIterator[Wire]:
    """Open a bare Socket Mode connection."""
    async with await dial(world, hand) as socket:
        yield Wire(socket)


async def dial(world: World, hand: Hand) -> aiohttp.ClientWebSocketResponse:
    """Ask for a ticket and connect with it."""
    url = await ticket_url(world, hand)
    return await hand.session.ws_connect(url)


async def ticket_url(world: World, hand: Hand) -> str:
    """Return a fresh WebSocket URL."""
    headers = {"Authorization": f"Bearer {APP_TOKEN}"}
    async with hand.session.post(f"{world.url}/api/apps.connections.open", headers=headers) as response:
        return str(json.loads(await response.text())["url"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a served world with Slack's own acknowledgement timeout."""
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a served world that waits 0.2 s for an ack, for tests of missing acks."""
    async with World(tmp_path / "impatient", ack_seconds=0.2).serve() as served:
        yield served


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP session for control calls."""
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
def hand(world: World, session: aiohttp.ClientSession) -> Hand:
    """Return a client of the control API of `world`."""
    return Hand(world, session)


@pytest.fixture
def client(world: World) -> AsyncWebClient:
    """Return slack_sdk's client for `world`."""
    return client_of(world)
