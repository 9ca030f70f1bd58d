"""Slack's facts about channels: their audience, which decides what the bot may post there.

Facts of a quote are posted into a channel only if Slack reports that no other organization shares it, or if the setting
`shared_channels` lists it. Every other channel counts as shared, also if the installation lacks the scope or Slack does not show
the channel. An outage is neither: the caller gets the error and tries again later.

No command waits for these queries before its acknowledgement. Each process caches the facts in its own memory: SHARING_FRESH_MS or
MEMBERS_FRESH_MS.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from adapters.slack.api import ChannelFacts, SlackApi
    from ledger.clock import Clock

SHARING_FRESH_MS: Final = 60_000
MEMBERS_FRESH_MS: Final = 600_000
CHANNELS_MAX: Final = 1_000  # cached at once
MISSING_SCOPE: Final = "missing_scope"

Value = TypeVar("Value")
log = structlog.get_logger(__name__)


def is_direct(channel: str | None) -> bool:
    """Return true if a channel is a direct message: no approver can read it, so no quote is created in it."""
    return channel is not None and channel.startswith("D")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Value]):
    value: Value
    at: int  # Unix ms


class Channels:
    """Cache of Slack's facts about channels. `listed` are the shared channels that may hold quotes."""

    def __init__(self, clock: Clock, slack: SlackApi, listed: Collection[str] = ()) -> None:
        self._clock = clock
        self._slack = slack
        self._listed = frozenset(listed)
        self._facts: dict[str, _Kept[ChannelFacts | None]] = {}
        self._members: dict[str, _Kept[frozenset[str]]] = {}

    async def may_post(self, channel: str) -> bool:
        """Return true if facts of a quote may be posted into a channel. Raises AdapterError if Slack does not answer."""
        if is_direct(channel) or channel in self._listed:
            return True
        facts = await self._ask(channel, SHARING_FRESH_MS)
        return facts is not None and not facts.ext_shared

    async def open_to(self, user: str, channels: Iterable[str], *, seconds: float) -> frozenset[str]:
        """Return those of the channels that are public in the workspace, or that have the person as a member.

        A channel is left out if this is not known within `seconds`: a missing scope, a channel without the bot, an outage.
        """
        tasks = {channel: asyncio.ensure_future(self.is_open_to(user, channel)) for channel in dict.fromkeys(channels)}
        if not tasks:
            return frozenset()
        _, late = await asyncio.wait(tasks.values(), timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return frozenset(channel for channel, task in tasks.items() if not task.cancelled() and task.result())

    async def is_open_to(self, user: str, channel: str) -> bool | None:
        """Return true if a channel is public or has the person as a member; None if Slack does not answer."""
        if is_direct(channel):
            return False
        try:
            facts = await self._ask(channel, MEMBERS_FRESH_MS)
            if facts is None or facts.kind == "direct":
                return False
            return facts.kind == "public" or user in await self._members_of(channel)
        except AdapterError as error:
            log.warning("channel.unanswered", channel=channel, code=error.code)
            return None if error.failure in (Failure.TRANSIENT, Failure.THROTTLED) else False

    async def _ask(self, channel: str, fresh_ms: int) -> ChannelFacts | None:
        """Return a channel's facts, at most `fresh_ms` old; None if the scope for them is missing."""
        now = self._clock.now_ms()
        kept = self._facts.get(channel)
        if kept is not None and 0 <= now - kept.at < fresh_ms:
            return kept.value
        try:
            facts = await self._slack.channel(channel=channel)
        except AdapterError as error:
            if error.code != MISSING_SCOPE:
                raise
            log.warning("channel.unknown", channel=channel, do="quotebot doctor --only slack.channel_scopes")
            facts = None
        _keep(self._facts, channel, _Kept(facts, now))
        return facts

    async def _members_of(self, channel: str) -> frozenset[str]:
        now = self._clock.now_ms()
        kept = self._members.get(channel)
        if kept is not None and 0 <= now - kept.at < MEMBERS_FRESH_MS:
            return kept.value
        try:
            members = await self._slack.members(channel=channel)
        except AdapterError as error:
            if error.failure not in (Failure.AUTH, Failure.NOT_FOUND):
                raise
            log.warning("channel.members_unknown", channel=channel, code=error.code)
            members = frozenset()
        _keep(self._members, channel, _Kept(members, now))
        return members


def _keep(kept: dict[str, _Kept[Value]], channel: str, value: _Kept[Value]) -> None:
    if len(kept) >= CHANNELS_MAX:
        kept.clear()
    kept[channel] = value
