"""Carries out what people decide about something that a quote still owes, in the executor's transaction; says how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ledger.cancelling import cancel_effect
from ledger.hastening import hasten_effect
from ledger.records import Effect
from ledger.references import effect_row
from ledger.resolution import Verdict
from ledger.waiting import effect_facts, waiting
from quotebot import effects, owed_words, words
from quotebot.domain.access import Sight, may_see
from quotebot.handlers import steering
from quotebot.handlers.quotes import foreign
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes import Quote
    from quotebot.handlers.quotes import Asked, Decision
    from quotebot.owed_commands import SteerEffect

Label = Literal["PDF", "CRM"]
LABELS: Final[Mapping[str, Label]] = {effects.RENDER: "PDF", effects.FILE: "PDF", effects.CRM: "CRM"}
REASON: Final = "A person cancelled it on the quote's card."


def standing(tx: Tx, quote_id: str, effect_id: int, viewer: Viewer, now: int, *, operator: bool) -> str:
    """Say what an effect of a quote waits for; a quote out of sight is answered like one that does not exist."""
    quote, effect = store.load(tx, quote_id), _owed_by(tx, quote_id, effect_id)
    row = effect_row(tx, effect_id)
    if quote is not None and may_see(viewer, quote) is Sight.OUTLINE:
        return words.outline(quote)
    if quote is None or may_see(viewer, quote) is not Sight.FULL or effect is None or row is None:
        return owed_words.unknown(quote_id)
    found = waiting(effect_facts(tx, row, now))
    remedy = found.remedy if operator else None
    return owed_words.standing(LABELS[effect.effect_class], quote, effect, found.sentence, remedy)


@dataclass(frozen=True, slots=True)
class Steering:
    """Carries out Retry and Cancel: `follow` decides what else is owed (the card), `operators` are Slack user ids."""

    ledger: Ledger
    follow: FollowUpDecision
    operators: tuple[str, ...]

    def decide(self, tx: Tx, asked: Asked, payload: SteerEffect, quote: Quote, root: str) -> Decision:
        """Do it inside the executor's transaction, or say what stands in the way."""
        if refusal := foreign(asked, quote):
            return refusal
        effect = _owed_by(tx, quote.quote_id, payload.effect_id)
        if effect is None:
            return steering.unknown(asked, quote)
        if payload.deed == "cancel":
            return self._cancel(tx, asked, payload, quote, effect, root)
        now, label = self.ledger.clock.now_ms(), LABELS[effect.effect_class]
        ruling = hasten_effect(self.ledger, tx, effect.id, actor=asked.actor, now=now, cycle_seen=payload.cycle)
        if ruling.verdict is not Verdict.DONE:
            return steering.too_late(asked, quote, effect, label, ruling.detail, root)
        return steering.tried(asked, quote, effect, label, ruling.detail)

    def _cancel(self, tx: Tx, asked: Asked, payload: SteerEffect, quote: Quote, effect: Effect, root: str) -> Decision:
        now, label = self.ledger.clock.now_ms(), LABELS[effect.effect_class]
        if not steering.may_cancel(asked, quote, self.operators):
            return steering.not_yours(asked, quote, label)
        if effect.cycle == payload.cycle and effect.state == "pending":
            cancel_effect(self.ledger, tx, effect.id, actor=asked.actor, reason=REASON, now=now, follow=self.follow)
            return steering.cancelled(asked, quote, effect, label, root)
        row = effect_row(tx, effect.id)
        assert row is not None  # noqa: S101 -- read in this very transaction
        return steering.too_late(asked, quote, effect, label, waiting(effect_facts(tx, row, now)).sentence, root)


def _owed_by(tx: Tx, quote_id: str, effect_id: int) -> Effect | None:
    """Return an effect that this quote's card shows or showed, or None."""
    row = effect_row(tx, effect_id)
    found = None if row is None else Effect.of(row)
    return found if found is not None and found.aggregate_id == quote_id and found.effect_class in LABELS else None
