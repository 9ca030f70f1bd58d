"""Tests of outgoing HTTP: no client follows a redirect or reads an endless answer, from hostile servers over real sockets."""

from __future__ import annotations

import ast
import asyncio
import gzip
import os
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest
import requests
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from adapters.failures import AdapterError, Failure
from adapters.http import (
    ANSWER_BYTES_MAX,
    AnswerTooLargeError,
    Body,
    RedirectRefusedError,
    asked_wait_seconds,
    closed_session,
    read_retry_after,
)
from adapters.llm.api import Llm
from adapters.reporting import reporting_session
from adapters.slack.api import BoundedWebClient, SlackApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MIB: Final = 1024 * 1024
ENDLESS: Final = 64 * MIB
NOT_READ: Final = 8 * MIB  # bytes that may be in buffers when a client hangs up
# Clients are built only in these places; each is tested here, or in the named file.
BUILDERS: Final = frozenset(
    {
        *("ClientSession", "AsyncWebClient", "WebClient", "BoundedWebClient", "closed_session", "AsyncOpenAI", "OpenAI"),
        *("DefaultAsyncHttpxClient", "AsyncClient", "Session", "_Session", "PoolManager", "OTLPSpanExporter", "Client", "urlopen"),
    }
)
CLIENTS: Final = {
    ("adapters/http.py", "ClientSession"): "test_session_refuses_a_redirect",
    ("adapters/slack/api.py", "closed_session"): "test_message_is_not_carried_away_by_a_redirect",
    ("quotebot/app/clients.py", "closed_session"): "test_message_is_not_carried_away_by_a_redirect",
    ("quotebot/app/clients.py", "BoundedWebClient"): "test_message_is_not_carried_away_by_a_redirect",
    ("quotebot/cli/doctor/others.py", "closed_session"): "test_session_refuses_a_redirect",
    ("adapters/llm/api.py", "AsyncOpenAI"): "test_text_for_the_model_is_not_carried_away_by_a_redirect",
    ("adapters/llm/api.py", "DefaultAsyncHttpxClient"): "test_text_for_the_model_is_not_carried_away_by_a_redirect",
    ("adapters/reporting.py", "_Session"): "test_reports_are_not_carried_away_by_a_redirect",
    ("quotebot/observability/tracing.py", "OTLPSpanExporter"): "test_reports_are_not_carried_away_by_a_redirect",
    ("quotebot/observability/sentry.py", "Client"): "test_error_reports_are_not_carried_away_by_a_redirect",
    ("adapters/salesforce/transport.py", "Session"): "tests/adapters/test_salesforce.py",
}
TEN = "Sat, 21 Nov 2026 10:00:00 GMT"
TEN_SECONDS = 1_795_255_200.0  # the same moment as Unix time
LATER = "Sat, 21 Nov 2026 10:00:30 GMT"


