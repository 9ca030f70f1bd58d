"""The openai client over the laboratory's wire: the real library, whose requests pass the same choke points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from faults.lab.traps import UnreachableError
from quotebot.app.clients import connect_model
from quotebot.sandbox.wire import Cut, Received

if TYPE_CHECKING:
    import contextlib

    from faults.lab.wire import Wire
    from quotebot.dispatch.services import Model
    from quotebot.settings import Settings


class _Transport(httpx2.AsyncBaseTransport):
    """httpx2 transport over the wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request to the stand-in."""
        body = await request.aread()
        received = Received(request.method, str(request.url), dict(request.headers), body)
        try:
            answer = await self._wire.carry("out:llm:chat.completions", received)
        except UnreachableError:
            raise httpx2.ConnectError("refused", request=request) from None
        except Cut:
            raise httpx2.RemoteProtocolError("cut", request=request) from None
        return httpx2.Response(answer.status, headers=dict(answer.headers), content=answer.body, request=request)


def model_over(wire: Wire, stack: contextlib.AsyncExitStack, settings: Settings) -> Model | None:
    """Return the model that the settings name, reached over the wire; None without a model."""
    if settings.llm_base_url is None:
        return None
    return connect_model(stack, settings, httpx2.AsyncClient(transport=_Transport(wire)))
