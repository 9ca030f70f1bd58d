"""A message that is no command, read as a request for a quote: a proposal when it is clear, a question when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quotebot.domain.extraction.extractor import extract
from quotebot.domain.extraction.remarks import EXISTING, TERM
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
    """Read a message that the grammar refused. None: the grammar's own answer is the better one.

    It is when nothing of a quote was read, when the message is about a quote that exists, and when it was written as a command
    but not wholly understood.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    found = extract(on_one_line(text), catalogue)
    if not found.lines or any(remark.code == EXISTING for remark in found.remarks) or _is_a_command(text):
        return None
    return found


def is_for_a_model(text: str, catalogue: Catalogue) -> bool:
    """Tell whether a model might understand a message, which the grammar refused, better than fixed rules do.

    Not what they claim whole, what was written as a command, what is about a quote that exists, or what names no number at all:
    of that no line could be proposed, whatever a model says.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX or _is_a_command(text):
        return False
    plain = on_one_line(text)
    found = extract(plain, catalogue)
    codes = {remark.code for remark in found.remarks}
    return EXISTING not in codes and not codes <= {TERM} and any(token.value is not None for token in tokens(plain))


def on_one_line(text: str) -> str:
    """Return a message as it is read: a line's end parts what it parts."""
    return grammar.normalised(text.replace("\n", " ; "))


def _is_a_command(text: str) -> bool:
    typed = verbs.typed_creation(text)
    return typed is not None and typed.casefold().startswith("for ") and ":" in typed


def creation(found: Extraction, channel: str) -> CreateQuote:
    """Return the quote that was read, of which nothing is in doubt; `channel` is where it would live."""
    return extraction.creation(found, channel)


def asked_back(found: Extraction) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the question, as text and as blocks with a button to a form that holds what was read."""
    said = extraction_messages.question(found)
    return said, problem_blocks(said, extraction_messages.written(found))
