"""Effect classes llm.extract and llm.summarize. The model's answer is stored in the ledger and is not trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from adapters.failures import AdapterError, Failure
from ledger.database import NotRecorded
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.commands.payloads import ReadMessage
from quotebot.commands.registry import parse_stored
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated, quote_of
from quotebot.domain.language import _
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import facts_of, shown
from quotebot.execution.extraction import answer_follows
from quotebot.store import approvals, quotes
from quotebot.store import extractions as store

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.dispatch.services import Model, Services
    from quotebot.domain.quotes.quote import Quote

NEEDLESS: Final = {"needless": True}  # the result of a question whose answer is no longer needed
log = structlog.get_logger(__name__)


class ExtractHandler(EffectHandler):
    """Extracts a quote request from a message. Repeating the call changes no external state."""

    effect_class: ClassVar = effects.EXTRACT

    async def perform(self, effect: Effect) -> Delivered:
        """Return what the model extracted. Raises AdapterError."""
        ledger = self.services.ledger
        slot = await ledger.database.read(lambda tx: store.find(tx, effect.payload["reading"]))
        if slot is None:
            raise AdapterError(Failure.INTERNAL, "unknown_reading", _("The message that was to be read is not in the ledger."))
        if slot.answered_by is not None and not effect.attempts:
            return Delivered(None, NEEDLESS)
        model = _connected(self.services)
        message = parse_stored(ReadMessage.kind, slot.payload)
        assert isinstance(message, ReadMessage)  # noqa: S101 -- found by its kind
        ruleset = await ledger.database.read(self.services.active.read)
        products = [f"{product.sku}: {product.name}" for product in ruleset.catalogue.products.values() if product.active]
        try:
            found = await model.llm.extract(
                message.text, products=products, key=effect.effect_key, correlation_id=effect.correlation_id
            )
        finally:
            await _write_calls(ledger, effect, model)
        return Delivered(None, found.model_dump())

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the command that answers the message."""
        return FollowUps(dead_letter_card_updated(tx, effect), commands=answer_follows(tx, effect, now_ms))


class SummarizeHandler(EffectHandler):
    """Summarizes a quote for its approvers. The answer is stored; its figures decide later whether it may be shown."""

    effect_class: ClassVar = effects.SUMMARIZE

    async def perform(self, effect: Effect) -> Delivered:
        """Return the model's summary. Raises AdapterError."""
        quote = await self.services.quote(effect)
        if quote.state is not QuoteState.PENDING_APPROVAL or quote.version != effect.payload["version"]:
            return Delivered(None, NEEDLESS)
        model = _connected(self.services)
        try:
            summary = await model.llm.summarize(facts_of(quote), key=effect.effect_key, correlation_id=effect.correlation_id)
        finally:
            await _write_calls(self.services.ledger, effect, model)
        return Delivered(None, {"summary": summary})

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Redraw the card and the approvers' direct messages if the summary may be shown. Neither waits for it."""
        letter, quote = dead_letter_card_updated(tx, effect), quote_of(tx, effect)
        if quote is None or not _summary_arrived(tx, effect, quote, now_ms):
            return FollowUps(letter)
        asking = [] if quote.approval is None else approvals.copies(tx, quote.approval.approval_id)
        copies = [
            effects.update_copy(quote.quote_id, each.approval_id, each.user_id, each.awaited) for each in asking if each.shown
        ]
        return FollowUps((effects.card(quote.quote_id, quotes.root_effect_key(tx, quote.quote_id)), *copies, *letter))


async def _write_calls(ledger: Ledger, effect: Effect, model: Model) -> None:
    """Store the log of calls. If the ledger cannot be written now, the answer must still not be lost."""
    calls, now = model.log.take(), ledger.clock.now_ms()
    for call in calls:
        log.info("llm.called", outcome=call.outcome, request_sha256=call.request_sha256, answer_sha256=call.answer_sha256)
    try:
        await ledger.database.write("model_call", lambda tx: store.log_calls(tx, effect.effect_key, calls, now))
    except NotRecorded as error:
        log.warning("llm.call_not_kept", error=str(error))


def _summary_arrived(tx: Tx, effect: Effect, quote: Quote, now: int) -> bool:
    """Store the model's summary of a quote if it may be shown; true when its card shows more than before."""
    answer = (effect.result or {}).get("summary") if effect.state == "delivered" else None
    summary = None if answer is None else shown(str(answer), facts_of(quote))
    if summary is None or quote.state is not QuoteState.PENDING_APPROVAL:
        return False
    return quotes.keep_summary(tx, quote.quote_id, effect.payload["version"], summary, now)


def _connected(services: Services) -> Model:
    if services.adapters.model is None:
        missing = _("No language model is configured: set QUOTEBOT_LLM_BASE_URL and QUOTEBOT_LLM_MODEL.")
        raise AdapterError(Failure.AUTH, "not_configured", missing)
    return services.adapters.model
