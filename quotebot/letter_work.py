"""Carries out the commands about dead letters inside the executor's transaction: the ledger's own moves, and who made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger import replay, resolution
from ledger.dead_letters import parse_reference
from ledger.replay import Order, Replay
from ledger.resolution import Verdict, Word
from quotebot import __version__
from quotebot.handlers import letters as handlers
from quotebot.handlers.quotes import root_key
from quotebot.store import letters as store
from quotebot.surface_commands import AnnounceLetter, DiscardLetter, RetryLetter

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.domain.letters import LetterCard
    from quotebot.handlers.quotes import Asked, Decision
    from quotebot.surface_commands import LetterPayload


@dataclass(frozen=True, slots=True)
class LetterWork:
    """What it takes to work dead letters: `follow` decides what else is owed (the quote's card), `operators` are Slack user ids."""

    ledger: Ledger
    follow: FollowUpDecision
    operators: tuple[str, ...]

    def decide(self, tx: Tx, asked: Asked, payload: LetterPayload, now: int) -> Decision:
        """Do it, or say who was first."""
        if isinstance(payload, AnnounceLetter):
            inserted = store.insert(tx, payload.reference, payload.channel, root_key(asked.operation_key), now)
            return handlers.announced(payload.reference, payload.channel, has_card=not inserted)
        card = store.find(tx, payload.reference)
        if not handlers.may_operate(asked, self.operators):
            return handlers.not_operator(asked, payload.reference, card)
        if card is None:
            return handlers.unknown(asked, payload.reference)
        if isinstance(payload, RetryLetter):
            return self._retry(tx, asked, payload, card, now)
        return self._discard(tx, asked, payload, card, now)

    def _retry(self, tx: Tx, asked: Asked, payload: RetryLetter, card: LetterCard, now: int) -> Decision:
        kind, row_id = parse_reference(payload.reference)
        order = Order(payload.reference, row_id, asked.actor, None, self.follow, __version__, now, now, payload.cycle)
        move = replay.replay_effect if kind == "effect" else replay.replay_operation
        result = move(self.ledger, tx, order)
        if result.outcome not in (Replay.QUEUED, Replay.SUPERSEDED):
            return handlers.came_late(asked, payload.reference, result.outcome.value, card)
        store.decide(tx, payload.reference, "retried", asked.actor, now, None)
        return handlers.done(payload.reference, card, "retried")

    def _discard(self, tx: Tx, asked: Asked, payload: DiscardLetter, card: LetterCard, now: int) -> Decision:
        kind, row_id = parse_reference(payload.reference)
        word = Word(payload.reference, row_id, asked.actor, payload.reason, self.follow, now, __version__, payload.cycle)
        move = resolution.discard_effect if kind == "effect" else resolution.discard_operation
        ruling = move(self.ledger, tx, word)
        if ruling.verdict is not Verdict.DONE:
            return handlers.came_late(asked, payload.reference, "no dead letter any more", card)
        store.decide(tx, payload.reference, "discarded", asked.actor, now, payload.reason)
        return handlers.done(payload.reference, card, "discarded")
