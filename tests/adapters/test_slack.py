from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.web.async_client import AsyncWebClient

from adapters.failures import AdapterError, Failure
from adapters.slack import FIND_PAGE_MESSAGES, FIND_PAGES_MAX, METADATA_EVENT_TYPE, Identity, PostedMessage, SlackApi
from adapters.slack_errors import CODES, ERRORS
from quotebot.sandbox.slack.directory import BOT_ID, BOT_TOKEN, BOT_USER_ID, TEAM_ID
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from quotebot.sandbox.slack.messages import Message

CHANNEL = "C0DEALS"
BLOCKS: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": "17,340.00 USD"}}]
PDF = b"%PDF-1.7 " + bytes(range(256)) * 8
DEADLINE_SECONDS = 10.0


def client_for(base_url: str) -> AsyncWebClient:
    return AsyncWebClient(token=BOT_TOKEN, base_url=base_url, retry_handlers=[])


def api_for(world: World, **options: Any) -> SlackApi:
    host = world.url.removeprefix("http://")
    return SlackApi(client_for(f"{world.url}/api/"), **{"response_url_hosts": frozenset({host}), **options})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "world").serve() as served:
        yield served


@pytest.fixture
async def api(world: World) -> AsyncIterator[SlackApi]:
    opened = api_for(world)
    yield opened
    await opened.close()


async def post(api: SlackApi, *, key: str = "k1", text: str = "Quote", thread_ts: str | None = None) -> PostedMessage:
    return await api.post(channel=CHANNEL, text=text, blocks=BLOCKS, thread_ts=thread_ts, key=key, correlation_id="c-1")


def posted(world: World) -> list[Message]:
    return world.slack.messages.all()


def requests(world: World, method: str) -> int:
    return Counter(sighting.method for sighting in world.witness.since())[method]


async def failure_of(call: Awaitable[object]) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await call
    return caught.value


