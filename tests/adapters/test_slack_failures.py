"""Tests of failed calls to Slack: every method under every fault, one request each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import Failure
from adapters.slack.api import PostedMessage, SlackApi
from adapters.slack.errors import STATUSES, refusal
from quotebot.sandbox.slack.directory import BOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quotebot.sandbox.world import World


from tests.adapters.slack_parts import CHANNEL, MODAL, PDF, api_for, failure_of, post, posted, requests, response_url, seen


async def _ticket(api: SlackApi) -> tuple[str, str]:
    ticket = await api.upload_url(filename="q.pdf", length=len(PDF))
    return ticket.file_id, ticket.upload_url


async def _prepared_completion(api: SlackApi) -> Awaitable[object]:
    file_id, url = await _ticket(api)
    await api.upload_bytes(url, PDF)
    return api.complete_upload(file_id=file_id, title="Quote", channel=CHANNEL, thread_ts=None, comment="")


async def _prepared_call(name: str, api: SlackApi, world: World) -> Awaitable[object]:
    """Return the call of a method, after its preparation; the fault is armed later."""
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
        "files.info": lambda: api.find_file(file_id="F1", channel=CHANNEL),
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
        ("reset_before", Failure.TRANSIENT, {"network"}, True),  # a client cannot distinguish it from reset_after
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
        assert (error.failure, error.code, error.possibly_applied) == (Failure.TIMEOUT, "timeout", True)
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
        (lambda api: post(api, thread_ts="1.000001"), "thread_not_found", "not_found"),
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


async def test_what_slack_would_refuse_is_not_sent_and_its_place_is_named_but_not_its_text(api: SlackApi, world: World) -> None:
    long = [{"type": "section", "text": {"type": "mrkdwn", "text": "Acme " * 700}}]
    titled = {**MODAL, "title": {"type": "plain_text", "text": "Acme " * 5}}
    calls = {
        "3000: text of a section (/blocks/0)": api.post(
            channel=CHANNEL, text="x", blocks=long, thread_ts=None, key="k", correlation_id="c"
        ),
        "text over 4000": api.update(channel=CHANNEL, ts="1.000001", text="Acme " * 801, blocks=[], correlation_id="c"),
        "without text": api.ephemeral(channel=CHANNEL, user="U0REP", text=""),
        "(/blocks/2) and 1 more": api.respond(response_url(world), text="x", blocks=[*long, *long, *long, *long]),
        "24: title of a view": api.open_view(trigger_id="1.2.3", view=titled),
        "title of a view": api.publish_home(user="U0REP", view={**titled, "type": "home"}, correlation_id="c"),
    }
    for place, call in calls.items():
        error = await failure_of(call)
        assert (error.failure, error.code, error.possibly_applied) == (Failure.VALIDATION, "block_kit", False)
        assert place in str(error)
        assert "Acme" not in str(error)
    assert not world.witness.since()


def test_what_only_slack_itself_refuses_is_named_by_its_place_and_not_by_its_text() -> None:
    told = {"error": "invalid_blocks", "response_metadata": {"messages": ["[ERROR] Acme [json-pointer:/blocks/0/text]"]}}
    error = refusal("chat.postMessage", 200, {}, told, STATUSES)
    assert (error.failure, error.code) == (Failure.VALIDATION, "invalid_blocks")
    assert "/blocks/0/text" in str(error)
    assert "Acme" not in str(error)
