"""Shared parts of the tests of the Slack adapter."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError
from adapters.slack.api import BoundedWebClient, PostedMessage, SlackApi
from quotebot.sandbox.slack.directory import BOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.world import World

CHANNEL = "C0DEALS"
BLOCKS: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": "$17,340.00"}}]
PDF = b"%PDF-1.7 " + bytes(range(256)) * 8
DEADLINE_SECONDS = 10.0


def client_for(base_url: str) -> BoundedWebClient:
    return BoundedWebClient(token=BOT_TOKEN, base_url=base_url, retry_handlers=[])


def api_for(world: World, **options: Any) -> SlackApi:
    host = world.url.removeprefix("http://")
    return SlackApi(client_for(f"{world.url}/api/"), **{"response_url_hosts": frozenset({host}), **options})


async def post(api: SlackApi, *, key: str = "k1", text: str = "Quote", thread_ts: str | None = None) -> PostedMessage:
    return await api.post(channel=CHANNEL, text=text, blocks=BLOCKS, thread_ts=thread_ts, key=key, correlation_id="c-1")


def posted(world: World) -> list[Message]:
    return world.slack.messages.all()


def requests(world: World, method: str) -> int:
    return Counter(sighting.method for sighting in world.witness.since())[method]


async def failure_of(call: Awaitable[object]) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await call
    return caught.value


async def seen(world: World, method: str) -> None:
    """Wait until the world has served a request of the method."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not requests(world, method):
            await world.witness.wait()


def response_url(world: World) -> str:
    return world.url + world.slack.passes.response_url("commands", "U0REP", CHANNEL, None).path


MODAL = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "Reject"},
    "blocks": [{"type": "section", "text": {"type": "plain_text", "text": "Why?"}}],
}
