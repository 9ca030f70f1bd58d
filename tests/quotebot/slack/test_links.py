"""A connection that breaks under an acknowledgement costs nobody the loop: the acknowledgement waits for the next one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.core import Ports
from quotebot.sandbox.slack.directory import APP_TOKEN
from quotebot.sandbox.world import World
from quotebot.slack.links import Link, Links
from tests.rig import eventually

if TYPE_CHECKING:
    from pathlib import Path


class Nobody:
    """Takes what arrives, and does nothing with it."""

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        """Let it be."""

    def take_oversized(self, frame: str, size: int, link: Link) -> None:
        """Let it be."""


@pytest.mark.timeout(30)  # without the mend the loop never comes back, and no timeout of its own fires
async def test_what_is_sent_over_a_connection_that_breaks_that_very_moment_leaves_over_the_next_one(tmp_path: Path) -> None:
    ports = Ports()
    async with World(tmp_path / "world").serve() as world, aiohttp.ClientSession() as session:
        client = AsyncWebClient(base_url=f"{world.url}/api/", session=session, retry_handlers=[])
        links = Links(client, APP_TOKEN, Nobody(), clock=ports.clock, draw=ports.draw)
        running = asyncio.create_task(links.run())
        try:
            await eventually(lambda: links.alive, "a connection")
            (broken,) = links._links
            connection = broken.socket._response.connection
            assert connection is not None
            assert connection.transport is not None
            connection.transport.abort()  # its reader hears of it in the next turn of the loop
            assert links.alive
            await links.send('{"envelope_id": "1"}', broken)
            assert list(links._links) != [broken]
            assert broken.ended.result() == "cut"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await links.close()
