"""State of one extraction: the text's items, the claims on them, and the values found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quotebot.domain.extraction.remarks import Code, Remark

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.catalogue.names import Names

EXCERPT_CHARACTERS_MAX: Final = 60
GAP_ITEMS_MAX: Final = 4  # between a number and the product it counts


@dataclass(frozen=True, slots=True)
class ExtractedLine:
    """One product of the catalogue with its quantity."""

    sku: str
    quantity: int


@dataclass(slots=True)
class Item:
    """One token, or several with one meaning."""

    kind: str  # word | number | product | unit | term_unit | currency | discount | break | odd | percent | money_sign
    text: str
    start: int
    end: int
    number: Decimal | None = None
    sku: str = ""
    code: str = ""
    near: bool = False
    used: bool = False


@dataclass(slots=True)
class ExtractionState:
    """State of one extraction."""

    text: str
    items: list[Item]
    names: Names
    products: int = 0  # number of product items
    lines: list[tuple[ExtractedLine, str]] = field(default_factory=list)
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
