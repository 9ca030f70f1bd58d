"""Tests of the stand-in with slack_sdk's unmodified clients, the one with threads and the one with asyncio, each in a scenario.

The scenario: a slash command, a click, a form with an error, a file, an event, and a reconnection. (The other tests of this folder
use Bolt, test_bolt_js.py uses Bolt on Node.)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.aiohttp import SocketModeClient as AsyncSocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web import WebClient
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook import WebhookClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from quotebot.sandbox.slack.directory import APP_TOKEN, BOT_TOKEN
from tests.sandbox.conftest import Hand, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slack_sdk.socket_mode.request import SocketModeRequest

    from quotebot.sandbox.world import World

BUTTON = {"type": "button", "action_id": "reject", "text": {"type": "plain_text", "text": "Reject"}, "value": "Q-1"}
CARD = [{"type": "actions", "elements": [BUTTON]}]
FORM = {
    "type": "modal",
    "callback_id": "reason",
    "title": {"type": "plain_text", "text": "Reject"},
    "submit": {"type": "plain_text", "text": "Send"},
    "blocks": [
        {
            "type": "input",
            "block_id": "why",
            "label": {"type": "plain_text", "text": "Why?"},
            "element": {"type": "plain_text_input", "action_id": "text"},
        }
    ],
}
Step = tuple[str, dict[str, Any]]


def plan(request: SocketModeRequest) -> tuple[dict[str, Any] | None, list[Step]]:
    """Return the ack's payload, and an app's calls after it: a Web API method or `respond`, and its arguments."""
    payload = request.payload
    if request.type == "slash_commands":
        answer = ("respond", {"url": payload["response_url"], "text": f"You typed {payload['text']}"})
        card = ("chat_postMessage", {"channel": payload["channel_id"], "text": "A card", "blocks": CARD})
        return {"text": "On it"}, [answer, card]
    if payload["type"] == "block_actions":
        return None, [("views_open", {"trigger_id": payload["trigger_id"], "view": FORM})]
    if payload["type"] == "view_submission":
        why = payload["view"]["state"]["values"]["why"]["text"]["value"]
        if len(why) < 10:
            return {"response_action": "errors", "errors": {"why": "Say it in a sentence."}}, []
        return None, [("chat_postMessage", {"channel": payload["user"]["id"], "text": f"Noted: {why}"})]
    if payload.get("event", {}).get("type") == "app_mention":
        event = payload["event"]
        place = {"channel": event["channel"], "thread_ts": event["ts"]}
        return None, [("files_upload_v2", {**place, "filename": "a.txt", "content": "a quote", "initial_comment": "Here"})]
    return None, []


class App(ABC):
    """An app that follows the plan, in one of slack_sdk's two styles."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...


class Threaded(App):
    def __init__(self, world: World) -> None:
        web = WebClient(token=BOT_TOKEN, base_url=f"{world.url}/api/")
        self._client = SocketModeClient(APP_TOKEN, web_client=web, ping_interval=0.3)
        self._client.socket_mode_request_listeners.append(self._handle)

    async def start(self) -> None:
        await asyncio.to_thread(self._client.connect)

    async def stop(self) -> None:
        await asyncio.to_thread(self._client.close)

    def _handle(self, client: Any, request: SocketModeRequest) -> None:
        payload, steps = plan(request)
        client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))
        for method, arguments in steps:
            if method == "respond":
                WebhookClient(arguments["url"]).send(text=arguments["text"])
            else:
                getattr(client.web_client, method)(**arguments)


class Asynchronous(App):
    def __init__(self, world: World) -> None:
        web = AsyncWebClient(token=BOT_TOKEN, base_url=f"{world.url}/api/")
        self._client = AsyncSocketModeClient(APP_TOKEN, web_client=web, ping_interval=1)
        self._client.socket_mode_request_listeners.append(self._handle)

    async def start(self) -> None:
        await self._client.connect()  # type: ignore[no-untyped-call] # slack_sdk says nothing of its type

    async def stop(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call] # as above

    async def _handle(self, client: Any, request: SocketModeRequest) -> None:
        payload, steps = plan(request)
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))
        for method, arguments in steps:
            if method == "respond":
                await AsyncWebhookClient(arguments["url"]).send(text=arguments["text"])
            else:
                await getattr(client.web_client, method)(**arguments)


@asynccontextmanager
async def running(app: App, world: World) -> AsyncIterator[None]:
    await app.start()
    await eventually(lambda: world.socket.connections > 0, world)
    try:
        yield
    finally:
        await app.stop()


@pytest.mark.parametrize("style", [Threaded, Asynchronous])
async def test_slack_sdk_alone_runs_a_whole_scenario(style: type[Any], world: World, hand: Hand) -> None:
    async with running(style(world), world):
        assert (await hand.slash("new for Acme"))["ack"] == {"text": "On it"}
        await eventually(lambda: len(world.slack.messages.all()) == 3, world)
        assert sorted(await hand.texts()) == ["A card", "On it", "You typed new for Acme"]  # an ack and a call race, as with Slack

        (card,) = [message for message in await hand.messages() if message["text"] == "A card"]
        await hand.post("action", user="U0REP", action_id="reject", channel=card["channel"], message_ts=card["ts"])
        await eventually(lambda: bool(world.slack.views.stacks.get("U0REP")), world)
        (form,) = world.slack.views.stacks["U0REP"]
        await hand.post("submit", user="U0REP", view_id=form.id, values={"why": {"text": "no"}})
        assert (await hand.get("state"))["views"][0]["errors"] == {"why": "Say it in a sentence."}
        await hand.post("submit", user="U0REP", view_id=form.id, values={"why": {"text": "The term is too long."}})
        assert (await hand.get("state"))["views"] == []
        noted = "Noted: The term is too long."
        await eventually(lambda: noted in [message.text for message in world.slack.messages.all()], world)

        await hand.post("message", user="U0REP", channel="C0DEALS", text="@quotebot a file, please")
        await eventually(lambda: bool(world.slack.files.all()), world)
        (file,) = world.slack.files.all()
        assert (file.name, file.size, list(file.shares)) == ("a.txt", 7, ["C0DEALS"])

        links = [sighting.seq for sighting in world.witness.since() if sighting.method == "apps.connections.open"]
        await hand.post("faults", target="socket", effect="disconnect")
        await eventually(
            lambda: len([1 for seen in world.witness.since() if seen.method == "apps.connections.open"]) > len(links), world
        )
        await eventually(lambda: world.socket.connections > 0, world)
        assert (await hand.slash("help"))["ack"] == {"text": "On it"}
