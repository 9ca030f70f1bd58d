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
    "near_name": '"{0}" is read as {1}.',
    "one": '"{0}" is read as 1 {1}.',
    "joined": '"{0}" is read as {1}.',
    "percent": '"{0}" is read as {1} % discount on the whole quote.',
    "account": '"{0}" is read as the customer.',
    "dollars": '"{0}" is read as {1}.',
    "thousands": '"{0}" is read as {1}.',
    "money": '"{0}" changes nothing: prices come from the price book.',
    "on_all": '"{0}" is read as a discount on the whole quote.',
    "unclaimed": '"{0}" was not read.',
    "term": "No term was given: it would be {1} months.",
    "more": "There are {1} more remarks: the message says much that was not read.",
    "model": "A model read this: compare each line with your words.",
    "unsure": 'Check "{0}": without the model I would have asked back here.',
    "rules": "{1} So this was read by fixed rules.",
    "no_account": "Who is it for? Write e.g. `for Acme`.",
    "no_lines": "What is in it? Write e.g. `150 pro`.",
    "accounts": "Which customer: {0}?",
    "terms": "Which term: {0}?",
    "discounts": "Which discount: {0}?",
    "currencies": "Which currency: {0}?",
    "twice": '"{0}": {1} is there more than once. Name it once, with one quantity.',
    "unknown_product": '"{0}" names nothing in the catalogue.',
    "no_quantity": '"{0}": how many {1}?',
    "number": '"{0}" can be read in more than one way, or in none.',
    "word": '"{0}" may change what the numbers mean. Say it without.',
    "sign": 'the sign "{0}" may change what the numbers mean. Say it without.',
    "invented": '"{0}" is not what the message says.',
    "existing": "This names a quote that exists. In a message I only propose new quotes.",
}
CODES: Final = frozenset(_SAID)

# Reasons why the model's extraction is not used.
WITHOUT_MODEL: Final[Mapping[str, str]] = {
    "held": "The language model cannot be asked now.",
    "late": "The language model did not answer in time.",
    "unusable": "The language model's answer could not be used.",
    "failed": "The language model could not read it.",
    "doubtful": "The language model's reading does not agree with the message.",
    "off": "No language model is configured.",
}


def budget_spent(readings: int) -> str:
    """Reply to a user whose daily budget of model extractions is spent."""
    return f"You have used today's {readings} readings by the language model; it reads again tomorrow (UTC)."


def remark(found: Remark) -> str:
    """Return the sentence of one remark as escaped mrkdwn."""
    excerpt, meaning = (messages.escape(messages.one_line(part)) for part in (found.excerpt, found.meaning))
    return _SAID[found.code].format(excerpt, meaning)


def beside(remarks: Sequence[Remark]) -> str:
    """Return the remarks shown beside a proposal; empty if there are none."""
    return "" if not remarks else "\n".join(("Please check:", *_listed(remarks)))


def question(extraction: Extraction, end: str = "Nothing was recorded.") -> str:
    """Return the extracted facts and ask for the missing ones. `end` is the last sentence."""
    return "\n".join((f"I read {_read(extraction)}. Before I can propose it:", *_listed(extraction.open_questions), end))


def question_after_reading(extraction: Extraction) -> str:
    """Ask for the missing facts of a message sent to the model; first state whether the model or fixed rules extracted it."""
    told = [remark(found) for found in extraction.remarks if found.code in ("model", "rules")]
    return "\n".join((*told, question(extraction, "Nothing was created.")))


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
        parts.append(f"{money.format_percent(extraction.discount_percent)} discount")
    if extraction.currency is not None:
        parts.append(extraction.currency)
    return ", ".join(parts) or "nothing"


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
