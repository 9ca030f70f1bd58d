"""Tests of payloads and user objects of guests, external people, bots and Enterprise Grid members, as Slack sends them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.sandbox.slack.directory import BOT_USER_ID, Channel, Person
from quotebot.sandbox.slack.listing import SCOPES
from quotebot.sandbox.world import World
from tests.sandbox.conftest import Hand, Wire, wired
from tests.sandbox.test_slack_limits import call
from tests.sandbox.test_slack_web_api import refused

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

PARTNER: dict[str, str] = {"user": "U0PARTNER", "channel": "C0PARTNER"}


async def told(world: World, hand: Hand, gesture: str, **body: Any) -> dict[str, Any]:
    """Make a gesture; return the payload that the bot received."""
    async with wired(world, hand) as wire:
        found: dict[str, Any] = await _payload(wire, hand, gesture, body)
        return found


async def _payload(wire: Wire, hand: Hand, gesture: str, body: dict[str, Any]) -> dict[str, Any]:
    made = asyncio.ensure_future(hand.post(gesture, **body))
    envelope = await wire.envelope()
    await wire.ack(envelope)
    while not made.done():
        asks = asyncio.ensure_future(wire.envelope())
        await asyncio.wait([made, asks], return_when=asyncio.FIRST_COMPLETED)
        if asks.done():
            await wire.ack(asks.result())
        asks.cancel()
    await made
    found: dict[str, Any] = envelope["payload"]
    return found


async def test_partner_is_in_the_shared_channel_alone(hand: Hand) -> None:
    channels = (await hand.get("state"))["channels"]
    assert [each["id"] for each in channels if "U0PARTNER" in each["members"]] == ["C0PARTNER"]


async def test_mention_in_a_shared_channel_names_the_author_workspace(world: World, hand: Hand) -> None:
    payload = await told(world, hand, "message", **PARTNER, text="@quotebot list")
    assert (payload["team_id"], payload["context_team_id"], payload["is_ext_shared_channel"]) == ("T0QUOTE", "T0QUOTE", True)
    assert [each["team_id"] for each in payload["authorizations"]] == ["T0QUOTE"]
    event = payload["event"]
    assert (event["team"], event["user_team"], event["source_team"]) == ("T0PARTNER", "T0PARTNER", "T0PARTNER")


async def test_older_event_names_no_workspace_of_the_author(world: World, hand: Hand) -> None:
    payload = await told(world, hand, "message", **PARTNER, text="@quotebot list", with_teams=False)
    assert not {"team", "user_team", "source_team"} & set(payload["event"])


async def test_event_of_an_internal_channel_is_as_before(world: World, hand: Hand) -> None:
    payload = await told(world, hand, "message", user="U0REP", channel="C0DEALS", text="@quotebot list")
    assert payload["is_ext_shared_channel"] is False
    assert payload["event"]["team"] == "T0QUOTE"
    assert "user_team" not in payload["event"]


async def test_command_of_a_partner_names_the_partner_workspace(world: World, hand: Hand) -> None:
    payload = await told(world, hand, "slash", **PARTNER, command="/quote", text="list")
    assert (payload["team_id"], payload["team_domain"]) == ("T0PARTNER", "partner")


async def test_click_of_a_partner_names_the_partner_workspace(world: World, hand: Hand, client: AsyncWebClient) -> None:
    button = {"type": "button", "action_id": "press", "text": {"type": "plain_text", "text": "Press"}, "value": "1"}
    ts = (await client.chat_postMessage(channel="C0PARTNER", text="x", blocks=[{"type": "actions", "elements": [button]}]))["ts"]
    payload = await told(world, hand, "action", **PARTNER, message_ts=ts, action_id="press")
    assert payload["user"]["team_id"] == payload["team"]["id"] == "T0PARTNER"


async def test_organization_is_named_in_payloads_and_by_auth_test(world: World, hand: Hand, client: AsyncWebClient) -> None:
    world.slack.directory.enterprise_id = "E0QUOTE"
    payload = await told(world, hand, "slash", user="U0REP", channel="C0DEALS", command="/quote", text="list")
    assert (payload["enterprise_id"], payload["is_enterprise_install"]) == ("E0QUOTE", "false")
    who = await client.auth_test()
    assert (who["enterprise_id"], who["is_enterprise_install"]) == ("E0QUOTE", False)


async def test_user_object_of_a_partner_is_no_stranger_and_says_little(client: AsyncWebClient) -> None:
    who = (await client.users_info(user="U0PARTNER"))["user"]
    assert (who["team_id"], who["is_stranger"]) == ("T0PARTNER", False)
    assert not {"is_restricted", "is_admin", "tz"} & set(who)
    assert "email" not in who["profile"]
    assert (await refused(client.users_lookupByEmail(email="partner@partner.example")))["error"] == "users_not_found"


@pytest.mark.parametrize("scopes", [SCOPES, SCOPES - {"users:read.email"}])
def test_user_object_has_an_address_only_with_its_scope(scopes: frozenset[str]) -> None:
    world = World(None, scopes=scopes).unserved()
    people = [call(world, "users.info", user="U0REP")[1]["user"], *call(world, "users.list")[1]["members"]]
    profiles = [each["profile"] for each in people if each["id"] == "U0REP"]
    assert [("email" in profile, "phone" in profile) for profile in profiles] == [("users:read.email" in scopes, True)] * 2


async def test_member_of_an_organization_names_their_workspaces(world: World, client: AsyncWebClient) -> None:
    person = Person("W0GRID", "grid", "Grid", "grid", team_id="T0OTHER", enterprise_id="E0QUOTE", teams=("T0OTHER", "T0QUOTE"))
    world.slack.directory.people["W0GRID"] = person
    who = (await client.users_info(user="W0GRID"))["user"]
    assert who["enterprise_user"]["enterprise_id"] == "E0QUOTE"
    assert who["enterprise_user"]["teams"] == ["T0OTHER", "T0QUOTE"]
    assert (await client.conversations_open(users="W0GRID"))["channel"]["id"] == "D0GRID"


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ({}, (False, False, False, False)),
        ({"shared": True}, (True, True, False, False)),
        ({"pending": True}, (False, False, True, False)),
        ({"private": True}, (False, False, False, True)),
    ],
)
async def test_channel_says_how_it_is_shared(
    hand: Hand, client: AsyncWebClient, state: dict[str, bool], facts: tuple[bool, ...]
) -> None:
    await hand.post("channel", channel="C0DEALS", **state)
    found = (await client.conversations_info(channel="C0DEALS"))["channel"]
    names = ("is_ext_shared", "is_shared", "is_pending_ext_shared", "is_private")
    assert tuple(found[name] for name in names) == facts
    assert found["connected_team_ids"] == (["T0PARTNER"] if state.get("shared") else [])


async def test_private_channel_without_the_bot_is_unknown_to_it(hand: Hand, client: AsyncWebClient) -> None:
    await hand.post("channel", channel="C0DEALS", private=True, with_bot=False)
    for asked in (client.conversations_info, client.conversations_members, client.conversations_history):
        assert (await refused(asked(channel="C0DEALS")))["error"] == "channel_not_found"
    await hand.post("channel", channel="C0DEALS", private=False)
    assert (await refused(client.conversations_members(channel="C0DEALS")))["error"] == "not_in_channel"


async def test_members_come_page_by_page(hand: Hand, client: AsyncWebClient) -> None:
    await hand.post("channel", channel="C0DEALS", members=["U0REP", "U0CFO", "U0VP"])
    first = await client.conversations_members(channel="C0DEALS", limit=3)
    last = await client.conversations_members(channel="C0DEALS", limit=3, cursor=first["response_metadata"]["next_cursor"])
    assert [*first["members"], *last["members"]] == ["U0REP", "U0CFO", "U0VP", BOT_USER_ID]
    assert last["response_metadata"]["next_cursor"] == ""


async def test_conversations_of_a_person_are_those_the_bot_may_see(hand: Hand, client: AsyncWebClient) -> None:
    await hand.post("channel", channel="C0GENERAL", private=True, with_bot=False)
    kinds = "public_channel,private_channel"
    assert [each["id"] for each in (await client.users_conversations(user="U0PARTNER", types=kinds))["channels"]] == ["C0PARTNER"]
    assert "C0GENERAL" not in [each["id"] for each in (await client.users_conversations(types=kinds))["channels"]]


@pytest.mark.parametrize(("channel", "needed"), [("C0PRIVATE", "groups:read"), ("C0DEALS", "channels:read"), ("D0REP", "im:read")])
@pytest.mark.parametrize("method", ["conversations.info", "conversations.members"])
def test_facts_of_a_channel_need_the_scope_of_its_kind(method: str, channel: str, needed: str) -> None:
    world = World(None, scopes=frozenset({"chat:write"})).unserved()
    private = Channel("C0PRIVATE", "private", ("U0REP", BOT_USER_ID), is_private=True)
    world.slack.directory.channels["C0PRIVATE"] = private
    _, body, _ = call(world, method, channel=channel)
    assert (body["error"], body["needed"]) == ("missing_scope", needed)


async def test_faults_reach_the_facts_of_a_channel(world: World, client: AsyncWebClient) -> None:
    world.weather.arm("slack", "refused", method="conversations.info", code="fetch_members_failed", times=1)
    assert (await refused(client.conversations_info(channel="C0DEALS")))["error"] == "fetch_members_failed"


async def test_a_deactivated_person_and_a_bot_say_so(world: World, client: AsyncWebClient) -> None:
    people = world.slack.directory.people
    people["U0REP"] = replace(people["U0REP"], is_deactivated=True)
    assert (await client.users_info(user="U0REP"))["user"]["deleted"] is True
    assert (await client.users_info(user=BOT_USER_ID))["user"]["is_bot"] is True