@dataclass(slots=True)
class Hostile:
    """A server with a given answer, and a second address of it that must never receive a request."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    endless: bool = False
    asked: list[str] = field(default_factory=list)
    sent: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        await request.read()
        if request.path.startswith("/elsewhere"):
            return web.json_response({"ok": True, "channel": "C1", "ts": "1.2"})
        response = web.StreamResponse(status=self.status, headers={"Content-Type": "application/json", **self.headers})
        await response.prepare(request)
        if not self.endless:
            await response.write(self.body)
            return response
        chunk = b" " * 65_536
        while self.sent < ENDLESS:
            await response.write(chunk)
            self.sent += len(chunk)
        return response

    def redirect(self, status: int) -> None:
        self.status, self.headers["Location"] = status, f"{self.url}/elsewhere"
        self.body = b'{"ok": true, "channel": "C1", "ts": "1.2"}'

    def bomb(self) -> None:
        self.headers["Content-Encoding"] = "gzip"
        self.body = gzip.compress(b'{"ok": true, "x": "' + b" " * ENDLESS + b'"}', 9)


@asynccontextmanager
async def serving() -> AsyncIterator[Hostile]:
    hostile, application = Hostile(), web.Application()
    application.router.add_route("*", "/{path:.*}", hostile.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hostile.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hostile
    finally:
        await runner.cleanup()


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with serving() as served:
        yield served


@asynccontextmanager
async def slack(hostile: Hostile) -> AsyncIterator[SlackApi]:
    client = BoundedWebClient(token="xoxb-1", base_url=f"{hostile.url}/api/", retry_handlers=[])
    api = SlackApi(client, response_url_hosts=frozenset({hostile.url.removeprefix("http://")}))
    try:
        yield api
    finally:
        await api.close()


def post(api: SlackApi) -> Any:
    return api.post(channel="C1", text="Acme, 4,680.00", blocks=[], thread_ts=None, key="k", correlation_id="c")


@asynccontextmanager
async def model(hostile: Hostile) -> AsyncIterator[Llm]:
    llm = Llm(base_url=f"{hostile.url}/v1", api_key="k", model="m", on_call=lambda _: None)
    try:
        yield llm
    finally:
        await llm.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_message_is_not_carried_away_by_a_redirect(hostile: Hostile, status: int) -> None:
    hostile.redirect(status)
    async with slack(hostile) as api:
        with pytest.raises(AdapterError) as caught:
            await post(api)
    assert (caught.value.failure, caught.value.code, caught.value.possibly_applied) == (Failure.TRANSIENT, "redirect", True)
    assert hostile.asked == ["/api/chat.postMessage"]


async def test_endless_answer_of_slack_is_cut_at_its_limit(hostile: Hostile) -> None:
    hostile.endless = True
    async with slack(hostile) as api:
        with pytest.raises(AdapterError) as caught:
            await post(api)
    assert (caught.value.failure, caught.value.code, caught.value.possibly_applied) == (Failure.TRANSIENT, "too_large", True)
    assert hostile.sent < ANSWER_BYTES_MAX + NOT_READ


async def test_answer_of_slack_that_inflates_is_cut_at_its_limit(hostile: Hostile) -> None:
    hostile.bomb()
    before = resident_bytes()
    async with slack(hostile) as api:
        with pytest.raises(AdapterError) as caught:
            await post(api)
    assert caught.value.code == "too_large"
    assert resident_bytes() - before < ENDLESS // 2


async def test_packed_answer_of_slack_is_read(hostile: Hostile) -> None:
    hostile.headers["Content-Encoding"] = "gzip"
    hostile.body = gzip.compress(b'{"ok": true, "channel": "C1", "ts": "1.2"}')
    async with slack(hostile) as api:
        assert (await post(api)).ts == "1.2"


async def test_client_without_a_session_keeps_the_rules(hostile: Hostile) -> None:
    hostile.redirect(307)
    client = BoundedWebClient(token="xoxb-1", base_url=f"{hostile.url}/api/", retry_handlers=[])
    with pytest.raises(Exception, match="307"):
        await client.auth_test()
    assert hostile.asked == ["/api/auth.test"]


async def test_session_refuses_a_redirect(hostile: Hostile) -> None:
    hostile.redirect(302)
    async with closed_session() as session:
        with pytest.raises(RedirectRefusedError):
            await session.get(f"{hostile.url}/")
        with pytest.raises((RedirectRefusedError, aiohttp.WSServerHandshakeError)):
            await session.ws_connect(f"{hostile.url}/socket")
    assert hostile.asked == ["/", "/socket"]


@pytest.mark.parametrize("status", [307, 308])
async def test_text_for_the_model_is_not_carried_away_by_a_redirect(hostile: Hostile, status: int) -> None:
    hostile.redirect(status)
    async with model(hostile) as llm:
        with pytest.raises(AdapterError):
            await llm.extract("50 pro for Acme", products=(), key="k", correlation_id="c")
    assert hostile.asked == ["/v1/chat/completions"]


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_endless_answer_of_the_model_is_cut_at_its_limit(hostile: Hostile, status: int) -> None:
    hostile.status, hostile.endless = status, True
    async with model(hostile) as llm:
        with pytest.raises(AdapterError) as caught:
            await llm.extract("50 pro for Acme", products=(), key="k", correlation_id="c")
    assert (caught.value.failure, caught.value.code) == (Failure.LLM_SCHEMA, "too_large")
    assert hostile.sent < MIB + NOT_READ


@pytest.mark.parametrize("status", [200, 400])
async def test_answer_of_the_model_that_inflates_is_cut_at_its_limit(hostile: Hostile, status: int) -> None:
    hostile.bomb()
    hostile.status, before = status, resident_bytes()
    async with model(hostile) as llm:
        with pytest.raises(AdapterError) as caught:
            await llm.extract("50 pro for Acme", products=(), key="k", correlation_id="c")
    assert caught.value.code == "too_large"
    assert resident_bytes() - before < ENDLESS // 2


async def test_reports_are_not_carried_away_by_a_redirect(hostile: Hostile) -> None:
    session = reporting_session()
    hostile.redirect(307)
    with pytest.raises(requests.ConnectionError, match="redirect"):
        await asyncio.to_thread(session.post, f"{hostile.url}/v1/traces", b"spans", timeout=5)
    hostile.status, hostile.headers, hostile.endless = 200, {}, True
    with pytest.raises(requests.ConnectionError, match="too large"):
        await asyncio.to_thread(session.post, f"{hostile.url}/v1/traces", b"spans", timeout=5)
    session.close()
    assert hostile.asked == ["/v1/traces", "/v1/traces"]
    assert hostile.sent < NOT_READ


async def test_error_reports_are_not_carried_away_by_a_redirect(hostile: Hostile) -> None:
    pytest.importorskip("sentry_sdk")
    from quotebot.observability.sentry import open_reports  # noqa: PLC0415 -- of an extra

    hostile.redirect(307)
    reports = open_reports(f"{hostile.url.replace('://', '://key@')}/1", ())
    reports.note({"event": "bot.died", "level": "error", "logger": "quotebot"}, None)
    await asyncio.to_thread(reports.close)
    assert hostile.asked == ["/api/1/envelope/"]


def test_body_is_counted_after_it_is_unpacked() -> None:
    packed = zlib.compress(b" " * 100)
    assert Body(100, "deflate").take(packed) == b" " * 100
    with pytest.raises(AnswerTooLargeError):
        Body(99, "deflate").take(packed)
    with pytest.raises(AnswerTooLargeError):
        Body(99, "gzip").take(b"not packed at all")
    with pytest.raises(AnswerTooLargeError, match="br"):
        Body(99, "br")


def test_every_client_is_listed_with_the_test_that_shows_its_rules(checkout: Path) -> None:
    found = set()
    for package in ("quotebot", "ledger", "adapters"):
        for module in sorted((checkout / package).rglob("*.py")):
            if {"sandbox", "postgres"} & set(module.parts):  # no clients of the product, and sessions of a database
                continue
            for node in ast.walk(ast.parse(module.read_text("utf-8"))):
                called = node.func if isinstance(node, ast.Call) else None
                name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else None
                if name in BUILDERS:
                    found.add((module.relative_to(checkout).as_posix(), name))
    assert found == set(CLIENTS), "a new client keeps the rules of adapters/http.py, and is listed with its test"
    here = SimpleNamespace(**globals())
    assert [test for test in CLIENTS.values() if not (hasattr(here, test) or (checkout / test).is_file())] == []


def unread() -> float:
    raise AssertionError("the clock was read")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("30", 30), ("1.5", 1.5), ("007", 7), (" 30 ", 30), ("86400", 86_400), ("999999999", 999_999_999),
        (LATER, 30),
        ("Saturday, 21-Nov-26 10:00:30 GMT", 30),  # the two obsolete forms a receiver must still read
        ("Sat Nov 21 10:00:30 2026", 30),
        ("Sat, 21 Nov 2026 11:00:30 +0100", 30),
        ("Sat, 21 Nov 2026 10:00:30 -0000", 30),
        ("Sun, 22 Nov 2026 10:00:00 GMT", 86_400),
        (TEN, 0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_a_wait_is_seconds_or_a_date_and_never_capped(value: str, seconds: float) -> None:
    assert read_retry_after(value, TEN_SECONDS) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "-5", "-0.1", "+5", "soon", "nan", "inf", "1e3", "0x10", "1_000", "30 s", "30,5", "1.", ".5", "1.5.2", "٣٠",
        "30, 60", "9" * 10, "9" * 400, "Sat, 99 Nov 2026 10:00:30 GMT", "Sat, 21 Nov 2026 10:00:30 +9999",
        "Sat, 21 Nov 99999 10:00:30 GMT",
        "21 Nov 2026", "None",
    ],
)  # fmt: skip
def test_rubbish_is_no_wait(value: str) -> None:
    assert read_retry_after(value, TEN_SECONDS) is None


@given(st.text(max_size=60) | st.from_regex(r"\w{3}, \d{1,3} \w{3} \d{1,5} \d\d:\d\d:\d\d [+-]?\w{1,5}", fullmatch=True))
def test_no_header_can_raise_or_ask_for_more_than_the_ledger_can_hold(value: str) -> None:
    seconds = read_retry_after(value, TEN_SECONDS)
    assert seconds is None or 0 <= seconds * 1000 < 2**62


def test_a_date_is_counted_against_the_answers_own_date_whatever_our_clock_says() -> None:
    assert asked_wait_seconds({"Retry-After": LATER, "Date": TEN}, clock=unread) == 30


@pytest.mark.parametrize("date", [{}, {"Date": ""}, {"Date": "yesterday"}])
def test_only_without_a_readable_date_our_own_clock_counts(date: dict[str, str]) -> None:
    assert asked_wait_seconds({"Retry-After": LATER, **date}, clock=lambda: TEN_SECONDS - 60) == 90
    assert asked_wait_seconds({"Retry-After": LATER, **date}, clock=lambda: TEN_SECONDS + 60) == 0
    assert asked_wait_seconds({"Retry-After": "30", **date}, clock=lambda: TEN_SECONDS) == 30


def test_an_answer_that_asks_for_no_wait_has_none() -> None:
    assert asked_wait_seconds({"Date": TEN}, clock=unread) is None
    assert asked_wait_seconds({}) is None
