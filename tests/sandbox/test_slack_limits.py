"""Tests of scopes and rate limits, with Slack's answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.sandbox.slack.directory import BOT_TOKEN
from quotebot.sandbox.slack.listing import SCOPES
from quotebot.sandbox.slack.web_api import ANY_OF, METHODS, PER_MINUTE, POSTS_AT_ONCE, POSTS_PER_MINUTE
from quotebot.sandbox.wire import Received
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from pathlib import Path


class Time:
    """Clock (seconds) that tests advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def call(world: World, method: str, **arguments: Any) -> tuple[int, dict[str, Any], str | None]:
    """Call one method; return the status, the body and Retry-After."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {BOT_TOKEN}"}
    answer = world.receive(Received("POST", f"{world.url}/api/{method}", headers, json.dumps(arguments).encode()))
    return answer.status, json.loads(answer.body), answer.headers.get("Retry-After")


def world_with(scopes: frozenset[str] | None = None, *, clock: Time | None = None) -> World:
    return World(None, scopes=scopes, limited=clock is not None, monotonic=clock or Time()).unserved()


@pytest.mark.parametrize(
    ("method", "arguments", "needed"),
    [
        ("users.lookupByEmail", {"email": "rep@quotebot-sandbox.example"}, "users:read.email"),
        ("usergroups.list", {}, "usergroups:read"),
        ("reactions.add", {"channel": "C0DEALS", "timestamp": "1.0", "name": "eyes"}, "reactions:write"),
        ("conversations.members", {"channel": "C0DEALS"}, "channels:read"),
        ("conversations.open", {"users": "U0REP"}, "im:write,channels:manage,groups:write,mpim:write"),
    ],
)
def test_a_call_beyond_the_installed_scopes_is_refused_with_what_it_needed(
    method: str, arguments: dict[str, Any], needed: str
) -> None:
    installed = SCOPES - set(needed.split(","))
    _, body, _ = call(world_with(installed), method, **arguments)
    assert body == {"ok": False, "error": "missing_scope", "needed": needed, "provided": ",".join(sorted(installed))}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("auth.test", {}),
        ("chat.postMessage", {"channel": "C0DEALS", "text": "x"}),
        ("conversations.history", {"channel": "C0DEALS"}),
        ("conversations.history", {"channel": "D0REP"}),
        ("files.getUploadURLExternal", {"filename": "a.pdf", "length": 3}),
    ],
)
def test_what_the_manifest_asks_for_is_granted(method: str, arguments: dict[str, Any]) -> None:
    assert call(world_with(SCOPES), method, **arguments)[1]["ok"] is True


def test_what_is_read_of_a_conversation_needs_the_scope_of_its_kind() -> None:
    world = world_with(SCOPES - {"im:history"})
    assert call(world, "conversations.history", channel="D0REP")[1]["needed"] == "im:history"
    assert call(world, "conversations.history", channel="C0DEALS")[1]["ok"] is True


def test_an_app_without_named_scopes_may_do_everything() -> None:
    assert call(world_with(), "usergroups.list")[1]["ok"] is True


def test_every_method_with_a_scope_or_a_tier_is_one_that_is_served() -> None:
    assert ANY_OF.keys() | PER_MINUTE.keys() <= METHODS.keys()


def test_a_channel_takes_a_burst_and_then_one_message_a_second() -> None:
    clock = Time()
    world = world_with(clock=clock)
    post = {"channel": "C0DEALS", "text": "x"}
    assert [call(world, "chat.postMessage", **post)[0] for _ in range(POSTS_AT_ONCE)] == [200] * POSTS_AT_ONCE
    assert call(world, "chat.postMessage", **post) == (429, {"ok": False, "error": "ratelimited"}, "1")
    assert call(world, "chat.postMessage", channel="C0GENERAL", text="x")[0] == 200
    clock.now += 1.0
    assert [call(world, "chat.postMessage", **post)[0] for _ in range(2)] == [200, 429]
    assert len([each for each in world.seen().messages if each["channel"] == "C0DEALS"]) == POSTS_AT_ONCE + 1


def test_workspace_message_rate_is_limited_per_minute_over_all_channels() -> None:
    clock = Time()
    world = world_with(clock=clock)
    statuses = [call(world, "chat.postMessage", channel=f"C{number}", text="x")[0] for number in range(POSTS_PER_MINUTE + 1)]
    assert statuses == [200] * POSTS_PER_MINUTE + [429]
    clock.now += 60 / POSTS_PER_MINUTE
    assert [call(world, "chat.postMessage", channel=name, text="x")[0] for name in ("C0DEALS", "C0GENERAL")] == [200, 429]


def test_a_tier_counts_each_method_for_itself_and_tells_how_long_to_wait() -> None:
    clock = Time()
    world = world_with(clock=clock)
    assert [call(world, "usergroups.list")[0] for _ in range(21)] == [200] * 20 + [429]
    assert call(world, "usergroups.list")[2] == "3"
    assert call(world, "users.info", user="U0REP")[0] == 200
    clock.now += 3.0
    assert call(world, "usergroups.list")[0] == 200
    refusals = [each for each in world.witness.since() if each.status == 429]
    assert [(each.method, each.applied) for each in refusals] == [("usergroups.list", False)] * 2


def test_a_world_is_unlimited_unless_it_is_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path).unserved()
    assert {call(world, "usergroups.list")[0] for _ in range(60)} == {200}
