"""Tests of answers that the sandbox never gives, of cases where nothing may be sent, and of the adapter's own rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.web.async_client import AsyncWebClient

from adapters.failures import Failure
from adapters.slack.api import SlackApi
from adapters.slack.errors import CODES, ERRORS
from quotebot.sandbox.slack.directory import BOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from quotebot.sandbox.world import World

from tests.adapters.slack_parts import CHANNEL, PDF, api_for, client_for, failure_of, post


@dataclass(slots=True)
class Canned:
    """A server that answers every request the same way and records the requests."""

    url: str = ""
    status: int = 200
    text: str = '{"ok": true}'
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    received: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.received.append((request.path, request.headers))
        return web.Response(status=self.status, text=self.text, content_type=self.content_type, headers=self.headers)


@pytest.fixture
async def canned() -> AsyncIterator[Canned]:
    server = Canned()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def canned_api(canned: Canned) -> AsyncIterator[SlackApi]:
    host = canned.url.removeprefix("http://")
    opened = SlackApi(client_for(f"{canned.url}/api/"), response_url_hosts=frozenset({host}))
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("status", "text", "content_type", "failure", "code", "possibly_applied"),
    [
        (200, '{"ok": false, "error": "ratelimited"}', "application/json", Failure.THROTTLED, "ratelimited", False),
        (200, '{"ok": false, "error": "rate_limited"}', "application/json", Failure.THROTTLED, "rate_limited", False),
        (200, '{"ok": false, "error": "fatal_error"}', "application/json", Failure.TRANSIENT, "fatal_error", True),
        (200, '{"ok": false, "error": "internal_error"}', "application/json", Failure.TRANSIENT, "internal_error", True),
        (200, '{"ok": false, "error": "token_revoked"}', "application/json", Failure.AUTH, "token_revoked", False),
        (200, '{"ok": false, "error": "not_authed"}', "application/json", Failure.AUTH, "not_authed", False),
        (200, '{"ok": false, "error": "account_inactive"}', "application/json", Failure.AUTH, "account_inactive", False),
        (200, '{"ok": false, "error": "missing_scope", "needed": "x"}', "application/json", Failure.AUTH, "missing_scope", False),
        (200, '{"ok": false, "error": "not_in_channel"}', "application/json", Failure.NOT_FOUND, "not_in_channel", False),
        (200, '{"ok": false, "error": "a_new_refusal"}', "application/json", Failure.VALIDATION, "a_new_refusal", False),
        (200, '{"ok": false, "error": "Dear Acme <b>"}', "application/json", Failure.TRANSIENT, "unreadable", True),
        (200, '{"ok": false}', "application/json", Failure.TRANSIENT, "unreadable", True),
        (200, '{"ok": true}', "application/json", Failure.TRANSIENT, "unreadable", True),  # posted, but where?
        (200, '["ok"]', "application/json", Failure.TRANSIENT, "unreadable", True),
        (200, "", "application/json", Failure.TRANSIENT, "unreadable", True),
        (200, "<html>", "text/html", Failure.TRANSIENT, "unreadable", True),
        (200, "ok", "text/plain", Failure.TRANSIENT, "unreadable", True),
        (500, '{"ok": false, "error": "internal_error"}', "application/json", Failure.TRANSIENT, "internal_error", True),
        (502, "<html>", "text/html", Failure.TRANSIENT, "http_502", True),
        (504, "", "application/json", Failure.TRANSIENT, "http_504", True),
        (503, "{", "application/json", Failure.TRANSIENT, "http_503", True),
        (408, "", "text/plain", Failure.TRANSIENT, "http_408", True),
        (429, "slow down", "text/plain", Failure.THROTTLED, "http_429", False),
        (401, "", "text/plain", Failure.AUTH, "http_401", False),
        (404, "", "text/plain", Failure.NOT_FOUND, "http_404", False),
        (418, "", "text/plain", Failure.VALIDATION, "http_418", False),
    ],
)
async def test_every_shape_of_answer_has_its_failure(
    canned: Canned,
    canned_api: SlackApi,
    status: int,
    text: str,
    content_type: str,
    failure: Failure,
    code: str,
    *,
    possibly_applied: bool,
) -> None:
    canned.status, canned.text, canned.content_type = status, text, content_type
    error = await failure_of(post(canned_api))
    assert (error.failure, error.code, error.possibly_applied) == (failure, code, possibly_applied)
    assert len(canned.received) == 1
    assert "Acme" not in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Sat, 21 Nov 2026 10:00:30 GMT", "Date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 30),
        ({"Retry-After": "Sat, 21 Nov 2026 09:00:00 GMT", "Date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 0),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(
    canned: Canned, canned_api: SlackApi, headers: dict[str, str], seconds: float | None
) -> None:
    canned.status, canned.text, canned.headers = 429, '{"ok": false, "error": "ratelimited"}', headers
    error = await failure_of(post(canned_api))
    assert (error.failure, error.retry_after_seconds) == (Failure.THROTTLED, seconds)


async def test_an_append_carries_its_key_and_its_correlation_id_in_the_headers(canned: Canned, canned_api: SlackApi) -> None:
    await failure_of(post(canned_api, key="k-7"))
    ((path, headers),) = canned.received
    assert path == "/api/chat.postMessage"
    assert (headers["Idempotency-Key"], headers["X-Request-Id"]) == ("k-7", "c-1")


async def test_a_page_that_promises_more_without_saying_where_is_never_taken_for_absence(
    canned: Canned, canned_api: SlackApi
) -> None:
    canned.text = '{"ok": true, "messages": [], "has_more": true}'
    error = await failure_of(canned_api.find(channel=CHANNEL, thread_ts=None, key="k", oldest_seconds=0))
    assert error.failure is Failure.UNCERTAIN


@pytest.mark.parametrize(
    "call",
    [
        lambda api, _: post(api),
        lambda api, url: api.respond(f"{url}/hooks/commands/T/1/secret", text="x"),
        lambda api, url: api.upload_bytes(f"{url}/upload/v1/secret", PDF),
    ],
)
async def test_a_connection_that_is_refused_has_provably_done_nothing(call: Any, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    api = SlackApi(client_for(f"{url}/api/"), response_url_hosts=frozenset({url.removeprefix("http://")}))
    try:
        error = await failure_of(call(api, url))
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "network", False)
    finally:
        await api.close()


# Where nothing may be sent


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.slack.com.example.invalid/commands/1",
        "https://hooks.slack.com@example.invalid/commands/1",
        "https://rep:secret@hooks.slack.com/commands/1",
        "https://example.invalid/hooks.slack.com",
        "https://hooks.slack.com:8443/commands/1",
        "http://hooks.slack.com/commands/1",
        "ftp://hooks.slack.com/commands/1",
        "//hooks.slack.com/commands/1",
        "https://[hooks.slack.com/",
        "hooks.slack.com",
        "",
    ],
)
async def test_an_answer_goes_only_to_the_hosts_of_slack(address: str) -> None:
    api = SlackApi(client_for("https://slack.com/api/"), response_url_hosts=frozenset({"hooks.slack.com"}))
    error = await failure_of(api.respond(address, text="secret figures"))
    assert (error.failure, error.code, error.possibly_applied) == (Failure.VALIDATION, "host_refused", False)
    assert "hooks.slack.com" not in str(error)


@pytest.mark.parametrize(
    "address",
    [
        "https://files.slack.com.example.invalid/upload/v1/1",
        "http://files.slack.com/upload/v1/1",
        "https://files.slack.com:8443/upload/v1/1",
        "https://slack.com@example.invalid/upload/v1/1",
        "http://slack.com/upload/v1/1",
        "http://127.0.0.1/upload/v1/1",
        "",
    ],
)
async def test_a_file_goes_only_to_the_api_or_to_slacks_host_for_files(address: str) -> None:
    api = SlackApi(client_for("https://slack.com/api/"), response_url_hosts=frozenset())
    error = await failure_of(api.upload_bytes(address, PDF))
    assert (error.failure, error.code) == (Failure.VALIDATION, "host_refused")


async def test_a_redirect_is_not_followed_and_the_token_stays_home(canned: Canned, canned_api: SlackApi) -> None:
    canned.status, canned.headers = 307, {"Location": f"{canned.url}/elsewhere"}
    error = await failure_of(canned_api.respond(f"{canned.url}/hooks/1", text="x"))
    assert (error.failure, error.code) == (Failure.VALIDATION, "http_307")
    error = await failure_of(canned_api.upload_bytes(f"{canned.url}/upload/1", PDF))
    assert error.code == "http_307"
    assert [path for path, _ in canned.received] == ["/hooks/1", "/upload/1"]
    assert [headers for _, headers in canned.received if "Authorization" in headers] == []


async def test_response_url_refused_without_a_code_is_not_found_and_pauses_nothing(canned: Canned, canned_api: SlackApi) -> None:
    canned.status, canned.text, canned.content_type = 403, "", "text/plain"
    error = await failure_of(canned_api.respond(f"{canned.url}/hooks/1", text="x"))
    assert (error.failure, error.code) == (Failure.NOT_FOUND, "http_403")


# Rules


def test_a_client_that_retries_by_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="retry_handlers"):
        SlackApi(AsyncWebClient(token=BOT_TOKEN), response_url_hosts=frozenset())


async def test_a_session_of_the_callers_is_used_and_left_open(world: World) -> None:
    async with aiohttp.ClientSession() as session:
        api = api_for(world, session=session)
        await api.identify()
        await api.close()
        assert not session.closed


def test_no_code_is_in_two_rows_of_the_table() -> None:
    assert len(ERRORS) == sum(len(codes.split()) for codes in CODES.values())
