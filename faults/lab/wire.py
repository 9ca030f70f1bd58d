"""The bot's connections in a laboratory: replacements of aiohttp's session and of requests' connections.

slack_sdk and simple-salesforce are the real libraries. Each request they make is a choke point (before it is sent, when the other
side has taken it, when its answer has arrived) and one call of the stand-ins' synchronous core.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import json
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import requests
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict
from requests.adapters import BaseAdapter

from adapters.salesforce.transport import leaving
from faults.lab.traps import UnreachableError
from quotebot.sandbox.wire import Answer, Cut, Received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from faults.lab.traps import Trap

T = TypeVar("T")
TIMEOUT_SECONDS: Final = 20.0  # of a blocking request


class FarEnd(Protocol):
    """The other side of every request: the stand-ins' World, here or in another process."""

    def delay(self, received: Received) -> float:
        """Seconds to wait before this request is served."""
        ...

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Serve the request; `waited` states that `delay` was not 0. Raises Cut if the connection breaks instead of an answer."""
        ...


class Wire:
    """One bot's connections. `cut` ends them for good, as a crash of the process does."""

    def __init__(self, far_end: FarEnd, trap: Trap, latency: Callable[[], float]) -> None:
        self._far_end = far_end
        self._trap = trap
        self._latency = latency
        self.session = _Session(self)
        self.salesforce = requests.Session()
        self.salesforce.trust_env = False
        self.salesforce.mount("https://", _SalesforceAdapter(self))

    async def exchange(self, received: Received) -> Answer:
        """Send one request in place of aiohttp. Raises what aiohttp would."""
        try:
            return await self.carry(f"out:slack:{_method(received.url)}", received)
        except UnreachableError:
            raise aiohttp.ClientConnectorError(_NOWHERE, OSError(111, "refused")) from None
        except Cut:
            raise aiohttp.ServerDisconnectedError from None

    async def carry(self, name: str, received: Received) -> Answer:
        """Send one non-blocking request, under this name. Raises UnreachableError and Cut."""
        self._trap.passes(f"{name}:before")
        delay = self._far_end.delay(received)
        await asyncio.sleep(self._latency() + delay)
        answer = self._far_end.receive(received, waited=delay > 0)
        self._trap.passes(f"{name}:sent")
        await asyncio.sleep(self._latency())
        self._trap.passes(f"{name}:answered")
        return answer

    def exchange_now(self, received: Received) -> Answer:
        """Send one blocking request in place of requests. Raises what requests would."""
        name = f"out:salesforce:{_method(received.url)}"
        try:
            self._trap.passes(f"{name}:before")
        except UnreachableError:
            raise requests.ConnectionError("refused") from None
        leaving()
        delay = self._far_end.delay(received)
        try:
            answer = self._far_end.receive(received, waited=delay > 0)
            self._trap.passes(f"{name}:sent")
        except Cut:
            raise requests.ConnectionError("cut") from None
        if delay >= TIMEOUT_SECONDS:
            raise requests.ReadTimeout("too late")
        self._trap.passes(f"{name}:answered")
        return answer


class InPlace(concurrent.futures.Executor):
    """An executor without threads: work is done when it is submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Run the function at once."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 -- passed to the task that awaits it
            future.set_exception(error)
        return future


class _Session:
    """The part of aiohttp.ClientSession that slack_sdk and the Slack adapter use."""

    closed = False

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @contextlib.asynccontextmanager
    async def request(self, verb: str, url: object, **options: Any) -> AsyncIterator[_Response]:
        headers, body = _body(dict(options.get("headers") or {}), options)
        query = f"?{urlencode(options['params'])}" if options.get("params") else ""
        yield _Response(await self._wire.exchange(Received(verb, f"{url}{query}", headers, body)))

    def post(self, url: object, **options: Any) -> AbstractAsyncContextManager[_Response]:
        return self.request("POST", url, **options)

    async def close(self) -> None:
        self.closed = True


class _Response:
    """The part of aiohttp.ClientResponse that is used."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = CIMultiDict(answer.headers)
        self._body = answer.body
        self.content = self

    @property
    def content_type(self) -> str:
        return str(self.headers.get("Content-Type", "application/octet-stream")).partition(";")[0].strip()

    async def read(self, limit: int = -1) -> bytes:
        return self._body if limit < 0 else self._body[:limit]

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), size):
            yield self._body[start : start + size]

    async def text(self) -> str:
        return self._body.decode("utf-8", "replace")

    async def json(self) -> Any:
        if self.content_type != "application/json":
            raise aiohttp.ContentTypeError(None, (), message=self.content_type)  # type: ignore[arg-type] # who reads it wants its kind only
        return json.loads(self._body)


class _SalesforceAdapter(BaseAdapter):
    """requests adapter that sends Salesforce calls through the lab's `Wire`."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        del args, kwargs
        body = request.body.encode() if isinstance(request.body, str) else bytes(request.body or b"")
        answer = self._wire.exchange_now(Received(str(request.method), str(request.url), dict(request.headers), body))
        response = requests.Response()
        response.status_code = answer.status
        response.headers.update(answer.headers)
        response.raw = io.BytesIO(answer.body)
        response._content = answer.body  # noqa: SLF001 -- as requests' own adapters do once a body is read
        response.url = str(request.url)
        response.request = request
        response.encoding = "utf-8"
        leaving(response.headers)
        return response

    def close(self) -> None:
        """Does nothing: nothing is open."""


def _body(headers: dict[str, str], options: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """Encode a body as aiohttp would."""
    if options.get("json") is not None:
        return {**headers, "Content-Type": "application/json"}, json.dumps(options["json"]).encode()
    data = options.get("data")
    if data is None:
        return headers, b""
    if isinstance(data, io.BytesIO):
        return headers, data.read()
    if isinstance(data, bytes):
        return headers, data
    return {**headers, "Content-Type": "application/x-www-form-urlencoded"}, urlencode(data).encode()


def _method(url: str) -> str:
    """Name a request by its path: chat.postMessage, upload, response_url, token, graph, Quote."""
    parts = [part for part in urlsplit(url).path.split("/") if part]
    for mark, name in (("hooks", "response_url"), ("upload", "upload"), ("oauth2", "token"), ("composite", "graph")):
        if mark in parts:
            return name
    return parts[3] if parts[:2] == ["services", "data"] and len(parts) > 3 else parts[-1]  # noqa: PLR2004 -- services/data/version/what


_NOWHERE: Final = ConnectionKey("127.0.0.1", 1, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
