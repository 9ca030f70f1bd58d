"""Tests of the model's adapter: the real client over a real socket, to the stand-in and to a scripted server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from adapters.failures import AdapterError, Failure
from adapters.llm.api import ANSWER_BYTES_MAX, SCHEMA, Llm, ModelAnswer, ModelCall, ReadLine
from quotebot.domain.extraction.model_answers import MORE
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.llm import LlmService
from quotebot.sandbox.request_log import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TEXT = "Please quote 50 pro and 2 onboarding for Acme Corp, 12 months, 10% off in EUR"
READ: dict[str, Any] = {
    "account": "Acme Corp",
    "lines": [{"product": "pro", "quantity": "50", "excerpt": "50 pro"}],
    "term_months": "12",
    "discount_percent": "10",
    "currency": "EUR",
}


@dataclass(slots=True)
class Server:
    """Scripted server: `answer` makes each response, `seen` are the requests, `hung_up` is set if a client disconnects early."""

    answer: Callable[[web.Request], Any]
    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Any]) -> AsyncIterator[Server]:
    server = Server(answer)

    async def handle(request: web.Request) -> web.StreamResponse:
        server.seen.append(await request.json())
        server.headers.append({name.lower(): value for name, value in request.headers.items()})
        try:
            found: web.StreamResponse = await server.answer(request)
        except (asyncio.CancelledError, ConnectionError):
            server.hung_up.set()
            raise
        return found

    application = web.Application()
    application.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@asynccontextmanager
async def asking(url: str, *, keep_text: bool = False, timeout_seconds: float = 5.0) -> AsyncIterator[tuple[Llm, list[ModelCall]]]:
    calls: list[ModelCall] = []
    llm = Llm(
        base_url=url,
        api_key="sk-sandbox",
        model="sandbox-rules-1",
        on_call=calls.append,
        keep_text=keep_text,
        timeout_seconds=timeout_seconds,
    )
    yield llm, calls
    await llm.close()


async def read(llm: Llm, text: str = TEXT) -> ModelAnswer:
    return await llm.extract(text, products=["pro: Pro", "sso: SSO"], key="k" * 64, correlation_id="c-1")


def completion(content: object, *, finish: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": finish, "message": message}]}


def saying(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(text=body, content_type="text/html", status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


async def test_the_stand_in_reads_a_message_for_the_unmodified_client() -> None:
    witness, weather = Witness(), ArmedFaults()
    service = LlmService(witness, weather)
    application = web.Application()
    application.add_routes(service.routes())
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with asking(f"http://127.0.0.1:{runner.addresses[0][1]}/v1") as (llm, calls):
        found = await read(llm)
        weather.arm("llm", "malformed")
        with pytest.raises(AdapterError) as broken:
            await read(llm)
    await runner.cleanup()
    assert (found.account, found.term_months, found.discount_percent, found.currency) == ("Acme Corp", "12", "10", "EUR")
    lines = [
        ReadLine(product="pro", quantity="50", excerpt="50 pro", attributes=[]),
        ReadLine(product="onboarding", quantity="2", excerpt="2 onboarding", attributes=[]),
    ]
    assert found.lines == lines
    assert (broken.value.failure, broken.value.code) == (Failure.LLM_SCHEMA, "malformed")
    assert [call.outcome for call in calls] == ["ok", "malformed"]
    assert [seen.key for seen in witness.since()] == ["k" * 64, "k" * 64]


async def test_a_call_is_one_request_that_carries_the_keys_and_the_message_as_data() -> None:
    async with serving(saying(completion(json.dumps(READ)))) as server, asking(server.url) as (llm, _):
        assert (await read(llm)).model_dump(exclude_defaults=True) == READ
    (sent,), (headers,) = server.seen, server.headers
    assert (headers["idempotency-key"], headers["x-request-id"]) == ("k" * 64, "c-1")
    assert sent["messages"][1] == {"role": "user", "content": TEXT}
    assert TEXT not in sent["messages"][0]["content"]
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA


def test_extraction_schema_and_model_agree_and_have_no_price_approval_or_recipient() -> None:
    properties: Any = SCHEMA["properties"]
    whole, line = set(properties), set(properties["lines"]["items"]["properties"])
    assert whole == set(ModelAnswer.model_fields)
    assert whole == {"account", "lines", "term_months", "discount_percent", "currency", *MORE}
    assert line == set(ReadLine.model_fields)
    assert line == {"product", "quantity", "excerpt", "discount_percent", "attributes", "optional"}


REFUSED = [
    (401, "invalid_api_key", Failure.AUTH, "http_401"),
    (402, None, Failure.AUTH, "http_402"),
    (403, None, Failure.AUTH, "http_403"),
    (404, "model_not_found", Failure.NOT_FOUND, "model_not_found"),
    (400, "content_filter", Failure.VALIDATION, "content_filter"),
    (400, "context_length_exceeded", Failure.VALIDATION, "context_length_exceeded"),
    (422, None, Failure.VALIDATION, "http_422"),
    (408, None, Failure.TRANSIENT, "http_408"),
    (409, None, Failure.TRANSIENT, "http_409"),
    (429, "rate_limit_exceeded", Failure.THROTTLED, "http_429"),
    (429, "insufficient_quota", Failure.AUTH, "insufficient_quota"),
    (500, None, Failure.TRANSIENT, "http_500"),
    (529, None, Failure.TRANSIENT, "http_529"),
]


@pytest.mark.parametrize(("status", "code", "failure", "known"), REFUSED)
async def test_a_refusal_is_read_by_its_code_then_its_status_and_asked_once(
    status: int, code: str | None, failure: Failure, known: str
) -> None:
    body = {"error": {"message": "secret words", "type": "t", "param": None, "code": code}}
    async with serving(saying(body, status, {"Retry-After": "7"})) as server, asking(server.url) as (llm, calls):
        with pytest.raises(AdapterError) as refused:
            await read(llm)
    assert (refused.value.failure, refused.value.code, refused.value.http_status) == (failure, known, status)
    assert refused.value.retry_after_seconds == 7.0
    assert "secret" not in str(refused.value)
    assert len(server.seen) == 1
    assert [call.outcome for call in calls] == [known]


BAD = {
    "no JSON": (completion("all of them"), Failure.LLM_SCHEMA, "malformed"),
    "a number for an amount": (completion(json.dumps({**READ, "discount_percent": 10})), Failure.LLM_SCHEMA, "malformed"),
    "a negative quantity": (
        completion(json.dumps({**READ, "lines": [{**READ["lines"][0], "quantity": "-5"}]})),
        Failure.LLM_SCHEMA,
        "malformed",
    ),
    "a field too many": (completion(json.dumps({**READ, "unit_price": "1"})), Failure.LLM_SCHEMA, "malformed"),
    "a field too few": (completion(json.dumps({"account": "Acme"})), Failure.LLM_SCHEMA, "malformed"),
    "cut off": (completion(json.dumps(READ), finish="length"), Failure.VALIDATION, "truncated"),
    "filtered": (completion(json.dumps(READ), finish="content_filter"), Failure.VALIDATION, "content_filter"),
    "refused": (completion(None, refusal="I will not"), Failure.VALIDATION, "refusal"),
    "nothing said": (completion(None), Failure.TRANSIENT, "unreadable"),
    "an empty object": ({}, Failure.TRANSIENT, "unreadable"),
    "a page": ("<html>maintenance</html>", Failure.TRANSIENT, "unreadable"),
    "too much": (completion("x" * (ANSWER_BYTES_MAX + 1)), Failure.LLM_SCHEMA, "too_large"),
}


@pytest.mark.parametrize(("body", "failure", "code"), BAD.values(), ids=BAD)
async def test_an_answer_that_cannot_be_used_is_told_apart(body: object, failure: Failure, code: str) -> None:
    async with serving(saying(body)) as server, asking(server.url) as (llm, calls):
        with pytest.raises(AdapterError) as unusable:
            await read(llm)
    assert (unusable.value.failure, unusable.value.code) == (failure, code)
    assert [call.outcome for call in calls] == [code]


async def test_an_optional_field_in_another_format_leaves_the_answer_usable() -> None:
    said = {**READ, "term_months": "12 months", "start_date": "soon", "lines": [{**READ["lines"][0], "discount_percent": "5%"}]}
    async with serving(saying(completion(json.dumps(said)))) as server, asking(server.url) as (llm, _):
        found = await read(llm)
    assert (found.account, found.term_months, found.lines[0].discount_percent) == ("Acme Corp", "12 months", "5%")
    assert "YYYY-MM-DD" in server.seen[0]["messages"][0]["content"]


async def test_a_fence_around_the_answer_is_taken_off() -> None:
    fenced = f"```json\n{json.dumps(READ)}\n```"
    async with serving(saying(completion(fenced))) as server, asking(server.url) as (llm, _):
        assert (await read(llm)).account == "Acme Corp"


async def test_a_dripping_server_is_cut_off_at_the_deadline() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    async with serving(drip) as server, asking(server.url, timeout_seconds=0.2) as (llm, calls):
        with pytest.raises(AdapterError) as late:
            await read(llm)
        await asyncio.wait_for(server.hung_up.wait(), 5)
    assert (late.value.failure, late.value.code) == (Failure.TIMEOUT, "timeout")
    assert [call.outcome for call in calls] == ["timeout"]


async def test_a_dropped_connection_and_a_server_that_is_not_there_are_network_failures() -> None:
    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(drop) as server, asking(server.url) as (llm, _):
        with pytest.raises(AdapterError) as dropped:
            await read(llm)
    async with asking(server.url) as (llm, _):
        with pytest.raises(AdapterError) as gone:
            await read(llm)
    for error in (dropped.value, gone.value):
        assert (error.failure, error.code) == (Failure.TRANSIENT, "network")


async def test_the_call_log_holds_hashes_and_the_texts_only_where_they_are_kept() -> None:
    async with serving(saying(completion(json.dumps(READ)))) as server:
        async with asking(server.url) as (llm, calls):
            await read(llm)
        async with asking(server.url, keep_text=True) as (llm, kept):
            await read(llm)
    (bare,), (full,) = calls, kept
    assert (bare.request, bare.answer) == (None, None)
    assert full.request == TEXT
    assert "Acme Corp" in (full.answer or "")
    assert len(bare.request_sha256) == len(bare.answer_sha256 or "") == 64
    assert (bare.request_sha256, bare.answer_sha256) == (full.request_sha256, full.answer_sha256)
