"""The workspace as one JSON document, for the page and for the assertions of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import TEAM_DOMAIN, TEAM_ID, TEAM_NAME

if TYPE_CHECKING:
    from quotebot.sandbox.slack.errors import Json
    from quotebot.sandbox.slack.files import StoredFile
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.workspace import Workspace


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
