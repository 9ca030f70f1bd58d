"""Reads a request for a quote from free text: no model, one pass over tokens, the catalogue as the dictionary.

It claims what it is sure of and reports everything else: a doubt stops a proposal, a note is shown beside it. It never raises,
takes time linear in the text, and can say nothing about prices, approvals or recipients: there is no field for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar

from quotebot.domain import extraction_words as known
from quotebot.domain.catalogue_names import Names
from quotebot.domain.free_text import Token, tokens
from quotebot.domain.remarks import (
    ACCOUNT,
    ACCOUNTS,
    CURRENCIES,
    DISCOUNTS,
    DOLLARS,
    DOUBTS,
    EXISTING,
    JOINED,
    MONEY,
    NEAR_NAME,
    NO_ACCOUNT,
    NO_LINES,
    NO_QUANTITY,
    NUMBER,
    ON_ALL,
    ONE,
    PERCENT,
    SIGN,
    TERM,
    TERMS,
    THOUSANDS,
    TWICE,
    UNCLAIMED,
    UNKNOWN_PRODUCT,
    WORD,
    Remark,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.catalogue import Catalogue

REMARKS_MAX: Final = 12
EXCERPT_CHARACTERS_MAX: Final = 60
LINES_MAX: Final = 100
ACCOUNT_CHARACTERS_MAX: Final = 100
_T = TypeVar("_T")
_GAP_ITEMS_MAX: Final = 4  # between a number and what it counts
_QUOTE_ID: Final = re.compile(r"\bq-[0-9]{4}-[0-9]{4,9}\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class ExtractedLine:
    """One product of the catalogue and how many of it."""

    sku: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was read; None where nothing was, or where two readings conflict. `discount_percent` is what was asked for."""

    account: str | None
    lines: tuple[ExtractedLine, ...]
    term_months: int | None
    discount_percent: Decimal | None
    currency: str | None
    remarks: tuple[Remark, ...]

    @property
    def doubts(self) -> tuple[Remark, ...]:
        """Why nothing can be proposed; empty when something can."""
        return tuple(remark for remark in self.remarks if remark.code in DOUBTS)


@dataclass(slots=True)
class _Item:
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
class _Reading:
    """One text while it is read."""

    text: str
    items: list[_Item]
    names: Names
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

    def at(self, index: int) -> _Item | None:
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


def extract(text: str, catalogue: Catalogue) -> Extraction:
    """Read one message, already on one line and in NFC. Equal input gives equal output."""
    names = Names(catalogue, text)
    reading = _Reading(text, _items(tokens(text), names), names)
    if _QUOTE_ID.search(text):
        reading.remarks.append(Remark(EXISTING, ""))
    _read_money(reading)
    _read_terms(reading)
    _read_discounts(reading)
    _read_currencies(reading)
    _read_lines(reading)
    _read_accounts(reading)
    _read_rest(reading)
    return _result(reading)


def _items(found: Sequence[Token], names: Names) -> list[_Item]:
    """Name the tokens: products of the catalogue first, the longest name that fits, then words with a known meaning."""
    items: list[_Item] = []
    index = 0
    while index < len(found):
        token = found[index]
        length, sku = names.longest(found, index)
        if length:
            last = found[index + length - 1]
            items.append(_Item("product", "", token.start, last.end, sku=sku))
            index += length
            continue
        items.append(_named(token))
        index += 1
    return items


def _named(token: Token) -> _Item:
    item = _Item(token.kind, token.text, token.start, token.end, token.value)
    if token.kind != "word":
        return item
    if token.text in known.UNITS:
        item.kind = "unit"
    elif token.text in known.TERM_MONTHS:
        item.kind, item.number = "term_unit", Decimal(known.TERM_MONTHS[token.text])
    elif token.text in known.CURRENCIES:
        item.kind, item.code = "currency", known.CURRENCIES[token.text]
    elif token.text in known.DISCOUNT:
        item.kind = "discount"
    elif token.text in known.PERCENT:
        item.kind = "percent"
    return item


