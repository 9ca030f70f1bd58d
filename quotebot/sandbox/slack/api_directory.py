"""Methods that read: conversations.* page by page, users.*, usergroups.*, auth.test and others about identities."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from typing import TYPE_CHECKING, TypeVar

from quotebot.sandbox.slack.directory import (
    APP_ID,
    BOT_ID,
    BOT_NAME,
    BOT_USER_ID,
    TEAM_DOMAIN,
    TEAM_ID,
    TEAM_NAME,
    Channel,
    Group,
    Person,
)
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.workspace import Workspace

T = TypeVar("T")
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


def conversations_list(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.list."""
    return _listed(workspace, arguments, None)


def conversations_info(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.info, of a public channel also without the bot in it. Slack hides a private channel from non-members."""
    return {"channel": _wire_channel(_visible(workspace, arguments), workspace)}


def open_conversation(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.open: the direct-message channel with one person."""
    if "channel" in arguments:
        return {"channel": _wire_channel(workspace.channel(arguments.text("channel")), workspace)}
    users = arguments.names("users")
    if not users:
        raise SlackError("users_list_not_supplied")
    if len(users) > 1:
        raise SlackError("method_not_supported_for_channel_type")
    if users[0] not in workspace.directory.people or users[0] == BOT_USER_ID:
        raise SlackError("user_not_found")
    person = workspace.directory.people[users[0]]
    if person.is_deactivated or person.is_bot:
        raise SlackError("user_disabled" if person.is_deactivated else "cannot_dm_bot")
    return {"channel": {"id": workspace.directory.open_im(users[0]).id}}


def members(workspace: Workspace, arguments: Arguments) -> Json:
    """conversations.members, page by page: user ids alone."""
    channel = workspace.channel(arguments.text("channel"))
    ids, cursor = _paged(channel.members, arguments)
    return {"members": list(ids), "response_metadata": {"next_cursor": cursor}}


def user_conversations(workspace: Workspace, arguments: Arguments) -> Json:
    """users.conversations: the channels that a person is in, by default the bot itself."""
    user = arguments.text("user") or BOT_USER_ID
    if user not in workspace.directory.people:
        raise SlackError("user_not_found")
    return _listed(workspace, arguments, user)


def _listed(workspace: Workspace, arguments: Arguments, member: str | None) -> Json:
    """Return the channels of the wanted types that the bot may see, and that the member is in if one is given."""
    types = set(arguments.names("types") or ["public_channel"])
    wanted = [
        channel
        for channel in workspace.directory.channels.values()
        if (member is None or member in channel.members)
        and _kind(channel) in types
        and (not (channel.is_private or channel.is_im) or BOT_USER_ID in channel.members)
        and not (channel.is_archived and arguments.flag("exclude_archived"))
    ]
    page, cursor = _paged(wanted, arguments)
    return {"channels": [_wire_channel(channel, workspace) for channel in page], "response_metadata": {"next_cursor": cursor}}


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
    page, cursor = _paged(messages, arguments)
    all_metadata = arguments.flag("include_all_metadata")
    body: Json = {
        "messages": [workspace.wire(message, all_metadata=all_metadata) for message in page],
        "has_more": bool(cursor),
        "pin_count": 0,
    }
    if cursor:
        body["response_metadata"] = {"next_cursor": cursor}
    return body


def _paged(items: Sequence[T], arguments: Arguments) -> tuple[Sequence[T], str]:
    """Return the wanted page and the cursor of the next one, empty at the end. Raises SlackError invalid_cursor, invalid_limit."""
    cursor = arguments.text("cursor")
    try:
        start = int(base64.b64decode(cursor, validate=True).decode().removeprefix("next:")) if cursor else 0
    except (binascii.Error, ValueError):
        raise SlackError("invalid_cursor") from None
    end = start + arguments.number("limit", PAGE_DEFAULT, PAGE_MAX)
    return items[start:end], base64.b64encode(f"next:{end}".encode()).decode() if end < len(items) else ""


def _wire_channel(channel: Channel, workspace: Workspace) -> Json:
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


def api_test(_workspace: Workspace, arguments: Arguments) -> Json:
    """api.test: echoes, and fails on request."""
    if "error" in arguments:
        raise SlackError(arguments.text("error"))
    return {"args": {"foo": arguments.text("foo")} if "foo" in arguments else {}}


def auth_test(workspace: Workspace, _arguments: Arguments) -> Json:
    """auth.test."""
    enterprise_id = workspace.directory.enterprise_id
    return {
        "url": f"{workspace.url}/",
        "team": TEAM_NAME,
        "user": BOT_NAME,
        "team_id": TEAM_ID,
        "user_id": BOT_USER_ID,
        "bot_id": BOT_ID,
        **({} if enterprise_id is None else {"enterprise_id": enterprise_id}),
        "is_enterprise_install": False,
    }


def bots_info(_workspace: Workspace, arguments: Arguments) -> Json:
    """bots.info."""
    if arguments.text("bot", BOT_ID) != BOT_ID:
        raise SlackError("bot_not_found")
    return {"bot": {"id": BOT_ID, "app_id": APP_ID, "user_id": BOT_USER_ID, "name": BOT_NAME, "deleted": False, "icons": {}}}


def team_info(_workspace: Workspace, _arguments: Arguments) -> Json:
    """team.info."""
    return {"team": {"id": TEAM_ID, "name": TEAM_NAME, "domain": TEAM_DOMAIN}}


def users_info(workspace: Workspace, arguments: Arguments) -> Json:
    """users.info."""
    person = workspace.directory.people.get(arguments.text("user"))
    if person is None:
        raise SlackError("user_not_found")
    return {"user": _wire_person(person)}


def users_list(workspace: Workspace, _arguments: Arguments) -> Json:
    """users.list, in one page."""
    people = [_wire_person(person) for person in workspace.directory.people.values() if not person.is_external]
    return {"members": people, "response_metadata": {"next_cursor": ""}}


def users_lookup_by_email(workspace: Workspace, arguments: Arguments) -> Json:
    """users.lookupByEmail."""
    email = arguments.require("email").lower()
    for person in workspace.directory.people.values():
        if person.email == email and not person.is_bot and not person.is_external:
            return {"user": _wire_person(person)}
    raise SlackError("users_not_found")


def usergroups_list(workspace: Workspace, arguments: Arguments) -> Json:
    """usergroups.list."""
    with_users = arguments.flag("include_users")
    return {"usergroups": [_wire_group(group, with_users=with_users) for group in workspace.directory.groups.values()]}


def usergroups_users_list(workspace: Workspace, arguments: Arguments) -> Json:
    """usergroups.users.list."""
    group = workspace.directory.groups.get(arguments.text("usergroup"))
    if group is None:
        raise SlackError("no_such_subteam")
    return {"users": list(group.members)}


def _wire_person(person: Person) -> Json:
    """Return a user object. For a person of another workspace Slack returns few fields, and `is_stranger`."""
    profile = {"real_name": person.real_name, "display_name": person.name, "team": person.team_id}
    if person.is_external:
        return {
            "id": person.id,
            "team_id": person.team_id,
            "name": person.name,
            "real_name": person.real_name,
            "deleted": person.is_deactivated,
            "profile": profile,
            "is_bot": person.is_bot,
            "is_app_user": False,
            "is_stranger": person.is_stranger,
            "updated": 0,
            **_enterprise_user(person),
        }
    profile["title"] = person.title or person.real_name
    if not person.is_bot:
        profile |= {"email": person.email, "phone": person.phone}
    return {
        "id": person.id,
        "team_id": person.team_id,
        **_enterprise_user(person),
        "name": person.name,
        "real_name": person.real_name,
        "deleted": person.is_deactivated,
        "tz": "Etc/UTC",
        "tz_label": "Coordinated Universal Time",
        "tz_offset": 0,
        "profile": profile,
        "is_bot": person.is_bot,
        "is_app_user": False,
        "is_admin": False,
        "is_owner": False,
        "is_restricted": person.is_guest or person.is_single_channel_guest,
        "is_ultra_restricted": person.is_single_channel_guest,
        "updated": 0,
    }


def _enterprise_user(person: Person) -> Json:
    """Return the user object's fields of a member of an Enterprise Grid organization."""
    if person.enterprise_id is None:
        return {}
    membership = {
        "id": person.id,
        "enterprise_id": person.enterprise_id,
        "enterprise_name": f"Organization {person.enterprise_id}",
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "teams": list(person.teams or (person.team_id,)),
    }
    return {"enterprise_user": membership}


def _wire_group(group: Group, *, with_users: bool) -> Json:
    wire: Json = {
        "id": group.id,
        "team_id": TEAM_ID,
        "is_usergroup": True,
        "name": group.name,
        "handle": group.handle,
        "description": "",
        "user_count": len(group.members),
        "date_delete": 0,
    }
    if with_users:
        wire["users"] = list(group.members)
    return wire
