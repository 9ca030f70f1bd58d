"""Applications that acknowledge at once and store nothing: the SDK's client alone, Bolt, and Bolt that waits for its listener.

python -m bench.acks.apps raw|bolt|bolt-pbr URL
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

if TYPE_CHECKING:
    from slack_sdk.socket_mode.request import SocketModeRequest

TEXT = "On it."


async def raw(web_client: AsyncWebClient, app_token: str) -> None:
    """Acknowledge in the SDK's own listener."""

    async def listener(client: Any, request: SocketModeRequest) -> None:
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload={"text": TEXT}))

    client = SocketModeClient(app_token=app_token, web_client=web_client)
    client.socket_mode_request_listeners.append(listener)
    await client.connect()  # type: ignore[no-untyped-call] # the SDK has no types here


async def bolt(web_client: AsyncWebClient, app_token: str, *, process_before_response: bool) -> None:
    """Acknowledge in a Bolt listener."""
    app = AsyncApp(client=web_client, process_before_response=process_before_response)

    @app.command("/quote")
    async def quote(ack: Any) -> None:
        await ack(text=TEXT)

    await AsyncSocketModeHandler(app, app_token).connect_async()  # type: ignore[no-untyped-call] # Bolt has no types


async def main() -> None:
    """Connect and stay."""
    name, url = sys.argv[1:]
    web_client = AsyncWebClient(token="xoxb-bench", base_url=f"{url}/api/")  # noqa: S106 -- no secret
    app_token = f"xapp-{name}"
    if name == "raw":
        await raw(web_client, app_token)
    else:
        await bolt(web_client, app_token, process_before_response=name == "bolt-pbr")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
