"""conversations.*: reading channels and threads, page by page."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import BOT_USER_ID, TEAM_ID, Channel
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.workspace import Workspace

PAGE_DEFAULT = 100
PAGE_MAX = 999


def history(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.history: root messages, newest first."""
    channel = workspace.channel(arguments.text("channel"))
    messages = _within(workspace.messages.channel(channel.id), arguments)
    messages.reverse()
    return _page(workspace, messages, arguments)


def replies(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.replies: the parent, then its replies, oldest first."""
    channel = workspace.channel(arguments.text("channel"))
    root_ts = workspace.root_of(channel, arguments.require("ts"))
    root = workspace.messages.get(channel.id, root_ts)
    if root is None:
        raise SlackError("thread_not_found")
    messages = _within(workspace.messages.replies(channel.id, root_ts), arguments)
    return _page(workspace, [root, *messages], arguments)


def list_(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.list."""
    types = set(arguments.names("types") or ["public_channel"])
    wanted = [
        channel
        for channel in workspace.directory.channels.values()
        if _kind(channel) in types
        and (not channel.is_private or BOT_USER_ID in channel.members)
        and not (channel.is_archived and arguments.flag("exclude_archived"))
    ]
    return _listed(workspace, wanted, arguments)


def info(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.info, of a public channel also without the bot in it. Slack hides a private channel from non-members."""
    return {"channel": _wire(_visible(workspace, arguments), workspace)}


def open_(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.open: the direct-message channel with one person."""
    if "channel" in arguments:
        return {"channel": _wire(workspace.channel(arguments.text("channel")), workspace)}
    users = arguments.names("users")
    if not users:
        raise SlackError("users_list_not_supplied")
    if len(users) > 1:
        raise SlackError("method_not_supported_for_channel_type")
    if users[0] not in workspace.directory.people or users[0] == BOT_USER_ID:
        raise SlackError("user_not_found")
    return {"channel": {"id": workspace.directory.open_im(users[0]).id}}


def members(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.members, page by page: user ids alone."""
    channel = workspace.channel(arguments.text("channel"))
    start = _offset(arguments)
    limit = arguments.number("limit", PAGE_DEFAULT, PAGE_MAX)
    cursor = _cursor(start + limit) if start + limit < len(channel.members) else ""
    return {"members": list(channel.members[start : start + limit]), "response_metadata": {"next_cursor": cursor}}


def user_conversations(workspace: Workspace, arguments: Arguments) -> Json:
    """users.conversations: the channels that a person is in, by default the bot itself."""
    user = arguments.text("user") or BOT_USER_ID
    if user not in workspace.directory.people:
        raise SlackError("user_not_found")
    types = set(arguments.names("types") or ["public_channel"])
    joined = [
        channel
        for channel in workspace.directory.channels.values()
        if user in channel.members
        and _kind(channel) in types
        and (not (channel.is_private or channel.is_im) or BOT_USER_ID in channel.members)
        and not (channel.is_archived and arguments.flag("exclude_archived"))
    ]
    return _listed(workspace, joined, arguments)


def _listed(workspace: Workspace, channels: list[Channel], arguments: Arguments) -> Json:
    start = _offset(arguments)
    limit = arguments.number("limit", PAGE_DEFAULT, PAGE_MAX)
    cursor = _cursor(start + limit) if start + limit < len(channels) else ""
    page = [_wire(channel, workspace) for channel in channels[start : start + limit]]
    return {"channels": page, "response_metadata": {"next_cursor": cursor}}


def _visible(workspace: Workspace, arguments: Arguments) -> Channel:
    """Find a channel whose properties the bot may read. Raises SlackError channel_not_found for a private one without the bot."""
    reference = arguments.text("channel")
    channel = workspace.directory.channel(reference) if reference else None
    if channel is None or (channel.is_private and BOT_USER_ID not in channel.members):
        raise SlackError("channel_not_found")
    return channel


def _kind(channel: Channel) -> str:
    return "im" if channel.is_im else "private_channel" if channel.is_private else "public_channel"


def _within(messages: list[Message], arguments: Arguments) -> list[Message]:
    """Keep the messages between `oldest` and `latest`, the ends only with `inclusive`. The messages are in order of time."""
    oldest = _moment(arguments, "oldest", "0")
    latest = _moment(arguments, "latest", "9999999999")
    inclusive = arguments.flag("inclusive")
    start = bisect_left(messages, oldest, key=lambda message: float(message.ts))
    return [
        message
        for message in messages[start:]
        if oldest < float(message.ts) < latest or (inclusive and float(message.ts) in (oldest, latest))
    ]


def _moment(arguments: Arguments, name: str, default: str) -> float:
    try:
        return float(arguments.text(name) or default)
    except ValueError:
        raise SlackError(f"invalid_ts_{name}") from None


def _page(workspace: Workspace, messages: list[Message], arguments: Arguments) -> Json:
    start = _offset(arguments)
    limit = arguments.number("limit", PAGE_DEFAULT, PAGE_MAX)
    more = start + limit < len(messages)
    all_metadata = arguments.flag("include_all_metadata")
    body: Json = {
        "messages": [workspace.wire(message, all_metadata=all_metadata) for message in messages[start : start + limit]],
        "has_more": more,
        "pin_count": 0,
    }
    if more:
        body["response_metadata"] = {"next_cursor": _cursor(start + limit)}
    return body


def _cursor(offset: int) -> str:
    return base64.b64encode(f"next:{offset}".encode()).decode()


def _offset(arguments: Arguments) -> int:
    cursor = arguments.text("cursor")
    if not cursor:
        return 0
    try:
        return int(base64.b64decode(cursor, validate=True).decode().removeprefix("next:"))
    except (binascii.Error, ValueError):
        raise SlackError("invalid_cursor") from None


def _wire(channel: Channel, workspace: Workspace) -> Json:
    with_external = channel.is_im and any(
        workspace.directory.people[member].is_external for member in channel.members if member in workspace.directory.people
    )
    shared = channel.is_ext_shared or channel.is_org_shared or with_external
    wire: Json = {
        "id": channel.id,
        "is_im": channel.is_im,
        "is_channel": not channel.is_im,
        "is_group": False,
        "is_mpim": False,
        "is_private": channel.is_im or channel.is_private,
        "is_archived": channel.is_archived,
        "is_shared": shared,
        "is_org_shared": channel.is_org_shared,
        "is_ext_shared": channel.is_ext_shared or with_external,
        "is_pending_ext_shared": bool(channel.pending_teams),
        "context_team_id": TEAM_ID,
        "created": 0,
    }
    if channel.is_im:
        return {**wire, "user": channel.members[0]}
    return {
        **wire,
        "shared_team_ids": [TEAM_ID, *channel.connected_teams],
        "connected_team_ids": list(channel.connected_teams),
        "pending_connected_team_ids": list(channel.pending_teams),
        "pending_shared": list(channel.pending_teams),
        "name": channel.name,
        "name_normalized": channel.name,
        "is_member": BOT_USER_ID in channel.members,
        "is_general": channel.name == "general",
        "num_members": len(channel.members),
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
    }
