"""Execution of the commands about message extraction, inside the executor's transaction: one slot and one answer per message.

The first answer fills the slot: the model's extraction once its effect has settled, or fixed rules if the model's class is held,
the call has failed or the model has not answered in time. A second answer finds the slot filled and sends nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledger.keys import effect_key
from ledger.records import Request
from quotebot import effects
from quotebot.commands.payloads import AnswerMessage, ReadMessage
from quotebot.commands.registry import parse_stored
from quotebot.domain.language import _
from quotebot.execution.run import rules_for
from quotebot.handlers import extraction as handlers
from quotebot.handlers.decision import Decision
from quotebot.store import extractions as store
from quotebot.views import extraction_messages, messages

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect
    from quotebot.execution.run import Run
    from quotebot.handlers.decision import Asked

ASKED_MODEL: Final = "model_asked"
ANSWERED: Final = "already_answered"


def ask_model(run: Run, message: ReadMessage) -> Decision:
    """Enqueue the question to the model; if the model may not or cannot be called, answer at once by fixed rules."""
    tx, asked, why = run.tx, run.asked, _why_not(run)
    store.open_slot(tx, asked.operation_key, asked.team_id, asked.actor, asked.received_at)
    if why is not None:
        return _fill(run, asked, asked.operation_key, message, handlers.by_rules(message.text, run.rules.catalogue, why))
    response = {"code": ASKED_MODEL, "quote_id": None, "text": _(messages.BEING_READ)}
    return Decision("applied", response, None, (effects.extract(asked.operation_key),))


def answer_message(run: Run, payload: AnswerMessage) -> Decision:
    """Answer the author of a message, unless that was done."""
    tx, catalogue = run.tx, run.rules.catalogue
    slot = store.find(tx, payload.reading)
    if slot is None or slot.answered_by is not None:
        return Decision("refused", {"code": ANSWERED, "quote_id": None, "text": _(messages.MESSAGE_ANSWERED)})
    message = parse_stored(ReadMessage.kind, slot.payload)
    assert isinstance(message, ReadMessage)  # noqa: S101 -- parsed by its kind
    author = replace(run.asked, actor=slot.user_id, team_id=slot.team_id, actor_type="user")
    question = store.asking(tx, effect_key(slot.operation_key, effects.EXTRACT, 0))
    if question is not None and question.state == "delivered" and "lines" in (question.result or {}):
        found = handlers.by_model(message.text, question.result or {}, catalogue)
    else:
        category, over = (None, True) if question is None else (question.category, question.is_over)
        why = handlers.why_by_rules(category, is_over=over, held=store.is_held(tx, effects.EXTRACT, run.now))
        found = handlers.by_rules(message.text, catalogue, why)
    return _fill(run, author, slot.operation_key, message, found)


def _why_not(run: Run) -> str | None:
    most = run.rules.readings_per_day
    if not most:
        return extraction_messages.WITHOUT_MODEL["off"]
    if store.asked_today(run.tx, run.asked.team_id, run.asked.actor, run.now) >= most:
        return extraction_messages.budget_spent(most)
    return extraction_messages.WITHOUT_MODEL["held"] if store.is_held(run.tx, effects.EXTRACT, run.now) else None


def _fill(run: Run, author: Asked, reading: str, message: ReadMessage, found: handlers.ExtractionResult) -> Decision:
    rules = rules_for(run, found.extraction.account or "")
    decision, wanted = handlers.answer(author, message, found, rules)
    creation = None if wanted is None else wanted.canonical()
    filled = store.fill_slot(run.tx, reading, author.operation_key, found.read_by, creation, run.now)
    assert filled  # noqa: S101 -- it was empty in this transaction
    return decision


def answer_follows(tx: Tx, effect: Effect, now: int) -> tuple[Request, ...]:
    """Return the command that answers a message, once its question to the model is settled or the effect's class is held."""
    reading = effect.payload["reading"]
    slot = store.find(tx, reading)
    over = effect.state in store.FINISHED or store.is_held(tx, effect.effect_class, now)
    if slot is None or slot.answered_by is not None or not over:
        return ()
    payload = AnswerMessage(reading)
    return (
        Request(
            source="effect",
            source_request_id=f"{slot.team_id}:{effect.effect_key}",
            action_kind=payload.kind,
            aggregate_id="new",
            aggregate_version=0,
            payload=payload.canonical(),
            fingerprint=effect.effect_key,
            actor=slot.user_id,
            actor_type="user",
            team_id=slot.team_id,
            received_at=now,
        ),
    )
