"""What a press on Retry or Cancel comes to, given what the ledger did about the effect. Pure.

Everybody of the quote's workspace may have something tried at once: it changes nothing but the time. Only who made the quote, or an
operator, may say that it is not to be done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot import effects
from quotebot.handlers.decision import Asked, Decision, refused
from quotebot.views import effect_messages

if TYPE_CHECKING:
    from ledger.records import Effect
    from quotebot.domain.quotes.quote import Quote


def may_cancel(asked: Asked, quote: Quote, operators: tuple[str, ...]) -> bool:
    """Tell whether somebody may say that something this quote owes is not to be done."""
    return asked.actor in quote.authors or asked.actor in operators


def tried(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str) -> Decision:
    """Answer who had it tried; the card follows when the try has ended."""
    text = effect_messages.tried(label, quote, effect, sentence)
    answer = effects.reply(quote.quote_id, asked.actor, quote.channel, text, asked.received_at)
    return Decision("applied", _response("retried", quote, text), None, (answer,))


def cancelled(asked: Asked, quote: Quote, effect: Effect, label: str, root: str) -> Decision:
    """Say in the thread that it will not be done; the card follows from the effect itself."""
    text = effect_messages.cancelled(label, quote, effect, asked.actor)
    return Decision("applied", _response("cancelled", quote, text), None, (effects.notice(quote.quote_id, root, text),))


def too_late(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str, root: str) -> Decision:
    """Tell who pressed what is the case now, and show it on the card."""
    refusal = refused(asked, quote.quote_id, quote.channel, "too_late", effect_messages.too_late(label, quote, effect, sentence))
    return Decision(refusal.kind, refusal.response, None, (*refusal.effects, effects.card(quote.quote_id, root)))


def not_yours(asked: Asked, quote: Quote, label: str) -> Decision:
    """Refuse somebody who did not make the quote."""
    return refused(asked, quote.quote_id, quote.channel, "not_yours", effect_messages.not_yours(label, quote))


def unknown(asked: Asked, quote: Quote) -> Decision:
    """Answer when this quote owes no such thing."""
    return refused(asked, quote.quote_id, quote.channel, "unknown_effect", effect_messages.unknown(quote.quote_id))


def _response(code: str, quote: Quote, text: str) -> dict[str, object]:
    return {"code": code, "quote_id": quote.quote_id, "text": text}
