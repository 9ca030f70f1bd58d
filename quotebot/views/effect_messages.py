"""Messages about a quote's pending effects on external services. Text is Slack mrkdwn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Quote, title
from quotebot.views import messages

if TYPE_CHECKING:
    from ledger.records import Effect

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


def too_late(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the effect's current state."""
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} Your click changed nothing."


def not_yours(label: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a pending effect of the quote."""
    makers = messages.mentions(quote.authors)
    return f"{_DEEDS[label]} of {title(quote)} can be cancelled by {makers} or an operator. Nothing was changed."


def unknown(quote_id: str) -> str:
    """Reply to a click on an effect that this quote does not have."""
    return f"{messages.escape(quote_id)} owes nothing like that. Nothing was changed; refresh its card."


def standing(label: str, quote: Quote, effect: Effect, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of an effect. `remedy` is a terminal command for operators."""
    todo = "" if remedy is None else f"\nAn operator can do something about it: `{messages.escape(clipped(remedy, 200))}`"
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} You need not do anything.{todo}"


def _named(label: str, quote: Quote, effect: Effect) -> str:
    of_version = replace(quote, version=effect.payload.get("version", quote.version))  # the effect's version, possibly not the head
    return f"{_DEEDS[label]} of {title(of_version)}, ref {messages.escape(effect.correlation_id)}"
