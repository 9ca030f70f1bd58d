"""The Salesforce stand-in as a server: TLS for simple-salesforce, plain HTTP for clients that accept it, faults, request log.

A client that only accepts the host *.salesforce.com gets an HTTP proxy (HTTPS_PROXY) and the stand-in's authority
(REQUESTS_CA_BUNDLE), and uses the address https://quotebot-sandbox.my.salesforce.com. The proxy serves only CONNECT to a Salesforce
host, on the loopback address.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from quotebot.observability.loopback import has_own_host, is_from_here, page_refused
from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.faults import HTTP_EFFECTS, ArmedFaults, Fault, Outages, Served
from quotebot.sandbox.salesforce.composite import CompositeApi
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET, TOKEN_PATH, Login, refused
from quotebot.sandbox.salesforce.org import Org, Record
from quotebot.sandbox.salesforce.refusals import DEFAULT, OF_LOGINS, SalesforceRefusalError, of_a_record, refusal
from quotebot.sandbox.salesforce.rest import Call, Reply, RestApi
from quotebot.sandbox.salesforce.schema import SCHEMA, SObject
from quotebot.sandbox.salesforce.tls import make_server_context
from quotebot.sandbox.serving import serving
from quotebot.sandbox.wire import Answer, Received, multipart

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quotebot.observability.loopback import Handler
    from quotebot.sandbox.request_log import Witness


_LOOPBACK = "127.0.0.1"
_HEAD_SECONDS = 5.0
_CHUNK_BYTES = 64 * 1024
_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BODY_BYTES_MAX = 16 * 1024 * 1024
_SHUTDOWN_SECONDS = 0.5
_FAREWELL_TURNS = 5  # turns of the event loop until a cut TLS connection releases its socket
_KEY_FIELD = "Quotebot_Key__c"
_NAMES_REMEMBERED = 256
_KEY_IN_BODY = re.compile(rb'"' + _KEY_FIELD.encode() + rb'"\s*:\s*"([^"\\]*)"')
_VERSIONS = [
    {"label": f"API {number}.0", "url": f"/services/data/v{number}.0", "version": f"{number}.0"} for number in range(46, 68)
]
_VERSION_NAMES = frozenset(f"v{version['version']}" for version in _VERSIONS)
_MAINTENANCE = b"<!DOCTYPE html><html><head><title>We are down for maintenance</title></head><body>Sorry!</body></html>"
_RETIRED = re.compile(r"/services/data/v(?:[7-9]|[12]\d|30)\.0(?:/|$)")
_READS = frozenset({"GET", "HEAD"})


class Tunnel:
    """Copies bytes between a client and the stand-in's TLS port."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._target = 0
        self._running: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self, target_port: int) -> None:
        """Serve on a free port."""
        self._target = target_port
        self._server = await asyncio.start_server(self._accept, _LOOPBACK, 0)
        self.url = f"http://{_LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Close the port and cut the open connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            verb, _, rest = head.decode("latin-1").partition(" ")
            host = urlsplit(f"//{rest.partition(' ')[0]}").hostname or ""
            if verb != "CONNECT" or not host.endswith(".salesforce.com"):
                writer.write(_REFUSED)
                await writer.drain()
                return
            back, inner = await asyncio.open_connection(_LOOPBACK, self._target)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, inner))
                both.create_task(_pump(back, writer))
        except* (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a broken connection is cut on both sides
        finally:
            for end in (writer, inner):
                if end is not None:
                    end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, then close the other side."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


class SalesforceService:
    """One org on its own loopback ports. Faults and the request log name oauth2/token, composite/graph, query, sobjects/Quote..."""

    def __init__(
        self,
        witness: Witness,
        weather: ArmedFaults,
        data_dir: Path | None,
        *,
        now: Callable[[], float] = time.time,
        tokens: Tokens | None = None,
    ) -> None:
        self._weather = weather
        self._outages = Outages("salesforce", weather, witness)
        self._data_dir = data_dir
        self._org = Org(now)
        self.rules = self._org.rules  # further reactions of the org to a write: its admin's rules, its locks
        self._rest = RestApi(self._org)
        self._composite = CompositeApi(self._org, self._rest)
        self._tunnel = Tunnel()
        self.login = Login(now, Tokens() if tokens is None else tokens)
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.plain_url = ""
        self.proxy_url = ""
        self.ca_file = ""

    async def start(self) -> None:
        """Make the certificates, then serve: `url` over TLS, `plain_url` without, `proxy_url` for *.salesforce.com.

        Raises RuntimeError without a data folder.
        """
        if self._data_dir is None:
            raise RuntimeError("an org without a folder has no place for its certificate, so it cannot be served")
        context, ca_file = await asyncio.to_thread(make_server_context, self._data_dir)
        application = web.Application(client_max_size=_BODY_BYTES_MAX, middlewares=[_only_programs])
        application.router.add_route("*", "/{path:.*}", serving(self, hold=self._hold))
        runner = web.AppRunner(application, shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None)
        self._runner = runner
        await runner.setup()
        await web.TCPSite(runner, _LOOPBACK, 0, ssl_context=context).start()
        await web.TCPSite(runner, _LOOPBACK, 0).start()
        self.url = f"https://{_LOOPBACK}:{runner.addresses[0][1]}"
        self.plain_url = f"http://{_LOOPBACK}:{runner.addresses[1][1]}"
        await self._tunnel.start(runner.addresses[0][1])
        self.proxy_url = self._tunnel.url
        self.ca_file = str(ca_file)

    async def stop(self) -> None:
        """Stop serving; requests held by a `slow` fault are dropped unanswered."""
        self._stopping.set()
        runner, self._runner = self._runner, None
        if runner is None:
            return
        await self._tunnel.stop()
        if runner.server is not None:
            for connection in runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()  # a TLS shutdown could take half a minute
        await runner.cleanup()
        for _ in range(_FAREWELL_TURNS):
            await asyncio.sleep(0)

    def environment(self) -> dict[str, str]:
        """Return the settings that connect the bot to this org."""
        return {
            "SALESFORCE_INSTANCE_URL": self.url,
            "SALESFORCE_CLIENT_ID": CLIENT_ID,
            "SALESFORCE_CLIENT_SECRET": CLIENT_SECRET,
            **({"SALESFORCE_CA_FILE": self.ca_file} if self.ca_file else {}),
        }

    def records(self, sobject: str) -> list[dict[str, object]]:
        """Return every record of an object, oldest first, JSON-ready. Raises KeyError for an unknown object."""
        return [self._stored(SCHEMA[sobject.lower()], record) for record in self._org.all(SCHEMA[sobject.lower()])]

    def _stored(self, sobject: SObject, record: Record) -> Record:
        """Return a record JSON-ready: Decimals as doubles, a file's bytes in base64 where the API gives their URL."""
        shown = {name: float(value) if isinstance(value, Decimal) else value for name, value in record.items()}
        if "VersionData" in shown:
            shown["VersionData"] = base64.b64encode(self._org.file(sobject, str(record["Id"]))).decode()
        return shown

    def delay(self, received: Received) -> float:
        """Return for how many seconds this request is delayed."""
        method = _method_name(received.verb, received.path, received.target)
        return self._outages.delay(method, self._effects(method))

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer one request. Raises Cut."""
        method = _method_name(received.verb, received.path, received.target)
        key = _key(received)

        def apply(fault: Fault | None) -> Served:
            effect = None if fault is None else fault.effect
            try:
                reply = (None if fault is None else self._refused_by(fault, received)) or self._served(received)
            except SalesforceRefusalError as error:
                reply = Reply.of(error)
            self.rules.refuse_next = None
            if effect == "malformed":
                return Served(Answer(200, {"Content-Type": "text/html"}, _MAINTENANCE), reply.applied, 200, key)
            if fault is not None and effect == "refused_after":
                broken = refusal(fault.code or "UNKNOWN_EXCEPTION")
                reply = Reply(broken.status, broken.body(), applied=reply.applied)
            return Served(self._answer(reply), reply.applied, reply.status, key)

        # The body of a login contains the secret: not even its hash is logged.
        seen = b"" if method == "oauth2/token" else received.body
        return self._outages.serve(method, seen, key, apply, waited=waited, effects=self._effects(method))

    def _effects(self, method: str) -> frozenset[str]:
        """Return the fault effects that may apply to a call of the method."""
        if method != "oauth2/token":
            return HTTP_EFFECTS
        armed = self._weather.armed("salesforce")
        aimed = any(fault.method == method and fault.effect == "auth_expired" for fault in armed)
        # An expired session does not stop a new login.
        return HTTP_EFFECTS if aimed else HTTP_EFFECTS - {"auth_expired"}

    async def _hold(self, seconds: float) -> bool:
        """Wait; returns False at once when the world stops."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return True
        return False

    def _refused_by(self, fault: Fault, received: Received) -> Reply | None:
        """Return or raise the refusal that a fault requires before the request is served."""
        if fault.effect == "refused":
            return self._refused_with(fault.code or DEFAULT, received)
        if fault.effect == "429":
            error = refusal("REQUEST_LIMIT_EXCEEDED")
            return Reply(429, error.body(), headers={"Retry-After": str(1 if fault.retry_after is None else fault.retry_after)})
        if fault.effect == "5xx":
            return Reply(int(fault.code or 503), refusal("SERVER_UNAVAILABLE").body())
        if fault.effect != "auth_expired":
            return None
        if fault.method == "oauth2/token":
            return refused("invalid_client", "invalid client credentials")
        self.login.expire_all()
        raise refusal("INVALID_SESSION_ID")

    def _refused_with(self, code: str, received: Received) -> Reply | None:
        """Refuse with an error code; None if the org refuses it later, when the request writes a record."""
        if code in OF_LOGINS:
            status, description = OF_LOGINS[code]
            return refused(code, description, status)
        if not of_a_record(code) or received.verb in _READS:
            raise refusal(code)
        self.rules.refuse_next = refusal(code)
        return None

    def _served(self, received: Received) -> Reply:
        login = self.login.serve(received)
        if login is not None:
            return login
        if received.path.rstrip("/") == "/services/data":
            return Reply(200, list(_VERSIONS))
        authorization = received.header("Authorization")
        if not self.login.accepts(authorization):
            readable = not authorization or authorization.lower().startswith(("bearer ", "oauth "))
            raise refusal("INVALID_SESSION_ID" if readable else "INVALID_AUTH_HEADER")
        if self._rest.served >= self._rest.allowance:
            raise refusal("REQUEST_LIMIT_EXCEEDED")
        self._rest.served += 1
        return self._resource(received)

    def _resource(self, received: Received) -> Reply:
        if _RETIRED.match(received.path):
            raise refusal("UNSUPPORTED_API_VERSION")
        call = Call.parse(received.verb, received.target, _body(received), received.header("Sforce-Query-Options"))
        if call.version not in _VERSION_NAMES:
            raise refusal("NOT_FOUND")
        return self._composite.serve(call) if call.path[0] == "composite" else self._rest.serve(call)

    def _answer(self, reply: Reply) -> Answer:
        headers = {"Sforce-Limit-Info": f"api-usage={self._rest.served}/{self._rest.allowance}", **reply.headers}
        if reply.body is None:
            return Answer(reply.status, headers)
        if isinstance(reply.body, bytes):
            return Answer(reply.status, {"Content-Type": "application/octetstream", **headers}, reply.body)
        return Answer(
            reply.status,
            {"Content-Type": "application/json", **headers},
            json.dumps(reply.body, default=float, ensure_ascii=False).encode(),
        )


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _method_name(verb: str, path: str, target: str) -> str:
    if path == TOKEN_PATH:
        return "oauth2/token"
    try:
        return Call.parse(verb, target, None).name()
    except SalesforceRefusalError:
        return path.strip("/")


def _body(received: Received) -> object:
    """Parse a body: JSON, or multipart with JSON and a file."""
    if received.content_type == "multipart/form-data":
        return _with_file(received)
    return _json(received.body) if received.body.strip() else None


def _json(raw: bytes | str) -> object:
    try:
        return json.loads(raw, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise SalesforceRefusalError("JSON_PARSER_ERROR", "The request body is not JSON") from error


@web.middleware
async def _only_programs(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests from web pages. Clients that come through the tunnel name a Salesforce host, and always use TLS."""
    through_tunnel = request.scheme == "https" and request.host.lower().partition(":")[0].endswith(".salesforce.com")
    return await handler(request) if (through_tunnel or has_own_host(request)) and is_from_here(request) else page_refused()


def _with_file(received: Received) -> object:
    """Parse a multipart body: the part named entity_... contains the fields, a part with a file name the bytes of its field."""
    try:
        parts = multipart(received.header("Content-Type"), received.body)
    except ValueError as error:
        raise SalesforceRefusalError("INVALID_MULTIPART_REQUEST", f"The multipart body cannot be read: {error}") from error
    body: dict[str, object] = {}
    for part in parts:
        if part.filename is not None:
            body[part.name] = part.content
            continue
        fields = _json(part.content)
        if not isinstance(fields, dict):
            raise SalesforceRefusalError("JSON_PARSER_ERROR", f"The part {part.name} is not one JSON object")
        body.update(fields)
    return body


def _key(received: Received) -> str | None:
    """Return the bot's own key: the first one in the body (the quote's, in a graph), else the one in the path."""
    found = _KEY_IN_BODY.search(received.body)
    if found is not None:
        return found.group(1).decode("utf-8", "replace")
    place, _, key = received.path.partition(f"/{_KEY_FIELD}/")
    return key if place and key else None
