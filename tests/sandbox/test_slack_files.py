"""Tests of the three-step upload and its result."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import aiohttp

from tests.sandbox.conftest import sightings
from tests.sandbox.test_slack_web_api import refused

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from quotebot.sandbox.world import World
    from tests.sandbox.conftest import Hand

PDF = b"%PDF-1.7\r\n" + bytes(range(256)) * 40


async def reserve(client: AsyncWebClient) -> tuple[str, str]:
    """Return (upload_url, file_id)."""
    answer = await client.files_getUploadURLExternal(filename="quote.pdf", length=len(PDF))
    return answer["upload_url"], answer["file_id"]


async def test_an_uploaded_pdf_lands_in_the_thread_with_its_comment(client: AsyncWebClient, hand: Hand) -> None:
    root = (await client.chat_postMessage(channel="C0DEALS", text="card"))["ts"]
    answer = await client.files_upload_v2(
        channel="C0DEALS", thread_ts=root, filename="quote.pdf", title="Quote", content=PDF, initial_comment="Here it is"
    )
    file = answer["files"][0]
    assert file["sha256"] == hashlib.sha256(PDF).hexdigest()
    reply = (await hand.messages())[-1]
    assert (reply["thread_ts"], reply["text"], reply["files"][0]["mimetype"]) == (root, "Here it is", "application/pdf")
    info = (await client.files_info(file=file["id"]))["file"]
    assert info["shares"]["public"]["C0DEALS"][0]["ts"] == reply["ts"]
    assert info["title"] == "Quote"


async def test_the_stored_bytes_come_back_to_the_token_or_the_page_only(
    client: AsyncWebClient, hand: Hand, session: aiohttp.ClientSession
) -> None:
    file = (await client.files_upload_v2(channel="C0DEALS", filename="quote.pdf", content=PDF))["files"][0]
    async with session.get(file["url_private"]) as response:
        assert response.status == 403
    async with session.get(file["url_private"], headers={"Authorization": "Bearer xoxb-sandbox-bot"}) as response:
        assert await response.read() == PDF
    page_url = (await hand.get("state"))["files"][0]["url"]
    async with session.get(page_url) as response:
        assert await response.read() == PDF
        assert response.content_type == "application/pdf"


async def test_bytes_may_come_as_a_multipart_form(client: AsyncWebClient, session: aiohttp.ClientSession) -> None:
    url, file_id = await reserve(client)
    form = aiohttp.FormData()
    form.add_field("file", PDF, filename="quote.pdf", content_type="application/pdf")
    async with session.post(url, data=form) as response:
        assert await response.text() == f"OK - {len(PDF)}"
    answer = await client.files_completeUploadExternal(files=[{"id": file_id}])
    assert answer["files"][0]["sha256"] == hashlib.sha256(PDF).hexdigest()


async def test_a_file_is_completed_once(client: AsyncWebClient, session: aiohttp.ClientSession, hand: Hand) -> None:
    url, file_id = await reserve(client)
    files: list[dict[str, str | None]] = [{"id": file_id, "title": "Quote"}]
    assert (await refused(client.files_completeUploadExternal(files=files)))["error"] == "file_not_found"
    for _ in range(2):  # sending the bytes again is safe
        async with session.post(url, data=PDF) as response:
            assert response.status == 200
    await client.files_completeUploadExternal(files=files, channel_id="C0DEALS")
    answer = await refused(client.files_completeUploadExternal(files=files, channel_id="C0DEALS"))
    assert answer["error"] == "file_not_found"
    assert len(await hand.messages()) == 1
    async with session.post(url, data=PDF) as response:
        assert response.status == 404


async def test_a_completion_into_nowhere_uses_nothing_up(client: AsyncWebClient, session: aiohttp.ClientSession) -> None:
    url, file_id = await reserve(client)
    async with session.post(url, data=PDF) as response:
        assert response.status == 200
    files: list[dict[str, str | None]] = [{"id": file_id}]
    complete = client.files_completeUploadExternal
    assert (await refused(complete(files=files, channel_id="C0NONE")))["error"] == "channel_not_found"
    assert (await refused(complete(files=files, channel_id="C0DEALS", thread_ts="1.0")))["error"] == "thread_not_found"
    assert (await complete(files=files, channel_id="C0DEALS"))["ok"] is True


async def test_a_deleted_file_is_gone(client: AsyncWebClient) -> None:
    file = (await client.files_upload_v2(filename="quote.pdf", content=PDF))["files"][0]
    assert (await client.files_info(file=file["id"]))["file"]["shares"] == {}
    await client.files_delete(file=file["id"])
    assert (await refused(client.files_info(file=file["id"])))["error"] == "file_not_found"


async def test_an_upload_needs_a_name_and_a_size(client: AsyncWebClient) -> None:
    answer = await refused(client.files_getUploadURLExternal(filename="quote.pdf", length=0))
    assert answer["error"] == "invalid_arguments"
    assert "length" in answer["response_metadata"]["messages"][0]


async def test_a_20_mebibyte_file_fits(client: AsyncWebClient, world: World, session: aiohttp.ClientSession) -> None:
    url, file_id = await reserve(client)
    async with session.post(url, data=io.BytesIO(b"x" * 20 * 2**20)) as response:
        assert response.status == 200
    await client.files_completeUploadExternal(files=[{"id": file_id}], channel_id="C0DEALS")
    (upload,) = sightings(world, "upload")
    assert (upload.applied, upload.status, upload.key) == (True, 200, file_id)
