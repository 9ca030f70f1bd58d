"""The stand-in's parser of messages: quantities with words, an account after "for", a term in months, a discount."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PAIR = re.compile(r"(?<![\w.,$])(\d{1,3}(?:,\d{3})+|\d{1,9})\s+(?:x\s+)?([A-Za-z][\w-]{0,60})")
_TERM = re.compile(r"(?<![\w.])(\d{1,4})[\s-]+(month|year)s?\b", re.IGNORECASE)
_DISCOUNT = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,4})?)\s?(?:%|percent\b)", re.IGNORECASE)
_ACCOUNT = re.compile(r"\b[Ff]or\s+([A-Z][\w&'-]{0,60}(?:\s[A-Z][\w&'-]{0,60}){0,4})")
_CURRENCY = re.compile(r"\b(USD|EUR|GBP|CHF|JPY)\b")
_MONTHS_A_YEAR = 12
_NOT_PRODUCTS = frozenset({"month", "months", "year", "years", "percent", "off", "discount", "of", "for", "at", "and", "with"})


@dataclass(frozen=True, slots=True)
class Line:
    """One "<number> <word>" pair; `excerpt` is the text it was read from."""

    quantity: int
    product: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Values found in a message; None for those that are missing. `discount` is a percentage as text, never a float."""

    account: str | None
    lines: tuple[Line, ...]
    term_months: int | None
    discount: str | None
    currency: str | None


def understand(text: str) -> Facts:
    """Parse one message. Never raises; takes linear time."""
    term = _TERM.search(text)
    discount = _DISCOUNT.search(text)
    account = _ACCOUNT.search(text)
    currency = _CURRENCY.search(text)
    lines = tuple(
        Line(int(match.group(1).replace(",", "")), match.group(2), match.group())
        for match in _PAIR.finditer(text)
        if match.group(2).lower() not in _NOT_PRODUCTS
    )
    months = None
    if term is not None:
        months = int(term.group(1)) * (_MONTHS_A_YEAR if term.group(2).lower() == "year" else 1)
    return Facts(
        account=account.group(1) if account else None,
        lines=lines,
        term_months=months,
        discount=discount.group(1) if discount else None,
        currency=currency.group(1) if currency else None,
    )


def in_words(facts: Facts) -> str:
    """Return one plain sentence, for requests that ask for no structure."""
    lines = ", ".join(f"{line.quantity} {line.product}" for line in facts.lines) or "no products"
    term = f", {facts.term_months} months" if facts.term_months is not None else ""
    discount = f", {facts.discount} % discount" if facts.discount is not None else ""
    return f"{lines} for {facts.account or 'an unnamed account'}{term}{discount}."
