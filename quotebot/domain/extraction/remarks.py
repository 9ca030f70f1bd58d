"""Codes of remarks about an extraction; quotebot/views/extraction_messages.py has their sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Notes: shown with the proposal.
NEAR_NAME: Final = "near_name"
ONE: Final = "one"
JOINED: Final = "joined"
PERCENT: Final = "percent"
ACCOUNT: Final = "account"
DOLLARS: Final = "dollars"
THOUSANDS: Final = "thousands"
MONEY: Final = "money"
ON_ALL: Final = "on_all"
UNCLAIMED: Final = "unclaimed"
TERM: Final = "term"
MODEL: Final = "model"
RULES: Final = "rules"
UNSURE: Final = "unsure"
MORE: Final = "more"
# Doubts: each blocks the proposal.
NO_ACCOUNT: Final = "no_account"
NO_LINES: Final = "no_lines"
ACCOUNTS: Final = "accounts"
TERMS: Final = "terms"
DISCOUNTS: Final = "discounts"
CURRENCIES: Final = "currencies"
TWICE: Final = "twice"
UNKNOWN_PRODUCT: Final = "unknown_product"
NO_QUANTITY: Final = "no_quantity"
NUMBER: Final = "number"
WORD: Final = "word"
SIGN: Final = "sign"
EXISTING: Final = "existing"
INVENTED: Final = "invented"
DOUBTS: Final = frozenset(
    {
        NO_ACCOUNT,
        NO_LINES,
        ACCOUNTS,
        TERMS,
        DISCOUNTS,
        CURRENCIES,
        TWICE,
        UNKNOWN_PRODUCT,
        NO_QUANTITY,
        NUMBER,
        WORD,
        SIGN,
        EXISTING,
        INVENTED,
    }
)


@dataclass(frozen=True, slots=True)
class Remark:
    """Remark for the author: the reason (`code`), the words concerned, and their interpretation, if any."""

    code: str
    excerpt: str
    meaning: str = ""
