"""Validation of a model's answer against the message: a value counts only if the message contains it.

The rule-based extraction runs as well: a value found by both must be equal, a value found only by the rules is kept, and a value
found only by the model must occur in the message as whole words and is remarked on. A product that the message names and the model
left out is a doubt. A value in another format than the agreed one counts as none, and is remarked on.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue.catalogue import Catalogue, fold
from quotebot.domain.extraction import vocabulary as known
from quotebot.domain.extraction.extractor import LINES_MAX, Extraction, extract, worth_showing
from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.extraction.tokens import tokens
from quotebot.domain.language import N_, _, ngettext
from quotebot.domain.pricing.commercial_terms import MONTH_NAMES
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES, LineRequest, clipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.catalogue.catalogue import Product
    from quotebot.domain.extraction.inputs import Inputs
    from quotebot.domain.extraction.remarks import Doubt


# Doubts of the rule-based extraction that a model cannot override: ambiguous values, or a reference to an existing quote.
_KEPT: Final = frozenset({"accounts", "terms", "discounts", "currencies", "choice", "existing"})
NEAR_TOKENS: Final = 2  # "discount of 10", "10 or so off"
# Notes that the author sees whatever the model says: an amount of money that changes nothing, a bare percentage as a discount.
_NOTED: Final = frozenset({"money", "percent"})
# Doubts that a model may override but that the author still sees.
_SHOWN: Final = frozenset({"number", "sign", "word"})
_MONTHS_PER: Final = (1, 3, 12)  # a term may be written in months, quarters or years


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One product as the model names it, its quantity (digits), and the excerpt of the message it was read from."""

    product: str
    quantity: str
    excerpt: str
    discount_percent: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelReading:
    """A model's extraction from a message. The adapter has validated the shape, but neither the content nor the formats."""

    account: str | None
    lines: tuple[ModelLine, ...]
    term_months: str | None
    discount_percent: str | None
    currency: str | None
    segment: str | None = None
    billing_frequency: str | None = None
    region: str | None = None
    start_date: str | None = None  # ISO 8601
    payment_days: str | None = None
    po_number: str | None = None


# Further inputs, as people read them.
_PHRASES: Final = {
    "segment": N_("segment {value}"),
    "billing_frequency": N_("billing frequency {value}"),
    "region": N_("region {value}"),
    "start_date": N_("start date {value}"),
    "payment_days": N_("payment days {value}"),
    "po_number": N_("po number {value}"),
}
MORE: Final = tuple(_PHRASES)
_BILLING_SAID: Final = {
    "monthly": re.compile(r"\b(?:monthly|monatlich\w*|(?:each|every|per|a) month|(?:je|jeden|pro) monat)\b", re.IGNORECASE),
    "quarterly": re.compile(
        r"\b(?:quarterly|vierteljährlich\w*|quartalsweise|(?:each|every|per|a) quarter|(?:je|jedes|pro) quartal)\b", re.IGNORECASE
    ),
    "annual": re.compile(
        r"\b(?:annual|annually|yearly|jährlich\w*|(?:each|every|per|a) year|(?:je|jedes|pro) jahr)\b", re.IGNORECASE
    ),
    "upfront": re.compile(r"\b(?:upfront|up front|in advance|prepaid)\b", re.IGNORECASE),
}
_PAYMENT_SAID: Final = re.compile(r"\b(?:net|pay\w*|days|tagen?|zahlbar|zahlung\w*)\b", re.IGNORECASE)
_PERCENT: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4})?")
_FORMATS: Final = {
    "account": re.compile(r".{1,100}"),
    "term_months": re.compile(r"[0-9]{1,3}"),
    "discount_percent": _PERCENT,
    "currency": re.compile(r"[A-Z]{3}"),
    "segment": re.compile(r".{1,40}"),
    "billing_frequency": re.compile("|".join(_BILLING_SAID)),
    "region": re.compile(r"[A-Z]{2}(?:-[A-Z0-9]{1,3})?"),
    "start_date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "payment_days": re.compile(r"[0-9]{1,3}"),
    "po_number": re.compile(r".{1,40}"),
}
# Doubts about fields without which a proposal may have another price or customer than the message; of the others a note is enough.
_ASKED: Final[Mapping[str, Doubt]] = {
    "account": "accounts",
    "term_months": "terms",
    "discount_percent": "discounts",
    "currency": "currencies",
}
_WORD_SIGN: Final = re.compile(r"\w")
_IN_FIGURES: Final = re.compile(r"(?<![\w./-])([0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{4}|[0-9]{2})(?![\w/-]|\.[0-9])")


