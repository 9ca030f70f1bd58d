"""Limits on the app's calls: the scopes that each method requires, and Slack's rate limits.

Rates have tiers per method and a pace per channel, each a bucket that a minute's worth of calls may empty at once.
Slack documents only a minimum ("50+ per minute") and tolerates bursts of an undocumented size: the model uses the documented figure
as the refill and one minute of it as the burst.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.sandbox.slack.errors import SlackError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.directory import Directory

MINUTE_SECONDS: Final = 60.0
POSTS_AT_ONCE: Final = 15  # into one channel, which then accepts one per second
CONNECTIONS_AT_ONCE: Final = 20  # despite tier 1's one per minute: a bot that has lost its connections must be able to reconnect
POSTS_PER_MINUTE: Final = 300  # into the whole workspace: "several hundred"
PER_MINUTE: Final[dict[str, int]] = {
    "apps.connections.open": 1,
    "chat.postMessage": POSTS_PER_MINUTE,
    **dict.fromkeys(("usergroups.list", "usergroups.users.list", "users.list", "conversations.list", "reactions.remove"), 20),
    **dict.fromkeys(
        (
            *("chat.update", "chat.delete", "conversations.history", "conversations.replies", "conversations.info"),
            *("conversations.open", "files.delete", "reactions.add", "team.info", "users.lookupByEmail", "bots.info"),
        ),
        50,
    ),
    **dict.fromkeys(
        (
            *("chat.postEphemeral", "conversations.members", "files.getUploadURLExternal", "files.completeUploadExternal"),
            *("files.info", "users.info", "views.open", "views.push", "views.update", "views.publish"),
        ),
        100,
    ),
}
_AT_ONCE: Final = {"apps.connections.open": CONNECTIONS_AT_ONCE}  # methods whose burst is not a minute's worth


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


@dataclass(slots=True)
class _Bucket:
    """Token bucket: `level` calls may be made now; it fills by `per_second` up to `size`."""

    size: float
    per_second: float
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take one call; return 0, or the seconds that the caller has to wait."""
        self.level = min(self.size, self.level + (now - self.at) * self.per_second)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.per_second


class Rates:
    """Rate limits of the app. One per workspace and app."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def wait_seconds(self, method: str, arguments: Arguments) -> int:
        """Count one call; return 0, or the Retry-After of a refused one in whole seconds."""
        channel = arguments.text("channel") if method == "chat.postMessage" else ""
        wait = self._take(method, channel)
        if not wait and channel:
            wait = self._take(method, "")
        return math.ceil(wait)

    def _take(self, method: str, channel: str) -> float:
        bucket = self._buckets.get((method, channel))
        if bucket is None:
            if channel:
                size, per_second = float(POSTS_AT_ONCE), 1.0
            elif method in PER_MINUTE:
                size, per_second = float(_AT_ONCE.get(method, PER_MINUTE[method])), PER_MINUTE[method] / MINUTE_SECONDS
            else:
                return 0.0
            bucket = self._buckets[method, channel] = _Bucket(size, per_second, size, self._monotonic())
        return bucket.take(self._monotonic())


def check_scopes(method: str, arguments: Arguments, directory: Directory, granted: Collection[str]) -> None:
    """Return if a required scope is granted; otherwise raise SlackError missing_scope with `needed` and `provided`, as Slack does.

    The scope to read a conversation depends on its kind: im:history for a direct message, groups:history for a private channel,
    channels:history for a public one, and likewise groups:read and channels:read.
    """
    needed = ANY_OF.get(method, ())
    read = _BY_KIND.get(method)
    channel = None if read is None else directory.channel(arguments.text("channel"))
    if channel is not None:  # the method itself reports a missing one
        needed = (f"{'im' if channel.is_im else 'groups' if channel.is_private else 'channels'}:{read}",)
    if needed and not set(needed) & set(granted):
        raise SlackError("missing_scope", needed=",".join(needed), provided=",".join(sorted(granted)))
