"""Tests of the stand-in with a client in another language: unmodified @slack/bolt 5 on Node, if it is installed."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.sandbox.conftest import eventually
from tests.sandbox.node_parts import FOLDER, needs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.sandbox.world import World
    from tests.sandbox.conftest import Hand

SECONDS = 30.0
pytestmark = needs("@slack/bolt")


class Node:
    """The app's process, and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def told(self, what: str) -> dict[str, Any]:
        """Return its next message, which must be `what`."""
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(await asyncio.wait_for(self._process.stdout.readline(), SECONDS))
        assert line["what"] == what, line
        return line


@asynccontextmanager
async def bolt(world: World, checkout: Path) -> AsyncIterator[Node]:
    own = {name: value for name, value in world.environment().items() if name.startswith("SLACK_")}
    process = await asyncio.create_subprocess_exec(
        *("node", str(checkout / "tests" / "node" / "bolt.mjs")),
        env={"PATH": os.environ["PATH"], "NODE_FOLDER": str(FOLDER), **own},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        node = Node(process)
        await node.told("started")
        await eventually(lambda: world.socket.connections > 0, world)
        yield node
    finally:
        process.kill()
        await process.wait()


async def test_bolt_js_handles_all_interactions_and_reconnects_after_a_disconnect(world: World, hand: Hand, checkout: Path) -> None:
    async with bolt(world, checkout) as node:
        assert (await hand.slash("new for Acme"))["ack"] == {"text": "On it"}
        assert (await node.told("command"))["text"] == "new for Acme"
        assert await hand.texts() == ["On it", "You typed new for Acme", "A card"]

        card = (await hand.messages())[-1]
        where = {"channel": card["channel"], "message_ts": card["ts"]}
        assert (await hand.post("action", user="U0REP", action_id="reject", **where))["ack_ms"] is not None
        assert (await node.told("action"))["value"] == "Q-1"

        (entry,) = (await hand.get("state"))["views"]
        form = {"user": "U0REP", "view_id": entry["view"]["id"]}
        await hand.post("submit", values={"why": {"text": "no"}}, **form)
        assert (await hand.get("state"))["views"][0]["errors"] == {"why": "Say it in a sentence."}
        await hand.post("submit", values={"why": {"text": "The term is too long."}}, **form)
        assert (await node.told("view"))["why"] == "The term is too long."
        assert (await hand.get("state"))["views"] == []
        assert (await hand.texts())[-1] == "Noted: The term is too long."

        await hand.post("message", user="U0REP", channel="C0DEALS", text="@quotebot a file, please")
        assert await node.told("mention") == {
            "what": "mention",
            "text": "<@U0QUOTEBOT> a file, please",
            "retry": 0,
            "uploaded": True,
        }
        (file,) = (await hand.get("state"))["files"]
        assert (file["name"], file["size"]) == ("a.txt", 7)

        await hand.post("faults", target="socket", effect="disconnect")
        await eventually(lambda: world.socket.connections == 0, world)
        async with asyncio.timeout(SECONDS):
            while not world.socket.connections:
                await world.slack.changes.after(world.slack.changes.version, 1.0)
        assert (await hand.slash("help"))["ack"] == {"text": "On it"}
        assert (await node.told("command"))["text"] == "help"
