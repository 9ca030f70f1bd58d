"""What is due, by the rows of the domain, and what was fired last. Reads in a snapshot, marks inside an open transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quotebot.domain.schedule.schedules import Candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest slot of one candidate of one job that is over. Times are Unix milliseconds."""

    job: str
    candidate: Candidate
    slot: int
    outcome: Literal["fired", "dropped"]


def quotes_to_expire(tx: Tx, job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return open quotes that were valid until `until` or less, the oldest first; the anchor is that moment."""
    rows = tx.all("quotes_to_expire", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["quote_id"], row["valid_until"], row["quote_id"], row["team_id"]) for row in rows]


def stale_drafts(tx: Tx, job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return quotes that were never submitted and not touched since `until`; the anchor is when they were touched last."""
    rows = tx.all("stale_drafts", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["quote_id"], row["updated_at"], row["quote_id"], row["team_id"]) for row in rows]


def slots_due(tx: Tx, step: Literal["remind", "escalate", "expire"], job: str, now: int, until: int, limit: int) -> list[Candidate]:
    """Return the open slots of approval requests that a step is due for since `until` or longer, the longest due first.

    The anchor is since when. A slot whose quote has a command under way waits for its end: what was decided in time counts.
    """
    rows = tx.all(f"slots_to_{step}", job=job, now=now, until=until, limit=limit)
    return [Candidate(row["approval_id"], row["due_at"], row["quote_id"], row["team_id"], str(row["slot"])) for row in rows]


def touched_at(tx: Tx, quote_id: str) -> int:
    """Return when the quote's row changed last (Unix ms). Raises LookupError when there is none."""
    row = tx.one("touched_at", quote_id=quote_id)
    if row is None:
        raise LookupError(f"there is no quote {quote_id}")
    found: int = row["updated_at"]
    return found


def marked_slot(tx: Tx, job: str, candidate: Candidate, now: int) -> int | None:
    """Return the newest slot that is over, or None when there is none, or when the clock was put back since it was marked."""
    row = tx.one("schedule_mark", job=job, name=candidate.name)
    if row is None or row["anchor"] != candidate.anchor or row["marked_at"] > now:
        return None
    slot: int = row["slot"]
    return slot


def mark(tx: Tx, marks: Sequence[Mark], now: int) -> None:
    """Remember slots that are over."""
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
