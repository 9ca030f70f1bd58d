"""Due candidates by the rows of the domain, and marks of processed slots. Reads use a snapshot, marks an open transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quotebot.domain.schedule.schedules import Candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest processed slot of one candidate of one job. Times are Unix milliseconds."""

    job: str
    candidate: Candidate
    slot: int
    outcome: Literal["fired", "dropped"]


def quotes_to_expire(tx: Tx, job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return open quotes whose validity ended by `until`, the oldest first; the anchor is that end."""
    rows = tx.all("quotes_to_expire", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["quote_id"], row["valid_until"], row["quote_id"], row["team_id"]) for row in rows]


def stale_drafts(tx: Tx, job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return quotes that were never submitted and not changed since `until`; the anchor is their last change."""
    rows = tx.all("stale_drafts", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["quote_id"], row["updated_at"], row["quote_id"], row["team_id"]) for row in rows]


def slots_due(tx: Tx, step: Literal["remind", "escalate", "expire"], job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return the open slots of approval requests with this step due by `until`, the longest due first.

    The anchor is the due time. A slot whose quote has a command in progress waits for its end: a decision made in time counts.
    """
    rows = tx.all(f"slots_to_{step}", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["approval_id"], row["due_at"], row["quote_id"], row["team_id"], str(row["slot"])) for row in rows]


def digests_due(tx: Tx, now: int, limit: int) -> list[Candidate]:
    """Return the people whose daily digest is due, the longest due first; the anchor is the due time."""
    rows = tx.all("digests_due", now=now, limit=limit)
    return [Candidate(f"digest:{row['user_id']}", row["due_at"], f"digest:{row['user_id']}", row["team_id"]) for row in rows]


def touched_at(tx: Tx, quote_id: str) -> int:
    """Return the last change of the quote's row (Unix ms). Raises LookupError if there is none."""
    row = tx.one("touched_at", quote_id=quote_id)
    if row is None:
        raise LookupError(f"there is no quote {quote_id}")
    return int(row["updated_at"])


def marked_slot(tx: Tx, job: str, candidate: Candidate, now: int) -> int | None:
    """Return the newest processed slot, or None if there is none or the clock was set back since it was marked."""
    row = tx.one("schedule_mark", job=job, name=candidate.name)
    if row is None or row["anchor"] != candidate.anchor or row["marked_at"] > now:
        return None
    return int(row["slot"])


def mark(tx: Tx, marks: Sequence[Mark], now: int) -> None:
    """Store marks of processed slots."""
    tx.many(
        "mark_slot",
        [
            {
                "job": each.job,
                "name": each.candidate.name,
                "anchor": each.candidate.anchor,
                "slot": each.slot,
                "outcome": each.outcome,
                "now": now,
            }
            for each in marks
        ],
    )
