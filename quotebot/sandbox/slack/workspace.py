"""The workspace: its people and channels, its messages and files, its open forms, and its valid permissions.

`describe` puts all of it into one JSON document, for the page and for the assertions of tests. A file has a three-step upload,
places of sharing, and bytes on disk or, without a folder, in memory.
"""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quotebot.sandbox.chance import Changes, Tokens, VirtualClock
from quotebot.sandbox.slack.directory import (
    APP_ID,
    BOT_ID,
    BOT_NAME,
    BOT_USER_ID,
    SLACKBOT_ID,
    SUBSCRIPTIONS,
    TEAM_DOMAIN,
    TEAM_ID,
    TEAM_NAME,
    Channel,
    Directory,
)
from quotebot.sandbox.slack.errors import GestureError, Json, SlackError
from quotebot.sandbox.slack.messages import Message, Messages
from quotebot.sandbox.slack.passes import Passes
from quotebot.sandbox.slack.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_MAX = 40_000


@dataclass(slots=True)
class StoredFile:
    """One file. `shares` lists its places: {channel: [{ts, thread_ts?}]}. `secret` lets the page fetch it without a token.

    `path` is the file of its bytes in a workspace that keeps them on disk; `Files.content` returns them.
    """

    id: str
    name: str
    title: str
    upload_id: str
    secret: str
    path: Path
    created: int
    size: int = 0
    sha256: str = ""
    uploaded: bool = False
    completed: bool = False
    shares: dict[str, list[Json]] = field(default_factory=dict)

    @property
    def mimetype(self) -> str:
        """Guess the type from the name, as Slack does first."""
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"

    def url(self, base_url: str) -> str:
        """Return the URL of the bytes for a caller with the bot's token."""
        return f"{base_url}/files-pri/{TEAM_ID}-{self.id}/{self.name}"

    def wire(self, base_url: str) -> Json:
        """Return the file as Slack sends it, plus its SHA-256."""
        kind = Path(self.name).suffix.removeprefix(".").lower() or "binary"
        return {
            "id": self.id,
            "created": self.created,
            "timestamp": self.created,
            "name": self.name,
            "title": self.title,
            "mimetype": self.mimetype,
            "filetype": kind,
            "pretty_type": kind.upper(),
            "user": BOT_USER_ID,
            "user_team": TEAM_ID,
            "size": self.size,
            "sha256": self.sha256,
            "mode": "hosted",
            "is_external": False,
            "is_public": bool(self.shares),
            "url_private": self.url(base_url),
            "url_private_download": self.url(base_url),
            "permalink": self.url(base_url),
            "channels": [channel for channel in self.shares if channel.startswith("C")],
            "ims": [channel for channel in self.shares if channel.startswith("D")],
            "groups": [],
            "shares": self._wire_shares(),
        }

    def _wire_shares(self) -> Json:
        public = {channel: places for channel, places in self.shares.items() if channel.startswith("C")}
        private = {channel: places for channel, places in self.shares.items() if not channel.startswith("C")}
        return {kind: places for kind, places in (("public", public), ("private", private)) if places}


class Files:
    """Reserves an upload, receives its bytes, completes it once."""

    def __init__(self, changes: Changes, clock: VirtualClock, tokens: Tokens, folder: Path | None) -> None:
        self._changes = changes
        self._clock = clock
        self._tokens = tokens
        self._folder = folder
        self._in_memory: dict[str, bytes] = {}
        self._by_id: dict[str, StoredFile] = {}
        self._awaited: dict[str, StoredFile] = {}  # upload_id -> the file, while it still accepts bytes

    def reserve(self, name: str) -> StoredFile:
        """Create the file of an upload URL."""
        file_id = self._tokens.object_id("F")
        stored = StoredFile(
            id=file_id,
            name=Path(name).name or "file",
            title=name,
            upload_id=self._tokens.hex(16),
            secret=self._tokens.hex(8),
            path=(self._folder or Path()) / file_id,
            created=self._clock.microseconds() // 1_000_000,
        )
        self._by_id[file_id] = stored
        self._awaited[stored.upload_id] = stored
        return stored

    def get(self, file_id: str) -> StoredFile | None:
        """Find a file by id."""
        return self._by_id.get(file_id)

    def by_upload(self, upload_id: str) -> StoredFile | None:
        """Find the file of an upload URL, while it still accepts bytes."""
        return self._awaited.get(upload_id)

    def put(self, stored: StoredFile, data: bytes) -> None:
        """Store the bytes; a repeated upload before completion replaces them."""
        if self._folder is None:
            self._in_memory[stored.id] = data
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            stored.path.write_bytes(data)
        stored.size = len(data)
        stored.sha256 = hashlib.sha256(data).hexdigest()
        stored.uploaded = True

    def content(self, stored: StoredFile) -> bytes:
        """Return the bytes of an uploaded file."""
        return self._in_memory[stored.id] if self._folder is None else stored.path.read_bytes()

    def complete(self, stored: StoredFile, title: str | None) -> None:
        """Mark an upload as a completed file."""
        stored.completed = True
        self._awaited.pop(stored.upload_id, None)
        stored.title = title or stored.name
        self._changes.bump()

    def share(self, stored: StoredFile, channel: str, ts: str, thread_ts: str | None) -> None:
        """Record a place where a file was posted."""
        place: Json = {"ts": ts, "reply_count": 0, "reply_users": [], "reply_users_count": 0}
        if thread_ts is not None:
            place["thread_ts"] = thread_ts
        stored.shares.setdefault(channel, []).append(place)
        self._changes.bump()

    def delete(self, stored: StoredFile) -> None:
        """Delete a file and its bytes."""
        del self._by_id[stored.id]
        self._in_memory.pop(stored.id, None)
        if self._folder is not None:
            stored.path.unlink(missing_ok=True)
        self._changes.bump()

    def all(self) -> list[StoredFile]:
        """Return every completed file, oldest first."""
        return [file for file in self._by_id.values() if file.completed]


