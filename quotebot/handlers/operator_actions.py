"""Handlers of operator actions on effects and dead letters, given the result of the ledger's action. Pure.

Every user of the quote's workspace may retry at once: that changes only the time. Only the quote's authors or an operator may
cancel an effect; of a command, also its author.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from quotebot import effects
from quotebot.domain.language import _
from quotebot.handlers.decision import Asked, Decision, refused
from quotebot.views import messages, operator_messages

if TYPE_CHECKING:
    from ledger.records import Effect, EffectIntent, Operation
    from quotebot.commands.payloads import ActOnCommand
    from quotebot.domain.quotes.quote import Quote
    from quotebot.store.dead_letters import DeadLetterCard, OpsCard


def tried(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str) -> Decision:
    """Reply to the user who retried; the card is redrawn after the attempt."""
    text = operator_messages.tried(label, quote, effect, sentence)
    answer = effects.reply(quote.quote_id, asked.actor, quote.channel, text, asked.received_at)
    return Decision("applied", _response("retried", text, quote.quote_id), None, (answer,))


def cancelled(asked: Asked, quote: Quote, effect: Effect, label: str, root: str) -> Decision:
    """Post in the thread that the effect is cancelled; the card follows from the effect itself."""
    text = operator_messages.cancelled(label, quote, effect, asked.actor)
    return Decision("applied", _response("cancelled", text, quote.quote_id), None, (effects.notice(quote.quote_id, root, text),))


def too_late(asked: Asked, quote: Quote, effect: Effect, label: str, sentence: str, root: str) -> Decision:
    """Reply to the user who pressed the button with the current state, and redraw the card."""
    refusal = refused(
        asked, quote.quote_id, quote.channel, "too_late", operator_messages.effect_too_late(label, quote, effect, sentence)
    )
    return Decision(refusal.kind, refusal.response, None, (*refusal.effects, effects.card(quote.quote_id, root)))


def not_yours(asked: Asked, quote: Quote, label: str) -> Decision:
    """Refuse a user who is neither an author of the quote nor an operator."""
    return refused(asked, quote.quote_id, quote.channel, "not_yours", operator_messages.not_yours(label, quote))


def unknown(asked: Asked, quote: Quote) -> Decision:
    """Reply that this quote has no such effect."""
    return refused(asked, quote.quote_id, quote.channel, "unknown_effect", operator_messages.unknown_effect(quote.quote_id))


def command_tried(asked: Asked, payload: ActOnCommand, quote: Quote, command: Operation, sentence: str) -> Decision:
    """Reply to the user who retried a command; the card is redrawn when the command ends."""
    text = operator_messages.command_tried(messages.command_name(command.action_kind), command.correlation_id, sentence)
    answer = effects.reply(payload.aggregate_id, asked.actor, quote.channel, text, asked.received_at)
    return Decision("applied", _response("retried", text, quote.quote_id), None, (answer,))


def command_cancelled(asked: Asked, payload: ActOnCommand, quote: Quote, command: Operation, root: str) -> Decision:
    """Reply to the user who cancelled a command, and redraw the card without it."""
    text = operator_messages.command_cancelled(messages.command_name(command.action_kind), command.correlation_id)
    answer = effects.reply(payload.aggregate_id, asked.actor, quote.channel, text, asked.received_at)
    card = effects.card(quote.quote_id, root)
    return Decision("applied", _response("cancelled", text, quote.quote_id), None, (answer, card))


def author_notified(asked: Asked, quote: Quote, command: Operation, text: str) -> tuple[EffectIntent, ...]:
    """Return the reply to the author of a cancelled command, unless they cancelled it themselves."""
    if command.actor == asked.actor or command.actor_type == "system":
        return ()
    return (effects.reply(quote.quote_id, command.actor, quote.channel, text, asked.received_at),)


def command_too_late(asked: Asked, payload: ActOnCommand, quote: Quote, command: Operation, sentence: str, root: str) -> Decision:
    """Reply to the user who pressed the button with the command's current state, and redraw the card."""
    text = operator_messages.command_too_late(messages.command_name(command.action_kind), command.correlation_id, sentence)
    refusal = refused(asked, payload.aggregate_id, quote.channel, "too_late", text)
    return Decision(refusal.kind, refusal.response, None, (*refusal.effects, effects.card(quote.quote_id, root)))


def command_not_yours(asked: Asked, payload: ActOnCommand, quote: Quote, command: Operation) -> Decision:
    """Refuse a user who is neither the command's author, nor an author of the quote, nor an operator."""
    text = operator_messages.command_not_yours(messages.command_name(command.action_kind), command.actor, quote)
    return refused(asked, payload.aggregate_id, quote.channel, "not_yours", text)


def unknown_command(asked: Asked, payload: ActOnCommand) -> Decision:
    """Reply that there is no such command about a quote that the user sees."""
    return refused(asked, payload.aggregate_id, None, "unknown_command", operator_messages.unknown_command(payload.quote_id))


