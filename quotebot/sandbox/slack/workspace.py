"""The workspace: its people and channels, its messages, its open forms, and its valid permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.changes import Changes
from quotebot.sandbox.slack.directory import BOT_ID, BOT_NAME, BOT_USER_ID, SLACKBOT_ID, SUBSCRIPTIONS, Channel, Directory
from quotebot.sandbox.slack.errors import GestureError, Json, SlackError
from quotebot.sandbox.slack.files import Files
from quotebot.sandbox.slack.messages import Message, Messages, wire_message
from quotebot.sandbox.slack.passes import Passes
from quotebot.sandbox.slack.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quotebot.sandbox.chance import Tokens
    from quotebot.sandbox.slack.clock import VirtualClock

TEXT_MAX = 40_000


class Workspace:
    """All state of the Slack half. `url` is the base URL once the world serves; `on_post` is called for every visible message."""

    def __init__(
        self, clock: VirtualClock, tokens: Tokens, folder: Path | None, *, subscriptions: frozenset[str] = SUBSCRIPTIONS
    ) -> None:
        self.clock = clock
        self.tokens = tokens
        self.changes = Changes()
        self.directory = Directory()
        self.messages = Messages(self.changes, clock)
        self.views = Views(self.changes, clock, tokens)
        self.files = Files(self.changes, clock, tokens, folder)
        self.passes = Passes(clock, tokens)
        self.subscriptions = subscriptions
        self.url = ""
        self.on_post: Callable[[Message], None] | None = None

    def channel(self, reference: str) -> Channel:
        """Find a channel the bot is in, by id, name or person. Raises SlackError channel_not_found or not_in_channel."""
        channel = self.directory.channel(reference) if reference else None
        if channel is None:
            raise SlackError("channel_not_found")
        if BOT_USER_ID not in channel.members:
            raise SlackError("channel_not_found" if channel.is_private else "not_in_channel")
        return channel

    def writable(self, reference: str, refusal: str = "is_archived") -> Channel:
        """Find an unarchived channel the bot is in. Raises SlackError as `channel` does, or with `refusal`."""
        channel = self.channel(reference)
        if channel.is_archived:
            raise SlackError(refusal)
        return channel

    def root_of(self, channel: Channel, thread_ts: str) -> str:
        """Return the root of the thread that `thread_ts` names (by its root or a reply). Raises SlackError thread_not_found."""
        message = self.messages.get(channel.id, thread_ts)
        if message is None:
            raise SlackError("thread_not_found")
        if message.ephemeral_for is not None:
            raise SlackError("cannot_reply_to_message")
        return message.thread_ts if message.is_reply and message.thread_ts is not None else message.ts

    def post_as_bot(
        self,
        channel: Channel,
        *,
        text: str,
        blocks: list[Json],
        thread_ts: str | None = None,
        ephemeral_for: str | None = None,
        metadata: Json | None = None,
        attachments: list[Json] | None = None,
        files: list[str] | None = None,
        broadcast: bool = False,
    ) -> Message:
        """Store a message of the bot."""
        message = self.messages.add(
            Message(
                channel=channel.id,
                ts=self.messages.timestamp(),
                user=BOT_USER_ID,
                username=BOT_NAME,
                bot_id=BOT_ID,
                text=text[:TEXT_MAX],
                blocks=blocks,
                thread_ts=thread_ts,
                ephemeral_for=ephemeral_for,
                metadata=metadata,
                attachments=attachments or [],
                files=files or [],
                broadcast=broadcast,
            )
        )
        if ephemeral_for is None and self.on_post is not None:
            self.on_post(message)
        return message

    def post_as_user(self, channel: Channel, user: str, text: str, thread_ts: str | None, client_msg_id: str | None) -> Message:
        """Store a message of a person."""
        person = self.directory.people[user]
        ts = self.messages.timestamp()
        message = Message(channel.id, ts, user, person.name, text, thread_ts, client_msg_id=client_msg_id, team_id=person.team_id)
        self.messages.add(message)
        if self.on_post is not None:
            self.on_post(message)
        return message

    def tell(self, channel: Channel, user: str, text: str) -> Message:
        """Show a person one of Slack's own notices as an ephemeral message."""
        ts = self.messages.timestamp()
        return self.messages.add(Message(channel.id, ts, SLACKBOT_ID, "slackbot", text, ephemeral_for=user))

    def wire(self, message: Message, *, all_metadata: bool = False) -> Json:
        """Return a message in the Web API's format."""
        files = [stored.wire(self.url) for stored in map(self.files.get, message.files) if stored is not None]
        replies = self.messages.replies(message.channel, message.ts) if not message.is_reply else []
        return wire_message(message, files=files, replies=replies, all_metadata=all_metadata)

    def person(self, user: str) -> str:
        """Return the user id if there is such a person. Raises GestureError 404."""
        if user in self.directory.people:
            return user
        raise GestureError(404, f"no user {user!r}; there are: {', '.join(self.directory.people)}")

    def place(self, reference: str) -> Channel:
        """Find a channel for a person's gesture. Raises GestureError 404."""
        channel = self.directory.channel(reference)
        if channel is None:
            known = ", ".join(f"{channel.id} (#{channel.name})" for channel in self.directory.channels.values())
            raise GestureError(404, f"no channel {reference!r}; there are: {known}; a user id names that person's DM with the bot")
        return channel