def _read_money(reading: _Reading) -> None:
    """Amounts of money are reported and otherwise not heard: prices come from the catalogue. They tell the currency, though."""
    for index, item in enumerate(reading.items):
        if item.kind != "number" or item.used:
            continue
        first, last = index, index
        if reading.word(index + 1) in known.MAGNITUDES and _touching(reading, index):
            last += 1
        before, after = reading.at(index - 1), reading.at(last + 1)
        if before is not None and before.kind in ("money_sign", "currency") and not before.used:
            first, sign = index - 1, before
        elif after is not None and after.kind in ("money_sign", "currency"):
            last, sign = last + 1, after
        else:
            continue
        reading.use(first, last)
        near = {reading.kind(first - 1), reading.kind(first - 2), reading.kind(last + 1), reading.kind(last + 2)}
        if "discount" in near:
            reading.note(NUMBER, first, last)
        else:
            reading.note(MONEY, first, last)
        _see_currency(reading, sign, first, last)


def _read_terms(reading: _Reading) -> None:
    for index, item in enumerate(reading.items):
        if item.kind != "term_unit" or item.used:
            continue
        before = reading.at(index - 1)
        if before is None or before.used or item.number is None:
            continue
        if before.kind == "number" and not (item.text in known.SHORT_TERMS and reading.text[item.start : item.end].isupper()):
            months = None if before.number is None else before.number * item.number
            if months is not None and months == months.to_integral_value() and 0 < months < known.TERM_MONTHS_LIMIT:
                reading.terms.setdefault(int(months), reading.excerpt(index - 1, index))
            else:
                reading.note(NUMBER, index - 1, index)
            reading.use(index - 1, index)
        elif before.text in ("a", "an") and item.text in known.ARTICLE_TERMS and not _is_rate(reading, index - 2):
            reading.terms.setdefault(int(item.number), reading.excerpt(index - 1, index))
            reading.use(index - 1, index)


def _is_rate(reading: _Reading, index: int) -> bool:
    """Tell whether what ends here was a price, as in "$99 a year", or a frequency, as in "twice a year"."""
    item = reading.at(index)
    return item is not None and (item.kind in ("money_sign", "currency", "number") or item.text in ("once", "twice", "times"))


def _read_discounts(reading: _Reading) -> None:
    for index, item in enumerate(reading.items):
        if item.kind != "number" or item.used:
            continue
        last = index + 1 if reading.kind(index + 1) == "percent" else index
        before, after = _discount_before(reading, index), _discount_after(reading, last)
        if last == index and before is None:
            continue
        first = index if before is None else before
        end = last if after is None else after
        if last > index and before is None and after is None and not _stands_alone(reading, first, last):
            continue  # per cent of something else: left over, and so a doubt
        if item.number is None:
            reading.note(NUMBER, first, end)
        else:
            reading.discounts.setdefault(item.number, reading.excerpt(first, end))
            if last == index or (before is None and after is None):
                reading.note(PERCENT, first, end, f"{item.number}")
        reading.use(first, end)
        _see_what_it_is_on(reading, first, end)


def _discount_before(reading: _Reading, index: int) -> int | None:
    at = index - 1
    while reading.word(at) in known.DISCOUNT_LINKS and index - at <= 2:  # noqa: PLR2004 -- "discount of about 10" is none
        at -= 1
    return at if reading.kind(at) == "discount" and not reading.items[at].used and at >= 0 else None


def _discount_after(reading: _Reading, index: int) -> int | None:
    return index + 1 if reading.kind(index + 1) == "discount" and index + 1 < len(reading.items) else None


def _stands_alone(reading: _Reading, first: int, last: int) -> bool:
    around = (reading.word(first - 1), reading.word(last + 1))
    kinds = (reading.kind(first - 1), reading.kind(last + 1))
    return all(kind == "break" or word in ("with", "at", "and", "for") for kind, word in zip(kinds, around, strict=True))


def _see_what_it_is_on(reading: _Reading, first: int, last: int) -> None:
    """A discount here is on the whole quote. One that names a product means that product, and is a doubt."""
    at = last + 1
    while reading.word(at) in ("on", "of", "the", "for", "to", "all", "all-in", "every") and at - last <= _GAP_ITEMS_MAX:
        at += 1
    named = reading.kind(at) == "product" or (reading.kind(at) == "number" and reading.kind(at + 1) in ("product", "unit"))
    at = first - 1
    while reading.word(at) in ("at", "with", "a", "an") and first - at <= _GAP_ITEMS_MAX:
        at -= 1
    products = sum(item.kind == "product" for item in reading.items[:LINES_MAX])
    if named and products > 1:
        reading.note(NUMBER, first, last)
    elif reading.kind(at) in ("product", "unit") and products > 1:
        reading.note(ON_ALL, first, last)


def _read_currencies(reading: _Reading) -> None:
    for index, item in enumerate(reading.items):
        if item.used or item.kind not in ("currency", "money_sign"):
            continue
        item.used = True
        _see_currency(reading, item, index, index)