def checked(text: str, given: ModelReading, catalogue: Catalogue) -> Extraction:
    """Return the part of a model's extraction from `text` that may be proposed; a value missing in the message is a doubt."""
    plain = extract(text, catalogue)
    remarks = [Remark("model", "")]
    for remark in plain.remarks:
        if remark.code in _KEPT | _NOTED or (remark.code in _SHOWN and _has_ambiguous_date(remark.excerpt)):
            remarks.append(remark)
        elif remark.code in _SHOWN:
            remarks.append(Remark("unsure", remark.excerpt))
    given = _in_format(given, plain, remarks)
    numbers = {value for token in tokens(text) if (value := known.value(token)) is not None}
    account = _account(text, given.account, plain.account, remarks)
    lines = _lines(text, given.lines, catalogue, plain, remarks)
    inputs = _inputs(text, given, plain.inputs, numbers, remarks)
    term = _term(given.term_months, plain.term_months, numbers, remarks)
    discount = _discount(given.discount_percent, plain.discount_percent, _percentages(text), remarks)
    discount = _applied_once(text, discount, lines, remarks)
    if discount is None:
        remarks = [remark for remark in remarks if remark.code != "percent"]
    currency = _currency(text, given.currency, plain.currency, remarks)
    claimed = {line.sku for line in lines}
    remarks += [Remark("no_quantity", excerpt, sku) for sku, excerpt in plain.named if sku not in claimed]
    if account is None:
        remarks.append(Remark("no_account", ""))
    if not lines:
        remarks.append(Remark("no_lines", ""))
    if term is None:
        remarks.append(Remark("term", "", str(known.TERM_MONTHS_DEFAULT)))
    return Extraction(account, lines, term, discount, currency, worth_showing(remarks), inputs=inputs)


def _in_format(given: ModelReading, plain: Extraction, remarks: list[Remark]) -> ModelReading:
    """Return the model's values in the agreed formats; another is remarked on, unless it is empty or the rules read the field."""
    dropped: dict[str, Any] = {}
    for name, agreed in _FORMATS.items():
        value = getattr(given, name)
        if value is None or (value.strip() and agreed.fullmatch(value)):
            continue
        dropped[name] = None
        owner: Any = next(each for each in (plain, plain.inputs, plain.inputs.commercial) if hasattr(each, name))
        if value.strip() and getattr(owner, name) is None:
            asked = _ASKED.get(name)
            remarks.append(Remark(asked, clipped(value)) if asked else Remark("unclaimed", clipped(_(_PHRASES[name], value=value))))
    return replace(given, **dropped) if dropped else given


def _account(text: str, given: str | None, plain: str | None, remarks: list[Remark]) -> str | None:
    if given is None:
        return plain
    if not _says(text, fold(given)):
        remarks.append(Remark("invented", clipped(given)))
        return None
    if plain is not None and fold(plain) != fold(given):
        remarks.append(Remark("accounts", f"{plain} / {clipped(given)}"))
        return None
    if plain is None:
        remarks.append(Remark("account", clipped(given)))
    return plain or given


def _lines(
    text: str, given: Sequence[ModelLine], catalogue: Catalogue, plain: Extraction, remarks: list[Remark]
) -> tuple[LineRequest, ...]:
    lines: dict[str, LineRequest] = {}
    for line in given[:LINES_MAX]:
        product = catalogue.find(line.product)
        counted = {known.value(token) for token in tokens(line.excerpt)}
        said = _says(text, fold(line.excerpt))
        if product is None or not product.active or not said or Decimal(line.quantity) not in counted:
            remarks.append(Remark("invented", clipped(f"{line.quantity} {line.product}")))
            continue
        if product.sku in lines:
            remarks.append(Remark("twice", clipped(line.excerpt), product.sku))
        if not any(_says(line.excerpt, name) for name, sku in catalogue.aliases.items() if sku == product.sku):
            remarks.append(Remark("near_name", clipped(line.excerpt), product.sku))
        read = plain.options.get(product.sku, {})
        options = {**_options(text, line, remarks), **_attributes(line, product, catalogue, read, remarks), **read}
        lines.setdefault(product.sku, replace(LineRequest(product.sku, int(line.quantity)), **options))
    return tuple(lines.values())


