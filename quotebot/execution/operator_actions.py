"""Execution of operator actions on dead letters and effects, inside the executor's transaction.

The ledger performs the action and records the acting user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ledger.operator import actions, replay
from ledger.operator.actions import Verdict, cancel_effect, retry_effect_now
from ledger.operator.dead_letters import parse_reference
from ledger.operator.explain import effect_facts, waiting
from ledger.operator.replay import Order, Replay
from ledger.operator.trace import row_of
from ledger.records import Effect
from quotebot import __version__, effects
from quotebot.domain.access import Sight, may_see
from quotebot.handlers import operator_actions
from quotebot.handlers.decision import Decision, foreign
from quotebot.handlers.quotes import root_key
from quotebot.store import dead_letters
from quotebot.store import quotes as store
from quotebot.views import messages, operator_messages, waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Tx
    from quotebot.commands.payloads import ActOnEffect, AnnounceDeadLetter, DiscardDeadLetter, RetryDeadLetter
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.execution.run import Run
    from quotebot.store.dead_letters import DeadLetterCard


def announce_dead_letter(run: Run, payload: AnnounceDeadLetter) -> Decision:
    """Enqueue the card of a dead letter in the operators' channel, once."""
    root = root_key(run.asked.operation_key)
    inserted = dead_letters.insert(run.tx, payload.reference, payload.channel, root, run.now)
    return operator_actions.announced(payload.reference, payload.channel, has_card=not inserted)


def retry_dead_letter(run: Run, payload: RetryDeadLetter) -> Decision:
    """Replay a dead letter for an operator, or name the operator who decided first."""
    card = _operated(run, payload.reference)
    if isinstance(card, Decision):
        return card
    kind, row_id = parse_reference(payload.reference)
    order = Order(payload.reference, kind, row_id, run.asked.actor, None, run.follow, __version__, run.now, payload.cycle)
    result = replay.replay(run.ledger, run.tx, order)
    if result.outcome not in (Replay.QUEUED, Replay.SUPERSEDED):
        return operator_actions.came_late(run.asked, payload.reference, result.outcome.value, card)
    dead_letters.decide(run.tx, payload.reference, "retried", run.asked.actor, run.now, None)
    return operator_actions.done(payload.reference, card, "retried")


def discard_dead_letter(run: Run, payload: DiscardDeadLetter) -> Decision:
    """Discard a dead letter for an operator, or name the operator who decided first."""
    card = _operated(run, payload.reference)
    if isinstance(card, Decision):
        return card
    kind, row_id = parse_reference(payload.reference)
    order = Order(payload.reference, kind, row_id, run.asked.actor, payload.reason, run.follow, __version__, run.now, payload.cycle)
    ruling = actions.discard(run.ledger, run.tx, order)
    if ruling.verdict is not Verdict.DONE:
        return operator_actions.came_late(run.asked, payload.reference, "no dead letter any more", card)
    dead_letters.decide(run.tx, payload.reference, "discarded", run.asked.actor, run.now, payload.reason)
    return operator_actions.done(payload.reference, card, "discarded")


def _operated(run: Run, reference: str) -> DeadLetterCard | Decision:
    """Return the card of a dead letter, or the refusal of a person who is no operator."""
    card = dead_letters.find(run.tx, reference)
    if run.asked.actor not in run.rules.operators:
        return operator_actions.not_operator(run.asked, reference, card)
    return operator_actions.unknown_dead_letter(run.asked, reference) if card is None else card


Label = Literal["PDF", "CRM"]
LABELS: Final[Mapping[str, Label]] = {effects.RENDER: "PDF", effects.FILE: "PDF", effects.CRM: "CRM"}
REASON: Final = "A person cancelled it on the quote's card."


def standing(tx: Tx, quote_id: str, effect_id: int, viewer: Viewer, now: int, *, operator: bool) -> str:
    """Return what an effect of a quote waits for, as text. A quote that the viewer cannot see is answered like a missing one."""
    quote, effect = store.load(tx, quote_id), _effect_of_quote(tx, quote_id, effect_id)
    row = row_of(tx, "effect", effect_id)
    if quote is not None and may_see(viewer, quote) is Sight.OUTLINE:
        return messages.outline(quote)
    if quote is None or may_see(viewer, quote) is not Sight.FULL or effect is None or row is None:
        return operator_messages.unknown_effect(quote_id)
    sentence, remedy = waits.explain(waiting(effect_facts(tx, row, now)))
    return operator_messages.standing(LABELS[effect.effect_class], quote, effect, sentence, remedy if operator else None)


def act_on_effect(run: Run, payload: ActOnEffect, quote: Quote, root: str) -> Decision:
    """Retry an effect at once or cancel it, or refuse that with the reason."""
    if refusal := foreign(run.asked, quote):
        return refusal
    effect = _effect_of_quote(run.tx, quote.quote_id, payload.effect_id)
    if effect is None:
        return operator_actions.unknown(run.asked, quote)
    return (_retry if payload.deed == "retry" else _cancel)(run, payload, quote, effect, root)


def _retry(run: Run, payload: ActOnEffect, quote: Quote, effect: Effect, root: str) -> Decision:
    label = LABELS[effect.effect_class]
    ruling = retry_effect_now(run.ledger, run.tx, effect.id, actor=run.asked.actor, now=run.now, cycle_seen=payload.cycle)
    if ruling.verdict is not Verdict.DONE:
        return operator_actions.too_late(run.asked, quote, effect, label, waits.detail(ruling), root)
    return operator_actions.tried(run.asked, quote, effect, label, waits.detail(ruling))


def _cancel(run: Run, payload: ActOnEffect, quote: Quote, effect: Effect, root: str) -> Decision:
    label = LABELS[effect.effect_class]
    if run.asked.actor not in (*quote.authors, *run.rules.operators):
        return operator_actions.not_yours(run.asked, quote, label)
    if effect.cycle == payload.cycle and effect.state == "pending":
        cancel_effect(run.ledger, run.tx, effect.id, actor=run.asked.actor, reason=REASON, now=run.now, follow=run.follow)
        return operator_actions.cancelled(run.asked, quote, effect, label, root)
    row = run.tx.required("effect_by_id", id=effect.id)
    sentence, _ = waits.explain(waiting(effect_facts(run.tx, row, run.now)))
    return operator_actions.too_late(run.asked, quote, effect, label, sentence, root)


def _effect_of_quote(tx: Tx, quote_id: str, effect_id: int) -> Effect | None:
    """Return an effect that this quote's card shows or showed, or None."""
    row = row_of(tx, "effect", effect_id)
    found = None if row is None else Effect.of(row)
    return found if found is not None and found.aggregate_id == quote_id and found.effect_class in LABELS else None
