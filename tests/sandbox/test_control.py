"""Tests of the control API: its answers, its refusals and their texts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.sandbox.slack.directory import BOT_TOKEN
from quotebot.sandbox.world import World
from tests.sandbox.conftest import DEADLINE_SECONDS

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.web.async_client import AsyncWebClient

    from tests.sandbox.conftest import Hand


async def test_the_state_names_team_people_and_channels(hand: Hand) -> None:
    state = await hand.get("state")
    assert state["team"] == {"id": "T0QUOTE", "name": "quotebot-sandbox", "domain": "quotebot-sandbox"}
    assert [user["id"] for user in state["users"] if user["is_guest"]] == ["U0GUEST"]
    assert {channel["id"] for channel in state["channels"]} == {"C0DEALS", "C0GENERAL", "C0OPS", "C0PARTNER"}
    assert [channel["id"] for channel in state["channels"] if channel["is_ext_shared"]] == ["C0PARTNER"]
    assert [user["id"] for user in state["users"] if user["is_external"]] == ["U0PARTNER"]
    assert state["bot"] == {"connections": 0}


@pytest.mark.parametrize(
    ("name", "body", "complaint"),
    [
        ("slash", {}, "field 'user' is missing"),
        ("slash", {"user": "U0REP", "channel": 5, "command": "/quote"}, "field 'channel' must be a string, not 5"),
        ("slash", {"user": "U0REP", "channel": "C0DEALS", "command": "quote"}, "command must start with '/'"),
        ("action", {"user": "U0REP", "action_id": "x"}, "field 'message_ts'"),
        ("submit", {"user": "U0REP", "view_id": "V1", "values": []}, "field 'values' must be an object"),
        ("redeliver", {"request_id": "R1", "kind": "again"}, "field 'kind' must be 'resend' or 'retry'"),
        ("redeliver", {"request_id": "R1", "times": 0}, "field 'times' must be from 1 to 50"),
        ("faults", {"target": "moon", "effect": "429"}, "unknown target 'moon'"),
        ("faults", {"target": "slack", "effect": "drop_ack"}, "does not fit target 'slack'"),
        ("faults", {"target": "socket", "effect": "429"}, "does not fit target 'socket'"),
        ("faults", {"target": "slack", "effect": "429", "times": -1}, "field 'times' must not be negative"),
        ("clock", {"offset_seconds": True}, "field 'offset_seconds' must be a number"),
    ],
)
async def test_a_wrong_body_is_refused_by_field(hand: Hand, name: str, body: dict[str, Any], complaint: str) -> None:
    answer = await hand.post(name, expect=400, **body)
    assert complaint in answer["error"]


async def test_a_body_that_is_no_json_object_is_refused(world: World, session: ClientSession) -> None:
    for body in (b"{", b"[]"):
        async with session.post(f"{world.url}/_sandbox/slash", data=body) as response:
            assert response.status == 400


async def test_who_and_what_is_not_there_is_a_404_that_lists_what_is(hand: Hand) -> None:
    where = {"command": "/quote"}
    assert "U0REP" in (await hand.post("slash", user="U0NONE", channel="C0DEALS", expect=404, **where))["error"]
    assert "C0DEALS (#deals)" in (await hand.post("slash", user="U0REP", channel="nowhere", expect=404, **where))["error"]
    assert "is not in C0OPS" in (await hand.post("slash", user="U0REP", channel="#quotebot-ops", expect=403, **where))["error"]
    assert "no delivery" in (await hand.post("redeliver", request_id="R0NONE", expect=404))["error"]
    await hand.post("message", user="U0REP", channel="C0DEALS", text="x", thread_ts="1.000001", expect=404)
    await hand.get("salesforce/Unicorn", expect=404)


async def test_salesforce_records_are_shown_as_stored(hand: Hand) -> None:
    assert await hand.get("salesforce/Quote") == []


async def test_faults_are_listed_with_their_hits_and_cleared(hand: Hand, client: AsyncWebClient) -> None:
    await hand.post("faults", target="slack", effect="slow", delay=0, times=2)
    await client.auth_test()
    (fault,) = await hand.get("faults")
    assert (fault["effect"], fault["times"], fault["hits"]) == ("slow", 2, 1)
    async with hand.session.delete(f"{hand.world.url}/_sandbox/faults") as response:
        assert response.status == 200
    assert await hand.get("faults") == []


async def test_the_witness_can_be_read_from_a_point_on_and_survives_in_a_file(
    hand: Hand, client: AsyncWebClient, tmp_path: Path
) -> None:
    await client.auth_test()
    await client.chat_postMessage(channel="C0DEALS", text="x")
    (call,) = await hand.get("witness?since=1")
    assert (call["seq"], call["system"], call["method"], call["applied"]) == (2, "slack", "chat.postMessage", True)
    lines = (tmp_path / "world" / "witness.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[1]) == call
    await hand.get("witness?since=x", expect=400)


async def test_the_clock_can_be_moved_and_read(hand: Hand) -> None:
    before = await hand.get("clock")
    after = await hand.post("clock", offset_seconds=3600)
    assert after["offset_seconds"] == 3600
    assert after["now"] - before["now"] >= 3600


async def test_every_change_is_announced_on_the_event_stream(hand: Hand, client: AsyncWebClient) -> None:
    async with hand.session.get(f"{hand.world.url}/_sandbox/events") as stream, asyncio.timeout(DEADLINE_SECONDS):
        assert stream.content_type == "text/event-stream"
        first = await stream.content.readuntil(b"\n\n")
        await client.chat_postMessage(channel="C0DEALS", text="x")
        second = await stream.content.readuntil(b"\n\n")
    versions = [json.loads(event.split(b"data: ")[1])["version"] for event in (first, second)]
    assert versions[0] < versions[1]
    assert (await hand.get("state"))["version"] == versions[1]


PAGES_OF_OTHERS = [
    {"Origin": "https://elsewhere.example"},
    {"Origin": "null"},
    {"Host": "rebound.example"},
    {"Host": "127.0.0.1:1"},
    {"Host": "127.0.0.1:x"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
]


@pytest.mark.parametrize("header", PAGES_OF_OTHERS, ids=str)
@pytest.mark.parametrize("place", ["slack", "control", "hooks", "model", "salesforce", "salesforce over TLS"])
async def test_a_page_of_another_site_is_refused(world: World, session: ClientSession, header: dict[str, str], place: str) -> None:
    address = {
        "slack": f"{world.url}/api/chat.postMessage?token={BOT_TOKEN}&channel=C0DEALS&text=forged",
        "control": f"{world.url}/_sandbox/state",
        "hooks": f"{world.url}/hooks/commands/T0QUOTE/ABC/0123abcd",
        "model": f"{world.url}/v1/models",
        "salesforce": f"{world.salesforce.plain_url}/services/data",
        "salesforce over TLS": f"{world.salesforce.url}/services/data",
    }[place]
    for method in ("GET", "POST"):
        async with session.request(method, address, headers=header, ssl=False) as response:
            assert response.status == 403
    assert not [message for message in world.slack.messages.all() if message.text == "forged"]


@pytest.mark.parametrize("site", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}], ids=str)
async def test_programs_and_own_pages_are_served(world: World, session: ClientSession, site: dict[str, str]) -> None:
    async with session.get(f"{world.url}/_sandbox/state", headers=site) as response:
        assert response.status == 200


async def test_a_link_to_the_start_page_may_be_followed_from_another_site(world: World, session: ClientSession) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with session.get(f"{world.url}/", headers=link) as response:
        assert response.status == 200


async def test_the_page_is_served_at_the_root(world: World, session: ClientSession) -> None:
    async with session.get(f"{world.url}/") as response:
        assert (response.status, response.content_type) == (200, "text/html")


async def test_a_world_serves_on_loopback_only_and_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(ValueError, match="loopback only"):
        await world.start("0.0.0.0")  # noqa: S104 -- must be refused
    async with world.serve():
        with pytest.raises(RuntimeError, match="served once"):
            await world.start()


async def test_the_environment_connects_a_bot(world: World) -> None:
    environment = world.environment()
    assert environment["SLACK_API_URL"] == f"{world.url}/api/"
    assert json.loads(environment["QUOTEBOT_APPROVERS"])["cfo"] == ["U0CFO"]
    assert json.loads(environment["QUOTEBOT_OPERATORS"]) == ["U0OPERATOR"]
    assert environment["SLACK_BOT_TOKEN"].startswith("xoxb-")
    assert environment["SLACK_APP_TOKEN"].startswith("xapp-")
    assert any(name.startswith("SALESFORCE_") for name in environment)
    assert world.model_environment()["QUOTEBOT_LLM_BASE_URL"] == f"{world.url}/v1"
    assert not set(world.model_environment()) & set(environment)


def test_every_call_is_on_the_page_about_the_sandbox(world: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")
    calls = {f"{route.method} {route.path.partition('{')[0]}" for route in world._control.routes()}
    assert [call for call in sorted(calls) if call not in page] == []
