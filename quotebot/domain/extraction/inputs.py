"""Inputs of a request that free text writes out: options of a line, billing, segment, tax, special and commercial terms.

Only explicit wording counts. What is read is replaced by a separator of the same length, so that the tokens of the rest keep their
places. A value that can be read in two ways is reported, never chosen. Every search takes linear time.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue.catalogue import NO_CHOICE
from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.language import either, typed_number
from quotebot.domain.pricing.commercial_terms import USUAL, CommercialTerms
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, clipped, reason_text
from quotebot.domain.pricing.term_clauses import ALIASES, FIELDS, clauses, read_clause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quotebot.domain.catalogue.catalogue import Catalogue, Product

_BILLING_WORDS: Final[Mapping[str, str]] = {
    **{name: name for name in BILLING_FREQUENCIES},
    **dict.fromkeys(("month", "every month", "per month"), "monthly"),
    **dict.fromkeys(("quarter", "every quarter", "per quarter"), "quarterly"),
    **dict.fromkeys(("annually", "yearly", "year", "every year", "per year"), "annual"),
    "up front": "upfront",
}
EXCERPT_CHARACTERS_MAX: Final = 60
_HOW_OFTEN: Final = r"(upfront|up front|monthly|quarterly|annually|annual|yearly|(?:per|every) (?:month|quarter|year))"
_BILLED: Final = re.compile(rf"\b(?:billed|billing|invoiced|paid|payable|pay) ?[:=]? ?{_HOW_OFTEN}\b", re.IGNORECASE)
_OFTEN_BILLED: Final = re.compile(rf"\b{_HOW_OFTEN} (?:billing|invoicing|invoices?|payments?|instal?lments?)\b", re.IGNORECASE)
_SEGMENT: Final = re.compile(
    r"\bsegment ?[:=]? ?(?!(?:a|an|and|at|for|in|is|none|of|off|or|price|prices|pricing|the|to|we|with)\b)"
    r"([a-z][a-z0-9_-]{0,39})\b",
    re.IGNORECASE,
)
_SEGMENT_PRICES: Final = re.compile(
    r"\b(partner|reseller|education|academic|nonprofit|government|distributor) (?:segment|prices?|pricing|price ?(?:list|book))\b",
    re.IGNORECASE,
)
_TAX: Final = re.compile(
    r"\b(?:(?:with|plus|including|incl\.?) )?(?:[Tt]ax|VAT)(?: (?:for|of|in|region))? (?!ID\b|NO\b)([A-Z]{2})\b"
)
_REGION: Final = re.compile(r"\b[Rr]egion ?[:=]? ?([A-Z]{2}(?:-[A-Z0-9]{1,3})?)\b")
_TERM_NAMES: Final = re.compile(
    r"\bterms? ?[:=]? ?([a-z]+_[a-z0-9_]{1,50}(?:(?:, ?| and )[a-z]+_[a-z0-9_]{1,50}){0,19})\b", re.IGNORECASE
)
_SEPARATOR: Final = re.compile(r", ?| and ")
_DATE: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}\.? [a-z]{3,9}\.? [0-9]{4}|[a-z]{3,9}\.? [0-9]{1,2},? [0-9]{4}"
    r"|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4})"
)
_US_DATE: Final = re.compile(r"([a-z]{3,9}\.?) ([0-9]{1,2}),? ([0-9]{4})", re.IGNORECASE)
_COMMERCIAL: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "start",
        re.compile(
            rf"\b(?:start(?:s|ing)?|beginning|begins?|effective|from)(?: date)?(?: on| from)? ?[:=]? ?{_DATE}\b", re.IGNORECASE
        ),
    ),
    ("valid", re.compile(rf"\bvalid ((?:until|till|through) {_DATE}|(?:for )?[0-9]{{1,3}} days?)\b", re.IGNORECASE)),
    (
        "payment",
        re.compile(r"\b(?:payment|payable|pay)?(?: terms?)? ?[:=]? ?\b(net[ -]?[0-9]{1,3}|on receipt)(?: days)?\b", re.IGNORECASE),
    ),
    (
        "po",
        re.compile(
            r"\b(?:po|purchase order)(?: number| no\.?)? ?[:#=]? ?#?((?:[a-z]{1,5}-?)?[0-9][0-9a-z/-]{0,30})\b", re.IGNORECASE
        ),
    ),
)
_KEYWORD: Final = re.compile(
    rf"({'|'.join(re.escape(word) for word in sorted((*FIELDS, *ALIASES), key=len, reverse=True))})(?: |([:=]) ?)(.+)",
    re.IGNORECASE,
)
_PROSE: Final = ("bill-to", "email", "address", "note", "customer-note")  # need a colon, because they also begin sentences
# What may follow the name of a product.
_UNIT: Final = r"(?: (?:seats?|users?|licen[cs]es?|units?))?"
_ATTRIBUTES: Final = re.compile(rf"{_UNIT} ?\(([^()]{{1,200}}=[^()]{{1,200}})\)", re.IGNORECASE)
_OPTIONAL: Final = re.compile(rf"{_UNIT},? ?(?:\(optional\)|\(option\)|as an option\b|as optional\b)", re.IGNORECASE)
_DISCOUNT: Final = re.compile(rf"{_UNIT} ?-([0-9]{{1,3}}(?:[.,][0-9]{{1,2}})?) ?%", re.IGNORECASE)
_PRICE: Final = re.compile(
    rf"{_UNIT} ?(?:@|at) ?[$\u20ac\u00a3]?([0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?)(?: (?:each|per (?:seat|user|unit|license|licence)))?"
    r"(?: per month| a month)? because (?:\"(?P<quoted>[^\"]{1,200})\"|(?P<reason>(?:(?! (?:and|plus|&) [0-9])[^,;.\n]){1,200}+)"
    r"(?!(?<=[0-9]),[0-9]))",
    re.IGNORECASE,
)
MENTIONS_MAX: Final = 20  # products whose attributes are searched for


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of the whole request; None where the text says nothing."""

    segment: str | None = None
    billing_frequency: str | None = None
    region: str | None = None
    with_tax: bool | None = None
    terms: tuple[str, ...] | None = None
    commercial: CommercialTerms = USUAL


