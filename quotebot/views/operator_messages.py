"""What the bot says to operators about dead letters, and in a quote's thread when one came true after all. Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.domain.quotes.quote import title, utc_text
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote


def decided(decision: str, decided_by: str, decided_at: int) -> str:
    """Return "retried by @operator on 21 Nov 2026 10:31 UTC"."""
    return f"{decision} by {messages.mention(decided_by)} on {utc_text(decided_at)}"


def queued(reference: str) -> str:
    """Answer to a retry that was carried out."""
    return f"Dead letter {reference} is on its way again, under the same key: what is there already is not done again."


def discarded(reference: str) -> str:
    """Answer to a discard that was carried out."""
    return f"Dead letter {reference} is discarded. It will not be done."


def too_late(reference: str, standing: str, earlier: str | None) -> str:
    """Answer to the second of two operators: `earlier` says who did what when, `standing` what it is now."""
    who = f"it was {earlier}" if earlier else f"it is {standing}"
    return f"Dead letter {reference}: {who}. Your click changed nothing."


def not_operator() -> str:
    """Refuse somebody who may not work dead letters."""
    return "Only operators work dead letters (QUOTEBOT_OPERATORS names them). Nothing was changed."


def unknown(reference: str) -> str:
    """Answer when there is no such dead letter any more."""
    return f"There is no dead letter {messages.escape(reference)} any more. Nothing was changed."


def reason_needed() -> str:
    """Error under the reason field of the discard form."""
    return "Say in one sentence why, for the audit (at most 500 characters)."


def announced(reference: str) -> str:
    """Answer of the bot to itself: kept with the command, said to nobody."""
    return f"The card of dead letter {reference} follows in the operators' channel."


def recovered(label: str, quote: Quote, ref: str) -> str:
    """Tell, in the quote's thread, that what "failed for good" came true after all."""
    return f"✅ {label} for {title(quote)}, ref {ref}, came true after all: it was repeated. Nothing is missing now."
