"""Tests of a connection that breaks during an acknowledgement: the loop continues, and the next connection sends it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.app.workers import Ports
from quotebot.sandbox.slack.directory import APP_TOKEN
from quotebot.sandbox.world import World
from quotebot.slack.connections import HELD_MAX, HELD_SECONDS, LARGE_CHARACTERS, LEVELS_MAX, POLL_SECONDS, Link, Links, _is_too_deep
from tests.rig import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.clock import Clock


class Nobody:
    """Receiver that ignores all envelopes."""

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        """Do nothing."""

    def take_oversized(self, frame: str, size: int, link: Link) -> None:
        """Do nothing."""


@pytest.mark.timeout(30)  # without the fix the loop hangs, and no timeout of its own fires
async def test_message_on_a_connection_that_just_broke_is_sent_over_the_next_one(tmp_path: Path) -> None:
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
            connection.transport.abort()  # its reader notices this in the next turn of the loop
            assert links.alive
            await links.send('{"envelope_id": "1"}', broken)
            assert list(links._links) != [broken]
            assert broken.ended.result() == "cut"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await links.close()


class Noting(Nobody):
    """Receiver that records the envelopes in the order of their arrival."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def take(self, envelope: dict[str, Any], link: Link) -> None:
        del link
        self.taken.append(envelope["envelope_id"])


def reading(contended: Callable[[], bool] | None) -> tuple[Noting, Callable[[str, int], bool]]:
    """Return the receiver, and a function that reads a frame whose envelope has this number of characters of text."""
    inbox = Noting()
    links = Links(AsyncWebClient(), "", inbox, clock=cast("Clock", None), draw=lambda low, _: low, contended=contended)
    link = Link(cast("aiohttp.ClientWebSocketResponse", None), asyncio.get_running_loop().create_future())

    def read(envelope_id: str, characters: int) -> bool:
        return links._take_text(link, json.dumps({"envelope_id": envelope_id, "text": "x" * characters}))

    return inbox, read


async def test_large_frame_waits_while_an_acknowledgement_is_under_way() -> None:
    busy = True
    inbox, read = reading(lambda: busy)
    assert read("large", LARGE_CHARACTERS)
    assert read("small", 10)
    assert inbox.taken == ["small"]
    busy = False
    await eventually(lambda: inbox.taken == ["small", "large"], "the large frame to be read")


async def test_large_frame_is_read_in_the_end_under_endless_contention() -> None:
    polls = list[None]()

    def contended() -> bool:
        polls.append(None)
        return True

    inbox, read = reading(contended)
    read("large", LARGE_CHARACTERS)
    await eventually(lambda: inbox.taken == ["large"], "the large frame to be read")
    assert len(polls) == round(HELD_SECONDS / POLL_SECONDS)


async def test_beyond_so_many_held_frames_the_next_is_read_at_once() -> None:
    inbox, read = reading(lambda: True)
    for number in range(HELD_MAX + 1):
        read(f"E{number}", LARGE_CHARACTERS)
    assert inbox.taken == [f"E{HELD_MAX}"]
    await eventually(lambda: len(inbox.taken) == HELD_MAX + 1, "all frames to be read")


async def test_large_frame_does_not_wait_when_nothing_is_under_way() -> None:
    inbox, read = reading(None)
    read("large", LARGE_CHARACTERS)
    assert inbox.taken == ["large"]


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_only_nesting_beyond_the_limit_is_too_deep(brackets: str) -> None:
    def nested(levels: int) -> str:
        one = "[" if brackets == "[]" else '{"a":'
        return one * levels + "1" + brackets[1] * levels

    wide = json.dumps([[]] * (2 * LEVELS_MAX))
    assert [_is_too_deep(text, json.loads(text)) for text in (nested(LEVELS_MAX), nested(LEVELS_MAX + 2), wide)] == [
        False,
        True,
        False,
    ]
