"""Keeps who somebody is, as Slack last said, inside an open ledger transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.database import Tx

TRUSTED_MS: Final = 86_400_000  # what Slack said counts so long while it says nothing newer


@dataclass(frozen=True, slots=True)
class Known:
    """What Slack said of a person, and when (Unix ms). `kind` is one of quotebot.domain.approvals.people."""

    kind: str
    fetched_at: int

    def counts_at(self, now: int) -> bool:
        """Tell whether it is recent enough to go by; a clock that was put back does not make it so."""
        return abs(now - self.fetched_at) <= TRUSTED_MS


def known(tx: Tx, team_id: str, user: str) -> Known | None:
    """Return what is known of a person in a workspace, or None when Slack was never asked."""
    row = tx.one("known_person", team_id=team_id, user_id=user)
    return None if row is None else Known(row["kind"], row["fetched_at"])


def keep(tx: Tx, team_id: str, user: str, found: Known) -> None:
    """Keep what Slack said, unless something newer is kept already."""
    tx.one("keep_person", team_id=team_id, user_id=user, kind=found.kind, fetched_at=found.fetched_at)
