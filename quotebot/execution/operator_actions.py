"""Execution of operator actions on dead letters and effects, inside the executor's transaction.

The ledger performs the action and records the acting user.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ledger.intake import KeyedRequest
from ledger.operator import actions, replay
from ledger.operator.actions import Verdict, cancel_effect, cancel_operation, retry_effect_now, retry_operation_now
from ledger.operator.dead_letters import parse_reference
from ledger.operator.explain import effect_facts, operation_facts, waiting
from ledger.operator.replay import Order, Replay
from ledger.operator.trace import row_of
from ledger.records import QUOTEBOT, Effect, Operation
from quotebot import __version__, effects
from quotebot.commands.registry import parse_stored
from quotebot.commands.resubmission import UNREADABLE, copy_of, is_editable
from quotebot.domain.access import Sight, may_see
from quotebot.domain.language import N_, _
from quotebot.handlers import operator_actions
from quotebot.handlers.decision import Decision, foreign
from quotebot.handlers.quotes import root_key
from quotebot.store import dead_letters
from quotebot.store import quotes as store
from quotebot.views import messages, operator_messages, waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.database import Row, Tx
    from ledger.records import EffectIntent
    from quotebot.commands.payloads import (
        ActOnCommand,
        ActOnEffect,
        AnnounceDeadLetter,
        DiscardDeadLetter,
        ReplayCause,
        ResubmitDeadCommand,
        RetryDeadLetter,
        ShowOpsCard,
    )
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.effects import Label
    from quotebot.execution.run import Run
    from quotebot.store.dead_letters import Backlog, DeadLetterCard, OpsCard

CANCEL_REASON: Final = N_("A person cancelled it on the quote's card.")
REPLAYED_AT_ONCE: Final = 50  # in one transaction: an acknowledgement must not wait for more


def announce_dead_letter(run: Run, payload: AnnounceDeadLetter) -> Decision:
    """Enqueue the card of a dead letter in the operators' channel, once."""
    kind, row_id = parse_reference(payload.reference)
    letter = run.tx.one("dead_letter", kind=kind, id=row_id)
    cycle, effect_class = (1, "") if letter is None else (letter["cycle"], letter["class"])
    earlier, root = dead_letters.find(run.tx, payload.reference), root_key(run.asked.operation_key)
    reference, channel = payload.reference, payload.channel
    inserted = dead_letters.insert(run.tx, reference, channel, root, run.now, cycle=cycle, effect_class=effect_class)
    return operator_actions.announced(reference, channel, has_card=not inserted, earlier=earlier)


def show_ops_card(run: Run, payload: ShowOpsCard) -> Decision:
    """Post the card of a subject, or redraw it. A cause of which a letter failed again after a replay gets a new message."""
    card, state = dead_letters.ops_card(run.tx, payload.subject), dead_letters.waiting_of(run.tx, payload.subject, run.rules.gone)
    is_open = card is not None and card.closed_at is None
    if state.over or (card is not None and is_open and not failed_again(card, state)):
        dead_letters.refresh_ops_card(run.tx, payload.subject, state, run.now)
        return operator_actions.ops_card_redrawn(card)
    root = root_key(run.asked.operation_key)
    dead_letters.put_ops_card(run.tx, payload.subject, run.operation.team_id, payload.channel, root, state.shown, run.now)
    return operator_actions.ops_card_posted(payload.subject, payload.channel, card if is_open else None)


def failed_again(card: OpsCard, state: Backlog) -> bool:
    """Return true if a letter that waits was replayed after this card was posted: its new failure needs a message of its own."""
    return state.replayed_at is not None and state.replayed_at > card.opened_at


def replay_cause(run: Run, payload: ReplayCause) -> Decision:
    """Replay dead letters of a cause for an operator, the oldest first, so many that other writes need not wait.

    The bot itself continues with the rest (jobs/announcements.py), in the name of the operator who clicked.
    """
    subject = f"{dead_letters.CAUSE}{payload.cause}"
    card, continued = dead_letters.ops_card(run.tx, subject), run.asked.actor == QUOTEBOT
    if not continued and run.asked.actor not in run.rules.operators:
        return operator_actions.cause_refused(run.asked, payload.cause, card, operator=False)
    if continued and (card is None or card.decided_by is None):
        return operator_actions.ops_card_redrawn(card)
    if card is None:
        return operator_actions.cause_refused(run.asked, payload.cause, card, operator=True)
    who = {"actor": card.decided_by, "actor_type": "user"} if continued else _who(run)
    letters = dead_letters.dead_letters_of_cause(run.tx, payload.cause, REPLAYED_AT_ONCE, upto=payload.upto)
    for row in letters:
        reference = str(row["id"]) if row["kind"] == "effect" else f"op{row['id']}"
        about: dict[str, Any] = {
            "reason": None,
            "follow": run.follow,
            "build": __version__,
            "now": run.now,
            "cycle_seen": row["cycle"],
        }
        replay.replay(run.ledger, run.tx, Order(reference, row["kind"], row["id"], **about, **who))
    if not continued:
        dead_letters.decide_ops_card(run.tx, subject, run.asked.actor, payload.upto)
    return operator_actions.replayed_all(card, len(letters))


