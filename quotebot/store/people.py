"""Cached user facts from Slack, inside an open ledger transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.database import Tx

TRUSTED_MS: Final = 86_400_000  # validity of an answer from Slack while there is no newer one


@dataclass(frozen=True, slots=True)
class Known:
    """Slack's answer on a person, and its time (Unix ms). `kind` is one of quotebot.domain.approvals.people."""

    kind: str
    fetched_at: int

    def counts_at(self, now: int) -> bool:
        """Return true if the answer is recent enough; setting the clock back does not make an old one valid."""
        return abs(now - self.fetched_at) <= TRUSTED_MS


def known(tx: Tx, team_id: str, user: str) -> Known | None:
    """Return the stored answer on a person in a workspace, or None if Slack was never asked."""
    row = tx.one("known_person", team_id=team_id, user_id=user)
    return None if row is None else Known(row["kind"], row["fetched_at"])


def keep(tx: Tx, team_id: str, user: str, found: Known) -> None:
    """Store Slack's answer unless a newer one is stored."""
    tx.one("keep_person", team_id=team_id, user_id=user, kind=found.kind, fetched_at=found.fetched_at)
