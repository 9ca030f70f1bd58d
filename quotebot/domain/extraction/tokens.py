"""Tokenizer of free text: words, whole and decimal numbers (also spelt out), percentages, breaks. One pass, linear time.

It assigns no meaning. A sign that could hide or change a number (a range's hyphen, "~", digits of other scripts, invisible
characters) becomes an `odd` token, so that the extractor reports a doubt instead of guessing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain.language import typed_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind = Literal["word", "number", "percent", "money_sign", "break", "odd"]

_TOKEN: Final = re.compile(r"(?P<number>[0-9]+(?:[.,][0-9]+)*)|(?P<word>[^\W\d_]\w*(?:['\u2019][^\W\d_]+)?)|(?P<sign>\S|\n)")
_DECIMAL: Final = re.compile(r"(?!0*[1-9][0-9]{0,2}\.[0-9]{3}$)[0-9]{1,6}\.[0-9]{1,6}")  # "1.500" is 1500 to some people
QUIET: Final = frozenset("*_\"'\u2018\u2019\u201c\u201d`\u00ab\u00bb")  # marks of emphasis and quotation
_ODD: Final = frozenset("~<>\u00b1\u2248")
_HYPHENS: Final = frozenset("-\u2010\u2011\u2012\u2013\u2212")
_SIGNS: Final[Mapping[str, tuple[Kind, str]]] = {
    "%": ("percent", "%"),
    "&": ("word", "&"),
    "\u00d7": ("word", "x"),
    **{sign: ("money_sign", sign) for sign in "$\u20ac\u00a3\u00a5"},
}

_UNDER_TWENTY: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_FROM_TWENTY: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS: Final[Mapping[str, int]] = {word: value for value, word in enumerate(_UNDER_TWENTY.split(), start=1)}
_TENS: Final[Mapping[str, int]] = {word: value * 10 for value, word in enumerate(_FROM_TWENTY.split(), start=2)}
_SCALES: Final[Mapping[str, int]] = {"dozen": 12, "hundred": 100, "thousand": 1000}
_NINE: Final = 9
_HUNDRED: Final = 100
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `start` and `end` are offsets in the text; `value` is None for an ambiguous number."""

    kind: Kind
    text: str  # case folded
    start: int
    end: int
    value: Decimal | None = None


def tokens(text: str) -> list[Token]:
    """Split a text. Hyphens inside words and emphasis marks are not tokens."""
    return list(_with_number_words([token for match in _TOKEN.finditer(text) for token in _token(text, match)]))


def number(text: str) -> Decimal | None:
    """Parse "1500", "1,500" or "12.5"; None for ambiguous numbers such as "1.500", "1.500,00" or "12,5", in German also "1,500"."""
    whole = typed_whole(text)
    if whole is not None:
        return Decimal(whole)
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _token(text: str, match: re.Match[str]) -> Iterator[Token]:
    found, start, end = match[0], match.start(), match.end()
    if match["number"]:
        yield Token("number", found, start, end, number(found))
    elif match["word"]:
        yield Token("word", found.casefold(), start, end)
    elif found in QUIET:
        return
    elif found in _SIGNS:
        yield Token(*_SIGNS[found], start, end)
    elif found in _HYPHENS:
        yield from _hyphen(text, found, start, end)
    elif found in _ODD or (found != "\n" and unicodedata.category(found)[0] in "CN"):
        yield Token("odd", found, start, end)
    else:
        yield Token("break", found, start, end)


def _hyphen(text: str, found: str, start: int, end: int) -> Iterator[Token]:
    """Yield the token of a hyphen: none inside a word, `odd` in a range or a negative number, else a break."""
    before, after = text[start - 1 : start], text[end : end + 1]
    if after.isdigit() and not before.isalpha():
        yield Token("odd", found, start, end)
    elif not before.isalnum() or not after.isalnum():
        yield Token("break", found, start, end)


def _with_number_words(plain: list[Token]) -> Iterator[Token]:
    """Yield the tokens with each run of number words as one number: "one hundred and fifty" becomes 150, "a dozen" 12."""
    index = 0
    while index < len(plain):
        end, value = _number_words(plain, index)
        if value:
            words = plain[index:end]
            yield Token("number", " ".join(word.text for word in words), words[0].start, words[-1].end, Decimal(value))
            index = end
        else:
            yield plain[index]
            index += 1


def _number_words(plain: list[Token], index: int) -> tuple[int, int]:
    """Return end index and value of the number words at `index`; the value is 0 without any. An unfitting word ends the number."""
    done, current, at = 0, 0, index
    if plain[at].text == "a" and at + 1 < len(plain) and plain[at + 1].text in _SCALES:
        current, at = 1, at + 1
    while at < len(plain):
        word = plain[at].text
        joined = current % _HUNDRED == 0 and (current or done)
        if word == "and" and joined and at + 1 < len(plain) and (plain[at + 1].text in _UNITS or plain[at + 1].text in _TENS):
            at += 1
            continue
        if word in _UNITS and (
            current % _HUNDRED == 0 or (current % 10 == 0 and current % _HUNDRED > _UNITS["ten"] and _UNITS[word] <= _NINE)
        ):
            current += _UNITS[word]
        elif word in _TENS and current % _HUNDRED == 0:
            current += _TENS[word]
        elif word in ("hundred", "dozen") and 0 < current <= _NINE:
            current *= _SCALES[word]
        elif word == "thousand" and 0 < current < _THOUSAND and not done:
            done, current = current * _THOUSAND, 0
        else:
            break
        at += 1
    return at, done + current
