"""The messages of every channel, including threads and ephemeral messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import TEAM_ID

if TYPE_CHECKING:
    from quotebot.sandbox.chance import Changes, VirtualClock
    from quotebot.sandbox.slack.errors import Json


@dataclass(slots=True)
class Message:
    """One message. `error` is shown to a person next to a click without an ack; `revisions` are the blocks before each update."""

    channel: str
    ts: str
    user: str
    username: str
    text: str
    thread_ts: str | None = None
    bot_id: str | None = None
    blocks: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    metadata: Json | None = None
    ephemeral_for: str | None = None
    edited: Json | None = None
    files: list[str] = field(default_factory=list)
    error: str | None = None
    subtype: str | None = None
    client_msg_id: str | None = None
    broadcast: bool = False
    reactions: dict[str, list[str]] = field(default_factory=dict)
    revisions: list[list[Json]] = field(default_factory=list)
    team_id: str = TEAM_ID

    @property
    def is_reply(self) -> bool:
        """True if the message is in a thread below another one."""
        return self.thread_ts is not None and self.thread_ts != self.ts


class Messages:
    """Inserts, finds, edits and deletes messages."""

    def __init__(self, changes: Changes, clock: VirtualClock) -> None:
        self._changes = changes
        self._clock = clock
        self._last = 0  # microseconds of the last timestamp
        self._by_key: dict[tuple[str, str], Message] = {}  # in the order of their timestamps
        self._threads: dict[tuple[str, str], list[Message]] = {}
        self._readable: dict[str, list[Message]] = {}  # channel -> the messages that all can read outside threads, oldest first

    def timestamp(self) -> str:
        """Return the next message timestamp, which is also an id: now, or one microsecond after the last one if that is later."""
        self._last = max(self._last + 1, self._clock.microseconds())
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def add(self, message: Message) -> Message:
        """Store a message."""
        self._by_key[message.channel, message.ts] = message
        if message.is_reply and message.thread_ts is not None:
            self._threads.setdefault((message.channel, message.thread_ts), []).append(message)
        if message.ephemeral_for is None and (not message.is_reply or message.broadcast):
            self._readable.setdefault(message.channel, []).append(message)
        self._changes.bump()
        return message

    def get(self, channel: str, ts: str) -> Message | None:
        """Find a message, ephemeral ones included."""
        return self._by_key.get((channel, ts))

    def all(self) -> list[Message]:
        """Return every message, oldest first."""
        return list(self._by_key.values())

    def channel(self, channel: str) -> list[Message]:
        """Return the messages that the bot can read in a channel outside threads, oldest first; do not change the list."""
        return self._readable.get(channel, [])

    def replies(self, channel: str, root: str) -> list[Message]:
        """Return the replies below a root message, oldest first."""
        return [message for message in self._threads.get((channel, root), []) if message.ephemeral_for is None]

    def edit(self, message: Message, *, text: str, blocks: list[Json], by: str | None) -> None:
        """Replace text and blocks; `by` marks the message as edited by that user."""
        message.revisions.append(message.blocks)
        message.text = text
        message.blocks = blocks
        message.error = None
        if by is not None:
            message.edited = {"user": by, "ts": self.timestamp()}
        self._changes.bump()

    def delete(self, message: Message) -> None:
        """Remove a message; a root with replies leaves a tombstone, so that its thread stays."""
        if message.is_reply or not self.replies(message.channel, message.ts):
            del self._by_key[message.channel, message.ts]
            if message in (readable := self._readable.get(message.channel, [])):
                readable.remove(message)
            if message.is_reply and message.thread_ts is not None:
                self._threads[message.channel, message.thread_ts].remove(message)
        else:
            message.subtype = "tombstone"
            message.text = "This message was deleted."
            message.blocks, message.files, message.metadata = [], [], None
        self._changes.bump()

    def mark(self, message: Message, error: str | None) -> None:
        """Set or clear the error shown next to a message's buttons."""
        if message.error != error:
            message.error = error
            self._changes.bump()

    def unfurl(self, message: Message, previews: dict[str, Json]) -> None:
        """Attach a preview for each address; one of the same address is replaced."""
        others = [each for each in message.attachments if each.get("app_unfurl_url") not in previews]
        message.attachments = [*others, *previews.values()]
        self._changes.bump()

    def touch(self) -> None:
        """Announce a change made in place (a reaction)."""
        self._changes.bump()
