"""Handlers of the Retry and Cancel buttons, given the result of the ledger's action on the effect. Pure.

Every user of the quote's workspace may retry at once: that changes only the time. Only the quote's authors or an operator may
cancel an effect.
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
    """Return true if the user may cancel a pending effect of this quote."""
    return asked.actor in quote.authors or asked.actor in operators


def tried(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str) -> Decision:
    """Reply to the user who retried; the card is redrawn after the attempt."""
    text = effect_messages.tried(label, quote, effect, sentence)
    answer = effects.reply(quote.quote_id, asked.actor, quote.channel, text, asked.received_at)
    return Decision("applied", _response("retried", quote, text), None, (answer,))


def cancelled(asked: Asked, quote: Quote, effect: Effect, label: str, root: str) -> Decision:
    """Post in the thread that the effect is cancelled; the card follows from the effect itself."""
    text = effect_messages.cancelled(label, quote, effect, asked.actor)
    return Decision("applied", _response("cancelled", quote, text), None, (effects.notice(quote.quote_id, root, text),))


def too_late(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str, root: str) -> Decision:
    """Reply to the user who pressed the button with the current state, and redraw the card."""
    refusal = refused(asked, quote.quote_id, quote.channel, "too_late", effect_messages.too_late(label, quote, effect, sentence))
    return Decision(refusal.kind, refusal.response, None, (*refusal.effects, effects.card(quote.quote_id, root)))


def not_yours(asked: Asked, quote: Quote, label: str) -> Decision:
    """Refuse a user who is neither an author of the quote nor an operator."""
    return refused(asked, quote.quote_id, quote.channel, "not_yours", effect_messages.not_yours(label, quote))


def unknown(asked: Asked, quote: Quote) -> Decision:
    """Reply that this quote has no such effect."""
    return refused(asked, quote.quote_id, quote.channel, "unknown_effect", effect_messages.unknown(quote.quote_id))


def _response(code: str, quote: Quote, text: str) -> dict[str, object]:
    return {"code": code, "quote_id": quote.quote_id, "text": text}
