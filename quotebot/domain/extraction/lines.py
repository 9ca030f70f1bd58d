"""Extraction of products and quantities; part of the extractor."""

from __future__ import annotations

from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.state import GAP_ITEMS_MAX, ExtractedLine, ExtractionState, touching


def read_lines(reading: ExtractionState) -> None:
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
            reading.lines.append((ExtractedLine(reading.items[index].sku, 1), reading.excerpt(index, index)))
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
    reading.lines.append((ExtractedLine(item.sku, int(quantity)), reading.excerpt(first, last)))
