"""Normal form of text from people and other systems."""

from __future__ import annotations

import unicodedata
from typing import Final

MARKS_IN_A_ROW_MAX: Final = 30  # Unicode's own bound (UAX #15, stream-safe text); no script needs more


def composed(text: str) -> str:
    """Return text in NFC. Combining marks beyond 30 in a row are dropped, because sorting them takes quadratic time."""
    if text.isascii():
        return text
    if any(map(unicodedata.combining, text)):
        kept, marks = [], 0
        for letter in text:
            marks = marks + 1 if unicodedata.combining(letter) else 0
            if marks <= MARKS_IN_A_ROW_MAX:
                kept.append(letter)
        text = "".join(kept)
    return unicodedata.normalize("NFC", text)