class Workspace:
    """All state of the Slack half. `url` is the base URL once the world serves; `on_post` is called for every visible message."""

    def __init__(self, clock: VirtualClock, tokens: Tokens, folder: Path | None) -> None:
        self.clock = clock
        self.tokens = tokens
        self.changes = Changes()
        self.directory = Directory()
        self.messages = Messages(self.changes, clock)
        self.views = Views(self.changes, clock, tokens)
        self.files = Files(self.changes, clock, tokens, folder)
        self.passes = Passes(clock, tokens)
        self.subscriptions = SUBSCRIPTIONS
        self.unfurl_domains: frozenset[str] = frozenset()  # whose links the app is told about
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
        """Return a message in the Web API's and events' format. Without `all_metadata`, metadata contains the event_type only."""
        files = [stored.wire(self.url) for stored in map(self.files.get, message.files) if stored is not None]
        replies = self.messages.replies(message.channel, message.ts) if not message.is_reply else []
        wire: Json = {"type": "message", "user": message.user, "text": message.text, "ts": message.ts, "team": message.team_id}
        if message.subtype is not None:
            wire["subtype"] = message.subtype
        if message.bot_id is not None:
            wire["bot_id"] = message.bot_id
            wire["app_id"] = APP_ID
            wire["bot_profile"] = {
                "id": BOT_ID,
                "app_id": APP_ID,
                "name": BOT_NAME,
                "deleted": False,
                "updated": 0,
                "team_id": TEAM_ID,
                "icons": {},
            }
        optional = {
            "blocks": message.blocks,
            "attachments": message.attachments,
            "edited": message.edited,
            "client_msg_id": message.client_msg_id,
            "files": files,
            "reactions": [{"name": name, "users": users, "count": len(users)} for name, users in message.reactions.items()],
        }
        wire.update({name: value for name, value in optional.items() if value})
        if message.metadata:
            wire["metadata"] = message.metadata if all_metadata else {"event_type": message.metadata["event_type"]}
        if message.is_reply:
            wire["thread_ts"] = message.thread_ts
        elif replies:
            wire |= {
                "thread_ts": message.ts,
                "reply_count": len(replies),
                "latest_reply": replies[-1].ts,
                "reply_users": sorted({reply.user for reply in replies}),
                "reply_users_count": len({reply.user for reply in replies}),
                "subscribed": False,
            }
        return wire

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


def describe(workspace: Workspace, connections: int) -> Json:
    """Return the whole visible state; `version` grows with every change."""
    directory = workspace.directory
    return {
        "team": {"id": TEAM_ID, "name": TEAM_NAME, "domain": TEAM_DOMAIN},
        "users": [
            {
                "id": person.id,
                "name": person.name,
                "real_name": person.real_name,
                "title": person.title or person.real_name,
                "role": person.role,
                "team_id": person.team_id,
                "is_bot": person.is_bot,
                "is_external": person.is_external,
                "is_guest": person.is_guest,
            }
            for person in directory.people.values()
        ],
        "channels": [
            {
                "id": channel.id,
                "name": channel.name,
                "is_im": channel.is_im,
                "is_archived": channel.is_archived,
                "is_private": channel.is_private,
                "is_ext_shared": channel.is_ext_shared,
                "members": list(channel.members),
            }
            for channel in directory.channels.values()
        ],
        "messages": shown_messages(workspace),
        "files": shown_files(workspace),
        "views": [
            {"user": user, "view": view.wire(), "errors": view.errors}
            for user, stack in workspace.views.stacks.items()
            for view in stack
        ],
        "homes": {user: view.wire() for user, view in workspace.views.homes.items()},
        "bot": {"connections": connections},
        "version": workspace.changes.version,
    }


def shown_messages(workspace: Workspace) -> list[Json]:
    """Return every message, oldest first."""
    return [_message(workspace, message) for message in workspace.messages.all()]


def shown_files(workspace: Workspace) -> list[Json]:
    """Return every completed file with where it is shared, oldest first."""
    return [
        _file(workspace, stored)
        | {"shares": {channel: [dict(place) for place in places] for channel, places in stored.shares.items()}}
        for stored in workspace.files.all()
    ]


def _message(workspace: Workspace, message: Message) -> Json:
    files = [_file(workspace, stored) for stored in map(workspace.files.get, message.files) if stored is not None]
    return {
        "channel": message.channel,
        "ts": message.ts,
        "thread_ts": message.thread_ts,
        "user": message.user,
        "bot_id": message.bot_id,
        "username": message.username,
        "text": message.text,
        "blocks": message.blocks,
        "attachments": message.attachments,
        "metadata": message.metadata,
        "ephemeral_for": message.ephemeral_for,
        "edited": message.edited,
        "files": files,
        "error": message.error,
        "subtype": message.subtype,
        "reactions": {name: list(users) for name, users in message.reactions.items()},
    }


def _file(workspace: Workspace, stored: StoredFile) -> Json:
    return {
        "id": stored.id,
        "name": stored.name,
        "title": stored.title,
        "mimetype": stored.mimetype,
        "size": stored.size,
        "sha256": stored.sha256,
        "url": f"{stored.url(workspace.url)}?secret={stored.secret}",
    }
