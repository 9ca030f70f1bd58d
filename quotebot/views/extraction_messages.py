"""Messages about a request extracted from free text: inferred facts, words not understood, missing facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain import language, money
from quotebot.domain.language import N_, _, grouped, ngettext
from quotebot.domain.pricing.term_clauses import line_text, terms_text
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.extraction.extractor import Extraction
    from quotebot.domain.extraction.remarks import Code, Remark

CHARACTERS_MAX: Final = 1_400  # of all remarks together: a Slack section holds 3,000 characters, and the proposal comes first

# {said} is the author's wording, {meaning} its interpretation; both escaped.
_SAID: Final[Mapping[Code, str]] = {
    "near_name": N_('I took "{said}" as {meaning}.'),
    "one": N_('I took "{said}" as 1 {meaning}.'),
    "joined": N_('I took "{said}" as {meaning}.'),
    "percent": N_('I took "{said}" as {percent} off the whole quote.'),
    "account": N_('I took "{said}" as the customer.'),
    "dollars": N_('I took "{said}" as {meaning}.'),
    "thousands": N_('I took "{said}" as {meaning}.'),
    "money": N_('Prices come from the price list, so I ignored "{said}".'),
    "on_all": N_('I took "{said}" as a discount on the whole quote.'),
    "unclaimed": N_('I ignored "{said}".'),
    "term": N_("No term given, so {meaning} months."),
    "more": N_("I ignored {meaning} more parts of the message."),
    "model": N_("AI-read. Check each line before creating."),
    "unsure": N_('I guessed "{said}". Is that right?'),
    "no_account": N_("Who is it for? Example: `for Acme`."),
    "no_lines": N_("What is in it? Example: `150 pro`."),
    "accounts": N_("Which customer: {said}?"),
    "terms": N_("Which term: {said}?"),
    "discounts": N_("Which discount: {said}?"),
    "currencies": N_("Which currency: {said}?"),
    "choice": N_('"{said}": which one, {meaning}?'),
    "twice": N_('"{said}": you named {meaning} more than once. Give one quantity.'),
    "unknown_product": N_('"{said}" isn\'t in the catalog.'),
    "no_quantity": N_('"{said}" has no quantity. How many {meaning}?'),
    "number": N_("What is {said}? A discount, a quantity or months?"),
    "word": N_('"{said}" makes the numbers unclear. Please give exact numbers.'),
    "sign": N_('The sign "{said}" makes the numbers unclear. Please write it without.'),
    "invented": N_('I wasn\'t sure about "{said}".'),
    "existing": N_("That quote already exists. From a message I only create new ones."),
}
CODES: Final = frozenset({*_SAID, "rules"})

# Reasons why the model's extraction is not used.
WITHOUT_MODEL: Final[Mapping[str, str]] = {
    "held": N_("AI reading is unavailable, so this uses simple rules."),
    "late": N_("AI reading took too long, so this uses simple rules."),
    "unusable": N_("AI reading gave no usable answer, so this uses simple rules."),
    "failed": N_("AI reading failed, so this uses simple rules."),
    "doubtful": N_("AI reading didn't match your message, so this uses simple rules."),
    "off": N_("AI reading is off, so this uses simple rules."),
}


def budget_spent(readings: int) -> str:
    """Reply to a user whose daily budget of model extractions is spent."""
    return _("You've used today's {n} AI readings, so this uses simple rules. More at midnight UTC.", n=grouped(readings))


def remark(found: Remark) -> str:
    """Return the sentence of one remark as escaped mrkdwn."""
    if found.code == "rules":  # its meaning is a sentence
        return messages.escape(messages.one_line(_(found.meaning)))
    said, meaning = (messages.escape(messages.one_line(part)) for part in (found.excerpt, found.meaning))
    return _(_SAID[found.code], said=said, meaning=meaning, percent=language.percent(meaning))


def beside(remarks: Sequence[Remark]) -> str:
    """Return the remarks shown beside a proposal; empty if there are none."""
    return "" if not remarks else "\n".join((_("Please check:"), *_listed(remarks)))


def question(extraction: Extraction) -> str:
    """Return the extracted facts and ask for the missing ones."""
    found = _read(extraction)
    head = N_("So far: {found}. I need a bit more to build this quote:") if found else N_("I need a bit more to build this quote:")
    return "\n".join((_(head, found=found), *_listed(extraction.open_questions)))


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
    parts = [f"{grouped(line.quantity)} {messages.escape(line.sku)}" for line in extraction.lines[: messages.PROPOSED_LINES_MAX]]
    if extraction.account is not None:
        parts.append(_("for {customer}", customer=messages.escape(extraction.account)))
    if extraction.term_months is not None:
        parts.append(ngettext("{n} month", "{n} months", extraction.term_months))
    if extraction.discount_percent is not None:
        parts.append(_("{percent} off", percent=money.format_percent(extraction.discount_percent)))
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
            return [*said, _("• and {n} more", n=grouped(len(remarks) - len(said)))]
        said.append(line)
    return said
