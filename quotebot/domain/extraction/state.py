"""One text while it is read: its items, what was claimed of them, and what was made of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quotebot.domain.extraction.remarks import Remark

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.catalogue.names import Names

EXCERPT_CHARACTERS_MAX: Final = 60
GAP_ITEMS_MAX: Final = 4  # between a number and what it counts


@dataclass(frozen=True, slots=True)
class ExtractedLine:
    """One product of the catalogue and how many of it."""

    sku: str
    quantity: int


@dataclass(slots=True)
class Item:
    """A token, or several that mean one thing."""

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
    """One text while it is read."""

    text: str
    items: list[Item]
    names: Names
    products: int = 0  # how often one is named
    lines: list[tuple[ExtractedLine, str]] = field(default_factory=list)
    accounts: dict[str, str] = field(default_factory=dict)  # folded -> as written
    terms: dict[int, str] = field(default_factory=dict)
    discounts: dict[Decimal, str] = field(default_factory=dict)
    currencies: dict[str, str] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def excerpt(self, first: int, last: int) -> str:
        """The words of these items as they were written, shortened."""
        words = " ".join(self.text[self.items[first].start : self.items[last].end].split())
        return words if len(words) <= EXCERPT_CHARACTERS_MAX else f"{words[: EXCERPT_CHARACTERS_MAX - 1]}\u2026"

    def note(self, code: str, first: int, last: int, meaning: str = "") -> None:
        """Remark on these items."""
        self.remarks.append(Remark(code, self.excerpt(first, last), meaning))

    def use(self, first: int, last: int) -> None:
        """Claim these items."""
        for item in self.items[first : last + 1]:
            item.used = True

    def at(self, index: int) -> Item | None:
        """The item there, or None beyond either end."""
        return self.items[index] if 0 <= index < len(self.items) else None

    def kind(self, index: int) -> str:
        """The kind of the item there; "break" beyond either end."""
        item = self.at(index)
        return "break" if item is None else item.kind

    def word(self, index: int) -> str:
        """The folded word there; empty when there is none."""
        item = self.at(index)
        return "" if item is None else item.text


def touching(reading: ExtractionState, index: int) -> bool:
    """Tell whether the next item follows without a space, as in "2k"."""
    following = reading.at(index + 1)
    return following is not None and following.start == reading.items[index].end