def retry_dead_letter(run: Run, payload: RetryDeadLetter) -> Decision:
    """Replay a dead letter for an operator, or name the operator who decided first."""
    card = _operated(run, payload.reference)
    if isinstance(card, Decision):
        return card
    order = _order(run, payload, None)
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
    order = _order(run, payload, payload.reason)
    ruling = actions.discard(run.ledger, run.tx, order)
    if ruling.verdict is not Verdict.DONE:
        return operator_actions.came_late(run.asked, payload.reference, operator_messages.GONE, card)
    dead_letters.decide(run.tx, payload.reference, "discarded", run.asked.actor, run.now, payload.reason)
    return operator_actions.done(payload.reference, card, "discarded")


def resubmit_dead_command(run: Run, payload: ResubmitDeadCommand) -> Decision:
    """Reserve an edited copy of a dead command for an operator, or say why not. The copy is executed as its author's command."""
    card = _operated(run, payload.reference)
    if isinstance(card, Decision):
        return card
    order = _order(run, payload, payload.reason)
    row = row_of(run.tx, order.kind, order.row_id)
    original = None if row is None or order.kind == "effect" else Operation.of(row)
    if original is None or not is_editable(original.action_kind, original.source):
        return operator_actions.not_editable(run.asked, payload.reference, card)
    try:
        edited = parse_stored(original.action_kind, json.loads(payload.edited))
    except UNREADABLE:
        return operator_actions.not_editable(run.asked, payload.reference, card)
    name = store.known_name(run.tx, original.actor, original.team_id)
    request_id = f"{run.operation.source_request_id}:copy"
    transport = {"actor_name": name, "edited_by": run.asked.actor}
    request = copy_of(original, edited, "slack_interactive", request_id, run.now, transport)
    ruling, reservation = actions.resubmit(run.ledger, run.tx, order, KeyedRequest.of(request))
    if reservation is None:
        return operator_actions.came_late(run.asked, payload.reference, ruling.objection or operator_messages.GONE_COMMAND, card)
    reference, correlation_id = f"op{reservation.operation.id}", reservation.operation.correlation_id
    reason = operator_messages.replaced_by(reference, correlation_id, payload.reason)
    dead_letters.decide(run.tx, payload.reference, "discarded", run.asked.actor, run.now, reason)
    return operator_actions.resubmitted(card, operator_messages.resubmitted(payload.reference, correlation_id))


def _order(run: Run, payload: RetryDeadLetter | DiscardDeadLetter | ResubmitDeadCommand, reason: str | None) -> Order:
    """Return the order of the person who clicked."""
    kind, row_id = parse_reference(payload.reference)
    seen = {"cycle_seen": payload.cycle, **_who(run)}
    return Order(payload.reference, kind, row_id, reason=reason, follow=run.follow, build=__version__, now=run.now, **seen)


def _who(run: Run) -> dict[str, Any]:
    """Return the person who clicked, as the audit records them."""
    return {"actor": run.asked.actor, "actor_type": run.asked.actor_type}


def _operated(run: Run, reference: str) -> DeadLetterCard | Decision:
    """Return the card of a dead letter, or the refusal of a person who is no operator."""
    card = dead_letters.find(run.tx, reference)
    if run.asked.actor not in run.rules.operators:
        return operator_actions.not_operator(run.asked, reference, card)
    return operator_actions.unknown_dead_letter(run.asked, reference) if card is None else card


def effect_status(tx: Tx, quote_id: str, effect_id: int, viewer: Viewer, now: int, *, operator: bool) -> str:
    """Return what an effect of a quote waits for, as text. A quote that the viewer cannot see is answered like a missing one."""
    quote, found = store.load(tx, quote_id), _effect_of_quote(tx, quote_id, effect_id)
    row = row_of(tx, "effect", effect_id)
    if quote is not None and may_see(viewer, quote) is Sight.OUTLINE:
        return messages.outline(quote)
    if quote is None or may_see(viewer, quote) is not Sight.FULL or found is None or row is None:
        return operator_messages.unknown_effect(quote_id)
    effect, label = found
    sentence, remedy = waits.explain(waiting(effect_facts(tx, row, now)), operator=operator)
    return operator_messages.effect_status(label, quote, effect, sentence, remedy if operator else None)


def act_on_effect(run: Run, payload: ActOnEffect, quote: Quote, root: str) -> Decision:
    """Retry an effect at once or cancel it, or refuse that with the reason."""
    if refusal := foreign(run.asked, quote):
        return refusal
    found = _effect_of_quote(run.tx, quote.quote_id, payload.effect_id)
    if found is None:
        return operator_actions.unknown(run.asked, quote)
    return (_retry if payload.deed == "retry" else _cancel)(run, payload, quote, *found, root)


