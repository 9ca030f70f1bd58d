"""Scopes that each method requires, and the refusal if the app was installed without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.sandbox.slack.errors import SlackError

if TYPE_CHECKING:
    from collections.abc import Collection

    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.directory import Directory

# method -> scopes of which one is needed; methods that are not listed need none
ANY_OF: Final[dict[str, tuple[str, ...]]] = {
    "bots.info": ("users:read",),
    "chat.delete": ("chat:write",),
    "chat.postEphemeral": ("chat:write",),
    "chat.postMessage": ("chat:write",),
    "chat.update": ("chat:write",),
    "conversations.list": ("channels:read", "groups:read", "im:read", "mpim:read"),
    "conversations.open": ("im:write", "channels:manage", "groups:write", "mpim:write"),
    "files.completeUploadExternal": ("files:write",),
    "files.delete": ("files:write",),
    "files.getUploadURLExternal": ("files:write",),
    "files.info": ("files:read",),
    "reactions.add": ("reactions:write",),
    "reactions.remove": ("reactions:write",),
    "team.info": ("team:read",),
    "usergroups.list": ("usergroups:read",),
    "usergroups.users.list": ("usergroups:read",),
    "users.conversations": ("channels:read", "groups:read", "im:read", "mpim:read"),
    "users.info": ("users:read",),
    "users.list": ("users:read",),
    "users.lookupByEmail": ("users:read.email",),
}
_BY_KIND: Final = {  # method -> access to the conversation; the required scope depends on its kind
    "conversations.history": "history",
    "conversations.replies": "history",
    "conversations.info": "read",
    "conversations.members": "read",
}


def check_scopes(method: str, arguments: Arguments, directory: Directory, granted: Collection[str]) -> None:
    """Return if a required scope is granted; otherwise raise SlackError missing_scope with `needed` and `provided`, as Slack does.

    The scope to read a conversation depends on its kind: im:history for a direct message, groups:history for a private channel,
    channels:history for a public one, and likewise groups:read and channels:read.
    """
    needed = _needed(method, arguments, directory)
    if needed and not set(needed) & set(granted):
        raise SlackError("missing_scope", needed=",".join(needed), provided=",".join(sorted(granted)))


def _needed(method: str, arguments: Arguments, directory: Directory) -> tuple[str, ...]:
    read = _BY_KIND.get(method)
    if read is None:
        return ANY_OF.get(method, ())
    channel = directory.channel(arguments.text("channel"))
    if channel is None:
        return ()  # the method itself reports the missing channel
    return (f"{'im' if channel.is_im else 'groups' if channel.is_private else 'channels'}:{read}",)
