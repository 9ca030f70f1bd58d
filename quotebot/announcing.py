"""Sees to it that every dead letter gets a card in the operators' channel, the bot asking itself for it, once per letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger import keys
from ledger.records import Request
from ledger.settlement import QUOTEBOT
from quotebot import effects
from quotebot.store import letters
from quotebot.surface_commands import AnnounceLetter

if TYPE_CHECKING:
    from ledger.ledger import Ledger

UNDECIDED_MAX: Final = 20  # cards that wait for somebody at once: an outage must not flood the channel


async def announce_letters(ledger: Ledger, channel: str) -> int:
    """Reserve the announcement of each dead letter that has no card yet; returns how many those are."""
    found = await ledger.database.read(lambda tx: letters.unannounced(tx, UNDECIDED_MAX))
    for letter in found:
        payload = AnnounceLetter(letter.reference, channel)
        request_id = f"letter:{letter.reference}"
        await ledger.reserve(
            Request(
                source="scheduler",
                source_request_id=request_id,
                action_kind=payload.kind,
                aggregate_id=effects.letter_target(letter.reference),
                aggregate_version=None,
                payload=payload.canonical(),
                fingerprint=keys.digest(["quotebot/letter/1", request_id]),
                actor=QUOTEBOT,
                actor_type="system",
                team_id=letter.team_id,
                received_at=ledger.clock.now_ms(),
            )
        )
    return len(found)