def _retry(run: Run, payload: ActOnEffect, quote: Quote, effect: Effect, label: Label, root: str) -> Decision:
    ruling = retry_effect_now(run.ledger, run.tx, effect.id, **_who(run), now=run.now, cycle_seen=payload.cycle)
    sentence = waits.detail(ruling, operator=run.asked.actor in run.rules.operators)
    if ruling.verdict is not Verdict.DONE:
        return operator_actions.too_late(run.asked, quote, effect, label, sentence, root)
    return operator_actions.tried(run.asked, quote, effect, label, sentence)


def _cancel(run: Run, payload: ActOnEffect, quote: Quote, effect: Effect, label: Label, root: str) -> Decision:
    if run.asked.actor not in (*quote.authors, *run.rules.operators):
        return operator_actions.not_yours(run.asked, quote, label)
    if effect.cycle == payload.cycle and effect.state == "pending":
        cancel_effect(run.ledger, run.tx, effect.id, **_who(run), reason=_(CANCEL_REASON), now=run.now, follow=run.follow)
        return operator_actions.cancelled(run.asked, quote, effect, label, root)
    row = run.tx.required("effect_by_id", id=effect.id)
    operator = run.asked.actor in run.rules.operators
    sentence, _remedy = waits.explain(waiting(effect_facts(run.tx, row, run.now)), operator=operator)
    return operator_actions.too_late(run.asked, quote, effect, label, sentence, root)


def _effect_of_quote(tx: Tx, quote_id: str, effect_id: int) -> tuple[Effect, Label] | None:
    """Return an effect that this quote's card shows or showed, with its label, or None."""
    row = row_of(tx, "effect", effect_id)
    found = None if row is None else Effect.of(row)
    label = None if found is None or found.aggregate_id != quote_id else effects.label_of(found)
    return None if found is None or label is None else (found, label)


def command_status(tx: Tx, quote_id: str, operation_id: int, viewer: Viewer, now: int, *, operator: bool) -> str:
    """Return what a command about a quote waits for, as text. A quote that the viewer cannot see is answered like a missing one."""
    quote, row = store.load(tx, quote_id), row_of(tx, "operation", operation_id)
    if quote is None or may_see(viewer, quote) is not Sight.FULL or row is None or row["aggregate_id"] != quote_id:
        return operator_messages.unknown_command(quote_id)
    sentence, remedy = waits.explain(waiting(operation_facts(tx, row, now)))
    name = messages.command_name(row["action_kind"])
    return operator_messages.command_status(name, row["correlation_id"], sentence, remedy if operator else None)


def act_on_command(run: Run, payload: ActOnCommand) -> Decision:
    """Retry a command at once or cancel it, or refuse that with the reason."""
    quote, row = store.load(run.tx, payload.quote_id), row_of(run.tx, "operation", payload.operation_id)
    if quote is None or row is None or row["aggregate_id"] != quote.quote_id or run.sight(quote) is not Sight.FULL:
        return operator_actions.unknown_command(run.asked, payload)
    return (_retry_command if payload.deed == "retry" else _cancel_command)(run, payload, quote, row)


def _retry_command(run: Run, payload: ActOnCommand, quote: Quote, row: Row) -> Decision:
    ruling = retry_operation_now(run.ledger, run.tx, row["id"], **_who(run), now=run.now, cycle_seen=payload.cycle)
    if ruling.verdict is not Verdict.DONE:
        return operator_actions.command_too_late(
            run.asked, payload, quote, Operation.of(row), waits.detail(ruling), _root(run, quote)
        )
    return operator_actions.command_tried(run.asked, payload, quote, Operation.of(row), waits.detail(ruling))


def _cancel_command(run: Run, payload: ActOnCommand, quote: Quote, row: Row) -> Decision:
    asked, command, root = run.asked, Operation.of(row), _root(run, quote)
    if asked.actor not in (command.actor, *quote.authors, *run.rules.operators):
        return operator_actions.command_not_yours(asked, payload, quote, command)

    def answer(_tx: Tx, _operation: Operation, why: str) -> tuple[Mapping[str, Any], Sequence[EffectIntent]]:
        text = messages.terminal(why, command.correlation_id, quote.quote_id)
        return {"code": "cancelled", "quote_id": quote.quote_id, "text": text}, operator_actions.author_notified(
            asked, quote, command, text
        )

    ruling = None
    if command.cycle == payload.cycle:
        reason = operator_messages.command_cancelled_by(asked.actor)
        ruling = cancel_operation(run.ledger, run.tx, command.id, **_who(run), reason=reason, now=run.now, answer=answer)
    if ruling is None or ruling.verdict is not Verdict.DONE:
        sentence, _remedy = waits.explain(waiting(operation_facts(run.tx, row, run.now)))
        return operator_actions.command_too_late(asked, payload, quote, command, sentence, root)
    return operator_actions.command_cancelled(asked, payload, quote, command, root)


def _root(run: Run, quote: Quote) -> str:
    return store.root_effect_key(run.tx, quote.quote_id)
