"""The names of the catalogue as they occur in running text, and the name that a misspelt word comes nearest to.

Nothing is prepared: the catalogue's own table of names is asked for each run of words, so that a message costs the same whether
ten products are sold or ten thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rapidfuzz import process
from rapidfuzz.distance import OSA

from quotebot.domain.catalogue.catalogue import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.extraction.tokens import Token

TOKENS_MAX: Final = 8
NEAR_CHARACTERS_MIN: Final = 4
NEAR_CHARACTERS_MAX: Final = 40
LONG_CHARACTERS: Final = 8  # from here on two slips of the finger are forgiven
LOOK_UPS_MAX: Final = 8  # each compares a word with every name
NEAREST_MAX: Final = 10


class Names:
    """What a product may be called in one text. Look-ups of misspelt words are few, so that hostile text costs little."""

    def __init__(self, catalogue: Catalogue, text: str) -> None:
        self._catalogue = catalogue
        self._text = text
        self._looked_up: dict[str, str | None] = {}

    def longest(self, found: Sequence[Token], index: int) -> tuple[int, str]:
        """Return how many tokens from here on are a name, at most, and the sku; (0, "") when none is."""
        names = self._catalogue.aliases
        length, sku = 0, ""
        for count, spelling in self._spellings(found, index):
            if spelling in names:
                length, sku = count, names[spelling]
        return length, sku

    def _spellings(self, found: Sequence[Token], index: int) -> Iterator[tuple[int, str]]:
        """Yield what is written from here on, word by word: as it stands, with spaces and with hyphens between the words."""
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
        """Return the one product on sale whose name is a slip or two away; None when there is none, or more than one."""
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
