"""Tests of Salesforce's answers: every row of the error table over a scripted TLS server, and the exact JSON that is sent."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import Salesforce, SalesforceLine, SalesforceQuote
from adapters.salesforce.errors import BY_CODE, SalesforceRefusal, Target, refused
from adapters.salesforce.graph import GraphAnswer, exact_json, graph_body, read_graph
from adapters.salesforce.transport import ANSWER_BYTES_MAX
from quotebot.sandbox.salesforce.tls import make_server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = b'{"access_token": "00D!token", "instance_url": "https://elsewhere.example", "token_type": "Bearer"}'
LINE = SalesforceLine("pro", "Pro Plan", 3, 12, Decimal("0.0025"), Decimal("12.5"), Decimal("0.08"), 1)
QUOTE = SalesforceQuote("k1", "Quote one", "Acme Corp", 1, "USD", Decimal("0.08"), "hash-1", "2026-12-31", (LINE,))

EMPTY_GRAPH = b'{"graphs": [{"isSuccessful": true, "graphResponse": {"compositeResponse": []}}]}'


@dataclass
class Scripted:
    """A TLS server that answers every API request with the same bytes; with `drip` it then adds bytes slowly, without end."""

    answer: bytes = b""
    drip: bool = False
    hang_up: bool = False
    token: bytes = TOKEN
    requests: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head.lower())
                body = await reader.readexactly(int(length.group(1))) if length else b""
                if b"/oauth2/token" in head:
                    writer.write(http(200, self.token))
                    continue
                self.requests.append(head + body)
                writer.write(self.answer)
                if self.drip:
                    await self._drip(reader, writer)
                    return
                if self.hang_up:
                    await writer.drain()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.transport.abort()

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed = asyncio.ensure_future(reader.read(1))
        while not closed.done():
            writer.write(b" ")
            await asyncio.wait([closed], timeout=0.02)
        self.gone.set()


@asynccontextmanager
async def talking_to(script: Scripted, directory: Path, *, timeout_seconds: float = 5.0) -> AsyncIterator[Salesforce]:
    context, ca_file = make_server_context(directory)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = Salesforce(
        f"https://127.0.0.1:{port}", "id", "secret", ca_file=str(ca_file), timeout_seconds=timeout_seconds, threads=1
    )
    try:
        yield client
    finally:
        await client.close()
        server.close()
        for _ in range(5):
            await asyncio.sleep(0)  # lets the loop close the cut connections


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def refusal(status: int, code: str, message: str = "no", *headers: str) -> bytes:
    return http(status, json.dumps([{"errorCode": code, "message": message, "fields": []}]).encode(), *headers)


def graph(code: str, *, status: int = 400, reference: str = "line1", fields: tuple[str, ...] = ()) -> bytes:
    halted: list[dict[str, object]] = [{"errorCode": "PROCESSING_HALTED", "message": "rolled back"}]
    error: list[dict[str, object]] = [{"errorCode": code, "message": "no", "fields": list(fields)}]
    results: list[dict[str, object]] = [
        {"body": error if name == reference else halted, "httpHeaders": {}, "httpStatusCode": status, "referenceId": name}
        for name in ("quote", "line1")
    ]
    answer = {"graphs": [{"graphId": "1", "graphResponse": {"compositeResponse": results}, "isSuccessful": False}]}
    return http(200, json.dumps(answer).encode())


async def failure_of(client: Salesforce) -> AdapterError:
    with pytest.raises(AdapterError) as error:
        await client.create_quote(QUOTE, correlation_id="op 1\r\nX: y")
    return error.value


@pytest.mark.parametrize(
    ("code", "failure"),
    [(code, failure) for code, failure in BY_CODE.items() if code not in ("DUPLICATE_VALUE", "INVALID_SESSION_ID")],
)
async def test_every_code_of_the_table_is_read_from_a_refused_graph(tmp_path: Path, code: str, failure: Failure) -> None:
    script = Scripted(graph(code))
    async with talking_to(script, tmp_path) as client:
        error = await failure_of(client)
    assert (error.failure, error.code, error.possibly_applied) == (failure, code, False)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("answer", "failure", "code", "possibly_applied"),
    [
        (refusal(400, "SOMETHING_NEW"), Failure.VALIDATION, "SOMETHING_NEW", False),
        (refusal(403, "SOMETHING_NEW"), Failure.VALIDATION, "SOMETHING_NEW", False),
        (refusal(403, "API_DISABLED_FOR_ORG"), Failure.AUTH, "API_DISABLED_FOR_ORG", False),
        (refusal(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit"), Failure.THROTTLED, "REQUEST_LIMIT_EXCEEDED", False),
        (refusal(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests Limit"), Failure.TRANSIENT, "REQUEST_LIMIT_EXCEEDED", False),
        (refusal(400, "UNABLE_TO_LOCK_ROW"), Failure.TRANSIENT, "UNABLE_TO_LOCK_ROW", False),
        (refusal(500, "UNKNOWN_EXCEPTION"), Failure.TRANSIENT, "UNKNOWN_EXCEPTION", True),
        (refusal(503, "SERVER_UNAVAILABLE"), Failure.TRANSIENT, "SERVER_UNAVAILABLE", False),
        (refusal(401, "INVALID_AUTH_HEADER"), Failure.AUTH, "INVALID_AUTH_HEADER", False),
        (refusal(405, "METHOD_NOT_ALLOWED"), Failure.MAPPING, "METHOD_NOT_ALLOWED", False),
        (http(300, b'["/a", "/b"]'), Failure.MAPPING, "HTTP_300", False),
        (http(401, b"<html>"), Failure.AUTH, "HTTP_401", False),
        (http(404, b"<html>"), Failure.VALIDATION, "HTTP_404", False),
        (http(408, b""), Failure.TRANSIENT, "HTTP_408", False),
        (http(410, b"{}"), Failure.MAPPING, "HTTP_410", False),
        (http(425, b""), Failure.TRANSIENT, "HTTP_425", False),
        (http(429, b"", "Retry-After: 30"), Failure.THROTTLED, "HTTP_429", False),
        (http(500, b"null"), Failure.TRANSIENT, "HTTP_500", True),
        (http(502, b"<html>"), Failure.TRANSIENT, "HTTP_502", True),
        (http(503, b"<html>"), Failure.TRANSIENT, "HTTP_503", True),
        (http(504, b""), Failure.TRANSIENT, "HTTP_504", True),
        (http(302, b"", "Location: https://evil.example/"), Failure.VALIDATION, "redirect", False),
        (http(200, b"<html>We are down</html>"), Failure.TRANSIENT, "unreadable", True),
        (http(200, b"{}"), Failure.TRANSIENT, "unreadable", True),
        (http(200, b"[]"), Failure.TRANSIENT, "unreadable", True),
        (http(200, b"5"), Failure.TRANSIENT, "unreadable", True),
        (http(200, b"[" * 100_000), Failure.TRANSIENT, "unreadable", True),
        (http(200, EMPTY_GRAPH), Failure.TRANSIENT, "unreadable", True),
        (http(200, b" " * (ANSWER_BYTES_MAX + 1)), Failure.TRANSIENT, "unreadable", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", Failure.TRANSIENT, "network", True),
        (b"not HTTP at all\r\n\r\n", Failure.TRANSIENT, "network", True),
        (b"", Failure.TRANSIENT, "network", True),
    ],
)  # fmt: skip
async def test_an_answer_is_read_by_status_and_code_after_exactly_one_request(
    tmp_path: Path, answer: bytes, failure: Failure, code: str, *, possibly_applied: bool
) -> None:
    script = Scripted(answer, hang_up=not answer.startswith(b"HTTP") or b"short" in answer)
    async with talking_to(script, tmp_path) as client:
        error = await failure_of(client)
    assert (error.failure, error.code, error.possibly_applied) == (failure, code, possibly_applied)
    assert error.retry_after_seconds == (30 if b"Retry-After" in answer else None)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ("Retry-After: 1.5", 1.5),
        ("Retry-After: Sat, 21 Nov 2026 10:00:30 GMT\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT", 30),
        ("Retry-After: Sat, 21 Nov 2026 09:00:00 GMT\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT", 0),
        ("Retry-After: -5", None),
        ("Retry-After: soon", None),
    ],
)
async def test_the_wait_salesforce_asks_for_is_read_as_seconds_or_as_a_date(
    tmp_path: Path, headers: str, seconds: float | None
) -> None:
    async with talking_to(Scripted(http(429, b"", headers)), tmp_path) as client:
        error = await failure_of(client)
    assert (error.failure, error.retry_after_seconds) == (Failure.THROTTLED, seconds)


async def test_a_dripping_server_is_cut_at_the_deadline_and_the_thread_is_free_again(tmp_path: Path) -> None:
    script = Scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", drip=True)
    async with talking_to(script, tmp_path, timeout_seconds=1.0) as client:
        error = await failure_of(client)
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TIMEOUT, "timeout", True)
        await asyncio.wait_for(script.gone.wait(), 2)
        script.drip = False
        script.answer = refusal(400, "INVALID_FIELD", "No such column 'X' on sobject of type Quote")
        error = await failure_of(client)
    assert error.code == "INVALID_FIELD"
    assert "No such column 'X' on sobject of type Quote" in str(error)


async def test_a_server_that_drips_its_headers_is_cut_too(tmp_path: Path) -> None:
    script = Scripted(b"HTTP/1.0 200 OK\r\nX-Slow: ", drip=True)
    async with talking_to(script, tmp_path, timeout_seconds=1.0) as client:
        assert (await failure_of(client)).code == "timeout"
        await asyncio.wait_for(script.gone.wait(), 2)


async def test_a_request_carries_its_headers_and_a_correlation_id_cannot_add_one(tmp_path: Path) -> None:
    script = Scripted(graph("INVALID_FIELD"))
    async with talking_to(script, tmp_path) as client:
        await failure_of(client)
    head = script.requests[0].split(b"\r\n\r\n")[0].decode().splitlines()
    assert "X-Request-Id: op_1__X:_y" in head
    assert "Sforce-Call-Options: client=quotebot" in head
    assert "Authorization: Bearer 00D!token" in head
    assert head[0] == "POST /services/data/v65.0/composite/graph HTTP/1.1"


@pytest.mark.parametrize("token", [b"{}", b"[]", b"<html>", b'{"access_token": "a b"}', b'{"access_token": ""}'])
async def test_a_login_answer_without_a_token_is_unreadable(tmp_path: Path, token: bytes) -> None:
    script = Scripted(graph("INVALID_FIELD"), token=token)
    async with talking_to(script, tmp_path) as client:
        error = await failure_of(client)
    assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "unreadable", False)
    assert script.requests == []


async def test_a_node_that_broke_inside_a_rolled_back_graph_was_not_written(tmp_path: Path) -> None:
    async with talking_to(Scripted(graph("UNKNOWN_EXCEPTION", status=500)), tmp_path) as client:
        error = await failure_of(client)
    assert (error.failure, error.http_status, error.possibly_applied) == (Failure.TRANSIENT, 500, False)


def test_an_outage_is_told_without_the_key_of_a_record() -> None:
    down, doubtful = SalesforceRefusal(503, "SERVER_UNAVAILABLE"), SalesforceRefusal(502, "HTTP_502")
    target = Target("write the quote", "Quote", "6910d0b8_Q-2026-0005_v1", writes=True)
    assert str(refused(down, target)) == "Salesforce was unavailable (SERVER_UNAVAILABLE). Nothing was written; safe to retry."
    assert str(refused(doubtful, target)) == (
        "Salesforce was unavailable (HTTP_502). It may have been written; repeating it under the same key is safe."
    )


def test_customer_text_and_what_the_vendor_repeats_of_it_stay_out_of_the_message() -> None:
    answer = json.loads(graph("STRING_TOO_LONG", reference="quote", fields=("Quotebot_Account__c",)).split(b"\r\n\r\n")[1])
    found = read_graph(answer, QUOTE)
    assert found.sobject == "Quote"
    assert found.values["Quotebot_Account__c"] == "(9 characters)"
    assert found.values["CurrencyIsoCode"] == '"USD"'


def test_amounts_are_written_as_exact_literals() -> None:
    huge = Decimal("12345678901234567.89")
    body = graph_body(QUOTE, "65.0").decode()
    assert '"UnitPrice":0.0025' in body
    assert '"Discount":12.5' in body
    assert exact_json({"a": [huge, Decimal("1E+2"), 3, None, True, 'q"']}) == '{"a":[12345678901234567.89,100,3,null,true,"q\\""]}'
    with pytest.raises(TypeError):
        exact_json(0.1)


def test_a_graph_is_the_quote_and_then_its_lines_by_reference() -> None:
    nodes = json.loads(graph_body(QUOTE, "65.0"))["graphs"][0]["compositeRequest"]
    assert [node["url"] for node in nodes] == [
        "/services/data/v65.0/sobjects/Quote/",
        "/services/data/v65.0/sobjects/QuoteLineItem/",
    ]
    assert (nodes[1]["body"]["QuoteId"], nodes[1]["body"]["Quotebot_Key__c"]) == ("@{quote.id}", "k1_L1")


@pytest.mark.parametrize("answer", [None, {}, {"graphs": []}, {"graphs": [{"isSuccessful": True}]}, {"graphs": [[]]}])
def test_what_is_not_the_answer_to_a_graph_is_not_read_as_one(answer: object) -> None:
    with pytest.raises(ValueError, match="graph"):
        read_graph(answer, QUOTE)


def test_a_graph_halted_without_a_culprit_is_transient() -> None:
    answer = json.loads(graph("PROCESSING_HALTED").split(b"\r\n\r\n")[1])
    found = read_graph(answer, QUOTE)
    assert isinstance(found, GraphAnswer)
    assert found.refusal is not None
    assert found.refusal.failure() is Failure.TRANSIENT


@pytest.mark.parametrize("content", [None, "", [], [[]], {"errorCode": 5}, [{"fields": "x"}]])
def test_an_error_body_of_another_shape_has_the_status_as_its_code(content: object) -> None:
    assert SalesforceRefusal.read(418, content).code == "HTTP_418"
