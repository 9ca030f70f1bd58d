"""History of a quote as people read it: a line per event with time, words and person, grouped by day. Text is Slack mrkdwn."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from quotebot import effects
from quotebot.domain.language import N_, _, day_text
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
    "quote.created": N_("Created"),
    "quote.submitted": N_("Submitted"),
    "quote.revised": N_("Revised"),
    "quote.cancelled": N_("Canceled"),
    "quote.finalized": N_("Locked for sending"),
    "quote.sent": N_("Marked as sent"),
    "quote.accepted": N_("Marked as won"),
    "quote.lost": N_("Marked as lost"),
    "quote.expired": N_("Expired"),
    "quote.stale_noted": N_("Reminded the owner of this draft"),
    "quote.card_replaced": N_("Posted the card again"),
    "quote.card_moved": N_("Moved the card to a direct message"),
    "access.refused": N_("Tried something that isn't allowed"),
    "approval.requested": N_("Asked for approval"),
    "approval.automatic": N_("Approved automatically, within policy"),
    "approval.reused": N_("Covered by an earlier approval"),
    "approval.slot_approved": N_("Approved, more approvers to go"),
    "approval.approved": N_("Approved"),
    "approval.rejected": N_("Rejected"),
    "approval.changes_requested": N_("Requested changes"),
    "approval.refused": N_("Tried to decide (declined)"),
    "approval.duplicate_suppressed": N_("Asked for approval again, already waiting"),
    "approval.reminded": N_("Reminded the approvers"),
    "approval.escalated": N_("Asked more approvers"),
    "approval.reassigned": N_("Asked other approvers"),
    "approval.expired": N_("Approval request expired"),
    "approval.invalidated": N_("Approval no longer applies"),
    "reading.distrusted": N_("AI reading didn't match the message"),
    "crm.conflict_found": N_("Found a difference in Salesforce"),
    "crm.reconciled": N_("Settled a difference with Salesforce"),
    "delegation.set": N_("Set cover"),
    "delegation.ended": N_("Ended cover"),
    "effect.replayed": N_("Retried a failed job"),
    "effect.hastened": N_("Retried a job early"),
    "effect.resolved": N_("Settled an unconfirmed job"),
    "effect.cancelled": N_("Canceled a job"),
    "effect.discarded": N_("Discarded a failed job"),
    "operation.hastened": N_("Retried a command early"),
    "operation.cancelled": N_("Canceled a command"),
    "operation.discarded": N_("Discarded a failed command"),
    "operation.replayed": N_("Retried a failed command"),
    "operation.resubmitted": N_("Resubmitted a failed command"),
    "system.error": N_("Error"),
}
_DELIVERED: Final[Mapping[str, str]] = {
    effects.FILE: N_("Shared the PDF"),
    effects.CRM: N_("Wrote to Salesforce"),
    effects.UPDATE: N_("Updated Salesforce"),
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
            lines.append(f"*{day_text(at)}*")
        lines.append(f"• {_time(row['at'])} · {_words(row)} · {_who(str(row['actor']))}")
    if left_out:
        lines.append(_("Older events are left out."))
    if operator:
        lines.append(_("Full audit trail: `quotebot audit show {quote}`", quote=quote.quote_id))
    return "\n".join(lines)


def _words(row: Row) -> str:
    kind = row["event_type"]
    version = _facts(row).get("version") if kind == "quote.revised" else None
    if version:
        return _("Revised to v{version}", version=version)
    return _(_delivered(row) or _EVENTS.get(kind, kind))


def _delivered(row: Row) -> str | None:
    """Return the English words of a delivery that people care about; None for every other event."""
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