NO_INPUTS: Final = Inputs()


@dataclass(slots=True)
class Written:
    """Inputs found in a text, options by sku, the rest of the text, and remarks."""

    text: str
    inputs: Inputs = field(default_factory=Inputs)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    claimed: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, and what replaces the first character

    def claim(self, start: int, end: int, sign: str = ";") -> None:
        """Note a part of the text that was read; `apply` replaces it by a separator of the same length."""
        self.claimed.append((start, end, sign))

    def apply(self) -> None:
        """Replace the claimed parts, which do not overlap."""
        parts, at = [], 0
        for start, end, sign in sorted(self.claimed):
            parts += [self.text[at:start], sign.ljust(end - start)]
            at = end
        self.text = "".join((*parts, self.text[at:]))
        self.claimed = []

    def report_ambiguous(self, start: int, end: int) -> None:
        """Report a part that can be read in two ways."""
        part = " ".join(self.text[start:end].split())
        self.remarks.append(
            Remark("number", part if len(part) <= EXCERPT_CHARACTERS_MAX else f"{part[: EXCERPT_CHARACTERS_MAX - 1]}\u2026")
        )


def read_inputs(text: str, mentions: Sequence[tuple[str, int, int]], catalogue: Catalogue) -> Written:
    """Read the inputs that a text writes out.

    `mentions` are the products that it names: sku, start of the words about it (what joins it, its quantity), and end of its name.
    """
    found = Written(text)
    limits = [*(start for _, start, _ in mentions[1:]), len(text)]
    for (sku, _, end), limit in zip(mentions, limits, strict=False):
        if not found.claimed or end >= found.claimed[-1][1]:  # a quoted reason may name products
            _read_options(found, catalogue.products[sku], end, limit, catalogue)
    found.apply()
    _read_attributes(found, mentions, catalogue)
    _read_clauses(found)
    for keyword, pattern in _COMMERCIAL:
        _read_all(found, pattern, functools.partial(_commercial, found, keyword))
    for pattern in (_BILLED, _OFTEN_BILLED):
        _read_all(found, pattern, lambda value: _only(found, billing_frequency=_BILLING_WORDS[value.casefold()]))
    for pattern in (_SEGMENT, _SEGMENT_PRICES):
        _read_all(found, pattern, lambda value: _only(found, segment=value.casefold()))
    _read_all(found, _TAX, lambda value: _only(found, region=value, with_tax=True))
    _read_all(found, _REGION, lambda value: _only(found, region=value))
    _read_all(found, _TERM_NAMES, lambda value: _only(found, terms=tuple(sorted(set(_SEPARATOR.split(value.casefold()))))))
    return found


