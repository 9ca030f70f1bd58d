"""A message that is no command, read as a request for a quote: a proposal when it is clear, a question when it is not."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quotebot import extraction_words
from quotebot.commands import CreateQuote
from quotebot.domain.extraction import extract
from quotebot.domain.pricing import LineRequest, PriceRequest
from quotebot.domain.remarks import EXISTING
from quotebot.slack import grammar, verbs
from quotebot.slack.offers import problem_blocks

if TYPE_CHECKING:
    from quotebot.domain.catalogue import Catalogue
    from quotebot.domain.extraction import Extraction


def read(text: str, catalogue: Catalogue) -> Extraction | None:
    """Read a message that the grammar refused. None: the grammar's own answer is the better one.

    It is when nothing of a quote was read, when the message is about a quote that exists, and when it was written as a command
    but not wholly understood.
    """
    if len(text) > grammar.TEXT_CHARACTERS_MAX:
        return None
    found = extract(grammar.normalised(text.replace("\n", " ; ")), catalogue)  # a line's end parts what it parts
    if not found.lines or any(remark.code == EXISTING for remark in found.remarks):
        return None
    typed = verbs.typed_creation(text)
    if typed is not None and typed.casefold().startswith("for ") and ":" in typed:
        return None
    return found


def creation(found: Extraction, channel: str) -> CreateQuote:
    """Return the quote that was read, of which nothing is in doubt; `channel` is where it would live."""
    assert found.account is not None  # noqa: S101 -- its lack is a doubt
    lines = tuple(LineRequest(sku=line.sku, quantity=line.quantity) for line in found.lines)
    term = grammar.TERM_MONTHS_DEFAULT if found.term_months is None else found.term_months
    discount = Decimal(0) if found.discount_percent is None else found.discount_percent
    return CreateQuote(found.account, PriceRequest(lines, term, discount, currency=found.currency), channel)


def asked_back(found: Extraction) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the question, as text and as blocks with a button to a form that holds what was read."""
    said = extraction_words.question(found)
    return said, problem_blocks(said, extraction_words.written(found))
