"""Facts of quotes and approvals for reports, read page by page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.domain.pricing.engine import from_stored, request_of
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.domain.quotes.reports import ReportedApproval, ReportedLine, ReportedQuote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.database import Database, Row

AT_ONCE: Final = 200
EVERYTHING: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Period:
    """Period of the reported quotes, by the time of their creation: from `since` up to, but not including, `until` (Unix ms).

    `team_id` is the workspace of the quotes; None is every workspace.
    """

    since: int
    until: int
    team_id: str | None = None


async def quotes(database: Database, period: Period, *, most: int = EVERYTHING) -> AsyncIterator[ReportedQuote]:
    """Yield the quotes made in the period, at most `most`, in order of their numbers."""
    after = ""
    while most > 0 and (rows := await _page(database, "quotes_for_report", period, after)):
        for row in rows[:most]:
            yield _quote(row)
        most -= len(rows)
        after = rows[-1]["quote_id"]


async def approvals(database: Database, period: Period, *, most: int = EVERYTHING) -> AsyncIterator[ReportedApproval]:
    """Yield the requests for approval that were made in the period, at most `most`."""
    after = ""
    while most > 0 and (rows := await _page(database, "approvals_for_report", period, after)):
        for row in rows[:most]:
            yield ReportedApproval(
                row["requester"],
                ApprovalState(row["state"]),
                tuple(json.loads(row["required_roles"])),
                row["requested_at"],
                row["decided_at"],
                row["earlier"] is not None,
            )
        most -= len(rows)
        after = rows[-1]["approval_id"]


async def _page(database: Database, name: str, period: Period, after: str) -> list[Row]:
    return await database.read(
        lambda tx: tx.all(name, since=period.since, until=period.until, team_id=period.team_id, after=after, limit=AT_ONCE)
    )


def _quote(row: Row) -> ReportedQuote:
    pricing = from_stored(row["pricing"])
    request = request_of(pricing)
    return ReportedQuote(
        quote_id=row["quote_id"],
        version=row["version"],
        state=QuoteState(row["state"]),
        account=row["account"],
        rep=row["requester"],
        created_at=row["created_at"],
        currency=pricing.currency,
        term_months=pricing.term_months,
        list_total=pricing.list_total,
        net_total=pricing.net_total,
        lines=tuple(ReportedLine(line.sku, line.quantity, line.list_amount, line.net_amount) for line in pricing.lines),
        billing_frequency=request.billing_frequency,
        terms=request.commercial,
        submitted_at=row["submitted_at"],
        approved_at=row["approved_at"],
        sent_at=row["sent_at"],
        closed_at=row["closed_at"],
        closing_reason=row["reason"],
    )
