"""Tests of the Slack app manifest: within Slack's limits, without unused permissions."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from quotebot.sandbox.slack.listing import COMMAND, listing
from quotebot.sandbox.slack.listing import SCOPES as GRANTED
from quotebot.slack.verbs import VERBS

if TYPE_CHECKING:
    from pathlib import Path

# The schema does not define scopes and events, so the names that this app may request are listed here.
SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:write",
        "links:read",
        "links:write",
        "users:read",
        "users:read.email",
    }
)
EVENTS = frozenset(
    {"app_home_opened", "app_mention", "link_shared", "member_joined_channel", "message.im"}
)  # of messages, only those to the bot


@pytest.fixture(scope="module")
def text(checkout: Path) -> str:
    return (checkout / "manifest.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def manifest(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture(scope="module")
def schema(checkout: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((checkout / "tests/data/manifest.schema.json").read_text(encoding="utf-8"))
    return loaded


def test_the_manifest_is_within_the_limits_of_slack(manifest: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(manifest)] == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("display_information", "name"), "Q" * 36),
        (("display_information", "long_description"), "short"),
        (("features", "slash_commands", 0, "command"), "quote"),
        (("features", "slash_commands", 0, "url"), "https://example.invalid/"),
        (("features", "unfurl_domains"), ["a.example"] * 6),
        (("settings", "interactivity", "is_enabled"), "yes"),
        (("settings", "socket_mode"), True),
    ],
)
def test_the_schema_refuses_what_slack_would_refuse(
    manifest: dict[str, Any], schema: dict[str, Any], where: tuple[str | int, ...], value: object
) -> None:
    broken = json.loads(json.dumps(manifest))
    target = broken
    for step in where[:-1]:
        target = target[step]
    target[where[-1]] = value
    assert not jsonschema.Draft7Validator(schema).is_valid(broken)


def test_only_the_scopes_that_are_used_are_asked_for(manifest: dict[str, Any]) -> None:
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == SCOPES


def test_every_scope_says_what_it_is_for(text: str) -> None:
    listed = {scope: re.search(rf"^\s+- {re.escape(scope)} # \S+", text, re.MULTILINE) for scope in SCOPES}
    assert [scope for scope, line in listed.items() if line is None] == []


def test_the_page_of_the_sandbox_completes_every_verb_and_no_other() -> None:
    assert {verb["text"] for verb in listing()["verbs"]} == {f"/quote {verb}" for verb in VERBS.values()}


def test_documentation_justifies_exactly_the_scopes_and_events_of_the_manifest(checkout: Path) -> None:
    page = (checkout / "docs/slack.md").read_text(encoding="utf-8").partition("## What the app may do")[2]
    rows = re.findall(r"^\| `([a-z:_.]+)` \| (\S.*) \|$", page, re.MULTILINE)
    assert {scope for scope, _ in rows} == SCOPES
    assert len(rows) == len(SCOPES)
    assert {name for name in EVENTS if f"`{name}`" in page} == EVENTS


def test_only_known_events_are_subscribed(manifest: dict[str, Any]) -> None:
    assert set(manifest["settings"].get("event_subscriptions", {}).get("bot_events", [])) == EVENTS


def test_the_app_uses_socket_mode_and_needs_no_public_address(manifest: dict[str, Any], text: str) -> None:
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"] == {"is_enabled": True}
    assert "://" not in text


def test_the_slash_command_receives_mentions_as_ids(manifest: dict[str, Any]) -> None:
    assert [(command["command"], command["should_escape"]) for command in manifest["features"]["slash_commands"]] == [
        ("/quote", True)
    ]


def test_the_sandbox_knows_the_very_commands_shortcuts_and_scopes_of_the_manifest(manifest: dict[str, Any]) -> None:
    told = listing()
    commands = [{name: command[name] for name in COMMAND} for command in manifest["features"]["slash_commands"]]
    assert told["commands"] == commands, "copy them into quotebot/sandbox/slack/listing.py"
    assert told["shortcuts"] == manifest["features"].get("shortcuts", []), "copy them into quotebot/sandbox/slack/listing.py"
    assert told["messages_tab"] == manifest["features"]["app_home"]["messages_tab_enabled"], "copy it into the listing"
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == GRANTED, "copy them into quotebot/sandbox/slack/listing.py"
