"""chat.* and reactions.*."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.blocks import check_message_blocks
from quotebot.sandbox.slack.directory import BOT_USER_ID, Channel
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.workspace import Workspace

METADATA_BYTES_MAX = 8_000
UPDATE_TEXT_MAX = 4_000
TEXT_MAX = 40_000  # longer text is truncated
ATTACHMENTS_MAX = 100


def post_message(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.postMessage."""
    channel = workspace.writable(arguments.text("channel"))
    if channel.is_restricted:
        raise SlackError("restricted_action")
    text, blocks, attachments = content(workspace, arguments)
    thread_ts = _thread(workspace, channel, arguments)
    message = workspace.post_as_bot(
        channel,
        text=text,
        blocks=blocks,
        attachments=attachments,
        thread_ts=thread_ts,
        metadata=checked_metadata(arguments.structure("metadata", "invalid_metadata_format")),
        broadcast=arguments.flag("reply_broadcast") and thread_ts is not None,
    )
    return {"channel": channel.id, "ts": message.ts, "message": workspace.wire(message, all_metadata=True)}


def post_ephemeral(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.postEphemeral."""
    channel = workspace.writable(arguments.text("channel"))
    user = arguments.require("user")
    if user not in channel.members:
        raise SlackError("user_not_in_channel")
    text, blocks, attachments = content(workspace, arguments)
    message = workspace.post_as_bot(
        channel,
        text=text,
        blocks=blocks,
        attachments=attachments,
        thread_ts=_thread(workspace, channel, arguments),
        ephemeral_for=user,
    )
    return {"message_ts": message.ts}


def update(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.update: text without blocks removes the blocks; omitted metadata is kept, `{}` clears it."""
    channel = workspace.writable(arguments.text("channel"), "is_inactive")
    message = _own_message(workspace, channel, arguments.require("ts"), "cant_update_message")
    text, blocks, _ = content(workspace, arguments)
    if len(text) > UPDATE_TEXT_MAX:
        raise SlackError("msg_too_long")
    metadata = arguments.structure("metadata", "invalid_metadata_format")
    if metadata == {}:
        message.metadata = None
    elif metadata is not None:
        message.metadata = checked_metadata(metadata)
    workspace.messages.edit(message, text=text, blocks=blocks, by=BOT_USER_ID)
    wire = workspace.wire(message, all_metadata=True)
    return {"channel": channel.id, "ts": message.ts, "text": text, "message": wire}


def delete(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.delete."""
    channel = workspace.channel(arguments.text("channel"))
    message = _own_message(workspace, channel, arguments.require("ts"), "cant_delete_message")
    workspace.messages.delete(message)
    return {"channel": channel.id, "ts": message.ts}


def get_permalink(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.getPermalink."""
    channel = workspace.channel(arguments.text("channel"))
    message = _visible(workspace, channel, arguments.require("message_ts"))
    suffix = f"?thread_ts={message.thread_ts}&cid={channel.id}" if message.is_reply else ""
    link = f"{workspace.url}/archives/{channel.id}/p{message.ts.replace('.', '')}{suffix}"
    return {"channel": channel.id, "permalink": link}


def add_reaction(workspace: Workspace, arguments: Arguments) -> Json:
    """reactions.add."""
    message = _reacted(workspace, arguments)
    users = message.reactions.setdefault(arguments.require("name"), [])
    if BOT_USER_ID in users:
        raise SlackError("already_reacted")
    users.append(BOT_USER_ID)
    workspace.messages.touch()
    return {}


def remove_reaction(workspace: Workspace, arguments: Arguments) -> Json:
    """reactions.remove."""
    message = _reacted(workspace, arguments)
    name = arguments.require("name")
    if BOT_USER_ID not in message.reactions.get(name, []):
        raise SlackError("no_reaction")
    message.reactions[name].remove(BOT_USER_ID)
    if not message.reactions[name]:
        del message.reactions[name]
    workspace.messages.touch()
    return {}


def content(workspace: Workspace, arguments: Arguments) -> tuple[str, list[Json], list[Json]]:
    """Return (text, blocks, attachments) of a new message. Raises SlackError no_text and the errors of check_message_blocks."""
    text = arguments.text("text")
    blocks = check_message_blocks(arguments.structure("blocks", "invalid_blocks_format"), workspace.tokens)
    attachments = arguments.structure("attachments", "invalid_attachments") or []
    if not isinstance(attachments, list):
        raise SlackError("invalid_attachments")
    if len(attachments) > ATTACHMENTS_MAX:
        raise SlackError("too_many_attachments")
    if not text.strip() and not blocks and not attachments:
        raise SlackError("no_text")
    return text[:TEXT_MAX], blocks, attachments


def checked_metadata(metadata: Any) -> Json | None:
    """Return message metadata. Raises SlackError invalid_metadata_format or metadata_too_large."""
    if not metadata:
        return None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
        raise SlackError("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise SlackError("invalid_metadata_format")
    if len(json.dumps(metadata)) > METADATA_BYTES_MAX:
        raise SlackError("metadata_too_large")
    return metadata


def _thread(workspace: Workspace, channel: Channel, arguments: Arguments) -> str | None:
    thread_ts = arguments.text("thread_ts")
    return workspace.root_of(channel, thread_ts) if thread_ts else None


def _visible(workspace: Workspace, channel: Channel, ts: str) -> Message:
    message = workspace.messages.get(channel.id, ts)
    if message is None or message.ephemeral_for is not None or message.subtype == "tombstone":
        raise SlackError("message_not_found")
    return message


def _own_message(workspace: Workspace, channel: Channel, ts: str, refusal: str) -> Message:
    message = _visible(workspace, channel, ts)
    if message.user != BOT_USER_ID:
        raise SlackError(refusal)
    return message


def _reacted(workspace: Workspace, arguments: Arguments) -> Message:
    channel = workspace.writable(arguments.text("channel"))
    return _visible(workspace, channel, arguments.require("timestamp"))
