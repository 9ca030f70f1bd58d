"""Extraction of the customer's name; part of the extractor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.extraction import vocabulary as known

if TYPE_CHECKING:
    from quotebot.domain.extraction.state import ExtractionState

ACCOUNT_CHARACTERS_MAX: Final = 100


def read_accounts(reading: ExtractionState) -> None:
    """Record every name that is introduced as the customer's."""
    index = 0
    while index < len(reading.items):
        word = reading.word(index)
        end = index + 1
        if word in known.ACCOUNT_LEADS and not reading.items[index].used:
            end = _see_account(reading, index + 1, guessed=word not in known.ACCOUNT_SURE)
        elif reading.kind(index - 1) == "break" and _capital(reading, index):
            last = _name_end(reading, index)
            heads = index == 0 and reading.word(last) in known.DASHES
            if heads or reading.word(last) in known.ACCOUNT_VERBS or reading.word(last) == ":":
                end = _see_account(reading, index, guessed=True)
        index = max(end, index + 1)


def _see_account(reading: ExtractionState, index: int, *, guessed: bool) -> int:
    """Record the name at `index` and others after "and" or "or": several names are ambiguous. Return their end index."""
    if reading.word(index) == ":":
        index += 1
    if reading.word(index) == "the" and _capital(reading, index + 1):
        index += 1
    end = _take_name(reading, index, guessed=guessed)
    while end > index and reading.word(end) in ("and", "or") and _capital(reading, end + 1):
        index, end = end, _take_name(reading, end + 1, guessed=guessed)
    return end


def _take_name(reading: ExtractionState, index: int, *, guessed: bool) -> int:
    """Record the capitalised words at `index` as an account; lower-case words only if not `guessed`. Return their end index."""
    end = _name_end(reading, index)
    if end == index and not guessed:
        end = _small_name_end(reading, index)
        guessed = True
    if end == index:
        return index
    name = " ".join(reading.text[reading.items[index].start : reading.items[end - 1].end].split())
    if len(name) > ACCOUNT_CHARACTERS_MAX:
        return end
    reading.use(index, end - 1)
    reading.accounts.setdefault(name.casefold(), name)
    if guessed:
        reading.note("account", index, end - 1, name)
    return end


def _name_end(reading: ExtractionState, index: int) -> int:
    """Return the end index of the capitalised words at `index`; links such as "of" or "&" may connect them."""
    end = index
    while _capital(reading, end) or (
        end > index
        and reading.word(end) in known.NAME_LINKS
        and (_capital(reading, end + 1) or reading.word(end + 1) in known.NAME_LINKS)
    ):
        end += 1
    while end > index and reading.word(end - 1) in known.NAME_LINKS:
        end -= 1
    return end


def _capital(reading: ExtractionState, index: int) -> bool:
    item = reading.at(index)
    if item is None or item.used or item.kind not in ("word", "unit") or item.text in known.NO_NAMES:
        return False
    return reading.text[item.start].isupper()


def _small_name_end(reading: ExtractionState, index: int) -> int:
    end = index
    while reading.kind(end) == "word" and not reading.items[end].used and end < len(reading.items):
        if reading.word(end) in known.FILLERS or reading.word(end) in known.UNCLEAR or reading.word(end) in known.NO_NAMES:
            break
        end += 1
    return end
