"""Uploaded files: the three-step upload, the places of sharing, the bytes on disk or, without a folder, in memory."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import BOT_USER_ID, TEAM_ID

if TYPE_CHECKING:
    from quotebot.sandbox.chance import Changes, Tokens, VirtualClock
    from quotebot.sandbox.slack.errors import Json


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