async def seen(world: World, method: str) -> None:
    """Return once the world has served a request of the method."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not requests(world, method):
            await world.witness.wait()


# What each method does


async def test_the_bot_learns_who_it_is(api: SlackApi) -> None:
    assert await api.identify() == Identity(TEAM_ID, BOT_USER_ID, BOT_ID)


async def test_a_root_and_a_reply_are_posted_with_our_key_and_without_unfurling(api: SlackApi, world: World) -> None:
    root = await post(api, key="root")
    reply = await post(api, key="reply", thread_ts=root.ts)
    first, second = posted(world)
    assert (first.channel, first.ts, first.thread_ts, first.blocks[0]["text"]) == (CHANNEL, root.ts, None, BLOCKS[0]["text"])
    assert (second.ts, second.thread_ts) == (reply.ts, root.ts)
    assert first.metadata == {"event_type": METADATA_EVENT_TYPE, "event_payload": {"key": "root"}}
    assert [sighting.key for sighting in world.witness.since()] == ["root", "reply"]


async def test_an_update_replaces_the_content_and_keeps_the_key(api: SlackApi, world: World) -> None:
    card = await post(api)
    await api.update(channel=card.channel, ts=card.ts, text="Approved", blocks=[], correlation_id="c-2")
    (message,) = posted(world)
    assert (message.text, message.blocks) == ("Approved", [])
    assert message.metadata is not None
    assert message.metadata["event_payload"] == {"key": "k1"}


async def test_a_message_is_found_by_its_key_in_the_channel_and_in_its_thread(api: SlackApi) -> None:
    root = await post(api, key="root")
    reply = await post(api, key="reply", thread_ts=root.ts)
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=0) == root
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="reply", oldest_seconds=0) == reply
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="other", oldest_seconds=0) is None
    assert await api.find(channel=CHANNEL, thread_ts=None, key="reply", oldest_seconds=0) is None


async def test_a_message_older_than_asked_for_is_not_looked_at(api: SlackApi) -> None:
    root = await post(api, key="root")
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=float(root.ts) - 60) == root
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=float(root.ts) + 1) is None


async def test_somebody_elses_message_with_our_key_in_it_is_not_ours(api: SlackApi, world: World) -> None:
    await client_for(f"{world.url}/api/").chat_postMessage(
        channel=CHANNEL, text="k1", metadata={"event_type": "other_app", "event_payload": {"key": "k1"}}
    )
    assert await api.find(channel=CHANNEL, thread_ts=None, key="k1", oldest_seconds=0) is None


async def test_the_second_page_is_read_too(api: SlackApi, world: World) -> None:
    root = await post(api, key="root")
    for number in range(FIND_PAGE_MESSAGES + 1):
        world.slack.post_as_bot(world.slack.place(CHANNEL), text=str(number), blocks=[], thread_ts=root.ts)
    last = await post(api, key="last", thread_ts=root.ts)
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="last", oldest_seconds=0) == last
    assert requests(world, "conversations.replies") == 2


async def test_more_than_can_be_read_is_uncertain_not_absent(api: SlackApi, world: World) -> None:
    for number in range(FIND_PAGES_MAX * FIND_PAGE_MESSAGES + 1):
        world.slack.post_as_bot(world.slack.place(CHANNEL), text=str(number), blocks=[])
    error = await failure_of(api.find(channel=CHANNEL, thread_ts=None, key="k", oldest_seconds=0))
    assert (error.failure, error.code) == (Failure.UNCERTAIN, "too_many_messages")
    assert requests(world, "conversations.history") == FIND_PAGES_MAX


async def test_an_ephemeral_is_seen_by_one_person(api: SlackApi, world: World) -> None:
    await api.ephemeral(channel=CHANNEL, user="U0REP", text="Only you")
    (message,) = posted(world)
    assert (message.text, message.ephemeral_for) == ("Only you", "U0REP")


def response_url(world: World) -> str:
    return world.url + world.slack.passes.response_url("commands", "U0REP", CHANNEL, None).path


async def test_an_answer_through_a_response_url_is_seen_by_the_person_who_asked(api: SlackApi, world: World) -> None:
    await api.respond(response_url(world), text="Done <now>")
    (message,) = posted(world)
    assert (message.text, message.ephemeral_for) == ("Done <now>", "U0REP")


async def test_a_response_url_that_is_used_up_or_expired_is_not_found(api: SlackApi, world: World) -> None:
    url = response_url(world)
    for _ in range(5):
        await api.respond(url, text="again")
    used = await failure_of(api.respond(url, text="once too often"))
    assert (used.failure, used.code, used.http_status) == (Failure.NOT_FOUND, "used_url", 404)

    fresh = response_url(world)
    world.clock.move(31 * 60)
    expired = await failure_of(api.respond(fresh, text="too late"))
    assert (expired.failure, expired.code) == (Failure.NOT_FOUND, "expired_url")
    assert len(posted(world)) == 5


MODAL = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "Reject"},
    "blocks": [{"type": "section", "text": {"type": "plain_text", "text": "Why?"}}],
}


async def test_a_view_opens_once_per_trigger(api: SlackApi, world: World) -> None:
    trigger = world.slack.passes.trigger("U0REP")
    await api.open_view(trigger_id=trigger, view=MODAL)
    used = await failure_of(api.open_view(trigger_id=trigger, view=MODAL))
    assert (used.failure, used.code) == (Failure.EXPIRED, "exchanged_trigger_id")


async def test_a_trigger_of_four_seconds_ago_has_expired(api: SlackApi, world: World) -> None:
    trigger = world.slack.passes.trigger("U0REP")
    world.clock.move(4)
    late = await failure_of(api.open_view(trigger_id=trigger, view=MODAL))
    assert (late.failure, late.code) == (Failure.EXPIRED, "expired_trigger_id")


async def test_a_file_is_shared_in_three_steps_that_may_each_be_looked_at_again(api: SlackApi, world: World) -> None:
    root = await post(api)
    ticket = await api.upload_url(filename="Q-2026-0001.pdf", length=len(PDF))
    assert not await api.is_shared(file_id=ticket.file_id, channel=CHANNEL)
    await api.upload_bytes(ticket.upload_url, PDF)
    await api.upload_bytes(ticket.upload_url, PDF)  # the answer may have been lost: harmless
    assert not await api.is_shared(file_id=ticket.file_id, channel=CHANNEL)

    def complete() -> Awaitable[None]:
        return api.complete_upload(file_id=ticket.file_id, title="Quote", channel=CHANNEL, thread_ts=root.ts, comment="The quote")

    await complete()
    assert await api.is_shared(file_id=ticket.file_id, channel=CHANNEL)
    assert not await api.is_shared(file_id=ticket.file_id, channel="C0GENERAL")
    again = await failure_of(complete())
    assert (again.failure, again.code) == (Failure.NOT_FOUND, "file_not_found")

    _, message = posted(world)
    assert (message.thread_ts, message.text, message.files) == (root.ts, "The quote", [ticket.file_id])
    (stored,) = world.slack.files.all()
    assert (stored.title, stored.path.read_bytes()) == ("Quote", PDF)


async def test_a_completion_whose_answer_was_lost_is_seen_as_shared(api: SlackApi, world: World) -> None:
    ticket = await api.upload_url(filename="q.pdf", length=len(PDF))
    await api.upload_bytes(ticket.upload_url, PDF)
    world.weather.arm("slack", "reset_after", method="files.completeUploadExternal")
    lost = await failure_of(
        api.complete_upload(file_id=ticket.file_id, title="Quote", channel=CHANNEL, thread_ts=None, comment="The quote")
    )
    assert lost.possibly_applied
    assert await api.is_shared(file_id=ticket.file_id, channel=CHANNEL)
    assert requests(world, "files.completeUploadExternal") == 1


async def test_a_megabyte_and_more_is_uploaded_without_a_warning(api: SlackApi, world: World) -> None:
    ticket = await api.upload_url(filename="q.pdf", length=3 * 2**20)
    await api.upload_bytes(ticket.upload_url, bytes(3 * 2**20))
    stored = world.slack.files.get(ticket.file_id)
    assert stored is not None
    assert stored.size == 3 * 2**20


# How each method fails: every method under every fault, one request each


async def _ticket(api: SlackApi) -> tuple[str, str]:
    ticket = await api.upload_url(filename="q.pdf", length=len(PDF))
    return ticket.file_id, ticket.upload_url


async def _prepared_completion(api: SlackApi) -> Awaitable[object]:
    file_id, url = await _ticket(api)
    await api.upload_bytes(url, PDF)
    return api.complete_upload(file_id=file_id, title="Quote", channel=CHANNEL, thread_ts=None, comment="")


async def _prepared_call(name: str, api: SlackApi, world: World) -> Awaitable[object]:
    """The call of a method, with what it needs done before the fault is armed."""
    card = await post(api) if name in {"chat.update", "conversations.replies"} else PostedMessage(CHANNEL, "")
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "auth.test": api.identify,
        "chat.postMessage": lambda: post(api),
        "conversations.history": lambda: api.find(channel=CHANNEL, thread_ts=None, key="k", oldest_seconds=0),
        "conversations.replies": lambda: api.find(channel=CHANNEL, thread_ts=card.ts, key="k", oldest_seconds=0),
        "chat.update": lambda: api.update(channel=CHANNEL, ts=card.ts, text="x", blocks=[], correlation_id="c"),
        "chat.postEphemeral": lambda: api.ephemeral(channel=CHANNEL, user="U0REP", text="x"),
        "response_url": lambda: api.respond(response_url(world), text="x"),
        "views.open": lambda: api.open_view(trigger_id=world.slack.passes.trigger("U0REP"), view=MODAL),
        "files.getUploadURLExternal": lambda: _ticket(api),
        "files.info": lambda: api.is_shared(file_id="F1", channel=CHANNEL),
    }
    if name == "upload":
        _, url = await _ticket(api)
        return api.upload_bytes(url, PDF)
    return await _prepared_completion(api) if name == "files.completeUploadExternal" else calls[name]()


METHODS = [
    "auth.test", "chat.postMessage", "conversations.history", "conversations.replies", "chat.update", "chat.postEphemeral",
    "response_url", "views.open", "files.getUploadURLExternal", "upload", "files.completeUploadExternal", "files.info",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("effect", "failure", "codes", "possibly_applied"),
    [
        ("429", Failure.THROTTLED, {"ratelimited"}, False),
        ("5xx", Failure.TRANSIENT, {"http_503"}, True),
        ("reset_before", Failure.TRANSIENT, {"network"}, True),  # from here it looks like reset_after
        ("reset_after", Failure.TRANSIENT, {"network"}, True),
        ("auth_expired", Failure.AUTH, {"invalid_auth"}, False),
    ],
)
async def test_a_failed_call_is_one_request_and_one_kind_of_failure(
    api: SlackApi, world: World, method: str, effect: str, failure: Failure, codes: set[str], *, possibly_applied: bool
) -> None:
    call = await _prepared_call(method, api, world)
    world.weather.arm("slack", effect, method=method, times=100, retry_after=7)
    error = await failure_of(call)
    assert (error.failure, error.possibly_applied) == (failure, possibly_applied)
    assert error.code in codes
    assert error.retry_after_seconds == (7 if effect == "429" else None)
    assert requests(world, method) == 1
    assert BOT_TOKEN not in str(error)
    assert "/hooks/" not in str(error)
    assert "/upload/" not in str(error)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in {"response_url", "upload"}])
async def test_an_unreadable_answer_leaves_open_whether_it_was_done(api: SlackApi, world: World, method: str) -> None:
    call = await _prepared_call(method, api, world)
    world.weather.arm("slack", "malformed", method=method, times=100)
    error = await failure_of(call)
    assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "unreadable", True)
    assert requests(world, method) == 1


@pytest.mark.parametrize("method", ["chat.postMessage", "response_url", "upload"])
async def test_a_slow_answer_is_not_waited_for_beyond_the_deadline(world: World, method: str) -> None:
    api = api_for(world, timeout_seconds=0.3, upload_timeout_seconds=0.3)
    try:
        call = await _prepared_call(method, api, world)
        world.weather.arm("slack", "slow", method=method, delay=0.6)
        error = await failure_of(call)
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TRANSIENT, "timeout", True)
        await seen(world, method)
        assert requests(world, method) == 1
    finally:
        await api.close()


@pytest.mark.parametrize(
    ("effect", "arrived"), [("reset_after", True), ("malformed", True), ("reset_before", False), ("5xx", False)]
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_after_a_lost_answer_the_key_tells_whether_the_message_is_there(
    api: SlackApi, world: World, effect: str, *, arrived: bool, in_thread: bool
) -> None:
    thread_ts = (await post(api, key="root")).ts if in_thread else None
    world.weather.arm("slack", effect, method="chat.postMessage")
    error = await failure_of(post(api, key="lost", thread_ts=thread_ts))
    assert error.possibly_applied
    found = await api.find(channel=CHANNEL, thread_ts=thread_ts, key="lost", oldest_seconds=0)
    assert (found is not None) is arrived
    assert [message.ts for message in posted(world)[in_thread:]] == ([found.ts] if found else [])


async def update(api: SlackApi, channel: str) -> None:
    await api.update(channel=channel, ts="1.000001", text="x", blocks=[], correlation_id="c")


@pytest.mark.parametrize(
    ("call", "code", "failure"),
    [
        (lambda api: update(api, CHANNEL), "message_not_found", "not_found"),
        (lambda api: update(api, "C0NONE"), "channel_not_found", "not_found"),
        (lambda api: post(api, text="", thread_ts="1.000001"), "thread_not_found", "not_found"),
        (lambda api: api.ephemeral(channel="C0OPS", user="U0REP", text="x"), "user_not_in_channel", "not_found"),
        (lambda api: api.find(channel=CHANNEL, thread_ts="1.000001", key="k", oldest_seconds=0), "thread_not_found", "not_found"),
        (lambda api: api.open_view(trigger_id="1.2.3", view=MODAL), "invalid_trigger_id", "expired"),
        (lambda api: api.upload_url(filename="q.pdf", length=0), "invalid_arguments", "validation"),
    ],
)
async def test_what_slack_refuses_is_named_by_its_own_code(api: SlackApi, call: Any, code: str, failure: str) -> None:
    error = await failure_of(call(api))
    assert (error.code, error.failure, error.possibly_applied, error.http_status) == (code, failure, False, 200)
    assert code in str(error)


async def test_a_text_that_is_too_long_for_an_update_is_refused_for_good(api: SlackApi) -> None:
    card = await post(api)
    error = await failure_of(api.update(channel=CHANNEL, ts=card.ts, text="x" * 4001, blocks=[], correlation_id="c"))
    assert (error.failure, error.code) == (Failure.VALIDATION, "msg_too_long")


async def test_bad_blocks_are_refused_with_their_place_but_not_their_text(api: SlackApi, world: World) -> None:
    long = [{"type": "section", "text": {"type": "mrkdwn", "text": "Acme " * 700}}]
    error = await failure_of(api.post(channel=CHANNEL, text="x", blocks=long, thread_ts=None, key="k", correlation_id="c"))
    assert (error.failure, error.code) == (Failure.VALIDATION, "invalid_blocks")
    assert "/blocks/0" in str(error)
    assert "Acme" not in str(error)
    assert posted(world) == []


# Answers no sandbox gives


@dataclass(slots=True)
class Canned:
    """A server that answers everything the same way and keeps what it was sent."""

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
        ({"Retry-After": "-5"}, 0),
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


async def test_an_address_that_refuses_without_a_code_is_gone_rather_than_a_reason_to_pause(
    canned: Canned, canned_api: SlackApi
) -> None:
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
