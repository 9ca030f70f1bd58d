"""State of one extraction: the text's items, the claims on them, and the values found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rapidfuzz import process
from rapidfuzz.distance import OSA

from quotebot.domain.catalogue.catalogue import Catalogue, fold
from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.remarks import Code, Remark
from quotebot.domain.extraction.tokens import QUIET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from quotebot.domain.extraction.tokens import Token
    from quotebot.domain.pricing.price_requests import LineRequest

EXCERPT_CHARACTERS_MAX: Final = 60
GAP_ITEMS_MAX: Final = 4  # between a number and the product it counts


@dataclass(slots=True)
class Item:
    """One token, or several with one meaning."""

    kind: str  # word | number | product | per | unit | term_unit | currency | discount | break | odd | percent | money_sign
    text: str
    start: int
    end: int
    number: Decimal | None = None
    sku: str = ""
    code: str = ""
    near: bool = False
    used: bool = False


TOKENS_MAX: Final = 8
NEAR_CHARACTERS_MIN: Final = 4
NEAR_CHARACTERS_MAX: Final = 40
LONG_CHARACTERS: Final = 8  # from this length on two typing errors are accepted
LOOK_UPS_MAX: Final = 8  # each compares one word with every name
NEAREST_MAX: Final = 10


class Names:
    """Name lookup for one text. The number of lookups of misspelt words is limited, so that hostile text costs little."""

    def __init__(self, catalogue: Catalogue, text: str) -> None:
        self._catalogue = catalogue
        self._text = text
        self._looked_up: dict[str, str | None] = {}

    def longest(self, found: Sequence[Token], index: int) -> tuple[int, str]:
        """Return the length in tokens of the longest name starting at `index`, and its sku; (0, "") without one."""
        names = self._catalogue.aliases
        length, sku = 0, ""
        for count, spelling in self._spellings(found, index):
            if spelling in names:
                length, sku = count, names[spelling]
        return length, sku

    def is_per(self, found: Sequence[Token], index: int) -> bool:
        """Return whether the word at `index`, unquoted and before a further word, means "per" in the language."""
        token, following = found[index], found[index + 1] if index + 1 < len(found) else None
        if following is None or following.kind != "word" or not known.is_per(token.text, following.text):
            return False
        inside = index and found[index - 1].kind != "break"
        if inside and self._text[token.start].isupper() and self._text[following.start].islower():
            return False  # "10 Pro netto"
        return self._text[token.start - 1 : token.start] not in QUIET and self._text[token.end : following.start].isspace()

    def _spellings(self, found: Sequence[Token], index: int) -> Iterator[tuple[int, str]]:
        """Yield runs of words from `index` on, each with its length: joined by spaces, by hyphens, and as written."""
        spaced = ""
        for count, token in enumerate(found[index : index + TOKENS_MAX], start=1):
            if token.kind not in ("word", "number"):
                return
            spaced = f"{spaced} {token.text}" if spaced else token.text
            yield count, spaced
            if count > 1:
                written = self._text[found[index].start : token.end]
                yield count, spaced.replace(" ", "-")
                if "-" in written:
                    yield count, fold(written)

    def near(self, word: str) -> str | None:
        """Return the sku of the only active product with a name one or two typing errors away; None if none or several match."""
        if not NEAR_CHARACTERS_MIN <= len(word) <= NEAR_CHARACTERS_MAX:
            return None
        if word not in self._looked_up:
            if len(self._looked_up) >= LOOK_UPS_MAX:
                return None
            self._looked_up[word] = self._nearest(word)
        return self._looked_up[word]

    def _nearest(self, word: str) -> str | None:
        slips = 1 if len(word) < LONG_CHARACTERS else 2
        names, products = self._catalogue.aliases, self._catalogue.products
        found = process.extract(word, names.keys(), scorer=OSA.distance, score_cutoff=slips, limit=NEAREST_MAX)
        skus = {names[name] for name, _, _ in found if products[names[name]].active}
        return skus.pop() if len(skus) == 1 else None


@dataclass(slots=True)
class ExtractionState:
    """State of one extraction."""

    text: str
    items: list[Item]
    names: Names
    products: int = 0  # number of different products
    lines: list[tuple[LineRequest, str]] = field(default_factory=list)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of lines, by sku
    accounts: dict[str, str] = field(default_factory=dict)  # folded -> as written
    terms: dict[int, str] = field(default_factory=dict)
    discounts: dict[Decimal, str] = field(default_factory=dict)
    currencies: dict[str, str] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def excerpt(self, first: int, last: int) -> str:
        """Return the words of these items as written, shortened."""
        words = " ".join(self.text[self.items[first].start : self.items[last].end].split())
        return words if len(words) <= EXCERPT_CHARACTERS_MAX else f"{words[: EXCERPT_CHARACTERS_MAX - 1]}\u2026"

    def note(self, code: Code, first: int, last: int, meaning: str = "") -> None:
        """Add a remark on these items."""
        self.remarks.append(Remark(code, self.excerpt(first, last), meaning))

    def use(self, first: int, last: int) -> None:
        """Claim these items."""
        for item in self.items[first : last + 1]:
            item.used = True

    def at(self, index: int) -> Item | None:
        """Return the item at the index, or None out of range."""
        return self.items[index] if 0 <= index < len(self.items) else None

    def kind(self, index: int) -> str:
        """Return the kind of the item at the index; "break" out of range."""
        item = self.at(index)
        return "break" if item is None else item.kind

    def word(self, index: int) -> str:
        """Return the case-folded text of the item at the index; empty out of range."""
        item = self.at(index)
        return "" if item is None else item.text


def touching(reading: ExtractionState, index: int) -> bool:
    """Return whether the next item follows without a space, as in "2k"."""
    following = reading.at(index + 1)
    return following is not None and following.start == reading.items[index].end
