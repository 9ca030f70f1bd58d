"""Slack's rate limits: tiers per method and a pace per channel, each a bucket that a minute's worth of calls may empty at once.

Slack names only what it allows at least ("50+ per minute") and tolerates bursts, but says nowhere how large: what is modelled here
is the documented figure as the refill and one minute of it as the burst.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.slack.arguments import Arguments

MINUTE_SECONDS: Final = 60.0
POSTS_AT_ONCE: Final = 15  # into one channel, which then takes one a second
CONNECTIONS_AT_ONCE: Final = 20  # of the one a minute that tier 1 grants: a bot that has lost its links must find back
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


_AT_ONCE: Final = {"apps.connections.open": CONNECTIONS_AT_ONCE}  # where it is not a minute's worth


@dataclass(slots=True)
class _Bucket:
    """`level` calls may come now; it fills by `per_second` up to `size`."""

    size: float
    per_second: float
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take one call; return 0, or how many seconds the caller has to wait for one."""
        self.level = min(self.size, self.level + (now - self.at) * self.per_second)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.per_second


class Rates:
    """How fast the app may call. One per workspace and app."""

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
        bucket = self._buckets.get((method, channel)) or self._new(method, channel)
        return 0.0 if bucket is None else bucket.take(self._monotonic())

    def _new(self, method: str, channel: str) -> _Bucket | None:
        per_minute = PER_MINUTE.get(method)
        if channel:
            size, per_second = float(POSTS_AT_ONCE), 1.0
        elif per_minute is not None:
            size, per_second = float(_AT_ONCE.get(method, per_minute)), per_minute / MINUTE_SECONDS
        else:
            return None
        return self._buckets.setdefault((method, channel), _Bucket(size, per_second, size, self._monotonic()))
