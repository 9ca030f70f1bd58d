"""Drafts: form fields filled in from a quote, a typed request or a message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from quotebot.slack import grammar
from quotebot.views.forms import Draft

if TYPE_CHECKING:
    from quotebot.commands.registry import CreateQuote

# optional start of a message that is written like a command
_ADDRESSED = re.compile(r"(?:<@[UW][A-Z0-9]+(?:\|[^>]*)?> *)*(?:/quote )?(?:(?:new|start|create) )?", re.IGNORECASE)


def draft_of(typed: str) -> Draft:
    """Return a draft from text such as "for Acme: 10 pro; term 12m", even if parts of it are wrong.

    A clause that is neither term nor discount becomes a product, for the person to correct. Text without a colon becomes the
    customer's name.
    """
    head, _, body = typed.partition(":")
    account = head.strip()
    if account.casefold().startswith("for "):
        account = account[4:].strip()
    found = {"term": Draft().term, "discount": Draft().discount}
    items: list[str] = []
    for clause in body.split(";"):
        name, _, value = clause.strip().replace("=", " ").partition(" ")
        if name.casefold() in found and value.strip():
            found[name.casefold()] = value.strip()
        elif clause.strip():
            items.append(clause.strip())
    return Draft(account, ", ".join(items), found["term"], found["discount"])


def draft_of_creation(quote: CreateQuote, token: str | None = None) -> Draft:
    """Return a draft of a creation, with the parts that the form has fields for."""
    request = quote.request
    lines = "\n".join(f"{line.quantity} {line.sku}" for line in request.lines)
    return Draft(quote.account, lines, f"{request.term_months}m", f"{request.discount_percent:f}", request.currency, token)


def draft_of_message(text: str) -> Draft:
    """Return a draft from a person's message, one product per line.

    A message that does not begin with "for <customer>:" is taken over whole, as products, for the person to correct.
    """
    plain_text = grammar.normalised(" ; ".join(text.splitlines()))
    command = _ADDRESSED.sub("", plain_text, count=1)
    if command.casefold().startswith("for ") and ":" in command:
        return draft_of(command)
    items = [clause.strip() for clause in command.split(";") if clause.strip()]
    return Draft(lines="\n".join(items))
