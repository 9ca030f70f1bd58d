"""Rule-based extraction of a quote request from free text: no model, token passes with the catalogue as the dictionary.

The extractor claims the tokens that it understands and reports all others: a doubt blocks the proposal, a note is shown with it.
It never raises, takes time linear in the text, and has no fields for prices, approvals or recipients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar

from quotebot.domain.catalogue.names import Names
from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.accounts import read_accounts
from quotebot.domain.extraction.lines import read_lines
from quotebot.domain.extraction.remarks import DOUBTS, Doubt, Remark
from quotebot.domain.extraction.state import GAP_ITEMS_MAX, ExtractedLine, ExtractionState, Item, touching
from quotebot.domain.extraction.tokens import Token, tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.catalogue.catalogue import Catalogue

REMARKS_MAX: Final = 12
LINES_MAX: Final = 100
_T = TypeVar("_T")
_QUOTE_ID: Final = re.compile(r"\bq-[0-9]{4}-[0-9]{4,9}\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Extraction:
    """Result of an extraction; a field is None if absent or ambiguous. `discount_percent` is the requested discount."""

    account: str | None
    lines: tuple[ExtractedLine, ...]
    term_months: int | None
    discount_percent: Decimal | None
    currency: str | None
    remarks: tuple[Remark, ...]

    @property
    def open_questions(self) -> tuple[Remark, ...]:
        """Reasons against a proposal; empty if a proposal is possible."""
        return tuple(remark for remark in self.remarks if remark.code in DOUBTS)


def extract(text: str, catalogue: Catalogue) -> Extraction:
    """Extract from one message, already on one line and in NFC. Equal input gives equal output."""
    names = Names(catalogue, text)
    reading = ExtractionState(text, _items(tokens(text), names), names)
    if _QUOTE_ID.search(text):
        reading.remarks.append(Remark("existing", ""))
    reading.products = sum(item.kind == "product" for item in reading.items)
    _read_money(reading)
    _read_terms(reading)
    _read_discounts(reading)
    _read_currencies(reading)
    read_lines(reading)
    read_accounts(reading)
    _read_rest(reading)
    return _result(reading)


def _items(found: Sequence[Token], names: Names) -> list[Item]:
    """Classify the tokens: first products of the catalogue by the longest matching name, then words with a known meaning."""
    items: list[Item] = []
    index = 0
    while index < len(found):
        token = found[index]
        length, sku = names.longest(found, index)
        if length:
            items.append(Item("product", "", token.start, found[index + length - 1].end, sku=sku))
            index += length
            continue
        items.append(_named(token))
        index += 1
    return items


def _named(token: Token) -> Item:
    item = Item(token.kind, token.text, token.start, token.end, token.value)
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


def _read_money(reading: ExtractionState) -> None:
    """Claim amounts of money, which determine only the currency: prices come from the catalogue."""
    for index, item in enumerate(reading.items):
        if item.kind != "number" or item.used:
            continue
        first, last = index, index
        if reading.word(index + 1) in known.MAGNITUDES and touching(reading, index):
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
            reading.note("number", first, last)
        else:
            reading.note("money", first, last)
        _see_currency(reading, sign, first, last)


def _read_terms(reading: ExtractionState) -> None:
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
                reading.note("number", index - 1, index)
            reading.use(index - 1, index)
        elif before.text in ("a", "an") and item.text in known.ARTICLE_TERMS and not _is_rate(reading, index - 2):
            reading.terms.setdefault(int(item.number), reading.excerpt(index - 1, index))
            reading.use(index - 1, index)


def _is_rate(reading: ExtractionState, index: int) -> bool:
    """Return whether the item is the end of a price, as in "$99 a year", or of a frequency, as in "twice a year"."""
    item = reading.at(index)
    return item is not None and (item.kind in ("money_sign", "currency", "number") or item.text in ("once", "twice", "times"))


def _read_discounts(reading: ExtractionState) -> None:
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
            continue  # per cent of something else: unclaimed, and therefore a doubt
        if item.number is None:
            reading.note("number", first, end)
        else:
            reading.discounts.setdefault(item.number, reading.excerpt(first, end))
            if last == index or (before is None and after is None):
                reading.note("percent", first, end, f"{item.number}")
        reading.use(first, end)
        _see_what_it_is_on(reading, first, end)


def _discount_before(reading: ExtractionState, index: int) -> int | None:
    at = index - 1
    while reading.word(at) in known.DISCOUNT_LINKS and index - at <= 2:  # noqa: PLR2004 -- "discount of about 10" is no discount
        at -= 1
    return at if reading.kind(at) == "discount" and not reading.items[at].used and at >= 0 else None


def _discount_after(reading: ExtractionState, index: int) -> int | None:
    return index + 1 if reading.kind(index + 1) == "discount" and index + 1 < len(reading.items) else None


def _stands_alone(reading: ExtractionState, first: int, last: int) -> bool:
    around = (reading.word(first - 1), reading.word(last + 1))
    kinds = (reading.kind(first - 1), reading.kind(last + 1))
    return all(kind == "break" or word in ("with", "at", "and", "for") for kind, word in zip(kinds, around, strict=True))


def _see_what_it_is_on(reading: ExtractionState, first: int, last: int) -> None:
    """Remark on a discount next to a product: extracted discounts apply to the whole quote, so one on a product is a doubt."""
    at = last + 1
    while reading.word(at) in ("on", "of", "the", "for", "to", "all", "all-in", "every") and at - last <= GAP_ITEMS_MAX:
        at += 1
    named = reading.kind(at) == "product" or (reading.kind(at) == "number" and reading.kind(at + 1) in ("product", "unit"))
    at = first - 1
    while reading.word(at) in ("at", "with", "a", "an") and first - at <= GAP_ITEMS_MAX:
        at -= 1
    if named and reading.products > 1:
        reading.note("number", first, last)
    elif reading.kind(at) in ("product", "unit") and reading.products > 1:
        reading.note("on_all", first, last)


def _read_currencies(reading: ExtractionState) -> None:
    for index, item in enumerate(reading.items):
        if item.used or item.kind not in ("currency", "money_sign"):
            continue
        item.used = True
        _see_currency(reading, item, index, index)


def _see_currency(reading: ExtractionState, sign: Item, first: int, last: int) -> None:
    code = sign.code or known.SIGNS[sign.text]
    reading.currencies.setdefault(code, reading.excerpt(first, last))
    if sign.text in known.AMBIGUOUS_CURRENCIES:
        reading.note("dollars", first, last, code)


def _read_rest(reading: ExtractionState) -> None:
    """Report all unclaimed items: numbers and unclear words as doubts, other words as notes."""
    for index, item in enumerate(reading.items):
        if item.used or item.kind in ("break", "unit"):
            continue
        if item.kind == "odd":
            reading.note("sign", index, index)
        elif item.kind in ("number", "percent"):
            reading.note("number", index, index)
        elif item.text in known.UNCLEAR:
            reading.note("word", index, index)
        elif item.text not in known.FILLERS:  # includes a discount word without a number
            reading.note("unclaimed", index, index)


def _result(reading: ExtractionState) -> Extraction:
    """Assemble the extraction. A field with several different values is None and reported as a doubt."""
    seen: set[str] = set()
    for line, excerpt in reading.lines:
        if line.sku in seen:
            reading.remarks.append(Remark("twice", excerpt, line.sku))
        seen.add(line.sku)
    if not reading.lines:
        reading.remarks.append(Remark("no_lines", ""))
    if not reading.accounts:
        reading.remarks.append(Remark("no_account", ""))
    if not reading.terms:
        reading.remarks.append(Remark("term", "", str(known.TERM_MONTHS_DEFAULT)))
    return Extraction(
        account=_single(reading, "accounts", {name: name for name in reading.accounts.values()}),
        lines=tuple(line for line, _ in reading.lines),
        term_months=_single(reading, "terms", reading.terms),
        discount_percent=_single(reading, "discounts", reading.discounts),
        currency=_single(reading, "currencies", reading.currencies),
        remarks=worth_showing(reading.remarks),
    )


def _single(reading: ExtractionState, code: Doubt, found: Mapping[_T, str]) -> _T | None:
    if len(found) > 1:
        excerpts = list(found.values())
        reading.remarks.append(Remark(code, f"{excerpts[0]} / {excerpts[1]}"))
        return None
    return next(iter(found), None)


def worth_showing(remarks: Sequence[Remark]) -> tuple[Remark, ...]:
    """Deduplicate the remarks, doubts first, and keep at most REMARKS_MAX; the last one then counts the omitted remarks."""
    each = sorted(dict.fromkeys(remarks), key=lambda remark: remark.code not in DOUBTS)
    if len(each) <= REMARKS_MAX:
        return tuple(each)
    shown = each[: REMARKS_MAX - 1]
    return (*shown, Remark("more", "", str(len(each) - len(shown))))
