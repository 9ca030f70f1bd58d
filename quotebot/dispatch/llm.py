"""LLM effects: extraction of a message and summary of a quote. The answer is stored in the ledger and is not trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.failures import AdapterError, Failure
from ledger.database import NotRecorded
from ledger.records import Delivered
from quotebot.commands.extraction import ReadMessage
from quotebot.commands.registry import parse_stored
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import facts_of, shown
from quotebot.store import extractions as store

if TYPE_CHECKING:
    from adapters.llm.api import Llm, ModelCall
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.quotes.quote import Quote

NEEDLESS: Final = {"needless": True}  # the result of a question whose answer is no longer needed
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CallLog:
    """Buffer for the adapter's records of its calls until they are written to the ledger."""

    calls: list[ModelCall] = field(default_factory=list)

    def note(self, call: ModelCall) -> None:
        """Add the record of one call."""
        self.calls.append(call)

    def take(self) -> list[ModelCall]:
        """Return the records so far and empty the buffer."""
        taken, self.calls = self.calls, []
        return taken


@dataclass(frozen=True, slots=True)
class Model:
    """The connected model and the log of its adapter's calls."""

    llm: Llm
    log: CallLog


@dataclass(frozen=True, slots=True)
class ModelEffects:
    """Effect handler for LLM effects. Repeating a call changes no external state."""

    ledger: Ledger
    model: Model | None

    async def extract(self, effect: Effect, catalogue: Catalogue) -> Delivered:
        """Extract a quote request from a message with the model. Raises AdapterError."""
        slot = await self.ledger.database.read(lambda tx: store.find(tx, effect.payload["reading"]))
        if slot is None:
            raise AdapterError(Failure.INTERNAL, "unknown_reading", "The message that was to be read is not in the ledger.")
        if slot.answered_by is not None and not effect.attempts:
            return Delivered(None, NEEDLESS)
        if self.model is None:
            raise _not_configured()
        message = parse_stored(ReadMessage.kind, slot.payload)
        assert isinstance(message, ReadMessage)  # noqa: S101 -- found by its kind
        products = [f"{product.sku}: {product.name}" for product in catalogue.products.values() if product.active]
        try:
            reading = await self.model.llm.extract(
                message.text, products=products, key=effect.effect_key, correlation_id=effect.correlation_id
            )
        finally:
            await self._write_calls(effect, self.model)
        said: dict[str, Any] = reading.model_dump()
        return Delivered(None, said)

    async def summarize(self, effect: Effect, quote: Quote) -> Delivered:
        """Summarize a quote for its approvers with the model. The answer is stored; whether it may be shown is decided later.

        Raises AdapterError.
        """
        if quote.state is not QuoteState.PENDING_APPROVAL or quote.version != effect.payload["version"]:
            return Delivered(None, NEEDLESS)
        if self.model is None:
            raise _not_configured()
        try:
            said = await self.model.llm.summarize(facts_of(quote), key=effect.effect_key, correlation_id=effect.correlation_id)
        finally:
            await self._write_calls(effect, self.model)
        return Delivered(None, {"summary": said})

    async def _write_calls(self, effect: Effect, model: Model) -> None:
        """Store the log of calls. If the ledger cannot be written now, the answer must still not be lost."""
        calls, now = model.log.take(), self.ledger.clock.now_ms()
        for call in calls:
            log.info("llm.called", outcome=call.outcome, request_sha256=call.request_sha256, answer_sha256=call.answer_sha256)
        try:
            await self.ledger.database.write("model_call", lambda tx: store.log_calls(tx, effect.effect_key, calls, now))
        except NotRecorded as error:
            log.warning("llm.call_not_kept", error=str(error))


def summary_arrived(tx: Tx, effect: Effect, quote: Quote, now: int) -> bool:
    """Store the model's summary of a quote if it may be shown; true when its card shows more than before."""
    said = (effect.result or {}).get("summary") if effect.state == "delivered" else None
    summary = None if said is None else shown(str(said), facts_of(quote))
    if summary is None or quote.state is not QuoteState.PENDING_APPROVAL:
        return False
    return store.keep_summary(tx, quote.quote_id, effect.payload["version"], summary, now)


def _not_configured() -> AdapterError:
    missing = "No language model is configured: set QUOTEBOT_LLM_BASE_URL and QUOTEBOT_LLM_MODEL."
    return AdapterError(Failure.AUTH, "not_configured", missing)
