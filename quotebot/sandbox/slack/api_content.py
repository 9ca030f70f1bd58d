"""Methods that write: chat.*, reactions.*, files.*, views.*, and requests to a response_url."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from quotebot.sandbox.slack.directory import APP_ID, BOT_ID, BOT_USER_ID, Channel
from quotebot.sandbox.slack.errors import Json, SlackError
from quotebot.sandbox.slack.views import check_message_blocks, check_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.chance import Tokens
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.passes import ResponseUrl
    from quotebot.sandbox.slack.views import View
    from quotebot.sandbox.slack.workspace import StoredFile, Workspace

METADATA_BYTES_MAX = 8_000
UPDATE_TEXT_MAX = 4_000
TEXT_MAX = 40_000  # longer text is truncated
ATTACHMENTS_MAX = 100
UPLOAD_BYTES_MAX = 30 * 2**20


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


def update_message(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.update: text without blocks removes the blocks; omitted metadata and files are kept, `{}` and `[]` clear them."""
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
    kept = arguments.structure("file_ids", "invalid_arguments")
    if kept is not None and not set(kept) <= set(message.files):
        raise SlackError("file_not_found")
    message.files = [file_id for file_id in message.files if kept is None or file_id in kept]
    workspace.messages.edit(message, text=text, blocks=blocks, by=BOT_USER_ID)
    wire = workspace.wire(message, all_metadata=True)
    return {"channel": channel.id, "ts": message.ts, "text": text, "message": wire}


def delete_message(workspace: Workspace, arguments: Arguments) -> Json:
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


def unfurl(workspace: Workspace, arguments: Arguments) -> Json:
    """chat.unfurl, by channel and ts: previews below a message, each for an address that stands in it."""
    if arguments.text("unfurl_id") or arguments.text("source"):
        raise SlackError("invalid_unfurl_id")  # of a message that is still being written; none is kept
    given = arguments.structure("unfurls", "invalid_unfurls_format")
    for name, value in (("channel", arguments.text("channel")), ("ts", arguments.text("ts")), ("unfurls", given)):
        if not value:
            raise SlackError(f"missing_{name}")
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise SlackError("invalid_unfurls_format")
    message = _linking(workspace, arguments)
    for address in given:
        if address not in message.text:
            raise SlackError("cannot_unfurl_message")
        if domain_of(address, workspace.unfurl_domains) is None:
            raise SlackError("cannot_unfurl_url")
    previews: dict[str, Json] = {}
    for address, preview in given.items():
        blocks = check_message_blocks(preview.get("blocks"), workspace.tokens)
        about = {"from_url": address, "original_url": address, "app_unfurl_url": address, "is_app_unfurl": True}
        previews[address] = {**preview, **about, "app_id": APP_ID, "bot_id": BOT_ID, "blocks": blocks}
    workspace.messages.unfurl(message, previews)
    return {}


def _linking(workspace: Workspace, arguments: Arguments) -> Message:
    channel = workspace.directory.channel(arguments.text("channel"))
    if channel is None or (channel.is_private and BOT_USER_ID not in channel.members):
        raise SlackError("cannot_find_channel")
    message = workspace.messages.get(channel.id, arguments.text("ts"))
    if message is None or message.ephemeral_for is not None or message.subtype == "tombstone":
        raise SlackError("cannot_find_message")
    return message


def domain_of(address: str, domains: frozenset[str]) -> str | None:
    """Return the registered domain of an address, which may name a host below it; None if there is none."""
    host = urlsplit(address).hostname or ""
    return next((domain for domain in sorted(domains) if host == domain or host.endswith(f".{domain}")), None)


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
    references = arguments.names("channels") or arguments.names("channel_id")
    if len(references) > 1:
        raise SlackError("channels_limit_exceeded")
    channel = workspace.writable(references[0]) if references else None
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


