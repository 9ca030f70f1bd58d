"""Requests to a response_url: answer the person, or replace or delete the message of the gesture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.api_chat import checked_metadata
from quotebot.sandbox.slack.blocks import check_message_blocks
from quotebot.sandbox.slack.directory import BOT_USER_ID
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.chance import Tokens
    from quotebot.sandbox.slack.passes import ResponseUrl
    from quotebot.sandbox.slack.workspace import Workspace


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
        hook.uses += 1
        return
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
