"""Tests of channels that accept no messages, and of too frequent ticket requests, with slack_sdk's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError

from adapters.failures import Failure
from adapters.slack.errors import ERRORS
from quotebot.sandbox.slack.directory import APP_TOKEN
from quotebot.sandbox.slack.web_api import CONNECTIONS_AT_ONCE
from quotebot.sandbox.world import World
from tests.sandbox.conftest import Hand, client_of
from tests.sandbox.test_slack_web_api import refused

if TYPE_CHECKING:
    from pathlib import Path

    from slack_sdk.web.async_client import AsyncWebClient

DEALS: dict[str, Any] = {"channel": "C0DEALS"}


async def uploaded(client: AsyncWebClient, hand: Hand) -> list[dict[str, str | None]]:
    ticket = await client.files_getUploadURLExternal(filename="quote.pdf", length=3)
    async with hand.session.post(ticket["upload_url"], data=b"pdf") as response:
        assert response.status == 200
    return [{"id": ticket["file_id"]}]


@pytest.mark.parametrize(
    ("state", "codes"),
    [
        ({"archived": True}, ("is_archived", "is_archived", "is_inactive", "is_archived", "is_archived", None)),
        ({"restricted": True}, ("restricted_action", None, None, None, None, None)),
        ({"with_bot": False}, (*("not_in_channel",) * 5, "not_in_channel")),
    ],
)
async def test_each_method_says_in_its_own_word_why_a_channel_takes_nothing(
    client: AsyncWebClient, hand: Hand, state: dict[str, bool], codes: tuple[str | None, ...]
) -> None:
    ts = (await client.chat_postMessage(**DEALS, text="before"))["ts"]
    files = await uploaded(client, hand)
    await hand.post("channel", **DEALS, **state)
    calls: list[Any] = [
        client.chat_postMessage(**DEALS, text="x"),
        client.chat_postEphemeral(**DEALS, user="U0REP", text="x"),
        client.chat_update(**DEALS, ts=ts, text="x"),
        client.reactions_add(**DEALS, timestamp=ts, name="eyes"),
        client.files_completeUploadExternal(files=files, channel_id="C0DEALS"),
        client.conversations_history(**DEALS),
    ]
    for call, code in zip(calls, codes, strict=True):
        if code is None:
            assert (await call)["ok"]
        else:
            assert (await refused(call))["error"] == code
            assert ERRORS[code] in (Failure.NOT_FOUND, Failure.VALIDATION)  # the bot treats none of them as an outage
    there = (await client.conversations_info(**DEALS))["channel"]
    assert (there["is_archived"], there["is_member"]) == ("archived" in state, "with_bot" not in state)
    listed = [each["id"] for each in (await client.conversations_list(exclude_archived=True))["channels"]]
    assert ("C0DEALS" in listed) == ("archived" not in state)

    await hand.post("channel", **DEALS, archived=False, restricted=False, with_bot=True)
    assert (await client.chat_postMessage(**DEALS, text="again"))["ok"]


async def test_archived_channel_takes_no_messages_and_a_dm_cannot_be_archived(hand: Hand) -> None:
    await hand.post("channel", **DEALS, archived=True)
    written: dict[str, dict[str, Any]] = {"message": {"text": "x"}, "slash": {"command": "/quote", "text": ""}}
    for name, more in written.items():
        refusal = await hand.post(name, user="U0REP", **DEALS, **more, expect=403)
        assert refusal["error"] == "C0DEALS (#deals) is archived: nobody writes there any more"
    state = {each["id"]: each["is_archived"] for each in (await hand.get("state"))["channels"]}
    assert (state["C0DEALS"], state["C0GENERAL"]) == (True, False)
    refusal = await hand.post("channel", channel="D0REP", archived=True, expect=400)
    assert "is a direct message" in refusal["error"]


async def test_tickets_are_of_tier_one_and_a_bot_that_lost_its_links_still_finds_back(tmp_path: Path) -> None:
    async with World(tmp_path / "limited", limited=True).serve() as world:
        client = client_of(world)
        for _ in range(CONNECTIONS_AT_ONCE):
            assert (await client.apps_connections_open(app_token=APP_TOKEN))["url"].startswith("ws://")
        with pytest.raises(SlackApiError) as caught:
            await client.apps_connections_open(app_token=APP_TOKEN)
        response = caught.value.response
        assert (response.status_code, response["error"]) == (429, "ratelimited")
        assert 50 <= int(response.headers["Retry-After"]) <= 60