def _see_currency(reading: _Reading, sign: _Item, first: int, last: int) -> None:
    code = sign.code or known.SIGNS[sign.text]
    reading.currencies.setdefault(code, reading.excerpt(first, last))
    if sign.text in known.AMBIGUOUS_CURRENCIES:
        reading.note(DOLLARS, first, last, code)


def _read_lines(reading: _Reading) -> None:
    counted: list[int] = []  # numbers that count seats of no product in particular
    for index, item in enumerate(reading.items):
        if item.kind == "number" and not item.used and not _read_counted(reading, index) and reading.kind(index + 1) == "unit":
            counted.append(index)
    loose = [index for index, item in enumerate(reading.items) if item.kind == "product" and not item.used]
    for index in loose:
        _read_following(reading, index)
    counted = [index for index in counted if not reading.items[index].used]
    loose = [index for index in loose if not reading.items[index].used]
    if len(counted) == 1 and len(loose) == 1:
        _add_line(reading, loose[0], counted[0], min(loose[0], counted[0]), max(loose[0], counted[0] + 1), JOINED)
        reading.use(counted[0], counted[0] + 1)
        loose = []
    for index in loose:
        reading.use(index, index)
        if reading.word(index - 1) in ("a", "an"):
            reading.lines.append((ExtractedLine(reading.items[index].sku, 1), reading.excerpt(index, index)))
            reading.note(ONE, index - 1, index, reading.items[index].sku)
        else:
            reading.note(NO_QUANTITY, index, index, reading.items[index].sku)


def _read_counted(reading: _Reading, index: int) -> bool:
    """Read "150 seats of pro" from its number; a misspelt product is looked up here."""
    at = index + 1
    if reading.word(at) == "k" and _touching(reading, index):
        at += 1
    while (reading.kind(at) == "unit" or reading.word(at) in known.COUNT_LINKS) and at - index <= _GAP_ITEMS_MAX:
        at += 1
    item = reading.at(at)
    if item is None or item.used:
        return False
    if item.kind == "word" and item.text not in known.FILLERS and item.text not in known.UNCLEAR:
        found = _near(reading, at)
        if found is None:
            if at == index + 1:
                reading.note(UNKNOWN_PRODUCT, index, at)
                reading.use(index, at)
                return True
            return False
        item.kind, item.sku, item.near = "product", found, True
    if item.kind != "product":
        return False
    _add_line(reading, at, index, index, at, "")
    reading.use(index, at)
    if reading.kind(at + 1) == "unit":
        reading.use(at + 1, at + 1)
    return True


def _near(reading: _Reading, at: int) -> str | None:
    """Look the word, or it and the next, up among the names; a name of two words takes the second one with it."""
    following = reading.at(at + 1)
    if following is not None and following.kind in ("word", "unit") and following.text not in known.FILLERS:
        sku = reading.names.near(f"{reading.word(at)} {following.text}")
        if sku is not None:
            reading.items[at].end = following.end
            following.used = True
            return sku
    return reading.names.near(reading.word(at))


def _read_following(reading: _Reading, index: int) -> None:
    """Read "pro: 150", "pro x 150", "Pro Plan, 150 seats" or "Pro Plan with 150 seats" from its product."""
    at = index + 1
    comma = False
    while (reading.word(at) in ("x", ":", ",", "with", "for", "qty", "quantity") or reading.kind(at) == "unit") and at - index <= 2:  # noqa: PLR2004 -- a sign and a word
        comma = comma or reading.word(at) in (",", "with", "for")
        at += 1
    item = reading.at(at)
    if item is None or item.used or item.kind != "number":
        return
    counted = reading.kind(at + 1) == "unit"
    if (comma and not counted) or reading.kind(at + 1) == "product":
        return
    last = at + 1 if counted else at
    _add_line(reading, index, at, index, last, "")
    reading.use(index, last)


def _add_line(reading: _Reading, product: int, counted: int, first: int, last: int, code: str) -> None:
    """Note one line; a quantity that is no whole number is a doubt."""
    item, quantity = reading.items[product], reading.items[counted].number
    item.used = True
    if quantity is not None and reading.word(counted + 1) == "k" and _touching(reading, counted):
        quantity *= 1000
        reading.use(counted + 1, counted + 1)
        reading.note(THOUSANDS, counted, counted + 1, f"{quantity:f}")
    if quantity is None or quantity != quantity.to_integral_value():
        reading.note(NUMBER, first, last)
        return
    if item.near:
        reading.note(NEAR_NAME, product, product, item.sku)
    if code:
        reading.note(code, first, last, f"{quantity} {item.sku}")
    reading.lines.append((ExtractedLine(item.sku, int(quantity)), reading.excerpt(first, last)))


