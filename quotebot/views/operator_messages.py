"""Messages to operators about dead letters, and the notice in a quote's thread after a successful retry. Slack mrkdwn."""

from __future__ import annotations

from quotebot.domain.quotes.quote import Quote, title, utc_text
from quotebot.views import messages


def decided(decision: str, decided_by: str, decided_at: int) -> str:
    """Return "retried by @operator on 21 Nov 2026 10:31 UTC"."""
    return f"{decision} by {messages.mention(decided_by)} on {utc_text(decided_at)}"


def queued(reference: str) -> str:
    """Reply to a retry that took effect."""
    return f"Dead letter {reference} is on its way again, under the same key: what is there already is not done again."


def discarded(reference: str) -> str:
    """Reply to a discard that took effect."""
    return f"Dead letter {reference} is discarded. It will not be done."


def too_late(reference: str, standing: str, earlier: str | None) -> str:
    """Reply to the later of two operators: `earlier` is the first one's action and time, `standing` the current state."""
    who = f"it was {earlier}" if earlier else f"it is {standing}"
    return f"Dead letter {reference}: {who}. Your click changed nothing."


# Refuse a user who may not act on dead letters.
NOT_OPERATOR = "Only operators work dead letters (QUOTEBOT_OPERATORS names them). Nothing was changed."


def unknown(reference: str) -> str:
    """Reply if the dead letter no longer exists."""
    return f"There is no dead letter {messages.escape(reference)} any more. Nothing was changed."


# Error under the reason field of the discard form.
REASON_NEEDED = "Say in one sentence why, for the audit (at most 500 characters)."


def announced(reference: str) -> str:
    """Result of the bot's own command; it is stored with the command and never posted."""
    return f"The card of dead letter {reference} follows in the operators' channel."


def recovered(label: str, quote: Quote, ref: str) -> str:
    """Notice in the quote's thread: an effect that had failed permanently succeeded after a retry."""
    return f"✅ {label} for {title(quote)}, ref {ref}, came true after all: it was repeated. Nothing is missing now."
