"""Tests of channel facts, channel members and direct messages, as read from Slack's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError, Failure
from adapters.slack import api as slack
from adapters.slack.api import ChannelFacts
from quotebot.sandbox.slack.directory import BOT_USER_ID, PARTNER_TEAM_ID, Channel
from tests.adapters.slack_parts import api_for, requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.slack.api import SlackApi
    from quotebot.sandbox.world import World


@pytest.fixture
async def api(world: World) -> AsyncIterator[SlackApi]:
    made = api_for(world)
    yield made
    await made.close()


def place(world: World, **facts: Any) -> None:
    members = tuple(f"U0P{number:04d}" for number in range(25))
    world.slack.directory.channels["C0X"] = Channel("C0X", "x", (*members, BOT_USER_ID), **facts)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ChannelFacts("public", ext_shared=False)),
        ({"is_private": True}, ChannelFacts("private", ext_shared=False)),
        ({"is_org_shared": True}, ChannelFacts("public", ext_shared=False, org_shared=True)),
        ({"connected_teams": (PARTNER_TEAM_ID,)}, ChannelFacts("public", ext_shared=True)),
        ({"pending_teams": (PARTNER_TEAM_ID,)}, ChannelFacts("public", ext_shared=True)),
    ],
)
async def test_facts_say_the_kind_and_whether_others_read(
    world: World, api: SlackApi, facts: dict[str, Any], expected: ChannelFacts
) -> None:
    place(world, **facts)
    assert await api.channel(channel="C0X") == expected


async def test_private_channel_without_the_bot_is_not_found(world: World, api: SlackApi) -> None:
    world.slack.directory.channels["C0X"] = Channel("C0X", "x", ("U0REP",), is_private=True)
    for asked in (api.channel, api.members):
        with pytest.raises(AdapterError) as raised:
            await asked(channel="C0X")
        assert raised.value.failure is Failure.NOT_FOUND


async def test_members_are_read_page_by_page(world: World, api: SlackApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slack, "MEMBER_PAGE_USERS", 10)
    place(world)
    assert len(await api.members(channel="C0X")) == 26
    assert requests(world, "conversations.members") == 3


async def test_a_channel_with_too_many_members_is_not_read_for_ever(
    world: World, api: SlackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "MEMBER_PAGE_USERS", 2)
    place(world)
    with pytest.raises(AdapterError) as raised:
        await api.members(channel="C0X")
    assert raised.value.failure is Failure.UNCERTAIN
    assert requests(world, "conversations.members") == slack.MEMBER_PAGES_MAX


async def test_facts_that_do_not_say_who_reads_are_no_answer(world: World, api: SlackApi) -> None:
    world.weather.arm("slack", "malformed", method="conversations.info", times=1)
    with pytest.raises(AdapterError) as raised:
        await api.channel(channel="C0DEALS")
    assert raised.value.failure is Failure.TRANSIENT


async def test_a_direct_message_has_a_channel_of_its_own(api: SlackApi) -> None:
    assert await api.open_direct(user="U0CFO") == "D0CFO"