def _touching(reading: _Reading, index: int) -> bool:
    following = reading.at(index + 1)
    return following is not None and following.start == reading.items[index].end


def _read_accounts(reading: _Reading) -> None:
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


def _see_account(reading: _Reading, index: int, *, guessed: bool) -> int:
    """Take what is named here, and what is named after an "and" or an "or": two names are two readings. Returns where they end."""
    if reading.word(index) == ":":
        index += 1
    if reading.word(index) == "the" and _capital(reading, index + 1):
        index += 1
    end = _take_name(reading, index, guessed=guessed)
    while end > index and reading.word(end) in ("and", "or") and _capital(reading, end + 1):
        index, end = end, _take_name(reading, end + 1, guessed=guessed)
    return end


def _take_name(reading: _Reading, index: int, *, guessed: bool) -> int:
    """Take the capitalised words that begin here as an account; written small they are one only after "for" and its like."""
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
        reading.note(ACCOUNT, index, end - 1, name)
    return end


def _name_end(reading: _Reading, index: int) -> int:
    """Return where the capitalised words that begin here end; a small link such as "of" or "&" may stand between two of them."""
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


def _capital(reading: _Reading, index: int) -> bool:
    item = reading.at(index)
    if item is None or item.used or item.kind not in ("word", "unit") or item.text in known.NO_NAMES:
        return False
    return reading.text[item.start].isupper()


def _small_name_end(reading: _Reading, index: int) -> int:
    end = index
    while reading.kind(end) == "word" and not reading.items[end].used and end < len(reading.items):
        if reading.word(end) in known.FILLERS or reading.word(end) in known.UNCLEAR or reading.word(end) in known.NO_NAMES:
            break
        end += 1
    return end


def _read_rest(reading: _Reading) -> None:
    """Report whatever nobody claimed: numbers and unclear words as doubts, other words as notes."""
    for index, item in enumerate(reading.items):
        if item.used or item.kind in ("break", "unit"):
            continue
        if item.kind == "odd":
            reading.note(SIGN, index, index)
        elif item.kind in ("number", "percent"):
            reading.note(NUMBER, index, index)
        elif item.text in known.UNCLEAR:
            reading.note(WORD, index, index)
        elif item.text not in known.FILLERS:  # a discount without a number too
            reading.note(UNCLAIMED, index, index)


def _result(reading: _Reading) -> Extraction:
    """Put the parts together. Where two readings conflict there is none."""
    seen: set[str] = set()
    for line, excerpt in reading.lines:
        if line.sku in seen:
            reading.remarks.append(Remark(TWICE, excerpt, line.sku))
        seen.add(line.sku)
    if not reading.lines:
        reading.remarks.append(Remark(NO_LINES, ""))
    if not reading.accounts:
        reading.remarks.append(Remark(NO_ACCOUNT, ""))
    if not reading.terms:
        reading.remarks.append(Remark(TERM, "", str(known.TERM_MONTHS_DEFAULT)))
    return Extraction(
        account=_single(reading, ACCOUNTS, {name: name for name in reading.accounts.values()}),
        lines=tuple(line for line, _ in reading.lines[:LINES_MAX]),
        term_months=_single(reading, TERMS, reading.terms),
        discount_percent=_single(reading, DISCOUNTS, reading.discounts),
        currency=_single(reading, CURRENCIES, reading.currencies),
        remarks=worth_showing(reading.remarks),
    )


def _single(reading: _Reading, code: str, found: Mapping[_T, str]) -> _T | None:
    if len(found) > 1:
        excerpts = list(found.values())
        reading.remarks.append(Remark(code, f"{excerpts[0]} / {excerpts[1]}"))
        return None
    return next(iter(found), None)


def worth_showing(remarks: Sequence[Remark]) -> tuple[Remark, ...]:
    """Keep each remark once, doubts first, and not more than a person reads; a doubt is never among those left out."""
    each = dict.fromkeys(remarks)
    doubts = [remark for remark in each if remark.code in DOUBTS]
    notes = [remark for remark in each if remark.code not in DOUBTS]
    return (*doubts[:REMARKS_MAX], *notes[: max(0, REMARKS_MAX - len(doubts))])
