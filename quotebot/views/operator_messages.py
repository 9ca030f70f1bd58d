"""Messages about dead letters, and about a quote's pending effects on external services. Text is Slack mrkdwn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Quote, title, utc_text
from quotebot.views import messages

if TYPE_CHECKING:
    from ledger.records import Effect


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


SENTENCE_CHARACTERS_MAX: Final = 500
_DEEDS: Final = {"PDF": "The PDF", "CRM": "The write to Salesforce"}


def tried(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a Retry that took effect."""
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} The card shows what comes of it."


def cancelled(label: str, quote: Quote, effect: Effect, by: str) -> str:
    """Notice in the thread: the effect is cancelled, and a revision of the quote enqueues it again."""
    unsure = " An earlier try may have reached the other side all the same." if effect.maybe_sent else ""
    after_all = "Who wants it after all revises the quote: what is approved next owes it anew"
    return (
        f"🚫 {_named(label, quote, effect)}, was cancelled by {messages.mention(by)}: it will not be done.{unsure} "
        f"The quote is as it was. {after_all}."
    )


def effect_too_late(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the effect's current state."""
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} Your click changed nothing."


def not_yours(label: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a pending effect of the quote."""
    makers = messages.mentions(quote.authors)
    return f"{_DEEDS[label]} of {title(quote)} can be cancelled by {makers} or an operator. Nothing was changed."


def unknown_effect(quote_id: str) -> str:
    """Reply to a click on an effect that this quote does not have."""
    return f"{messages.escape(quote_id)} owes nothing like that. Nothing was changed; refresh its card."


def standing(label: str, quote: Quote, effect: Effect, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of an effect. `remedy` is a terminal command for operators."""
    todo = "" if remedy is None else f"\nAn operator can do something about it: `{messages.escape(clipped(remedy, 200))}`"
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} You need not do anything.{todo}"


def _named(label: str, quote: Quote, effect: Effect) -> str:
    of_version = replace(quote, version=effect.payload.get("version", quote.version))  # the effect's version, possibly not the head
    return f"{_DEEDS[label]} of {title(of_version)}, ref {messages.escape(effect.correlation_id)}"
