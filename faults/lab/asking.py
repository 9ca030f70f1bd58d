"""A command for which the bot has neither a button nor a typed line yet: who stands in for an approver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.records import Request
from quotebot.approval_commands import DelegateApprovals

if TYPE_CHECKING:
    from ledger.ledger import Ledger

WEEK_MS: Final = 7 * 86_400_000


async def out_of_office(ledger: Ledger, absent: str, delegate: str, team_id: str, until: int) -> None:
    """Reserve that one approver is away."""
    command = DelegateApprovals(absent, delegate, until)
    payload: Any = command.canonical()
    await ledger.reserve(
        Request(
            source="cli",
            source_request_id=f"away:{absent}",
            action_kind=command.kind,
            aggregate_id=f"delegation:{absent}",
            aggregate_version=0,
            payload=payload,
            fingerprint=keys.digest(payload),
            actor=absent,
            actor_type="user",
            team_id=team_id,
            received_at=ledger.clock.now_ms(),
        )
    )
