"""Execution of operator actions on dead letters and effects, inside the executor's transaction.

The ledger performs the action and records the acting user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ledger.operator import actions, replay
from ledger.operator.actions import Verdict, Word, cancel_effect, retry_effect_now
from ledger.operator.dead_letters import parse_reference
from ledger.operator.explain import effect_facts, waiting
from ledger.operator.replay import Order, Replay
from ledger.records import Effect
from ledger.references import effect_row
from quotebot import __version__, effects
from quotebot.commands.operations import AnnounceDeadLetter, DiscardDeadLetter, RetryDeadLetter
from quotebot.domain.access import Sight, may_see
from quotebot.handlers import dead_letters as handlers
from quotebot.handlers import operator_actions
from quotebot.handlers.decision import foreign
from quotebot.handlers.quotes import root_key
from quotebot.store import dead_letters
from quotebot.store import quotes as store
from quotebot.views import effect_messages, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.commands.operations import ActOnEffect, LetterPayload
    from quotebot.domain.access import Viewer
    from quotebot.domain.dead_letters import DeadLetterCard
    from quotebot.domain.quotes.quote import Quote
    from quotebot.handlers.decision import Asked, Decision


@dataclass(frozen=True, slots=True)
class DeadLetterActions:
    """Execution of the dead-letter commands. `follow` decides the follow-ups (the quote's card), `operators` are Slack user ids."""

    ledger: Ledger
    follow: FollowUpDecision
    operators: tuple[str, ...]

    def decide(self, tx: Tx, asked: Asked, payload: LetterPayload, now: int) -> Decision:
        """Perform the action; if another operator was first, reply with their name and decision."""
        if isinstance(payload, AnnounceDeadLetter):
            inserted = dead_letters.insert(tx, payload.reference, payload.channel, root_key(asked.operation_key), now)
            return handlers.announced(payload.reference, payload.channel, has_card=not inserted)
        card = dead_letters.find(tx, payload.reference)
        if not handlers.may_operate(asked, self.operators):
            return handlers.not_operator(asked, payload.reference, card)
        if card is None:
            return handlers.unknown(asked, payload.reference)
        if isinstance(payload, RetryDeadLetter):
            return self._retry(tx, asked, payload, card, now)
        return self._discard(tx, asked, payload, card, now)

    def _retry(self, tx: Tx, asked: Asked, payload: RetryDeadLetter, card: DeadLetterCard, now: int) -> Decision:
        kind, row_id = parse_reference(payload.reference)
        order = Order(payload.reference, row_id, asked.actor, None, self.follow, __version__, now, now, payload.cycle)
        move = replay.replay_effect if kind == "effect" else replay.replay_operation
        result = move(self.ledger, tx, order)
        if result.outcome not in (Replay.QUEUED, Replay.SUPERSEDED):
            return handlers.came_late(asked, payload.reference, result.outcome.value, card)
        dead_letters.decide(tx, payload.reference, "retried", asked.actor, now, None)
        return handlers.done(payload.reference, card, "retried")

    def _discard(self, tx: Tx, asked: Asked, payload: DiscardDeadLetter, card: DeadLetterCard, now: int) -> Decision:
        kind, row_id = parse_reference(payload.reference)
        word = Word(payload.reference, row_id, asked.actor, payload.reason, self.follow, now, __version__, payload.cycle)
        move = actions.discard_effect if kind == "effect" else actions.discard_operation
        ruling = move(self.ledger, tx, word)
        if ruling.verdict is not Verdict.DONE:
            return handlers.came_late(asked, payload.reference, "no dead letter any more", card)
        dead_letters.decide(tx, payload.reference, "discarded", asked.actor, now, payload.reason)
        return handlers.done(payload.reference, card, "discarded")


Label = Literal["PDF", "CRM"]
LABELS: Final[Mapping[str, Label]] = {effects.RENDER: "PDF", effects.FILE: "PDF", effects.CRM: "CRM"}
REASON: Final = "A person cancelled it on the quote's card."


def standing(tx: Tx, quote_id: str, effect_id: int, viewer: Viewer, now: int, *, operator: bool) -> str:
    """Return what an effect of a quote waits for, as text. A quote that the viewer cannot see is answered like a missing one."""
    quote, effect = store.load(tx, quote_id), _effect_of_quote(tx, quote_id, effect_id)
    row = effect_row(tx, effect_id)
    if quote is not None and may_see(viewer, quote) is Sight.OUTLINE:
        return messages.outline(quote)
    if quote is None or may_see(viewer, quote) is not Sight.FULL or effect is None or row is None:
        return effect_messages.unknown(quote_id)
    found = waiting(effect_facts(tx, row, now))
    remedy = found.remedy if operator else None
    return effect_messages.standing(LABELS[effect.effect_class], quote, effect, found.sentence, remedy)


@dataclass(frozen=True, slots=True)
class EffectActions:
    """Execution of Retry and Cancel. `follow` decides the follow-ups (the quote's card), `operators` are Slack user ids."""

    ledger: Ledger
    follow: FollowUpDecision
    operators: tuple[str, ...]

    def decide(self, tx: Tx, asked: Asked, payload: ActOnEffect, quote: Quote, root: str) -> Decision:
        """Perform the action inside the executor's transaction, or refuse it with the reason."""
        if refusal := foreign(asked, quote):
            return refusal
        effect = _effect_of_quote(tx, quote.quote_id, payload.effect_id)
        if effect is None:
            return operator_actions.unknown(asked, quote)
        if payload.deed == "cancel":
            return self._cancel(tx, asked, payload, quote, effect, root)
        now, label = self.ledger.clock.now_ms(), LABELS[effect.effect_class]
        ruling = retry_effect_now(self.ledger, tx, effect.id, actor=asked.actor, now=now, cycle_seen=payload.cycle)
        if ruling.verdict is not Verdict.DONE:
            return operator_actions.too_late(asked, quote, effect, label, ruling.detail, root)
        return operator_actions.tried(asked, quote, effect, label, ruling.detail)

    def _cancel(self, tx: Tx, asked: Asked, payload: ActOnEffect, quote: Quote, effect: Effect, root: str) -> Decision:
        now, label = self.ledger.clock.now_ms(), LABELS[effect.effect_class]
        if not operator_actions.may_cancel(asked, quote, self.operators):
            return operator_actions.not_yours(asked, quote, label)
        if effect.cycle == payload.cycle and effect.state == "pending":
            cancel_effect(self.ledger, tx, effect.id, actor=asked.actor, reason=REASON, now=now, follow=self.follow)
            return operator_actions.cancelled(asked, quote, effect, label, root)
        row = effect_row(tx, effect.id)
        assert row is not None  # noqa: S101 -- read in this transaction
        return operator_actions.too_late(asked, quote, effect, label, waiting(effect_facts(tx, row, now)).sentence, root)


def _effect_of_quote(tx: Tx, quote_id: str, effect_id: int) -> Effect | None:
    """Return an effect that this quote's card shows or showed, or None."""
    row = effect_row(tx, effect_id)
    found = None if row is None else Effect.of(row)
    return found if found is not None and found.aggregate_id == quote_id and found.effect_class in LABELS else None
