"""What becomes of a message that a model was asked to read: a proposal to confirm, or a question. Never a quote. Pure.

The model's reading counts as far as the message and the catalogue bear it out (domain/model_reading.py). Where it leaves a doubt
that fixed rules do not have, theirs is proposed: a model can help, but never make a reading worse than it is without one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.registry import CreateQuote, ProposeQuote
from quotebot.domain.extraction.extractor import Extraction, extract, worth_showing
from quotebot.domain.extraction.model_answers import ModelLine, ModelReading, checked
from quotebot.domain.extraction.remarks import INVENTED, RULES, Remark
from quotebot.domain.extraction.vocabulary import TERM_MONTHS_DEFAULT
from quotebot.domain.pricing.price_requests import LineRequest, PriceRequest
from quotebot.handlers import quotes
from quotebot.handlers.decision import Decision
from quotebot.store.offers import PROPOSED
from quotebot.views import extraction_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.commands.extraction import ReadMessage
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.rules import Rules
    from quotebot.handlers.decision import Asked

ASKED_BACK: Final = "asked_back"


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """What was made of a message, by whom, and whether the model said what the message does not say."""

    extraction: Extraction
    read_by: Literal["model", "rules"]
    distrusted: bool = False


def by_rules(text: str, catalogue: Catalogue, why: str) -> ExtractionResult:
    """Read a message without the model; `why` is a sentence for its author."""
    plain = extract(text, catalogue)
    return ExtractionResult(replace(plain, remarks=worth_showing((Remark(RULES, "", why), *plain.remarks))), "rules")


def by_model(text: str, said: Mapping[str, Any], catalogue: Catalogue) -> ExtractionResult:
    """Read a message with what the model says it says: as far as it does, and where that is no worse than fixed rules."""
    given = _reading(said)
    if given is None:
        return by_rules(text, catalogue, extraction_messages.WITHOUT_MODEL["unusable"])
    found = checked(text, given, catalogue)
    distrusted = any(remark.code == INVENTED for remark in found.remarks)
    if found.open_questions and not extract(text, catalogue).open_questions:
        return replace(by_rules(text, catalogue, extraction_messages.WITHOUT_MODEL["doubtful"]), distrusted=distrusted)
    return ExtractionResult(found, "model", distrusted)


def why_by_rules(category: str | None, *, is_over: bool, held: bool) -> str:
    """Say why there is no reading of the model's, by how its effect ended or stands, and whether its class is held."""
    if not is_over:
        return extraction_messages.WITHOUT_MODEL["held" if held else "late"]
    return extraction_messages.WITHOUT_MODEL["unusable" if category == "llm_schema" else "failed"]


def answer(asked: Asked, message: ReadMessage, found: ExtractionResult, rules: Rules) -> tuple[Decision, CreateQuote | None]:
    """Propose what was read for its author to confirm, or ask for the rest; with it what may be confirmed, if anything."""
    extraction = found.extraction
    event = AuditEvent("reading.distrusted", "new", after={"code": INVENTED, "actor": asked.actor})
    events = (event,) if found.distrusted else ()
    if extraction.open_questions:
        return replace(_question(asked, message, extraction), events=events), None
    wanted = creation(extraction, message.channel)
    decision = quotes.propose(asked, ProposeQuote(wanted, message.thread_ts, extraction.remarks), rules)
    proposed = wanted if decision.response["code"] == PROPOSED else None
    return replace(decision, kind="applied", events=events), proposed


def creation(found: Extraction, channel: str) -> CreateQuote:
    """Return the quote that was read, of which nothing is in doubt; `channel` is where it would live."""
    assert found.account is not None  # noqa: S101 -- its lack is a doubt
    lines = tuple(LineRequest(sku=line.sku, quantity=line.quantity) for line in found.lines)
    term = TERM_MONTHS_DEFAULT if found.term_months is None else found.term_months
    discount = Decimal(0) if found.discount_percent is None else found.discount_percent
    return CreateQuote(found.account, PriceRequest(lines, term, discount, currency=found.currency), channel)


def _question(asked: Asked, message: ReadMessage, extraction: Extraction) -> Decision:
    text = extraction_messages.question_after_reading(extraction)
    typed = extraction_messages.written(extraction)
    owed = effects.reply("new", asked.actor, message.channel, text, asked.received_at, typed=typed, thread_ts=message.thread_ts)
    return Decision("applied", {"code": ASKED_BACK, "quote_id": None, "text": text}, None, (owed,))


def _reading(said: Mapping[str, Any]) -> ModelReading | None:
    """Rebuild a reading from what the ledger keeps of it; None for what another build wrote."""
    try:
        lines = tuple(ModelLine(line["product"], line["quantity"], line["excerpt"]) for line in said["lines"])
        return ModelReading(said["account"], lines, said["term_months"], said["discount_percent"], said["currency"])
    except (KeyError, TypeError):
        return None
