"""Drafts that fill in the form of a new quote: from a command, a proposal or a person's message. Local rules only, no ledger."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.extraction.extractor import extract
from quotebot.domain.language import localized
from quotebot.domain.pricing.commercial_terms import NAMES, USUAL, edited
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, Changes, LineRequest, PriceRequest
from quotebot.domain.pricing.term_clauses import clauses, terms_text
from quotebot.slack import grammar
from quotebot.slack.message_text import on_one_line
from quotebot.views import extraction_messages, messages
from quotebot.views.builder import UNCHANGED, Draft

if TYPE_CHECKING:
    from quotebot.commands.payloads import CreateQuote
    from quotebot.domain.catalogue.catalogue import Catalogue

QUOTED_CHARACTERS_MAX: Final = 500
_MORE: Final = (
    "region",
    "with_tax",
    "terms",
    "segment",
    "billing_frequency",
    "commercial",
)  # of Changes: a draft holds them as values
# optional start of a message that is written like a command
_ADDRESSED = re.compile(r"(?:<@[UW][A-Z0-9]+(?:\|[^>]*)?> *)*(?:/quote )?(?:(?:new|start|create) )?", re.IGNORECASE)


def draft_of(typed: str, catalogue: Catalogue) -> Draft:
    """Return a draft from text such as "for Acme: 10 pro; term 12m", even if parts of it are wrong.

    What cannot be read stays as typed, for the person to correct. Text without a colon becomes the customer's name.
    """
    head, _, body = typed.partition(":")
    account = head.strip()
    if account.casefold().startswith("for "):
        account = account[4:].strip()
    found = {"term": Draft().term, "discount": Draft().discount, "currency": ""}
    more: dict[str, Any] = {}
    lines: list[LineRequest] = []
    left: list[str] = []
    for clause in filter(None, clauses(body)):
        keyword, value = grammar.keyword_of(clause)
        if keyword in found and value:
            found[keyword] = value
            continue
        read = grammar.read_request(clause, catalogue) if keyword is None else ()
        if not isinstance(read, tuple) and not left:
            lines += read.lines
            continue
        if not _taken(_more_of(clause, catalogue), more):
            left.append(clause)
    currency = found["currency"].upper() or None
    return Draft(account, tuple(lines), found["term"], found["discount"], currency, more=Changes(**more), text="; ".join(left))


def _taken(named: dict[str, Any], more: dict[str, Any]) -> bool:
    """Add the values of a clause to those found so far; return false if there are none, or if one is there already."""
    both = [name for name in named if name in more]
    if both == ["commercial"]:
        before, after = more["commercial"], named["commercial"]
        if all(None in (getattr(before, name), getattr(after, name)) for name in NAMES):
            named, both = {**named, "commercial": edited(before, after)}, []
    if not both:
        more |= named
    return bool(named) and not both


def _more_of(clause: str, catalogue: Catalogue) -> dict[str, Any]:
    """Return the values of a clause about tax, special terms, segment or billing; empty for every other clause."""
    changes = grammar.read_changes(clause, catalogue)
    if isinstance(changes, tuple) or changes.lines:
        return {}
    values = {each.name: getattr(changes, each.name) for each in fields(changes)}
    named = {name: value for name, value in values.items() if value != getattr(UNCHANGED, name)}
    return named if named.keys() <= set(_MORE) else {}


def draft_of_creation(quote: CreateQuote, token: str | None = None) -> Draft:
    """Return a draft of a creation: the form, submitted unchanged, creates exactly this quote."""
    return replace(_of_request(quote.account, quote.request), token=token)


def _of_request(account: str, request: PriceRequest) -> Draft:
    usual = BILLING_FREQUENCIES[0]
    more = Changes(
        region=request.region,
        with_tax=request.with_tax or None,
        terms=request.terms or None,
        segment=request.segment,
        billing_frequency=None if request.billing_frequency == usual else request.billing_frequency,
        commercial=request.commercial,
    )
    rest = replace(request, region=None, with_tax=False, terms=(), segment=None, billing_frequency=usual, commercial=USUAL)
    term, discount = f"{request.term_months}m", localized(f"{request.discount_percent:f}")
    return Draft(account, request.lines, term, discount, request.currency, more=more, text=terms_text(rest))


def draft_of_message(text: str, catalogue: Catalogue) -> Draft:
    """Return a draft from a person's message, which is quoted above the form with what fixed rules could not read."""
    plain_text = grammar.normalised(" ; ".join(text.splitlines()))
    command = _ADDRESSED.sub("", plain_text, count=1)
    if command.casefold().startswith("for ") and ":" in command:
        return draft_of(command, catalogue)
    if not plain_text:
        return Draft()
    found = extract(on_one_line(text), catalogue)
    quoted = "\n".join(f"> {messages.short(line, QUOTED_CHARACTERS_MAX)}" for line in text.splitlines()[:10] if line.strip())
    remarks = extraction_messages.beside(found.remarks)
    return replace(_of_request(found.account or "", found.request), quoted="\n".join(filter(None, (quoted, remarks))))