def _read_all(found: Written, pattern: re.Pattern[str], take: Callable[[str], bool]) -> None:
    for match in pattern.finditer(found.text):
        found.claim(match.start(), match.end())
        if not take(match[1]):
            found.report_ambiguous(match.start(), match.end())
    found.apply()


def _only(found: Written, **values: Any) -> bool:
    """Set inputs that the text says once, or says alike."""
    if any(getattr(found.inputs, name) not in (None, value) for name, value in values.items()):
        return False
    found.inputs = replace(found.inputs, **values)
    return True


def _commercial(found: Written, keyword: str, value: str) -> bool:
    day = re.sub(r"^(?:till|through)\b", "until", value, flags=re.IGNORECASE)
    read = read_clause(keyword, _US_DATE.sub(r"\2 \1 \3", day.replace("-", " ") if keyword == "payment" else day))
    if isinstance(read, str):
        return False
    new = {name: each for name, each in read.items() if each is not None}
    if any(getattr(found.inputs.commercial, name) not in (None, each) for name, each in new.items()):
        return False
    found.inputs = replace(found.inputs, commercial=replace(found.inputs.commercial, **new))
    return True


def _read_clauses(found: Written) -> None:
    """Read the clauses after a semicolon that are written as in a typed request: "; note: Their budget ends in June."."""
    start = 0
    for number, clause in enumerate(clauses(found.text)):
        start = found.text.find(clause, start)
        match = _KEYWORD.fullmatch(clause) if number else None
        if match is not None:
            word = ALIASES.get(match[1].casefold(), match[1].casefold())
            if (match[2] or word not in _PROSE) and _commercial(found, word, match[3].strip()):
                found.claim(start, start + len(clause))
        start += len(clause)
    found.apply()


def _read_attributes(found: Written, mentions: Sequence[tuple[str, int, int]], catalogue: Catalogue) -> None:
    """Read "region eu" and "100 gb" as attributes of the product named last before them, or of the only one that has them."""
    owners: dict[str, list[tuple[int, str]]] = {}
    for sku, _, end in mentions[:MENTIONS_MAX]:
        for attribute in catalogue.products[sku].attributes:
            owners.setdefault(attribute.name, []).append((end, sku))
    for name, places in owners.items():
        choices = {
            text.casefold(): choice
            for _, sku in places
            for attribute in catalogue.products[sku].attributes
            if attribute.name == name
            for choice in attribute.choices
            for text in (choice, *_names(choice, catalogue.products[sku], catalogue))
        }
        texts = "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True))
        joined, absent = known.either("with"), known.either("without")
        comes = rf"(?:{joined}|{known.either('including')}\.?|plus)(?: (?:{known.either('a')}|an|{known.either('the')}))?"
        words = rf"(?:{joined} )?(?:{re.escape(name)} ?[:=]? ?({texts})|({texts}) ?{re.escape(name)})"
        bundled = any(catalogue.products[sku].choices for _, sku in places)
        if bundled:  # a product after a number is a line of its own
            words = rf"{words}|{joined} ({texts})|(?P<absent>{absent}) {re.escape(name)}|(?P<bare>{comes}) {re.escape(name)}"
            words = rf"(?<![0-9] )(?:{words})"
        for match in re.finditer(rf"(?<!\w){words}(?!\w)", found.text, re.IGNORECASE):
            before = (sku for sku, _, end in reversed(mentions) if end <= match.start() and not found.text[end - 1].isspace())
            last = next(before, "")  # a choice that was read is blank
            if match.groupdict().get("bare"):
                found.claim(match.start(), match.end(), " ")
                _read_only_choice(found, match[0], name, last, places[0][1], catalogue)
                continue
            said = NO_CHOICE if match.groupdict().get("absent") else next(filter(None, match.groups())).casefold()
            if said not in choices or (bundled and match[1] is None and all(sku != last for _, sku in places)):
                continue  # "with premium support" is about the product before it
            sku = next((sku for end, sku in reversed(places) if end <= match.start()), places[0][1])
            own = found.options.setdefault(sku, {})
            chosen = (name, choices[said])
            found.claim(match.start(), match.end(), " ")
            if any(each[0] == name and each != chosen for each in own.get("attributes", ())):
                found.report_ambiguous(match.start(), match.end())
            own["attributes"] = tuple(sorted({*own.get("attributes", ()), chosen}))
        found.apply()


