"""Handlers of the commands about dead letters, given the result of the ledger's action. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from quotebot import effects
from quotebot.handlers.decision import Asked, Decision
from quotebot.views import operator_messages

if TYPE_CHECKING:
    from ledger.records import EffectIntent
    from quotebot.store.dead_letters import DeadLetterCard


def done(reference: str, card: DeadLetterCard, deed: Literal["retried", "discarded"]) -> Decision:
    """Reply with the completed action; the card shows who did it."""
    text = operator_messages.queued(reference) if deed == "retried" else operator_messages.discarded(reference)
    return Decision("applied", _response(deed, text), None, (_drawn(card),))


def came_late(asked: Asked, reference: str, standing: str, card: DeadLetterCard | None) -> Decision:
    """Reply to the later of two operators with the first one's decision, and redraw the card."""
    earlier = None
    if card is not None and card.decision is not None and card.decided_by is not None and card.decided_at is not None:
        earlier = operator_messages.decided(card.decision, card.decided_by, card.decided_at)
    return _refused(asked, reference, "too_late", operator_messages.too_late(reference, standing, earlier), card)


def not_operator(asked: Asked, reference: str, card: DeadLetterCard | None) -> Decision:
    """Refuse a user who is no operator."""
    return _refused(asked, reference, "not_operator", operator_messages.NOT_OPERATOR, card)


def unknown(asked: Asked, reference: str) -> Decision:
    """Reply that the dead letter no longer exists."""
    return _refused(asked, reference, "unknown_letter", operator_messages.unknown(reference), None)


def announced(reference: str, channel: str, *, has_card: bool) -> Decision:
    """Enqueue the card of a dead letter, unless it has one."""
    owed = () if has_card else (effects.post_dead_letter(reference, channel),)
    return Decision("applied", _response("announced", operator_messages.announced(reference)), None, owed)


def _refused(asked: Asked, reference: str, code: str, text: str, card: DeadLetterCard | None) -> Decision:
    channel = None if card is None else card.channel
    answer = effects.reply(effects.dead_letter_target(reference), asked.actor, channel, text, asked.received_at)
    return Decision("refused", _response(code, text), None, (answer, *(() if card is None else (_drawn(card),))))


def _drawn(card: DeadLetterCard) -> EffectIntent:
    return effects.update_dead_letter(card.reference, card.post_key)


def _response(code: str, text: str) -> dict[str, Any]:
    return {"code": code, "quote_id": None, "text": text}
