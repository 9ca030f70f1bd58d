"""Tests of armed faults on the Web API: the client's view, the hits, and the request log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from tests.sandbox.conftest import Hand, eventually, sightings
from tests.sandbox.test_slack_web_api import OUR_METADATA, refused

if TYPE_CHECKING:
    from quotebot.sandbox.world import World


def post(client: AsyncWebClient, **more: Any) -> Any:
    return client.chat_postMessage(channel="C0DEALS", text="hello", metadata=OUR_METADATA, **more)


async def test_429_names_its_wait_and_posts_nothing(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", method="chat.postMessage", effect="429", retry_after=7)
    with pytest.raises(SlackApiError) as caught:
        await post(client)
    response = caught.value.response
    assert (response.status_code, response.headers["Retry-After"], response["error"]) == (429, "7", "ratelimited")
    await post(client)
    assert [(call.key, call.applied, call.status) for call in sightings(hand.world, "chat.postMessage")] == [
        ("op-1:card", False, 429),
        ("op-1:card", True, 200),
    ]
    assert len(await hand.messages()) == 1


@pytest.mark.parametrize(("code", "status"), [(None, 503), ("500", 500), ("502", 502), ("504", 504)])
async def test_a_server_error_has_no_json_body(client: AsyncWebClient, hand: Hand, code: str | None, status: int) -> None:
    await hand.post("faults", target="slack", effect="5xx", code=code)
    with pytest.raises(SlackApiError, match=f"(?s)status: {status}.*upstream connect error"):
        await post(client)
    assert await hand.messages() == []


async def test_any_code_of_slack_can_be_armed_before_or_after_the_message_was_posted(client: AsyncWebClient, hand: Hand) -> None:
    for code in ("ratelimited", "restricted_action", "token_revoked", "account_inactive", "team_added_to_org"):
        await hand.post("faults", target="slack", effect="refused", code=code)
        assert (await refused(post(client)))["error"] == code
    assert await hand.messages() == []
    await hand.post("faults", target="slack", effect="refused_after")
    assert (await refused(post(client)))["error"] == "fatal_error"
    assert len(await hand.messages()) == 1
    assert sightings(hand.world, "chat.postMessage")[-1].applied


async def test_an_answer_can_drip_after_the_message_was_posted(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="drip", delay=0.001)
    assert (await post(client))["ok"]
    await hand.post("faults", target="slack", effect="drip", delay=0.3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await post(client)
    assert len(await hand.messages()) == 2


async def test_a_fault_can_be_as_likely_as_one_wants(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="refused", probability=0.5, seconds=60)
    answers = await asyncio.gather(*(client.api_call("api.test") for _ in range(40)), return_exceptions=True)
    assert 0 < sum(isinstance(answer, SlackApiError) for answer in answers) < 40  # misses once in 10^12 runs
    refusal = await hand.post("faults", target="slack", effect="refused", probability=2, expect=400)
    assert refusal["error"] == "probability must be above 0 and at most 1, not 2.0"
    refusal = await hand.post("faults", target="slack", effect="5xx", code="418", expect=400)
    assert refusal["error"] == "unknown status '418': one of 500, 502, 503, 504"


async def test_an_expired_token_is_refused_and_nothing_is_posted(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="auth_expired", method="chat.*")
    assert (await refused(post(client)))["error"] == "invalid_auth"
    assert await hand.messages() == []


@pytest.mark.parametrize(("effect", "posted"), [("reset_before", 0), ("reset_after", 1)])
async def test_a_cut_connection_has_applied_only_after(client: AsyncWebClient, hand: Hand, effect: str, posted: int) -> None:
    await hand.post("faults", target="slack", effect=effect, method="chat.postMessage")
    with pytest.raises(aiohttp.ClientError):
        await post(client)
    assert len(await hand.messages()) == posted
    (call,) = sightings(hand.world, "chat.postMessage")
    assert (call.key, call.applied, call.status) == ("op-1:card", bool(posted), None)


async def test_the_clients_default_retry_of_a_cut_connection_posts_twice(world: World, hand: Hand) -> None:
    client = AsyncWebClient(token="xoxb-sandbox-bot", base_url=f"{world.url}/api/")
    assert [type(handler) for handler in client.retry_handlers] == [AsyncConnectionErrorRetryHandler]  # slack_sdk's default
    await hand.post("faults", target="slack", effect="reset_after", method="chat.postMessage")
    await post(client)
    assert len(await hand.messages()) == 2


async def test_an_unreadable_answer_has_applied(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="malformed")
    with pytest.raises(SlackApiError):
        await post(client)
    assert len(await hand.messages()) == 1


async def test_a_slow_request_is_applied_even_when_its_client_has_gone(world: World, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="slow", delay=0.3, method="chat.postMessage")
    client = AsyncWebClient(token="xoxb-sandbox-bot", base_url=f"{world.url}/api/", retry_handlers=[])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(post(client), 0.1)
    assert await hand.messages() == []
    await eventually(lambda: bool(sightings(world, "chat.postMessage")), world)
    assert len(await hand.messages()) == 1
    assert sightings(world, "chat.postMessage")[0].applied is True


async def test_faults_apply_to_uploads_and_response_urls_too(client: AsyncWebClient, hand: Hand) -> None:
    await hand.post("faults", target="slack", effect="5xx", method="upload")
    url = (await client.files_getUploadURLExternal(filename="quote.pdf", length=3))["upload_url"]
    async with hand.session.post(url, data=b"pdf") as response:
        assert response.status == 503
    (upload,) = sightings(hand.world, "upload")
    assert (upload.applied, upload.status) == (False, 503)
    await hand.post("faults", target="slack", effect="reset_before", method="response_url")
    with pytest.raises(aiohttp.ClientError):
        await hand.session.post(f"{hand.world.url}/hooks/commands/T0QUOTE/X/Y", json={"text": "x"})


async def test_refused_call_is_logged_as_not_applied(client: AsyncWebClient, hand: Hand) -> None:
    await refused(client.chat_update(channel="C0DEALS", ts="1.000001", text="x"))
    (call,) = sightings(hand.world, "chat.update")
    assert (call.key, call.applied, call.status) == ("C0DEALS:1.000001", False, "message_not_found")
