"""Messages about a request extracted from free text: inferred facts, words not understood, missing facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.pricing.term_clauses import line_text, terms_text
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.extraction.extractor import Extraction
    from quotebot.domain.extraction.remarks import Code, Remark

CHARACTERS_MAX: Final = 1_400  # of all remarks together: a Slack section holds 3,000 characters, and the proposal comes first

# {0} is the author's wording, {1} its interpretation; both escaped.
_SAID: Final[Mapping[Code, str]] = {
    "near_name": 'I took "{0}" as {1}.',
    "one": 'I took "{0}" as 1 {1}.',
    "joined": 'I took "{0}" as {1}.',
    "percent": 'I took "{0}" as {1}% off the whole quote.',
    "account": 'I took "{0}" as the customer.',
    "dollars": 'I took "{0}" as {1}.',
    "thousands": 'I took "{0}" as {1}.',
    "money": 'Prices come from the price list, so I ignored "{0}".',
    "on_all": 'I took "{0}" as a discount on the whole quote.',
    "unclaimed": 'I ignored "{0}".',
    "term": "No term given, so {1} months.",
    "more": "I ignored {1} more parts of the message.",
    "model": "AI-read. Check each line before creating.",
    "unsure": 'I guessed "{0}". Is that right?',
    "rules": "{1}",
    "no_account": "Who is it for? Example: `for Acme`.",
    "no_lines": "What is in it? Example: `150 pro`.",
    "accounts": "Which customer: {0}?",
    "terms": "Which term: {0}?",
    "discounts": "Which discount: {0}?",
    "currencies": "Which currency: {0}?",
    "twice": '"{0}": you named {1} more than once. Give one quantity.',
    "unknown_product": '"{0}" isn\'t in the catalog.',
    "no_quantity": '"{0}" has no quantity. How many {1}?',
    "number": "What is {0}? A discount, a quantity or months?",
    "word": '"{0}" makes the numbers unclear. Please give exact numbers.',
    "sign": 'The sign "{0}" makes the numbers unclear. Please write it without.',
    "invented": 'I wasn\'t sure about "{0}".',
    "existing": "That quote already exists. From a message I only create new ones.",
}
CODES: Final = frozenset(_SAID)

# Reasons why the model's extraction is not used.
WITHOUT_MODEL: Final[Mapping[str, str]] = {
    "held": "AI reading is unavailable, so this uses simple rules.",
    "late": "AI reading took too long, so this uses simple rules.",
    "unusable": "AI reading gave no usable answer, so this uses simple rules.",
    "failed": "AI reading failed, so this uses simple rules.",
    "doubtful": "AI reading didn't match your message, so this uses simple rules.",
    "off": "AI reading is off, so this uses simple rules.",
}


def budget_spent(readings: int) -> str:
    """Reply to a user whose daily budget of model extractions is spent."""
    return f"You've used today's {readings} AI readings, so this uses simple rules. More at midnight UTC."


def remark(found: Remark) -> str:
    """Return the sentence of one remark as escaped mrkdwn."""
    excerpt, meaning = (messages.escape(messages.one_line(part)) for part in (found.excerpt, found.meaning))
    return _SAID[found.code].format(excerpt, meaning)


def beside(remarks: Sequence[Remark]) -> str:
    """Return the remarks shown beside a proposal; empty if there are none."""
    return "" if not remarks else "\n".join(("Please check:", *_listed(remarks)))


def question(extraction: Extraction) -> str:
    """Return the extracted facts and ask for the missing ones."""
    found = _read(extraction)
    head = f"So far: {found}. I need a bit more to build this quote:" if found else "I need a bit more to build this quote:"
    return "\n".join((head, *_listed(extraction.open_questions)))


def question_after_reading(extraction: Extraction) -> str:
    """Ask for the missing facts of a message sent to the model; first state whether the model or fixed rules extracted it."""
    told = [remark(found) for found in extraction.remarks if found.code in ("model", "rules")]
    return "\n".join((*told, question(extraction)))


def written(extraction: Extraction) -> str:
    """Return the extraction in the syntax of a command after `new`, to prefill the form."""
    account = extraction.account or ""
    lines = ", ".join(line_text(line) for line in extraction.lines)
    term = f"; term {extraction.term_months}m" if extraction.term_months is not None else ""
    discount = f"; discount {extraction.discount_percent:f}%" if extraction.discount_percent is not None else ""
    currency = f"; currency {extraction.currency}" if extraction.currency is not None else ""
    rest = terms_text(extraction.request)
    return f"for {account.replace(':', ' ')}: {lines}{term}{discount}{currency}{f'; {rest}' if rest else ''}"


def _read(extraction: Extraction) -> str:
    parts = [f"{line.quantity:,} {messages.escape(line.sku)}" for line in extraction.lines[: messages.PROPOSED_LINES_MAX]]
    if extraction.account is not None:
        parts.append(f"for {messages.escape(extraction.account)}")
    if extraction.term_months is not None:
        parts.append(f"{extraction.term_months} months")
    if extraction.discount_percent is not None:
        parts.append(f"{money.format_percent(extraction.discount_percent)} off")
    if extraction.currency is not None:
        parts.append(extraction.currency)
    return ", ".join(parts)


def _listed(remarks: Sequence[Remark]) -> list[str]:
    """Return the remarks as list items within 1,400 characters; a last item counts those that do not fit."""
    said: list[str] = []
    room = CHARACTERS_MAX
    for found in remarks:
        line = f"\u2022 {remark(found)}"
        room -= len(line) + 1
        if room < 0:
            return [*said, f"\u2022 and {len(remarks) - len(said)} more"]
        said.append(line)
    return said