def _options(text: str, line: ModelLine, remarks: list[Remark]) -> dict[str, Any]:
    """Return the options of a line that the message supports. A model states no price."""
    found: dict[str, Any] = {}
    own = (line.discount_percent or "").strip()
    if own and not _PERCENT.fullmatch(own):
        remarks.append(Remark("discounts", clipped(own)))
    elif own and Decimal(own):
        if Decimal(own) in _percentages(line.excerpt):
            found["discount_percent"] = Decimal(own)
        else:
            remarks.append(Remark("invented", f"{own} %"))
    if line.optional:
        if re.search(r"\boption(?:al|ally|s)?\b", fold(text)):
            found["optional"] = True
        else:
            remarks.append(Remark("invented", clipped(f"optional {line.product}")))
    return found


def _attributes(
    line: ModelLine, product: Product, catalogue: Catalogue, read: Mapping[str, Any], remarks: list[Remark]
) -> dict[str, Any]:
    """Return the attributes of a line that the message supports. `read` are the options that the rules have read."""
    known_names = {each.name: each for each in product.attributes}
    found: set[tuple[str, str]] = set()
    for name, said in line.attributes:
        choice = catalogue.choice(product, known_names[name], said) if name in known_names else None
        if choice is not None and ((name, choice) in read.get("attributes", ()) or _says(line.excerpt, fold(said))):
            found.add((name, choice))
        else:
            remarks.append(Remark("invented", clipped(f"{name} {said}")))
    return {"attributes": tuple(sorted(found))} if found else {}


def _inputs(text: str, given: ModelReading, plain: Inputs, numbers: set[Decimal], remarks: list[Remark]) -> Inputs:
    """Return the inputs that the rules read, and those of the model that the message supports."""
    commercial = {name: getattr(plain.commercial, name) for name in MORE if hasattr(plain.commercial, name)}
    for name in MORE:
        value = getattr(given, name)
        before = commercial.get(name, getattr(plain, name, None))
        if value is None or before is not None or (name == "billing_frequency" and value == BILLING_FREQUENCIES[0]):
            continue  # the rules have read it, or the usual value
        read = _supported(text, name, value, numbers)
        if read is None:
            remarks.append(Remark("invented", clipped(value)))
            continue
        remarks.append(Remark("joined", clipped(value), _(_PHRASES[name], value=clipped(value))))
        if name in commercial:
            commercial[name] = read
        else:
            plain = replace(plain, **{name: read})
    return replace(plain, commercial=replace(plain.commercial, **commercial))


def _supported(text: str, name: str, value: str, numbers: set[Decimal]) -> Any:
    """Return the value of an input if the message contains it; else None."""
    if name == "segment":
        return fold(value) if _says(text, fold(value)) else None
    if name == "billing_frequency":
        said = _BILLING_SAID.get(value)
        return value if said is not None and said.search(text) else None
    if name == "start_date":
        try:
            day = date.fromisoformat(value)
        except ValueError:
            return None
        return day if _states(text, day, numbers) else None
    if name == "payment_days":
        return int(value) if int(value) in numbers and _PAYMENT_SAID.search(text) else None
    return value if _stands_in(text, value) else None