def _read_only_choice(found: Written, said: str, name: str, last: str, owner: str, catalogue: Catalogue) -> None:
    """Read "with setup", a bundle's choice without a product, as its only product. With several, or after another product, ask."""
    named = {each.name: each for each in (catalogue.products[last].attributes if last else ())}.get(name)
    attribute = named or next(each for each in catalogue.products[owner].attributes if each.name == name)
    offered = [choice for choice in attribute.choices if choice != NO_CHOICE]
    own = dict(found.options.get(last, {}).get("attributes", ()))
    if named and own.get(name, attribute.default or NO_CHOICE) != NO_CHOICE:
        return  # it has one
    if named and len(offered) == 1 and name not in own:
        found.options.setdefault(last, {})["attributes"] = tuple(sorted({**own, name: offered[0]}.items()))
    else:
        found.remarks.append(Remark("choice", clipped(said), clipped(either(offered))))


def _names(choice: str, product: Product, catalogue: Catalogue) -> tuple[str, ...]:
    """Return the other names of what a bundle lets choose."""
    chosen = catalogue.products.get(choice) if product.choices else None
    return () if chosen is None else (chosen.name, *chosen.aliases)


def _read_options(found: Written, product: Product, end: int, limit: int, catalogue: Catalogue) -> None:
    """Read what directly follows a product's name: attributes, a price or a discount of its own, and whether it is optional.

    The words about the next product begin at `limit`: an unquoted reason of a price ends before them.
    """
    own: dict[str, Any] = {}
    while (step := _option(found.text, product, end, limit, catalogue)) is not None and not own.keys() & step[0].keys():
        own |= step[0]
        found.claim(end, step[1], " ")
        end = step[1]
    if own:
        found.options.setdefault(product.sku, {}).update(own)


def _option(text: str, product: Product, at: int, limit: int, catalogue: Catalogue) -> tuple[dict[str, Any], int] | None:
    for pattern, take in _OPTIONS:
        match = pattern.match(text, at)
        if pattern is _PRICE and match is not None and match["reason"]:
            match = pattern.match(text, at, limit)
        values = None if match is None else take(match, product, catalogue)
        if match is not None and values is not None:
            return values, match.end()
    return None


def _attributes(match: re.Match[str], product: Product, catalogue: Catalogue) -> dict[str, Any] | None:
    known = {attribute.name.casefold(): attribute for attribute in product.attributes}
    chosen: list[tuple[str, str]] = []
    for part in match[1].split(","):
        name, _, choice = (piece.strip() for piece in part.partition("="))
        attribute = known.get(name.casefold())
        known_choice = None if attribute is None else catalogue.choice(product, attribute, choice)
        if attribute is None or known_choice is None:
            return None
        chosen.append((attribute.name, known_choice))
    return {"attributes": tuple(sorted(chosen))}


def _price(match: re.Match[str], _product: Product, _catalogue: Catalogue) -> dict[str, Any] | None:
    price = typed_number(match[1])
    if price is None:
        return None
    return {"agreed_price": price, "price_reason": reason_text((match["quoted"] or match["reason"]).strip('" '))}


def _own_discount(match: re.Match[str], _product: Product, _catalogue: Catalogue) -> dict[str, Any] | None:
    percent = typed_number(match[1])
    return None if percent is None else {"discount_percent": percent}


_OPTIONS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Product, Catalogue], dict[str, Any] | None]], ...]] = (
    (_ATTRIBUTES, _attributes),
    (_OPTIONAL, lambda _match, _product, _catalogue: {"optional": True}),
    (_DISCOUNT, _own_discount),
    (_PRICE, _price),
)
