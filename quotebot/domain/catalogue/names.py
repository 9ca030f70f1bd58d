"""Lookup of catalogue names in running text, including misspelt ones.

There is no index: each run of words is looked up in the catalogue's own table of names, so that the cost of a message does not
depend on the number of products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rapidfuzz import process
from rapidfuzz.distance import OSA

from quotebot.domain.catalogue.catalogue import Catalogue, fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quotebot.domain.extraction.tokens import Token

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
