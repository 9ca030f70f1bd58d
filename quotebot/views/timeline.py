"""History of a quote as people read it: a line per event with time, words and person, grouped by day. Text is Slack mrkdwn."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from quotebot import effects
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Quote, title
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.database import Row

NAME_CHARACTERS_MAX: Final = 60
BOT: Final = "quotebot"
_PERSON: Final = re.compile(r"[UW][A-Z0-9]{2,}")
_EVENTS: Final[Mapping[str, str]] = {
    "quote.created": "Created",
    "quote.submitted": "Submitted",
    "quote.revised": "Revised",
    "quote.cancelled": "Canceled",
    "quote.finalized": "Locked for sending",
    "quote.sent": "Marked as sent",
    "quote.accepted": "Marked as won",
    "quote.lost": "Marked as lost",
    "quote.expired": "Expired",
    "quote.stale_noted": "Reminded the owner of this draft",
    "quote.card_replaced": "Posted the card again",
    "quote.card_moved": "Moved the card to a direct message",
    "access.refused": "Tried something that isn't allowed",
    "approval.requested": "Asked for approval",
    "approval.automatic": "Approved automatically, within policy",
    "approval.reused": "Covered by an earlier approval",
    "approval.slot_approved": "Approved, more approvers to go",
    "approval.approved": "Approved",
    "approval.rejected": "Rejected",
    "approval.changes_requested": "Requested changes",
    "approval.refused": "Tried to decide (declined)",
    "approval.duplicate_suppressed": "Asked for approval again, already waiting",
    "approval.reminded": "Reminded the approvers",
    "approval.escalated": "Asked more approvers",
    "approval.reassigned": "Asked other approvers",
    "approval.expired": "Approval request expired",
    "approval.invalidated": "Approval no longer applies",
    "reading.distrusted": "AI reading didn't match the message",
    "crm.conflict_found": "Found a difference in Salesforce",
    "crm.reconciled": "Settled a difference with Salesforce",
    "delegation.set": "Set cover",
    "delegation.ended": "Ended cover",
    "effect.replayed": "Retried a failed job",
    "effect.hastened": "Retried a job early",
    "effect.resolved": "Settled an unconfirmed job",
    "effect.cancelled": "Canceled a job",
    "effect.discarded": "Discarded a failed job",
    "operation.hastened": "Retried a command early",
    "operation.cancelled": "Canceled a command",
    "operation.discarded": "Discarded a failed command",
    "operation.replayed": "Retried a failed command",
    "operation.resubmitted": "Resubmitted a failed command",
    "system.error": "Error",
}
_DELIVERED: Final[Mapping[str, str]] = {
    effects.FILE: "Shared the PDF",
    effects.CRM: "Wrote to Salesforce",
    effects.UPDATE: "Updated Salesforce",
}
SHOWN: Final = frozenset(_EVENTS)  # the other events are internal steps, which the terminal shows


def is_shown(row: Row) -> bool:
    """Return whether the history shows an event."""
    return row["event_type"] in SHOWN or _delivered(row) is not None


def timeline(quote: Quote, rows: Sequence[Row], *, left_out: bool, operator: bool) -> str:
    """Return the history, oldest event first; `left_out` says that there are older events."""
    lines = [f"*{title(quote)}*"]
    day = ""
    for row in rows:
        at = datetime.fromtimestamp(row["at"] / 1000, UTC)
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            lines.append(f"*{at.day} {at:%b %Y}*")
        lines.append(f"• {_time(row['at'])} · {_words(row)} · {_who(str(row['actor']))}")
    if left_out:
        lines.append("Older events are left out.")
    if operator:
        lines.append(f"Full audit trail: `quotebot audit show {quote.quote_id}`")
    return "\n".join(lines)


def _words(row: Row) -> str:
    kind = row["event_type"]
    version = _facts(row).get("version") if kind == "quote.revised" else None
    return f"Revised to v{version}" if version else _delivered(row) or _EVENTS.get(kind, kind)


def _delivered(row: Row) -> str | None:
    """Return the words of a delivery that people care about; None for every other event."""
    return _DELIVERED.get(str(_facts(row).get("class"))) if row["event_type"] == "effect.delivered" else None


def _facts(row: Row) -> dict[str, object]:
    found = None if row["after"] is None else json.loads(row["after"])
    return found if isinstance(found, dict) else {}


def _who(actor: str) -> str:
    if actor == BOT:
        return "Quotebot"
    return messages.mention(actor) if _PERSON.fullmatch(actor) else messages.escape(clipped(actor, NAME_CHARACTERS_MAX))


def _time(unix_ms: int) -> str:
    """Return the time of day for mrkdwn, in the reader's zone."""
    return f"<!date^{unix_ms // 1000}^{{time}}|{datetime.fromtimestamp(unix_ms // 1000, UTC):%H:%M} UTC>"
