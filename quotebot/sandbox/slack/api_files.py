"""files.*: the three-step upload, information and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.blocks import check_message_blocks
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.directory import Channel
    from quotebot.sandbox.slack.files import StoredFile
    from quotebot.sandbox.slack.workspace import Workspace

UPLOAD_BYTES_MAX = 30 * 2**20


def get_upload_url(workspace: Workspace, arguments: Arguments) -> Json:
    """files.getUploadURLExternal."""
    name = arguments.require("filename")
    length = arguments.require("length")
    if not length.isdecimal() or not 0 < int(length) <= UPLOAD_BYTES_MAX:
        raise SlackError("invalid_arguments", messages=[f"[ERROR] must be from 1 to {UPLOAD_BYTES_MAX} [json-pointer:/length]"])
    stored = workspace.files.reserve(name)
    return {"upload_url": f"{workspace.url}/upload/v1/{stored.upload_id}", "file_id": stored.id}


def complete_upload(workspace: Workspace, arguments: Arguments) -> Json:
    """files.completeUploadExternal: once per file; posts one message with all files if a channel is named."""
    uploads = _uploads(workspace, arguments)
    channel = _channel(workspace, arguments)
    thread_ts = arguments.text("thread_ts") or None
    if channel is not None and thread_ts is not None:
        thread_ts = workspace.root_of(channel, thread_ts)
    comment = arguments.text("initial_comment")
    given = arguments.structure("blocks", "invalid_blocks_format")
    blocks = [] if comment else check_message_blocks(given, workspace.tokens)
    for stored, title in uploads:
        workspace.files.complete(stored, title)
    if channel is not None:
        files = [stored.id for stored, _ in uploads]
        message = workspace.post_as_bot(channel, text=comment, blocks=blocks, thread_ts=thread_ts, files=files)
        for stored, _ in uploads:
            workspace.files.share(stored, channel.id, message.ts, thread_ts)
    return {"files": [stored.wire(workspace.url) for stored, _ in uploads]}


def info(workspace: Workspace, arguments: Arguments) -> Json:
    """files.info."""
    stored = _completed(workspace, arguments)
    return {"file": stored.wire(workspace.url), "comments": [], "response_metadata": {"next_cursor": ""}}


def delete(workspace: Workspace, arguments: Arguments) -> Json:
    """files.delete."""
    workspace.files.delete(_completed(workspace, arguments))
    return {}


def _completed(workspace: Workspace, arguments: Arguments) -> StoredFile:
    stored = workspace.files.get(arguments.require("file"))
    if stored is None or not stored.completed:
        raise SlackError("file_not_found")
    return stored


def _uploads(workspace: Workspace, arguments: Arguments) -> list[tuple[StoredFile, str | None]]:
    listed = arguments.structure("files", "invalid_arguments")
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) and entry.get("id") for entry in listed):
        raise SlackError("invalid_arguments", messages=["[ERROR] missing required field: files"])
    uploads: list[tuple[StoredFile, str | None]] = []
    for entry in listed:
        stored = workspace.files.get(str(entry["id"]))
        if stored is None or stored.completed or not stored.uploaded:
            raise SlackError("file_not_found")
        uploads.append((stored, entry.get("title")))
    return uploads


def _channel(workspace: Workspace, arguments: Arguments) -> Channel | None:
    references = arguments.names("channels") or arguments.names("channel_id")
    if len(references) > 1:
        raise SlackError("channels_limit_exceeded")
    return workspace.writable(references[0]) if references else None
