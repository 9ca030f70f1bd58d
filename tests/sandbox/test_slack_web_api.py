"""Tests of the Web API with slack_sdk's unmodified client."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from quotebot.sandbox.world import World
    from tests.sandbox.conftest import Hand

OUR_METADATA = {"event_type": "quotebot_delivery", "event_payload": {"key": "op-1:card"}}


async def refused(call: Any) -> Any:
    """Return the body of a refusal."""
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response.data


async def post(client: AsyncWebClient, text: str = "hello", **more: Any) -> str:
    return str((await client.chat_postMessage(channel="C0DEALS", text=text, **more))["ts"])


async def test_the_bot_learns_who_it_is(client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert (answer["user_id"], answer["bot_id"], answer["team_id"]) == ("U0QUOTEBOT", "B0QUOTEBOT", "T0QUOTE")


@pytest.mark.parametrize(
    ("token", "error"),
    [("", "not_authed"), ("xoxb-somebody-else", "invalid_auth"), ("xapp-sandbox-app", "not_allowed_token_type")],
)
async def test_a_wrong_token_is_refused_by_its_kind(world: World, token: str, error: str) -> None:
    client = AsyncWebClient(token=token, base_url=f"{world.url}/api/", retry_handlers=[])
    assert (await refused(client.auth_test()))["error"] == error


async def test_a_bot_token_opens_no_socket(client: AsyncWebClient) -> None:
    answer = await refused(client.apps_connections_open(app_token="xoxb-sandbox-bot"))
    assert answer["error"] == "not_allowed_token_type"


async def test_an_unknown_method_is_named(client: AsyncWebClient) -> None:
    assert await refused(client.api_call("chat.shout")) == {"ok": False, "error": "unknown_method", "req_method": "chat.shout"}


async def test_a_posted_message_comes_back_as_the_bots(client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel="#deals", text="hello", metadata=OUR_METADATA)
    assert answer["channel"] == "C0DEALS"
    assert re.fullmatch(r"\d{10}\.\d{6}", answer["ts"])
    message = answer["message"]
    assert (message["user"], message["bot_id"], message["app_id"]) == ("U0QUOTEBOT", "B0QUOTEBOT", "A0QUOTEBOT")
    assert message["metadata"] == OUR_METADATA


async def test_a_text_beyond_forty_thousand_characters_is_cut(client: AsyncWebClient) -> None:
    assert len((await client.chat_postMessage(channel="C0DEALS", text="x" * 40_001))["message"]["text"]) == 40_000


async def test_timestamps_strictly_increase(client: AsyncWebClient) -> None:
    stamps = [await post(client) for _ in range(20)]
    assert stamps == sorted(set(stamps))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"channel": "C0NOWHERE", "text": "x"}, "channel_not_found"),
        ({"channel": "C0DEALS", "text": " "}, "no_text"),
        ({"channel": "C0DEALS", "text": "x", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"channel": "C0DEALS", "text": "x", "metadata": {"event_type": "a"}}, "invalid_metadata_format"),
        (
            {"channel": "C0DEALS", "text": "x", "metadata": {"event_type": "a", "event_payload": {"key": "k" * 8001}}},
            "metadata_too_large",
        ),
    ],
)
async def test_a_message_that_cannot_be_posted_says_why(client: AsyncWebClient, arguments: dict[str, Any], error: str) -> None:
    assert (await refused(client.api_call("chat.postMessage", json=arguments)))["error"] == error


async def test_metadata_is_returned_whole_only_on_request(client: AsyncWebClient) -> None:
    root = await post(client, metadata=OUR_METADATA)
    await post(client, thread_ts=root, metadata=OUR_METADATA)
    plain = await client.conversations_replies(channel="C0DEALS", ts=root)
    whole = await client.conversations_replies(channel="C0DEALS", ts=root, include_all_metadata=True)
    assert [message["metadata"] for message in plain["messages"]] == [{"event_type": "quotebot_delivery"}] * 2
    assert [message["metadata"] for message in whole["messages"]] == [OUR_METADATA] * 2


async def test_history_holds_roots_newest_first_and_no_replies(client: AsyncWebClient) -> None:
    first = await post(client, "first")
    await post(client, "reply", thread_ts=first)
    await post(client, "second")
    await client.chat_postEphemeral(channel="C0DEALS", user="U0REP", text="psst")
    history = (await client.conversations_history(channel="C0DEALS"))["messages"]
    assert [message["text"] for message in history] == ["second", "first"]
    assert history[1]["reply_count"] == 1


async def test_history_can_be_read_in_pages_and_from_a_moment_on(client: AsyncWebClient) -> None:
    stamps = [await post(client, f"m{number}") for number in range(5)]
    texts: list[str] = []
    async for page in await client.conversations_history(channel="C0DEALS", limit=2, oldest=stamps[0]):
        assert len(page["messages"]) <= 2
        texts += [message["text"] for message in page["messages"]]
    assert texts == ["m4", "m3", "m2", "m1"]
    inclusive = await client.conversations_history(channel="C0DEALS", oldest=stamps[3], inclusive=True)
    assert [message["text"] for message in inclusive["messages"]] == ["m4", "m3"]


async def test_a_reply_to_a_reply_joins_the_thread_of_its_root(client: AsyncWebClient) -> None:
    root = await post(client)
    reply = await post(client, thread_ts=root)
    answer = await client.chat_postMessage(channel="C0DEALS", text="deeper", thread_ts=reply)
    assert answer["message"]["thread_ts"] == root


async def test_an_update_with_text_alone_removes_the_blocks_and_marks_the_edit(client: AsyncWebClient, hand: Hand) -> None:
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "card"}}
    ts = await post(client, blocks=[section], metadata=OUR_METADATA)
    await client.chat_update(channel="C0DEALS", ts=ts, text="gone")
    (message,) = await hand.messages()
    assert message["blocks"] == []
    assert message["text"] == "gone"
    assert message["edited"]["user"] == "U0QUOTEBOT"
    assert message["metadata"] == OUR_METADATA
    await client.chat_update(channel="C0DEALS", ts=ts, text="gone", metadata={})
    assert (await hand.messages())[0]["metadata"] is None


async def test_only_the_bots_own_lasting_messages_can_be_updated(client: AsyncWebClient, hand: Hand) -> None:
    ephemeral = await client.chat_postEphemeral(channel="C0DEALS", user="U0REP", text="psst")
    hand.world.slack.post_as_user(hand.world.slack.channel("C0DEALS"), "U0REP", "mine", None, None)
    theirs = (await hand.messages())[-1]["ts"]
    update = client.chat_update
    assert (await refused(update(channel="C0DEALS", ts=theirs, text="x")))["error"] == "cant_update_message"
    assert (await refused(update(channel="C0DEALS", ts=ephemeral["message_ts"], text="x")))["error"] == "message_not_found"
    assert (await refused(update(channel="C0DEALS", ts="1.000001", text="x")))["error"] == "message_not_found"
    ours = await post(client)
    assert (await refused(update(channel="C0DEALS", ts=ours, text="x" * 4001)))["error"] == "msg_too_long"


async def test_a_deleted_root_keeps_its_thread_as_a_tombstone(client: AsyncWebClient) -> None:
    root = await post(client)
    await post(client, "reply", thread_ts=root)
    await client.chat_delete(channel="C0DEALS", ts=root)
    replies = (await client.conversations_replies(channel="C0DEALS", ts=root))["messages"]
    assert [message.get("subtype") for message in replies] == ["tombstone", None]
    assert (await refused(client.chat_update(channel="C0DEALS", ts=root, text="x")))["error"] == "message_not_found"


async def test_an_ephemeral_needs_a_member_of_the_channel(client: AsyncWebClient) -> None:
    answer = await refused(client.chat_postEphemeral(channel="C0OPS", user="U0REP", text="psst"))
    assert answer["error"] == "user_not_in_channel"


async def test_people_are_found_by_id_and_by_address(client: AsyncWebClient) -> None:
    guest = (await client.users_info(user="U0GUEST"))["user"]
    assert guest["is_restricted"] is True
    email = guest["profile"]["email"]
    assert (await client.users_lookupByEmail(email=email))["user"]["id"] == "U0GUEST"
    assert (await refused(client.users_info(user="U0NOBODY")))["error"] == "user_not_found"
    assert (await refused(client.users_lookupByEmail(email="no@where.example")))["error"] == "users_not_found"
    assert len((await client.users_list())["members"]) == 9


async def test_groups_list_their_members(client: AsyncWebClient) -> None:
    groups = (await client.usergroups_list(include_users=True))["usergroups"]
    assert {group["handle"] for group in groups} == {"deal-desk", "approvers"}
    assert (await client.usergroups_users_list(usergroup="S0DEALDESK"))["users"] == ["U0DEALDESK"]
    assert (await refused(client.usergroups_users_list(usergroup="S0NONE")))["error"] == "no_such_subteam"


async def test_a_direct_message_channel_opens_on_demand(client: AsyncWebClient, world: World) -> None:
    channel = (await client.conversations_open(users="U0CFO"))["channel"]["id"]
    assert channel.startswith("D")
    assert (await client.chat_postMessage(channel="U0CFO", text="hello"))["channel"] == channel
    assert (await client.conversations_info(channel=channel))["channel"]["is_im"] is True
    listed = await client.conversations_list(types="public_channel")
    assert [each["name"] for each in listed["channels"]] == ["deals", "general", "quotebot-ops", "deals-partner"]
    assert (await refused(client.conversations_open(users="U0NOBODY")))["error"] == "user_not_found"
    people = world.slack.directory.people
    people["U0CFO"] = replace(people["U0CFO"], is_deactivated=True)
    assert (await refused(client.conversations_open(users="U0CFO")))["error"] == "user_disabled"


async def test_a_reaction_counts_once(client: AsyncWebClient) -> None:
    ts = await post(client)
    await client.reactions_add(channel="C0DEALS", timestamp=ts, name="eyes")
    assert (await refused(client.reactions_add(channel="C0DEALS", timestamp=ts, name="eyes")))["error"] == "already_reacted"
    (message,) = (await client.conversations_history(channel="C0DEALS"))["messages"]
    assert message["reactions"] == [{"name": "eyes", "users": ["U0QUOTEBOT"], "count": 1}]


async def test_a_permalink_leads_into_the_thread(client: AsyncWebClient) -> None:
    root = await post(client)
    reply = await post(client, thread_ts=root)
    link = (await client.chat_getPermalink(channel="C0DEALS", message_ts=reply))["permalink"]
    assert link.endswith(f"/archives/C0DEALS/p{reply.replace('.', '')}?thread_ts={root}&cid=C0DEALS")


async def test_arguments_may_come_as_a_form_with_json_inside_or_in_the_query(world: World, session: ClientSession) -> None:
    headers = {"Authorization": "Bearer xoxb-sandbox-bot"}
    blocks = '[{"type": "divider"}]'
    form = {"channel": "C0DEALS", "text": "form", "blocks": blocks, "unfurl_links": "false"}
    async with session.post(f"{world.url}/api/chat.postMessage", data=form, headers=headers) as response:
        assert (await response.json())["message"]["blocks"][0]["type"] == "divider"
    form["blocks"] = "[{"
    async with session.post(f"{world.url}/api/chat.postMessage", data=form, headers=headers) as response:
        assert (await response.json())["error"] == "invalid_blocks_format"
    query = {"token": "xoxb-sandbox-bot", "user": "U0REP"}
    async with session.get(f"{world.url}/api/users.info", params=query) as response:
        assert (await response.json())["user"]["name"] == "rep"
    async with session.post(f"{world.url}/api/auth.test", data=b"{", headers={"Content-Type": "application/json"}) as response:
        assert (await response.json())["error"] == "invalid_json"


async def test_unfurls_are_shown_below_links_of_registered_domains_and_replaced(client: AsyncWebClient, hand: Hand) -> None:
    workspace = hand.world.slack
    workspace.unfurl_domains = frozenset({"acme.example"})
    link = "https://crm.acme.example/r/1"
    ts = workspace.post_as_user(workspace.channel("C0DEALS"), "U0REP", f"see {link} and https://else.example/", None, None).ts
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "card"}}]
    for text in ("card", "newer"):
        blocks[0]["text"] = {"type": "mrkdwn", "text": text}
        await client.chat_unfurl(channel="C0DEALS", ts=ts, unfurls={link: {"blocks": blocks}})
    (attached,) = (await hand.messages())[-1]["attachments"]
    assert (attached["app_unfurl_url"], attached["is_app_unfurl"], attached["app_id"]) == (link, True, "A0QUOTEBOT")
    assert attached["blocks"][0]["text"]["text"] == "newer"
    good = {link: {"blocks": blocks}}
    refusals: dict[str, dict[str, Any]] = {
        "missing_channel": {"channel": ""},
        "missing_ts": {"ts": ""},
        "missing_unfurls": {"unfurls": {}},
        "cannot_find_channel": {"channel": "C0NONE"},
        "cannot_find_message": {"ts": "1.000001"},
        "invalid_unfurls_format": {"unfurls": {link: "x"}},
        "cannot_unfurl_message": {"unfurls": {"https://crm.acme.example/r/2": {"blocks": blocks}}},
        "cannot_unfurl_url": {"unfurls": {"https://else.example/": {"blocks": blocks}}},
    }
    for expected, wrong in refusals.items():
        arguments: dict[str, Any] = {"channel": "C0DEALS", "ts": ts, "unfurls": good}
        arguments |= wrong
        assert (await refused(client.chat_unfurl(**arguments)))["error"] == expected
