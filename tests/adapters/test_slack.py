"""Tests of each method of the Slack adapter, through the unmodified client, on real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.failures import Failure
from adapters.slack.api import FIND_PAGE_MESSAGES, FIND_PAGES_MAX, METADATA_EVENT_TYPE, Identity, SharedFile, SlackApi
from quotebot.sandbox.slack.directory import BOT_ID, BOT_USER_ID, TEAM_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from quotebot.sandbox.world import World


from tests.adapters.slack_parts import BLOCKS, CHANNEL, MODAL, PDF, client_for, failure_of, post, posted, requests, response_url


async def test_the_bot_learns_who_it_is(api: SlackApi) -> None:
    assert await api.identify() == Identity(TEAM_ID, BOT_USER_ID, BOT_ID)


async def test_a_root_and_a_reply_are_posted_with_our_key_and_without_unfurling(api: SlackApi, world: World) -> None:
    root = await post(api, key="root")
    reply = await post(api, key="reply", thread_ts=root.ts)
    first, second = posted(world)
    assert (first.channel, first.ts, first.thread_ts, first.blocks[0]["text"]) == (CHANNEL, root.ts, None, BLOCKS[0]["text"])
    assert (second.ts, second.thread_ts) == (reply.ts, root.ts)
    assert first.metadata == {"event_type": METADATA_EVENT_TYPE, "event_payload": {"key": "root"}}
    assert [sighting.key for sighting in world.witness.since()] == ["root", "reply"]


async def test_an_update_replaces_the_content_and_keeps_the_key(api: SlackApi, world: World) -> None:
    card = await post(api)
    await api.update(channel=card.channel, ts=card.ts, text="Approved", blocks=[], correlation_id="c-2")
    (message,) = posted(world)
    assert (message.text, message.blocks) == ("Approved", [])
    assert message.metadata is not None
    assert message.metadata["event_payload"] == {"key": "k1"}


async def test_a_message_is_found_by_its_key_in_the_channel_and_in_its_thread(api: SlackApi) -> None:
    root = await post(api, key="root")
    reply = await post(api, key="reply", thread_ts=root.ts)
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=0) == root
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="reply", oldest_seconds=0) == reply
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="other", oldest_seconds=0) is None
    assert await api.find(channel=CHANNEL, thread_ts=None, key="reply", oldest_seconds=0) is None


async def test_a_message_older_than_asked_for_is_not_looked_at(api: SlackApi) -> None:
    root = await post(api, key="root")
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=float(root.ts) - 60) == root
    assert await api.find(channel=CHANNEL, thread_ts=None, key="root", oldest_seconds=float(root.ts) + 1) is None


async def test_somebody_elses_message_with_our_key_in_it_is_not_ours(api: SlackApi, world: World) -> None:
    await client_for(f"{world.url}/api/").chat_postMessage(
        channel=CHANNEL, text="k1", metadata={"event_type": "other_app", "event_payload": {"key": "k1"}}
    )
    assert await api.find(channel=CHANNEL, thread_ts=None, key="k1", oldest_seconds=0) is None


async def test_the_second_page_is_read_too(api: SlackApi, world: World) -> None:
    root = await post(api, key="root")
    for number in range(FIND_PAGE_MESSAGES + 1):
        world.slack.post_as_bot(world.slack.place(CHANNEL), text=str(number), blocks=[], thread_ts=root.ts)
    last = await post(api, key="last", thread_ts=root.ts)
    assert await api.find(channel=CHANNEL, thread_ts=root.ts, key="last", oldest_seconds=0) == last
    assert requests(world, "conversations.replies") == 2


async def test_more_than_can_be_read_is_uncertain_not_absent(api: SlackApi, world: World) -> None:
    for number in range(FIND_PAGES_MAX * FIND_PAGE_MESSAGES + 1):
        world.slack.post_as_bot(world.slack.place(CHANNEL), text=str(number), blocks=[])
    error = await failure_of(api.find(channel=CHANNEL, thread_ts=None, key="k", oldest_seconds=0))
    assert (error.failure, error.code) == (Failure.UNCERTAIN, "too_many_messages")
    assert requests(world, "conversations.history") == FIND_PAGES_MAX


async def test_an_ephemeral_is_seen_by_one_person(api: SlackApi, world: World) -> None:
    await api.ephemeral(channel=CHANNEL, user="U0REP", text="Only you")
    (message,) = posted(world)
    assert (message.text, message.ephemeral_for, message.blocks) == ("Only you", "U0REP", [])


async def test_an_ephemeral_and_an_answer_may_have_blocks(api: SlackApi, world: World) -> None:
    await api.ephemeral(channel=CHANNEL, user="U0REP", text="Only you", blocks=BLOCKS)
    await api.respond(response_url(world), text="Done", blocks=BLOCKS)
    assert [(message.ephemeral_for, message.blocks[0]["text"]) for message in posted(world)] == [("U0REP", BLOCKS[0]["text"])] * 2


async def test_an_answer_through_a_response_url_is_seen_by_the_person_who_asked(api: SlackApi, world: World) -> None:
    await api.respond(response_url(world), text="Done <now>")
    (message,) = posted(world)
    assert (message.text, message.ephemeral_for) == ("Done <now>", "U0REP")


async def test_a_response_url_that_is_used_up_or_expired_is_not_found(api: SlackApi, world: World) -> None:
    url = response_url(world)
    for _ in range(5):
        await api.respond(url, text="again")
    used = await failure_of(api.respond(url, text="once too often"))
    assert (used.failure, used.code, used.http_status) == (Failure.NOT_FOUND, "used_url", 404)

    fresh = response_url(world)
    world.clock.move(31 * 60)
    expired = await failure_of(api.respond(fresh, text="too late"))
    assert (expired.failure, expired.code) == (Failure.NOT_FOUND, "expired_url")
    assert len(posted(world)) == 5


async def test_a_view_opens_once_per_trigger(api: SlackApi, world: World) -> None:
    trigger = world.slack.passes.trigger("U0REP")
    await api.open_view(trigger_id=trigger, view=MODAL)
    used = await failure_of(api.open_view(trigger_id=trigger, view=MODAL))
    assert (used.failure, used.code) == (Failure.EXPIRED, "exchanged_trigger_id")


async def test_a_trigger_of_four_seconds_ago_has_expired(api: SlackApi, world: World) -> None:
    trigger = world.slack.passes.trigger("U0REP")
    world.clock.move(4)
    late = await failure_of(api.open_view(trigger_id=trigger, view=MODAL))
    assert (late.failure, late.code) == (Failure.EXPIRED, "expired_trigger_id")


async def test_a_file_is_shared_in_three_steps_that_may_each_be_looked_at_again(api: SlackApi, world: World) -> None:
    root = await post(api)
    ticket = await api.upload_url(filename="Q-2026-0001.pdf", length=len(PDF))
    assert not await api.find_file(file_id=ticket.file_id, channel=CHANNEL)
    await api.upload_bytes(ticket.upload_url, PDF)
    await api.upload_bytes(ticket.upload_url, PDF)  # the answer may have been lost: harmless
    assert not await api.find_file(file_id=ticket.file_id, channel=CHANNEL)

    def complete() -> Awaitable[SharedFile]:
        return api.complete_upload(file_id=ticket.file_id, title="Quote", channel=CHANNEL, thread_ts=root.ts, comment="The quote")

    await complete()
    shared = await api.find_file(file_id=ticket.file_id, channel=CHANNEL)
    assert shared is not None
    assert shared.permalink is not None
    assert ticket.file_id in shared.permalink
    assert not await api.find_file(file_id=ticket.file_id, channel="C0GENERAL")
    assert await api.find_message_of(file_id=ticket.file_id, channel="C0GENERAL") is None
    at = await api.find_message_of(file_id=ticket.file_id, channel=CHANNEL)
    assert at is not None
    await api.update(channel=CHANNEL, ts=at, text="The quote", blocks=[], correlation_id="c", file_ids=[ticket.file_id])
    names = ("Q-2026-0001.pdf", "Q-2026-0002.pdf")
    assert [await api.find_shared(channel=CHANNEL, thread_ts=root.ts, filenames=[name], oldest_seconds=0.0) for name in names] == [
        shared,
        None,
    ]
    again = await failure_of(complete())
    assert (again.failure, again.code) == (Failure.NOT_FOUND, "file_not_found")

    _, message = posted(world)
    assert (message.thread_ts, message.text, message.files) == (root.ts, "The quote", [ticket.file_id])
    (stored,) = world.slack.files.all()
    assert (stored.title, stored.path.read_bytes()) == ("Quote", PDF)


async def test_the_message_of_an_unfinished_upload_is_not_found(api: SlackApi) -> None:
    ticket = await api.upload_url(filename="q.pdf", length=len(PDF))
    await api.upload_bytes(ticket.upload_url, PDF)
    unknown = await failure_of(api.find_message_of(file_id=ticket.file_id, channel=CHANNEL))
    assert (unknown.failure, unknown.code) == (Failure.NOT_FOUND, "file_not_found")


async def test_a_completion_whose_answer_was_lost_is_seen_as_shared(api: SlackApi, world: World) -> None:
    ticket = await api.upload_url(filename="q.pdf", length=len(PDF))
    await api.upload_bytes(ticket.upload_url, PDF)
    world.weather.arm("slack", "reset_after", method="files.completeUploadExternal")
    lost = await failure_of(
        api.complete_upload(file_id=ticket.file_id, title="Quote", channel=CHANNEL, thread_ts=None, comment="The quote")
    )
    assert lost.possibly_applied
    assert await api.find_file(file_id=ticket.file_id, channel=CHANNEL)
    assert requests(world, "files.completeUploadExternal") == 1


async def test_a_megabyte_and_more_is_uploaded_without_a_warning(api: SlackApi, world: World) -> None:
    ticket = await api.upload_url(filename="q.pdf", length=3 * 2**20)
    await api.upload_bytes(ticket.upload_url, bytes(3 * 2**20))
    stored = world.slack.files.get(ticket.file_id)
    assert stored is not None
    assert stored.size == 3 * 2**20
