"""Facts sent to a model for a summary of a quote for approvers, and the check of the summary before it is shown.

The facts contain no customer's name and no text that people typed. They are told, and summarized, in the installation's language.
The summary is shown with the figures and replaces none of them: a summary with a figure that is not among the facts is not shown at
all, nor one whose figures are written in another language than the current one.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.extraction.tokens import tokens
from quotebot.domain.language import N_, _, current, grouped
from quotebot.domain.pricing.engine import clipped, months_text
from quotebot.domain.texts import composed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotebot.domain.quotes.quote import Quote

SUMMARY_CHARACTERS_MAX: Final = 280
LINES_TOLD_MAX: Final = 20
_FIGURE: Final = re.compile(r"[0-9][0-9.,]*")
# How a language writes figures, and the sign between thousands, the sign before decimals.
_WRITTEN: Final = {
    "en": (re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?"), ",", "."),
    "de": (re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)?|[0-9]+(?:,[0-9]+)?"), ".", ","),
}
_PERCENT: Final = re.compile(r"\s?(?:%|percent\b|per cent\b|Prozent\b)")
_MARKS: Final = re.compile(r"[*_~`]")
# Words that express a number without digits, signs that multiply a figure, links and mentions. Harmless words may be among them.
_UNWANTED: Final = re.compile(
    r"://|www\.|@|[0-9]\s?(?:k|mm|mn|bn|mio|mrd|tsd)\b"
    r"|\b(?:half|halv\w*|doubl\w*|twice|tripl\w*|trebl\w*|quadrupl\w*|quintupl\w*|\w+fold|hundred\w*|thousand\w*|millions?|billions?"
    r"|trillions?|dozens?|zero|thirds?|quarters?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?|twelfths?|\w+t(?:een|ie)ths?)\b"
    r"|\b(?:halb\w*|(?:anderthalb|\w*einhalb)\w*|h(?:\u00e4|ae)lfte\w*|(?:ver)?doppel\w*|(?!(?:ver)?einfach)\w+fach\w*"
    r"|dritt\w*|\w*(?:drit|vier|f\u00fcnf|fuenf|sechs|sieb|sieben|acht|neun|elf|[dgt]s)tel\w*|\w*zehn\w*|\w*zw(?:\u00f6|oe)lf\w*"
    r"|(?:zwei|zwo|drei|vier|f\u00fcnf|fuenf|sech[sz]|sieben|siebt|acht|neun|elf)\w*|null|eins|\w*zig|\w*drei(?:\u00df|ss)ig\w*"
    r"|\w*(?:zwan|vier|f\u00fcnf|fuenf|sech|sieb|acht|neun)zig\w*|\w*hundert\w*|\w*tausend\w*|million\w*|milliard\w*|billion\w*"
    r"|dutzend\w*)\b",
    re.IGNORECASE,
)
_LINES: Final = {"recurring": N_("Line: {quantity} {name}, recurring."), "one_time": N_("Line: {quantity} {name}, one_time.")}
Figure = tuple[Decimal, bool]  # the second is true for a percentage


def facts_of(quote: Quote) -> str:
    """Return the facts about the approval, one per line, the most important first."""
    pricing, approval = quote.pricing, quote.approval
    amounts = [money.format_amount(amount, pricing.currency) for amount in (pricing.list_total, pricing.net_total)]
    facts = [
        _(
            "{percent} discount on {listed} list: {net} net, {months}.",
            percent=money.format_percent(pricing.discount_off_list_percent),
            listed=amounts[0],
            net=amounts[1],
            months=months_text(pricing.term_months),
        )
    ]
    if approval is not None:
        facts.append(_("Needs approval by: {roles}.", roles=", ".join(map(approval.roles.words, approval.required_roles))))
        facts += [_("Because: {reason}.", reason=reason) for reason in approval.reasons]
    facts += [_(_LINES[line.billing], quantity=grouped(line.quantity), name=line.name) for line in pricing.lines[:LINES_TOLD_MAX]]
    facts += [_("Special term: {term}.", term=term) for term in pricing.terms]
    return "\n".join(facts)


def shown(summary: str, facts: str) -> str | None:
    """Return the displayable summary, on one line and without formatting marks; None if it must not be shown."""
    said = " ".join(_MARKS.sub("", composed(summary)).split())
    if said in (" ".join(fact.split()) for fact in composed(facts).splitlines()):  # it only repeats what the card shows
        return None
    if not said or _UNWANTED.search(said) or any(_is_strange(character) for character in said):
        return None
    figures = set(_figures(said))
    if None in figures or not figures <= set(_figures(facts)):
        return None
    words = [token for token in tokens(_FIGURE.sub(" ", said)) if token.kind == "number"]  # spelt-out numbers
    return None if words else clipped(said, SUMMARY_CHARACTERS_MAX)


def _figures(text: str) -> Iterator[Figure | None]:
    """Yield each figure of a text; None for an ambiguous one."""
    form, group, decimal = _WRITTEN[current()]
    for match in _FIGURE.finditer(text):
        written = match[0].rstrip(".,")
        if not form.fullmatch(written):
            yield None
            continue
        yield (
            Decimal(written.replace(group, "").replace(decimal, ".")),
            _PERCENT.match(text, match.start() + len(written)) is not None,
        )


def _is_strange(character: str) -> bool:
    """Return whether a character is invisible, changes the text direction, or is a digit of another script."""
    return unicodedata.category(character)[0] == "C" or (character.isnumeric() and not character.isascii())
