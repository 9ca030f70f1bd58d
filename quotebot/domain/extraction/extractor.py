"""Rule-based extraction of a quote request from free text: no model, token passes with the catalogue as the dictionary.

The extractor claims the tokens that it understands and reports all others: a doubt blocks the proposal, a note is shown with it.
It never raises, takes time linear in the text, and has no fields for approvals or recipients. A price counts only where the text
agrees on it with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.inputs import NO_INPUTS, Inputs, read_inputs
from quotebot.domain.extraction.remarks import DOUBTS, Doubt, Remark
from quotebot.domain.extraction.state import GAP_ITEMS_MAX, ExtractionState, Item, Names, touching
from quotebot.domain.extraction.tokens import Token, tokens
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, LineRequest, PriceRequest

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
    lines: tuple[LineRequest, ...]
    term_months: int | None
    discount_percent: Decimal | None
    currency: str | None
    remarks: tuple[Remark, ...]
    named: tuple[tuple[str, str], ...] = ()  # every product that the message names: its sku, and the words
    inputs: Inputs = NO_INPUTS
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of lines, by sku, also of those without a quantity

    @property
    def request(self) -> PriceRequest:
        """The extracted request, with the usual values where the message says nothing."""
        inputs = self.inputs
        return PriceRequest(
            self.lines,
            known.TERM_MONTHS_DEFAULT if self.term_months is None else self.term_months,
            Decimal(0) if self.discount_percent is None else self.discount_percent,
            currency=self.currency,
            segment=inputs.segment,
            region=inputs.region,
            billing_frequency=inputs.billing_frequency or BILLING_FREQUENCIES[0],
            with_tax=bool(inputs.with_tax),
            terms=inputs.terms or (),
            commercial=inputs.commercial,
        )

    @property
    def open_questions(self) -> tuple[Remark, ...]:
        """Reasons against a proposal; empty if a proposal is possible."""
        return tuple(remark for remark in self.remarks if remark.code in DOUBTS)


def extract(text: str, catalogue: Catalogue) -> Extraction:
    """Extract from one message, already on one line and in NFC. Equal input gives equal output."""
    names = Names(catalogue, text)
    items = _items(tokens(text), names)
    mentions = [(item.sku, _mention_start(items, index), item.end) for index, item in enumerate(items) if item.kind == "product"]
    written = read_inputs(text, mentions, catalogue)
    if written.text != text:
        items = _items(tokens(written.text), names)
    reading = ExtractionState(text, items, names, options=written.options, remarks=written.remarks)
    if _QUOTE_ID.search(text):
        reading.remarks.append(Remark("existing", ""))
    reading.products = len({item.sku for item in reading.items if item.kind == "product"})
    _read_money(reading)
    _read_terms(reading)
    _read_rates(reading)
    _read_discounts(reading)
    _read_currencies(reading)
    _read_lines(reading)
    _read_accounts(reading)
    _read_rest(reading)
    return _result(reading, written.inputs)


def _items(found: Sequence[Token], names: Names) -> list[Item]:
    """Classify the tokens: first products of the catalogue by the longest matching name, then words with a known meaning."""
    items: list[Item] = []
    index = 0
    while index < len(found):
        token = found[index]
        length, sku = names.longest(found, index)
        if length <= 1 and (names.is_per(found, index) or _shares(items, found[index : index + 3])):
            items.append(Item("per", token.text, token.start, token.end))
        elif length:
            items.append(Item("product", "", token.start, found[index + length - 1].end, sku=sku))
        else:
            items.append(_named(token))
        index += max(length, 1)
    return items


def _shares(items: Sequence[Item], found: Sequence[Token]) -> bool:
    """Return whether tokens after a product or a unit mean "per 10 users"."""
    if not items or items[-1].kind not in ("product", "unit") or len(found) < 3:  # noqa: PLR2004 -- the three tokens
        return False
    per, count, unit = found
    return known.means_per(per.text) and known.value(count) is not None and known.english(unit.text) in known.UNITS


def _mention_start(items: Sequence[Item], index: int) -> int:
    """Return the start of the words about the product at `index`: what joins it to the text before, its quantity, its name."""
    first = index
    while (
        first and index - first < GAP_ITEMS_MAX and (items[first - 1].kind == "unit" or items[first - 1].text in known.COUNT_LINKS)
    ):
        first -= 1
    first = first - 1 if first and items[first - 1].kind == "number" else index
    while first and items[first - 1].text in known.JOINS:
        first -= 1
    return items[first].start


def _named(token: Token) -> Item:
    value = known.value(token)
    if token.kind != "word" or value is not None:
        return Item("number" if value is not None else token.kind, token.text, token.start, token.end, value)
    text = known.english(token.text)
    kind = known.KINDS.get(text, "word")
    number = Decimal(known.TERM_MONTHS[text]) if kind == "term_unit" else None
    return Item(kind, text, token.start, token.end, number, code=known.CURRENCIES[text] if kind == "currency" else "")


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


def _read_rates(reading: ExtractionState) -> None:
    """Report a number per something else: "5 users per site", "per site 5 users". A price per something is no quantity."""
    for index, item in enumerate(reading.items):
        if item.kind != "per":
            continue
        at = index - 1
        while index - at <= GAP_ITEMS_MAX and (reading.kind(at) in ("unit", "product") or reading.word(at) in known.COUNT_LINKS):
            at -= 1
        following = reading.at(index + 2)
        if reading.kind(at) == "number" and not reading.items[at].used:
            first = at
        elif reading.kind(index - 1) == "break" and following is not None and following.kind == "number" and not following.used:
            first = index
        else:
            continue
        reading.note("word", first, index + 1)
        reading.use(first, index + 1)


def _read_discounts(reading: ExtractionState) -> None:
    for index, item in enumerate(reading.items):
        if item.kind != "number" or item.used:
            continue
        last = index + 1 if reading.kind(index + 1) == "percent" else index
        before = _discount_before(reading, index)
        after = last + 1 if reading.kind(last + 1) == "discount" and last + 1 < len(reading.items) else None
        if last == index and before is None:
            continue
        first = index if before is None else before
        end = last if after is None else after
        if last > index and before is None and after is None and not _stands_alone(reading, first, last):
            reading.note("number", first, last)  # per cent of something else
            reading.use(first, last)
            continue
        if item.number is None:
            reading.note("number", first, end)
        elif (own := _own_product(reading, end)) is not None:
            reading.options.setdefault(reading.items[own].sku, {}).setdefault("discount_percent", item.number)
            reading.use(first, own)
            continue
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


def _stands_alone(reading: ExtractionState, first: int, last: int) -> bool:
    around = (reading.word(first - 1), reading.word(last + 1))
    kinds = (reading.kind(first - 1), reading.kind(last + 1))
    alone = all(kind == "break" or word in known.PERCENT_LINKS for kind, word in zip(kinds, around, strict=True))
    return alone and not known.is_no_discount(reading.items, first, last)


def _own_product(reading: ExtractionState, last: int) -> int | None:
    """Return the product after "10% off", if the text names it as that of the discount and counts it elsewhere."""
    at = last + 1
    while reading.word(at) in ("on", "for", "the") and at - last <= GAP_ITEMS_MAX:
        at += 1
    item = reading.at(at)
    if item is None or item.kind != "product" or reading.kind(last) != "discount" or reading.kind(at + 1) == "number":
        return None
    counted = any(other.sku == item.sku for place, other in enumerate(reading.items) if place != at)
    return at if reading.products > 1 and counted else None


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


def _result(reading: ExtractionState, inputs: Inputs) -> Extraction:
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
        lines=tuple(replace(line, **reading.options.get(line.sku, {})) for line, _ in reading.lines),
        term_months=_single(reading, "terms", reading.terms),
        discount_percent=_single(reading, "discounts", reading.discounts),
        currency=_single(reading, "currencies", reading.currencies),
        remarks=worth_showing(reading.remarks),
        named=_named_products(reading),
        inputs=inputs,
        options=reading.options,
    )


def _named_products(reading: ExtractionState) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for index, item in enumerate(reading.items):
        if item.kind == "product":
            found.setdefault(item.sku, reading.excerpt(index, index))
    return tuple(found.items())


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


def _read_lines(reading: ExtractionState) -> None:
    """Record every line. A lone quantity or product is a doubt, unless exactly one of each remains and they form a line."""
    counted: list[int] = []  # numbers of seats without a product
    for index, item in enumerate(reading.items):
        if item.kind == "number" and not item.used and not _read_counted(reading, index) and reading.kind(index + 1) == "unit":
            counted.append(index)
    loose = [index for index, item in enumerate(reading.items) if item.kind == "product" and not item.used]
    for index in loose:
        _read_following(reading, index)
    counted = [index for index in counted if not reading.items[index].used]
    loose = [index for index in loose if not reading.items[index].used]
    if len(counted) == 1 and len(loose) == 1:
        _add_line(reading, loose[0], counted[0], min(loose[0], counted[0]), max(loose[0], counted[0] + 1), joined=True)
        reading.use(counted[0], counted[0] + 1)
        loose = []
    for index in loose:
        reading.use(index, index)
        if reading.word(index - 1) in ("a", "an"):
            reading.lines.append((LineRequest(reading.items[index].sku, 1), reading.excerpt(index, index)))
            reading.note("one", index - 1, index, reading.items[index].sku)
        else:
            reading.note("no_quantity", index, index, reading.items[index].sku)


def _read_counted(reading: ExtractionState, index: int) -> bool:
    """Read "150 seats of pro" from its number on; misspelt products are looked up here."""
    at = index + 1
    if reading.word(at) == "k" and touching(reading, index):
        at += 1
    while (reading.kind(at) == "unit" or reading.word(at) in known.COUNT_LINKS) and at - index <= GAP_ITEMS_MAX:
        at += 1
    item = reading.at(at)
    if item is None or item.used:
        return False
    if item.kind == "word" and item.text not in known.FILLERS and item.text not in known.UNCLEAR:
        found = _near(reading, at)
        if found is None:
            if at == index + 1:
                reading.note("unknown_product", index, at)
                reading.use(index, at)
                return True
            return False
        item.kind, item.sku, item.near = "product", found, True
    if item.kind != "product":
        return False
    _add_line(reading, at, index, index, at)
    reading.use(index, at)
    if reading.kind(at + 1) == "unit":
        reading.use(at + 1, at + 1)
    return True


def _near(reading: ExtractionState, at: int) -> str | None:
    """Look up the word, alone or with the next one, as a misspelt name; a two-word match claims both words."""
    following = reading.at(at + 1)
    if following is not None and following.kind in ("word", "unit") and following.text not in known.FILLERS:
        sku = reading.names.near(f"{reading.word(at)} {following.text}")
        if sku is not None:
            reading.items[at].end = following.end
            following.used = True
            return sku
    return reading.names.near(reading.word(at))


def _read_following(reading: ExtractionState, index: int) -> None:
    """Read "pro: 150", "pro x 150", "Pro Plan, 150 seats" or "Pro Plan with 150 seats" from its product on."""
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
    _add_line(reading, index, at, index, last)
    reading.use(index, last)


def _add_line(reading: ExtractionState, product: int, counted: int, first: int, last: int, *, joined: bool = False) -> None:
    """Record one line; a quantity that is not a whole number is a doubt."""
    item, quantity = reading.items[product], reading.items[counted].number
    item.used = True
    if quantity is not None and reading.word(counted + 1) == "k" and touching(reading, counted):
        quantity *= 1000
        reading.use(counted + 1, counted + 1)
        reading.note("thousands", counted, counted + 1, f"{quantity:f}")
    if quantity is None or quantity != quantity.to_integral_value():
        reading.note("number", first, last)
        return
    if item.near:
        reading.note("near_name", product, product, item.sku)
    if joined:
        reading.note("joined", first, last, f"{quantity} {item.sku}")
    if reading.word(first - 1) in known.OPTIONAL:
        reading.use(first - 1, first - 1)
        reading.options.setdefault(item.sku, {})["optional"] = True
    reading.lines.append((LineRequest(item.sku, int(quantity)), reading.excerpt(first, last)))


ACCOUNT_CHARACTERS_MAX: Final = 100


def _read_accounts(reading: ExtractionState) -> None:
    """Record every name that is introduced as the customer's."""
    index = 0
    while index < len(reading.items):
        word = reading.word(index)
        end = index + 1
        if word in known.ACCOUNT_LEADS and not reading.items[index].used:
            end = _see_account(reading, index + 1, guessed=word not in known.ACCOUNT_SURE)
        elif reading.kind(index - 1) == "break" and _capital(reading, index) and word not in known.NO_DISCOUNT:
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
