"""Visibility of quotes in private channels: decided by the person's role, or by Slack's facts about the channel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.access import INSIDER, Circle
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Collection

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.access import Viewer
    from quotebot.execution.channels import Channels

READ_SECONDS: Final = 0.8  # a read waits for Slack inside the acknowledgement


@dataclass(frozen=True, slots=True)
class Visibility:
    """Lookup of a person's circle. `insiders` are the persons with a role in the settings."""

    ledger: Ledger
    channels: Channels
    insiders: frozenset[str]

    async def about_quotes(self, viewer: Viewer, quote_ids: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of these quotes needs."""
        if not quote_ids or viewer.own_only:
            return viewer
        wanted = await self.ledger.database.read(lambda tx: _channels_of(tx, quote_ids, viewer.user))
        return await self.about_channels(viewer, wanted)

    async def about_channels(self, viewer: Viewer, channels: Collection[str]) -> Viewer:
        """Return the viewer with the circle that a read of quotes of these channels needs."""
        if not channels or viewer.own_only or viewer.circle.insider:
            return viewer
        if viewer.user in self.insiders:
            return replace(viewer, circle=INSIDER)
        found = await self.channels.open_to(viewer.user, channels, seconds=READ_SECONDS)
        return replace(viewer, circle=Circle(channels=found, asked=frozenset(channels)))

    async def of_actor(self, user: str, channel: str) -> Circle | None:
        """Return the circle of a person who changes a quote of this channel; None if Slack does not answer."""
        if user in self.insiders:
            return INSIDER
        found = await self.channels.is_open_to(user, channel)
        asked = frozenset({channel})
        return None if found is None else Circle(channels=asked if found else frozenset(), asked=asked)


def _channels_of(tx: Tx, quote_ids: Collection[str], user: str) -> frozenset[str]:
    """Return the channels of those quotes that the person did not request."""
    found = (store.origin(tx, quote_id) for quote_id in quote_ids)
    return frozenset(channel for requester, channel in filter(None, found) if requester != user)