def files_info(workspace: Workspace, arguments: Arguments) -> Json:
    """files.info."""
    stored = _completed(workspace, arguments)
    return {"file": stored.wire(workspace.url), "comments": [], "response_metadata": {"next_cursor": ""}}


def delete_file(workspace: Workspace, arguments: Arguments) -> Json:
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


def open_view(workspace: Workspace, arguments: Arguments) -> Json:
    """views.open."""
    return _show(workspace, arguments, workspace.views.open)


def push_view(workspace: Workspace, arguments: Arguments) -> Json:
    """views.push."""
    return _show(workspace, arguments, workspace.views.push)


def _show(workspace: Workspace, arguments: Arguments, show: Callable[[str, Any], View]) -> Json:
    view = arguments.structure("view", "invalid_arguments")
    check_view(view, kind="modal")
    user = workspace.passes.redeem_trigger(arguments.text("trigger_id") or arguments.require("interactivity_pointer"))
    return {"view": show(user, view).wire()}


def update_view(workspace: Workspace, arguments: Arguments) -> Json:
    """views.update, by view_id or external_id, guarded by `hash` when given."""
    found = workspace.views.by_reference(arguments.text("view_id") or None, arguments.text("external_id") or None)
    view = arguments.structure("view", "invalid_arguments")
    return {"view": workspace.views.update(found, view, expected_hash=arguments.text("hash") or None).wire()}


def publish_view(workspace: Workspace, arguments: Arguments) -> Json:
    """views.publish."""
    user = arguments.require("user_id")
    if user not in workspace.directory.people or user == BOT_USER_ID:
        raise SlackError("user_not_found")
    view = arguments.structure("view", "invalid_arguments")
    return {"view": workspace.views.publish(user, view, expected_hash=arguments.text("hash") or None).wire()}


def answer_hook(workspace: Workspace, path: str, raw: bytes) -> None:
    """Apply one POST to a response URL. Raises SlackError; a refused POST does not count as a use."""
    hook = workspace.passes.redeem_response_url(path)
    body = _parsed(raw)
    original = workspace.messages.get(hook.channel, hook.message_ts) if hook.message_ts else None
    if body.get("delete_original") is True:
        if original is not None:
            workspace.messages.delete(original)
        hook.uses += 1
        return
    text, blocks = checked_content(body, workspace.tokens)
    if body.get("replace_original") is True and original is not None:
        by = None if original.ephemeral_for is not None else BOT_USER_ID
        workspace.messages.edit(original, text=text, blocks=blocks, by=by)
    else:
        _post(workspace, hook, body, text, blocks)
    hook.uses += 1


def checked_content(body: Json, tokens: Tokens) -> tuple[str, list[Json]]:
    """Return (text, blocks) of a response message. Raises SlackError no_text and the errors of check_message_blocks."""
    text = body.get("text")
    blocks = check_message_blocks(body.get("blocks"), tokens)
    text = text if isinstance(text, str) else ""
    if not text.strip() and not blocks and not body.get("attachments"):
        raise SlackError("no_text")
    return text, blocks


def _post(workspace: Workspace, hook: ResponseUrl, body: Json, text: str, blocks: list[Json]) -> None:
    channel = workspace.place(hook.channel)
    in_channel = body.get("response_type") == "in_channel"
    thread_ts = body.get("thread_ts")
    attachments = body.get("attachments")
    message = workspace.post_as_bot(
        channel,
        text=text,
        blocks=blocks,
        attachments=attachments if isinstance(attachments, list) else None,
        thread_ts=workspace.root_of(channel, str(thread_ts)) if thread_ts else None,
        ephemeral_for=None if in_channel else hook.user,
        metadata=checked_metadata(body.get("metadata")) if in_channel else None,
    )
    if hook.message_ts is None:
        hook.message_ts = message.ts


def _parsed(raw: bytes) -> Json:
    try:
        body: Any = json.loads(raw)
    except ValueError:
        raise SlackError("invalid_payload") from None
    if not isinstance(body, dict):
        raise SlackError("invalid_payload")
    return body
