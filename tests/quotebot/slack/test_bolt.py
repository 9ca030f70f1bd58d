from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from quotebot.slack.receiver import Envelopes, PromptApp
from tests.quotebot.access_parts import OpenGate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slack_sdk.socket_mode.response import SocketModeResponse

    from quotebot.slack.gate import AccessGate

BLOCKS = [{"type": "section", "text": {"type": "mrkdwn", "text": "hello"}}]


async def acknowledged(listener: Callable[[Any], Awaitable[None]]) -> list[Any]:
    """Run a listener on a typed command; return the acknowledgements that were sent."""
    left: list[Any] = []

    class Client:
        async def send_socket_mode_response(self, response: SocketModeResponse) -> None:
            left.append(response.to_dict())

    async def typed(ack: Any, body: dict[str, Any], context: Any) -> None:
        del body, context
        await listener(ack)

    app = PromptApp(name="bolt", client=AsyncWebClient(token="xoxb-1"), process_before_response=True)
    app.typed, app.gate = typed, cast("AccessGate", OpenGate())
    was = await Envelopes(app).answer(
        Client(), SocketModeRequest("slash_commands", "E1", {"command": "/quote", "text": "x", "user_id": "U0REP"})
    )
    assert was is bool(left)
    return left


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ({"text": "On it."}, {"payload": {"text": "On it."}}),
        ({"text": '{"no": JSON'}, {"payload": {"text": '{"no": JSON'}}),
        ({"text": "hello", "blocks": BLOCKS}, {"payload": {"text": "hello", "blocks": BLOCKS}}),
        ({"text": "hello", "blocks": None}, {"payload": {"text": "hello"}}),
        ({"text": "hello", "blocks": []}, {"payload": {"text": "hello"}}),
        ({}, {}),
    ],
)
async def test_what_a_listener_says_leaves_as_it_was_said(said: dict[str, Any], rest: dict[str, Any]) -> None:
    async def listener(ack: Any) -> None:
        await ack(**said)

    assert await acknowledged(listener) == [{"envelope_id": "E1", **rest}]


async def test_a_command_that_nobody_acknowledges_stays_unacknowledged() -> None:
    async def listener(ack: Any) -> None:
        del ack

    assert await acknowledged(listener) == []


async def test_failing_listener_sends_no_acknowledgement() -> None:
    async def listener(ack: Any) -> None:
        await ack(text="On it.")
        raise ValueError("and then it broke")

    assert await acknowledged(listener) == []
