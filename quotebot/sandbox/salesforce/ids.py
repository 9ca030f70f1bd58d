"""Record ids as Salesforce makes them: 15 case-sensitive characters, plus 3 that make the id safe to compare without case."""

from __future__ import annotations

import string

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_CHECKSUM_ALPHABET = string.ascii_uppercase + "012345"
_POD = "SB0"  # no real instance has this name
SHORT_LENGTH = 15
LONG_LENGTH = 18


def record_id(prefix: str, number: int) -> str:
    """Return the 18-character id of record `number` (>= 1) of the object whose key prefix is given."""
    digits = ""
    for _ in range(SHORT_LENGTH - len(prefix) - len(_POD)):
        number, digit = divmod(number, len(_BASE62))
        digits = _BASE62[digit] + digits
    short = prefix + _POD + digits
    return short + _checksum(short)


def long_form(candidate: str) -> str | None:
    """Return the 18-character form of a 15- or 18-character id, or None if it is not an id."""
    if not candidate.isascii() or not candidate.isalnum():
        return None
    if len(candidate) == SHORT_LENGTH:
        return candidate + _checksum(candidate)
    if len(candidate) != LONG_LENGTH:
        return None
    return _restore_case(candidate)


def _checksum(short: str) -> str:
    """Encode which of the 15 characters are upper case, five to a character."""
    return "".join(_CHECKSUM_ALPHABET[_capitals(short[start : start + 5])] for start in range(0, SHORT_LENGTH, 5))


def _capitals(chunk: str) -> int:
    return sum(1 << place for place, letter in enumerate(chunk) if "A" <= letter <= "Z")


def _restore_case(candidate: str) -> str | None:
    """Restore the case of an 18-character id that lost it; None if the suffix cannot be right."""
    suffix = candidate[SHORT_LENGTH:].upper()
    if any(letter not in _CHECKSUM_ALPHABET for letter in suffix):
        return None
    short = ""
    for place, letter in enumerate(candidate[:SHORT_LENGTH]):
        capital = _CHECKSUM_ALPHABET.index(suffix[place // 5]) >> (place % 5) & 1
        if capital and not letter.isalpha():
            return None
        short += letter.upper() if capital else letter.lower()
    return short + suffix
