"""Uploaded files: the three-step upload, what was shared where, the bytes on disk."""

from __future__ import annotations

import hashlib
import mimetypes
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import BOT_USER_ID, TEAM_ID
from quotebot.sandbox.slack.ids import new_id

if TYPE_CHECKING:
    from quotebot.sandbox.slack.changes import Changes
    from quotebot.sandbox.slack.errors import Json


@dataclass(slots=True)
class StoredFile:
    """One file. `shares` says where it was posted: {channel: [{ts, thread_ts?}]}. `secret` lets the page fetch it tokenless."""

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
        """Guess from the name, as Slack does first."""
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"

    def url(self, base_url: str) -> str:
        """Where the bytes are served to a caller with the bot's token."""
        return f"{base_url}/files-pri/{TEAM_ID}-{self.id}/{self.name}"

    def wire(self, base_url: str) -> Json:
        """Return the file as Slack sends it, with its SHA-256 besides."""
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
    """Reserve an upload, take its bytes, complete it once."""

    def __init__(self, changes: Changes, folder: Path) -> None:
        self._changes = changes
        self._folder = folder
        self._by_id: dict[str, StoredFile] = {}

    def reserve(self, name: str) -> StoredFile:
        """Create the file an upload URL is for."""
        file_id = new_id("F")
        stored = StoredFile(
            id=file_id,
            name=Path(name).name or "file",
            title=name,
            upload_id=secrets.token_hex(16),
            secret=secrets.token_hex(8),
            path=self._folder / file_id,
            created=int(time.time()),
        )
        self._by_id[file_id] = stored
        return stored

    def get(self, file_id: str) -> StoredFile | None:
        """Find a file by id."""
        return self._by_id.get(file_id)

    def by_upload(self, upload_id: str) -> StoredFile | None:
        """Find the file an upload URL belongs to, while it still takes bytes."""
        return next((file for file in self._by_id.values() if file.upload_id == upload_id and not file.completed), None)

    def put(self, stored: StoredFile, data: bytes) -> None:
        """Keep the bytes; a repeated upload before completion replaces them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stored.path.write_bytes(data)
        stored.size = len(data)
        stored.sha256 = hashlib.sha256(data).hexdigest()
        stored.uploaded = True

    def complete(self, stored: StoredFile, title: str | None) -> None:
        """Make an upload a file."""
        stored.completed = True
        stored.title = title or stored.name
        self._changes.bump()

    def share(self, stored: StoredFile, channel: str, ts: str, thread_ts: str | None) -> None:
        """Remember where a file was posted."""
        place: Json = {"ts": ts, "reply_count": 0, "reply_users": [], "reply_users_count": 0}
        if thread_ts is not None:
            place["thread_ts"] = thread_ts
        stored.shares.setdefault(channel, []).append(place)
        self._changes.bump()

    def delete(self, stored: StoredFile) -> None:
        """Forget a file and its bytes."""
        del self._by_id[stored.id]
        stored.path.unlink(missing_ok=True)
        self._changes.bump()

    def all(self) -> list[StoredFile]:
        """Return every completed file, oldest first."""
        return [file for file in self._by_id.values() if file.completed]
