"""The names of the catalogue as sequences of tokens, to be found in running text, and the name a misspelt word comes nearest to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rapidfuzz import process
from rapidfuzz.distance import OSA

from quotebot.domain.free_text import tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.domain.catalogue import Catalogue
    from quotebot.domain.free_text import Token

TOKENS_MAX: Final = 8
NEAR_CHARACTERS_MIN: Final = 4
NEAR_CHARACTERS_MAX: Final = 40
LONG_CHARACTERS: Final = 8  # from here on two slips of the finger are forgiven
LOOK_UPS_MAX: Final = 32


class Names:
    """What a product may be called in a text. Look-ups of misspelt words are few, so that hostile text costs little."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._names = catalogue.aliases
        self._by_tokens = {
            key: sku
            for name, sku in catalogue.aliases.items()
            if 0 < len(key := tuple(row.text for row in tokens(name))) <= TOKENS_MAX
        }
        self._lengths = sorted({len(key) for key in self._by_tokens}, reverse=True)
        self._starts = {key[0] for key in self._by_tokens}
        self._on_sale = [name for name, sku in catalogue.aliases.items() if catalogue.products[sku].active]
        self._looked_up: dict[str, str | None] = {}

    def longest(self, found: Sequence[Token], index: int) -> tuple[int, str]:
        """Return how many tokens from here on are a name, at most, and the sku; (0, "") when none is."""
        if found[index].text not in self._starts:
            return 0, ""
        for length in self._lengths:
            sku = self._by_tokens.get(tuple(token.text for token in found[index : index + length]))
            if sku is not None and index + length <= len(found):
                return length, sku
        return 0, ""

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
        near = process.extract(word, self._on_sale, scorer=OSA.distance, score_cutoff=slips + 1, limit=10)
        skus = {self._names[name] for name, distance, _ in near if distance <= slips}
        return skus.pop() if len(skus) == 1 else None