def _states(text: str, day: date, numbers: set[Decimal]) -> bool:
    """Return whether the message states a day in a way that no reader takes for another one."""
    month = MONTH_NAMES[day.month - 1]
    if re.search(rf"(?<!\w)(?:{month[:3]}|{known.either(month.casefold())})(?!\w)", text, re.IGNORECASE):
        return {Decimal(day.year), Decimal(day.day)} <= numbers
    if re.search(rf"(?<![\w./-]){day.year}(?P<mark>[./-])0?{day.month}(?P=mark)0?{day.day}(?!\w|[./-]\w)", text):
        return True
    return any(
        not _is_ambiguous(match)
        and {int(match[1]), int(match[3])} == {day.day, day.month}
        and int(match[4]) in (day.year, day.year % 100)
        for match in _IN_FIGURES.finditer(text)
    )


def _has_ambiguous_date(text: str) -> bool:
    return any(map(_is_ambiguous, _IN_FIGURES.finditer(text)))


def _is_ambiguous(match: re.Match[str]) -> bool:
    """Return whether both figures of a date may be its month: 03/04/2027."""
    return match[1].lstrip("0") != match[3].lstrip("0") and max(int(match[1]), int(match[3])) <= len(MONTH_NAMES)


def _says(excerpt: str, name: str) -> bool:
    """Return whether a name (folded) occurs in the excerpt as whole words."""
    return _stands_in(fold(excerpt), name)


def _stands_in(text: str, part: str) -> bool:
    """Return whether a part of a text, which is not blank, begins and ends where a word or a number does."""
    before = r"(?<!\w)(?<![0-9][.,])" if _WORD_SIGN.match(part) else ""
    after = r"(?!\w|[.,][0-9])" if _WORD_SIGN.match(part[-1:]) else ""
    return bool(part.strip()) and re.search(f"{before}{re.escape(part)}{after}", text) is not None


def _term(given: str | None, plain: int | None, numbers: set[Decimal], remarks: list[Remark]) -> int | None:
    if given is None or int(given) == plain:
        return plain
    if plain is not None:
        remarks.append(Remark("terms", f"{plain} / {given}"))
        return None
    months = ngettext("{n} month", "{n} months", int(given))
    if not any(number * each == int(given) for number in numbers for each in _MONTHS_PER):
        remarks.append(Remark("invented", months))
        return None
    remarks.append(Remark("joined", given, months))
    return int(given)


def _percentages(text: str) -> set[Decimal]:
    """Return the numbers that the message marks as a percentage or a discount; no other number may become a discount."""
    found = tokens(text)
    called: set[Decimal] = set()
    for index, token in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        percent = after is not None and (after.kind == "percent" or known.english(after.text) in known.PERCENT)
        around = found[max(0, index - NEAR_TOKENS) : index + NEAR_TOKENS + 1]
        if (value := known.value(token)) is not None and (
            (percent and not known.is_no_discount(found, index, index + 1))
            or any(known.english(each.text) in known.DISCOUNT for each in around)
        ):
            called.add(value)
    return called


def _discount(given: str | None, plain: Decimal | None, percentages: set[Decimal], remarks: list[Remark]) -> Decimal | None:
    if given is None or Decimal(given) == plain or (plain is None and not Decimal(given)):
        return plain
    if plain is not None:
        remarks.append(Remark("discounts", f"{plain}% / {given}%"))
        return None
    if Decimal(given) not in percentages:
        remarks.append(Remark("invented", f"{given}%"))
        return None
    remarks.append(Remark("percent", given, given))
    return Decimal(given)


def _applied_once(text: str, discount: Decimal | None, lines: tuple[LineRequest, ...], remarks: list[Remark]) -> Decimal | None:
    """Return the discount of the whole quote: None if the message has this percentage only for lines, a doubt for some of them."""
    same = [line for line in lines if discount and line.discount_percent == discount]
    said = sum(known.value(token) == discount and after.kind == "percent" for token, after in itertools.pairwise(tokens(text)))
    if not same or len(same) < said:
        return discount
    if len(same) < len(lines):
        remarks.append(Remark("discounts", f"{discount}% / {discount}% {same[0].sku}"))
    return None


def _currency(text: str, given: str | None, plain: str | None, remarks: list[Remark]) -> str | None:
    if given is None or given == plain:
        return plain
    if plain is not None:
        remarks.append(Remark("currencies", f"{plain} / {given}"))
        return None
    if fold(given) not in {token.text for token in tokens(text)}:
        remarks.append(Remark("invented", given))
        return None
    return given
