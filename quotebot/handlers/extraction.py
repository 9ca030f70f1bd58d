"""Handlers of extracted messages: a proposal to confirm, or a question; never a quote. Pure.

The model's extraction counts only as far as the message and the catalogue support it (domain/extraction/model_answers.py). If it
leaves a doubt that fixed rules do not have, their extraction is proposed: a model may improve the result but never make it worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.payloads import CreateQuote, ProposeQuote
from quotebot.domain.extraction.extractor import Extraction, extract, worth_showing
from quotebot.domain.extraction.model_answers import MORE, ModelLine, ModelReading, checked
from quotebot.domain.extraction.remarks import Remark
from quotebot.handlers import quotes
from quotebot.handlers.decision import Asked, Decision
from quotebot.store.quotes import PROPOSED
from quotebot.views import extraction_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quotebot.commands.payloads import ReadMessage
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.rules import Rules

ASKED_BACK: Final = "asked_back"


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """Extraction of a message, its origin, and whether the model stated something that the message does not contain."""

    extraction: Extraction
    read_by: Literal["model", "rules"]
    distrusted: bool = False


def by_rules(text: str, catalogue: Catalogue, why: str) -> ExtractionResult:
    """Extract a message without the model; `why` is a sentence for its author."""
    plain = extract(text, catalogue)
    return ExtractionResult(replace(plain, remarks=worth_showing((Remark("rules", "", why), *plain.remarks))), "rules")


def by_model(text: str, said: Mapping[str, Any], catalogue: Catalogue) -> ExtractionResult:
    """Extract a message with the model's answer, as far as the message supports it and the result is no worse than fixed rules."""
    given = _reading(said)
    if given is None:
        return by_rules(text, catalogue, extraction_messages.WITHOUT_MODEL["unusable"])
    found = checked(text, given, catalogue)
    distrusted = any(remark.code == "invented" for remark in found.remarks)
    if found.open_questions and not extract(text, catalogue).open_questions:
        return replace(by_rules(text, catalogue, extraction_messages.WITHOUT_MODEL["doubtful"]), distrusted=distrusted)
    return ExtractionResult(found, "model", distrusted)


def why_by_rules(category: str | None, *, is_over: bool, held: bool) -> str:
    """Return a sentence on why the model's extraction is missing, by the state of its effect and whether its class is held."""
    if not is_over:
        return extraction_messages.WITHOUT_MODEL["held" if held else "late"]
    return extraction_messages.WITHOUT_MODEL["unusable" if category == "llm_schema" else "failed"]


def answer(asked: Asked, message: ReadMessage, found: ExtractionResult, rules: Rules) -> tuple[Decision, CreateQuote | None]:
    """Propose the extraction for its author to confirm, or ask for missing facts; also return the creation to confirm, if any."""
    extraction = found.extraction
    event = AuditEvent("reading.distrusted", "new", after={"code": "invented", "actor": asked.actor})
    events = (event,) if found.distrusted else ()
    if extraction.open_questions:
        return replace(_question(asked, message, extraction), events=events), None
    wanted = creation(extraction, message.channel)
    decision = quotes.propose(asked, ProposeQuote(wanted, message.thread_ts, extraction.remarks), rules)
    return replace(decision, kind="applied", events=events), wanted if decision.response["code"] == PROPOSED else None


def creation(found: Extraction, channel: str) -> CreateQuote:
    """Return the command that creates the extracted quote, which has no doubts; `channel` is the quote's channel."""
    assert found.account is not None  # noqa: S101 -- a missing account is a doubt
    return CreateQuote(found.account, found.request, channel)


def _question(asked: Asked, message: ReadMessage, extraction: Extraction) -> Decision:
    text = extraction_messages.question_after_reading(extraction)
    typed = extraction_messages.written(extraction)
    owed = effects.reply("new", asked.actor, message.channel, text, asked.received_at, typed=typed, thread_ts=message.thread_ts)
    return Decision("applied", {"code": ASKED_BACK, "quote_id": None, "text": text}, None, (owed,))


def _reading(said: Mapping[str, Any]) -> ModelReading | None:
    """Rebuild an extraction from the ledger; None for one that another build wrote."""
    try:
        lines = tuple(_line(line) for line in said["lines"])
        more = {name: said.get(name) for name in MORE}
        return ModelReading(said["account"], lines, said["term_months"], said["discount_percent"], said["currency"], **more)
    except (AttributeError, KeyError, TypeError):
        return None


def _line(said: Mapping[str, Any]) -> ModelLine:
    attributes = tuple((each["name"], each["choice"]) for each in said.get("attributes") or ())
    optional = bool(said.get("optional"))
    return ModelLine(said["product"], said["quantity"], said["excerpt"], said.get("discount_percent"), attributes, optional)
