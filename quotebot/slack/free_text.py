"""Extraction of a quote request from a message that is no command: a proposal if it is clear, otherwise a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quotebot.domain.extraction.extractor import extract
from quotebot.domain.extraction.tokens import tokens
from quotebot.handlers import extraction
from quotebot.slack import grammar, verbs
from quotebot.views import extraction_messages
from quotebot.views.confirmations import problem_blocks

if TYPE_CHECKING:
    from quotebot.commands.registry import CreateQuote
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.extraction.extractor import Extraction


def read(text: str, catalogue: Catalogue) -> Extraction | None:
    """Extract a request from a message that the grammar refused; None if the grammar's own answer is better.

    That is the case if the message is too long, yields no line, is about an existing quote, or is written as a command that was
    not fully understood.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    found = extract(on_one_line(text), catalogue)
    if not found.lines or any(remark.code == "existing" for remark in found.remarks) or _is_a_command(text):
        return None
    return found


def is_for_a_model(text: str, catalogue: Catalogue) -> bool:
    """Return whether a model might understand a message that the grammar refused better than fixed rules do.

    False for a message that fixed rules understand fully, that is too long or written as a command, that is about an existing
    quote, or that contains no number: without a number no line could be proposed, whatever a model returns.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX or _is_a_command(text):
        return False
    plain = on_one_line(text)
    found = extract(plain, catalogue)
    codes = {remark.code for remark in found.remarks}
    return "existing" not in codes and not codes <= {"term"} and any(token.value is not None for token in tokens(plain))


def on_one_line(text: str) -> str:
    """Return a message in normal form on one line; a line break becomes a semicolon, because both separate clauses."""
    return grammar.normalised(text.replace("\n", " ; "))


def _is_a_command(text: str) -> bool:
    typed = verbs.typed_creation(text)
    return typed is not None and typed.casefold().startswith("for ") and ":" in typed


def creation(found: Extraction, channel: str) -> CreateQuote:
    """Return the creation from an extraction without open questions; `channel` is the channel of the new quote."""
    return extraction.creation(found, channel)


def asked_back(found: Extraction) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the question, as text and as blocks with a button to a form that holds the extracted values."""
    said = extraction_messages.question(found)
    return said, problem_blocks(said, extraction_messages.written(found))