def done(reference: str, card: DeadLetterCard, deed: Literal["retried", "discarded"]) -> Decision:
    """Reply with the completed action; the card shows who did it."""
    text = operator_messages.queued(reference) if deed == "retried" else operator_messages.discarded(reference)
    return Decision("applied", _response(deed, text), None, (_drawn(card),))


def resubmitted(card: DeadLetterCard, text: str) -> Decision:
    """Reply with the command that replaces a dead one; the card shows who edited it."""
    return Decision("applied", _response("resubmitted", text), None, (_drawn(card),))


def not_editable(asked: Asked, reference: str, card: DeadLetterCard) -> Decision:
    """Refuse to edit an effect, a decision, a command of the bot itself, or a payload that cannot be read."""
    return _dead_letter_refused(asked, reference, "not_editable", operator_messages.not_editable(reference), card)


def came_late(asked: Asked, reference: str, standing: str, card: DeadLetterCard | None) -> Decision:
    """Reply to the later of two operators with the first one's decision, and redraw the card."""
    earlier = None
    if card is not None and card.decision is not None and card.decided_by is not None and card.decided_at is not None:
        earlier = operator_messages.decided(card.decision, card.decided_by, card.decided_at)
    return _dead_letter_refused(asked, reference, "too_late", operator_messages.too_late(reference, standing, earlier), card)


def not_operator(asked: Asked, reference: str, card: DeadLetterCard | None) -> Decision:
    """Refuse a user who is no operator."""
    return _dead_letter_refused(asked, reference, "not_operator", _(operator_messages.NOT_OPERATOR), card)


def unknown_dead_letter(asked: Asked, reference: str) -> Decision:
    """Reply that the dead letter no longer exists."""
    return _dead_letter_refused(asked, reference, "unknown_letter", operator_messages.unknown(reference), None)


def announced(reference: str, channel: str, *, has_card: bool, earlier: DeadLetterCard | None) -> Decision:
    """Enqueue the card of a dead letter, unless it has one. A later cycle gets a new one, and the `earlier` one points to it."""
    posted = () if has_card else (effects.post_dead_letter(reference, channel), *_pointer(earlier))
    return Decision("applied", _response("announced", operator_messages.announced(reference)), None, posted)


def ops_card_posted(subject: str, channel: str, earlier: OpsCard | None) -> Decision:
    """Enqueue a new card of a subject; the `earlier` one, if it is still open, points to it."""
    posted = (effects.post_ops_card(subject, channel), *_pointer(earlier))
    return Decision("applied", _response("posted", operator_messages.OPS_CARD_FOLLOWS), None, posted)


def ops_card_redrawn(card: OpsCard | None) -> Decision:
    """Enqueue the current state of a card; nothing for a subject that was over before it had one."""
    redrawn = () if card is None else (effects.update_ops_card(card.subject, card.awaited),)
    return Decision("applied", _response("redrawn", operator_messages.OPS_CARD_FOLLOWS), None, redrawn)


def replayed_all(card: OpsCard, count: int) -> Decision:
    """Reply with the number of dead letters that are queued again, and redraw the card of their cause."""
    return Decision(
        "applied",
        _response("retried", operator_messages.replayed_all(count)),
        None,
        (effects.update_ops_card(card.subject, card.awaited),),
    )


def cause_refused(asked: Asked, cause: str, card: OpsCard | None, *, operator: bool) -> Decision:
    """Refuse a user who is no operator, or a cause that no card shows."""
    text = operator_messages.unknown_cause(cause) if operator else _(operator_messages.NOT_OPERATOR)
    channel = None if card is None else card.channel
    answer = effects.reply(effects.ops_target(f"cause:{cause}"), asked.actor, channel, text, asked.received_at)
    return Decision("refused", _response("unknown_cause" if operator else "not_operator", text), None, (answer,))


def _pointer(earlier: DeadLetterCard | OpsCard | None) -> tuple[EffectIntent, ...]:
    """Return the update of an older message, which then points to the newer one."""
    if earlier is None or earlier.ts is None:
        return ()
    target = effects.ops_target(f"{earlier.channel}/{earlier.ts}")
    return (effects.close_ops_message(target, earlier.channel, earlier.ts),)


def _dead_letter_refused(asked: Asked, reference: str, code: str, text: str, card: DeadLetterCard | None) -> Decision:
    channel = None if card is None else card.channel
    answer = effects.reply(effects.dead_letter_target(reference), asked.actor, channel, text, asked.received_at)
    return Decision("refused", _response(code, text), None, (answer, *(() if card is None else (_drawn(card),))))


def _drawn(card: DeadLetterCard) -> EffectIntent:
    return effects.update_dead_letter(card.reference, card.awaited)


def _response(code: str, text: str, quote_id: str | None = None) -> dict[str, Any]:
    return {"code": code, "quote_id": quote_id, "text": text}
