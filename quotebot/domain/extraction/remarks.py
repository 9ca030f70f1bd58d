"""Codes of remarks about an extraction; quotebot/views/extraction_messages.py has their sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

# Notes are shown with the proposal, but a doubt blocks it.
Note = Literal[
    "near_name",
    "one",
    "joined",
    "percent",
    "account",
    "dollars",
    "thousands",
    "money",
    "on_all",
    "unclaimed",
    "term",
    "model",
    "rules",
    "unsure",
    "more",
]
Doubt = Literal[
    "no_account",
    "no_lines",
    "accounts",
    "terms",
    "discounts",
    "currencies",
    "choice",
    "twice",
    "unknown_product",
    "no_quantity",
    "number",
    "word",
    "sign",
    "existing",
    "invented",
]
Code = Literal[Note, Doubt]
DOUBTS: Final = frozenset(get_args(Doubt))


@dataclass(frozen=True, slots=True)
class Remark:
    """Remark for the author: the reason (`code`), the words concerned, and their interpretation, if any."""

    code: Code
    excerpt: str
    meaning: str = ""
