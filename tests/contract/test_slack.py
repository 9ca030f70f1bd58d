"""Contract tests of Slack's Web API: the stand-in and, with a token, a real workspace."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.failures import AdapterError, Failure
from adapters.slack.api import SlackApi
from quotebot.sandbox.slack.directory import BOT_TOKEN
from quotebot.sandbox.world import World
from tests.contract.services import STAND_IN, both, given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BLOCKS = [{"type": "section", "text": {"type": "mrkdwn", "text": "A contract test; it can be deleted."}}]


@dataclass(slots=True)
class Side:
    """One workspace: its API, and a channel in which the bot may write."""

    api: SlackApi
    client: AsyncWebClient
    channel: str
    key: str


@pytest.fixture(params=both("SLACK_BOT_TOKEN", "SLACK_CHANNEL"))
async def slack(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Side]:
    hosts = frozenset({"hooks.slack.com"})
    key = f"contract-{uuid.uuid4().hex}"
    if request.param == STAND_IN:
        async with World(tmp_path / "world", limited=True).serve() as world:
            client = AsyncWebClient(token=BOT_TOKEN, base_url=f"{world.url}/api/", retry_handlers=[])
            api = SlackApi(client, response_url_hosts=hosts)
            yield Side(api, client, "C0DEALS", key)
            await api.close()
        return
    url = given("SLACK_API_URL") or AsyncWebClient.BASE_URL
    client = AsyncWebClient(token=given("SLACK_BOT_TOKEN"), base_url=url, retry_handlers=[])
    api = SlackApi(client, response_url_hosts=hosts)
    yield Side(api, client, given("SLACK_CHANNEL"), key)
    await api.close()


async def failure(call: object) -> AdapterError:
    with pytest.raises(AdapterError) as refusal:
        await call  # type: ignore[misc] # a coroutine of any type
    return refusal.value


async def test_the_bot_knows_itself(slack: Side) -> None:
    me = await slack.api.identify()
    who = await slack.api.member(user=me.bot_user_id)
    assert who.bot
    assert me.team_id in who.teams
    assert (who.deactivated, who.guest) == (False, False)


async def test_a_message_is_found_by_its_key_and_only_by_it(slack: Side) -> None:
    began = time.time() - 60
    posted = await slack.api.post(
        channel=slack.channel, text="Contract test", blocks=BLOCKS, thread_ts=None, key=slack.key, correlation_id="contract"
    )
    answer = await slack.api.post(
        channel=slack.channel, text="Answer", blocks=(), thread_ts=posted.ts, key=f"{slack.key}-2", correlation_id="contract"
    )
    known = {"channel": slack.channel, "oldest_seconds": began}
    assert await slack.api.find(**known, thread_ts=None, key=slack.key) == posted  # type: ignore[arg-type] # two kinds of values
    assert await slack.api.find(**known, thread_ts=posted.ts, key=f"{slack.key}-2") == answer  # type: ignore[arg-type] # as above
    assert await slack.api.find(**known, thread_ts=None, key=f"{slack.key}-3") is None  # type: ignore[arg-type] # as above
    await slack.api.update(channel=slack.channel, ts=posted.ts, text="Changed", blocks=(), correlation_id="contract")
    assert await slack.api.find(**known, thread_ts=None, key=slack.key) == posted  # type: ignore[arg-type] # as above
    for ts in (answer.ts, posted.ts):
        await slack.client.chat_delete(channel=slack.channel, ts=ts)


async def test_a_file_is_completed_once_and_its_place_is_known(slack: Side) -> None:
    content = b"%PDF-1.7 contract test"
    ticket = await slack.api.upload_url(filename="contract.pdf", length=len(content))
    assert await slack.api.find_file(file_id=ticket.file_id, channel=slack.channel) is None
    await slack.api.upload_bytes(ticket.upload_url, content)
    completed = {
        "file_id": ticket.file_id,
        "title": "Contract",
        "channel": slack.channel,
        "thread_ts": None,
        "comment": "Contract test",
    }
    shared = await slack.api.complete_upload(**completed)  # type: ignore[arg-type] # None and texts
    assert shared.file_id == ticket.file_id
    again = await failure(slack.api.complete_upload(**completed))  # type: ignore[arg-type] # as above
    assert again.failure is Failure.NOT_FOUND
    await slack.client.api_call("files.delete", data={"file": ticket.file_id})


@pytest.mark.parametrize(
    ("place", "code"), [("C000000NONE", "channel_not_found"), ("", "channel_not_found")], ids=["unknown", "empty"]
)
async def test_a_message_to_nowhere_is_refused(slack: Side, place: str, code: str) -> None:
    call = slack.api.post(channel=place, text="x", blocks=(), thread_ts=None, key=slack.key, correlation_id="contract")
    assert (await failure(call)).code == code


async def test_blocks_beyond_the_limits_are_refused(slack: Side) -> None:
    long = [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}]
    call = slack.api.post(channel=slack.channel, text="x", blocks=long, thread_ts=None, key=slack.key, correlation_id="contract")
    assert (await failure(call)).code == "block_kit"  # we do not ask
    with pytest.raises(SlackApiError) as refusal:
        await slack.client.chat_postMessage(channel=slack.channel, text="x", blocks=long)
    assert refusal.value.response["error"] in {"invalid_blocks", "invalid_blocks_format"}


async def test_a_form_needs_a_gesture_of_the_last_three_seconds(slack: Side) -> None:
    title, text = ({"type": "plain_text", "text": word} for word in ("Contract", "test"))
    view = {"type": "modal", "title": title, "blocks": [{"type": "section", "text": text}]}
    call = slack.api.open_view(trigger_id="1.2.3", view=view)
    assert (await failure(call)).code in {"invalid_trigger_id", "invalid_trigger", "trigger_expired", "expired_trigger_id"}


async def test_unknown_member_is_not_found(slack: Side) -> None:
    assert (await failure(slack.api.member(user="U000000NONE"))).code in {"user_not_found", "users_not_found"}


async def test_a_wrong_token_is_a_login_trouble(slack: Side) -> None:
    slack.client.token = "xoxb-not-a-token"
    assert (await failure(slack.api.identify())).failure is Failure.AUTH
