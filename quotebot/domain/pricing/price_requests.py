"""Price requests: lines and terms that determine a price, their limits, their edits, and the problems of one without a price."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from quotebot.domain import money
from quotebot.domain.catalogue.reader import is_text
from quotebot.domain.language import N_, _, grouped, localized
from quotebot.domain.pricing import commercial_terms
from quotebot.domain.pricing.commercial_terms import USUAL, CommercialTerms, canonical_terms, parse_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue.catalogue import Catalogue

LINES_MAX = 400  # one all-or-nothing request to the CRM
QUANTITY_MAX = 1_000_000
TERM_MONTHS_MAX = 120
ATTRIBUTES_MAX = 20
ZERO = Decimal(0)
DISCOUNT_STEP = Decimal("0.01")
AGREED_PRICE_MAX = Decimal("1e9")
AGREED_PRICE_STEP = Decimal("0.000001")
REASON_CHARACTERS_MAX = 200  # of an agreed price
TERMS_MAX = 20
TERM_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")  # a special term of the contract, by its name in policies
BILLING_FREQUENCIES = (N_("upfront"), N_("monthly"), N_("quarterly"), N_("annual"))


@dataclass(frozen=True, slots=True)
class LineRequest:
    """Requested line: a catalogue sku (lower case), a whole quantity >= 1, and the line's own options.

    `discount_percent` is the requested discount; `discount_limit_percent` is the authorised maximum, None without a limit.
    `attributes` are (name, choice) pairs. `agreed_price` is the unit net price before the header discount, in the
    quote's currency, in place of the list price less a discount; `price_reason` is its reason. An `optional` line is priced and
    shown, but is not part of the quote's totals until the customer chooses it.
    """

    sku: str
    quantity: int
    discount_percent: Decimal = ZERO
    discount_limit_percent: Decimal | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    agreed_price: Decimal | None = None
    price_reason: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class PriceRequest:
    """All requested inputs of a price. None: the ruleset's currency, no segment, no region, no day, no limit.

    `discount_percent` is requested on the whole quote, in addition to the lines' own; `discount_limit_percent` is its authorised
    maximum. `priced_on` selects dated prices, taxes and rates; without it only undated prices and taxes apply.
    """

    lines: tuple[LineRequest, ...]
    term_months: int
    discount_percent: Decimal
    currency: str | None = None  # ISO 4217; None: the ruleset's
    segment: str | None = None
    region: str | None = None
    priced_on: date | None = None
    billing_frequency: str = "upfront"
    discount_limit_percent: Decimal | None = None
    with_tax: bool = False
    terms: tuple[str, ...] = ()  # names of the contract's special terms, in order
    account: str | None = None  # the customer, whom a segment has to be open to; None without a segment
    commercial: CommercialTerms = USUAL
    segment_value: str | None = None  # value of the customer's account in the CRM that opens the segment; None: none does
    accepted: frozenset[str] = field(default=frozenset(), compare=False)  # texts of a stored request that would be refused today


@dataclass(frozen=True, slots=True)
class PricingProblem:
    """One reason why a request has no price. `message` describes the error, `suggestion` the correction.

    `sku` is that of the line it is about, and `attribute` the line's attribute; empty if it is about none.
    """

    code: str  # "unknown_sku", "quantity", "duplicate_sku", "line_count", "term", "discount", a constraint's kind, "no_price", ...
    message: str
    suggestion: str
    sku: str = ""
    attribute: str = ""


def dated(request: PriceRequest, unix_ms: int) -> PriceRequest:
    """Return the request priced on the UTC day of `unix_ms`, unless it has its own day."""
    return (
        request
        if request.priced_on is not None
        else replace(request, priced_on=datetime.fromtimestamp(unix_ms // 1000, UTC).date())
    )


def as_of(request: PriceRequest, unix_ms: int) -> PriceRequest:
    """Return the request priced on the UTC day of `unix_ms`, replacing its own day, so that new versions get current prices."""
    return dated(replace(request, priced_on=None), unix_ms)


def authorised(requested: Decimal, limit: Decimal | None) -> Decimal:
    """Return the granted discount: the requested one, up to the limit."""
    return requested if limit is None else min(requested, limit)


def normalised(request: PriceRequest) -> PriceRequest:
    """Return a valid request in its stored form: 15.00 becomes 15, attributes are sorted."""
    return parse_request(canonical_request(request))


def find_problems(request: PriceRequest, catalogue: Catalogue) -> tuple[PricingProblem, ...]:
    """Return every problem of the request itself, in reading order; empty if it can be priced."""
    lines, term_months = request.lines, request.term_months
    found: list[PricingProblem] = []
    if 1 <= len(lines) <= LINES_MAX:
        found += [*_sku_problems(lines, catalogue), *_duplicate_problems(lines, catalogue)]
    else:
        split, none = N_("split the quote into several of at most {limit} lines"), N_("name at least one product, e.g. 10 pro")
        message = _("a quote has 1 to {limit} lines, not {count}", limit=LINES_MAX, count=len(lines))
        found.append(PricingProblem("line_count", message, _(split if lines else none, limit=LINES_MAX)))
    if lines and all(line.optional for line in lines):
        message, hint = _("every line is optional, so the quote has no total"), _("keep one that is not")
        found.append(PricingProblem("line_count", message, hint))
    if not 1 <= term_months <= TERM_MONTHS_MAX:
        message = _("a term is 1 to {limit} months, not {months}", limit=TERM_MONTHS_MAX, months=clipped(str(term_months)))
        found.append(PricingProblem("term", message, _("e.g. term 12m")))
    found += [*_discount_problems(request), *_agreed_price_problems(lines[:LINES_MAX], request.accepted)]
    if request.currency is not None and not _is_currency(request.currency):
        message = _('"{text}" is no currency', text=clipped(request.currency))
        found.append(PricingProblem("currency", message, _("write its ISO 4217 code, e.g. USD")))
    if request.billing_frequency not in BILLING_FREQUENCIES:
        message = _('"{text}" is no billing frequency', text=clipped(request.billing_frequency))
        found.append(PricingProblem("billing", message, _("one of {choices}", choices=", ".join(BILLING_FREQUENCIES))))
    found += _term_problems(request.terms)
    if request.commercial is not USUAL:
        agreed = commercial_terms.find_term_problems(request.commercial, request.terms, request.priced_on, request.accepted)
        found += (PricingProblem(*problem) for problem in agreed)
    return tuple(found)


def canonical_request(request: PriceRequest) -> dict[str, object]:
    """Return the JSON-ready form: percentages as text, without None and empty values."""
    lines: list[dict[str, object]] = []
    for line in request.lines:
        stored: dict[str, object] = {"sku": line.sku, "quantity": line.quantity}
        if line.discount_percent:
            stored["requested_discount_percent"] = money.trimmed(line.discount_percent)
        if line.discount_limit_percent is not None:
            stored["discount_limit_percent"] = money.trimmed(line.discount_limit_percent)
        if line.attributes:
            stored["attributes"] = [list(pair) for pair in sorted(line.attributes)]
        optional = {"optional": True} if line.optional else {}
        lines.append({**stored, **_canonical_price(line.agreed_price, line.price_reason), **optional})
    named: dict[str, object | None] = {
        "currency": request.currency,
        "segment": request.segment,
        "segment_account": request.account,
        "segment_value": request.segment_value,
        "region": request.region,
        "priced_on": None if request.priced_on is None else request.priced_on.isoformat(),
        "billing_frequency": None if request.billing_frequency == BILLING_FREQUENCIES[0] else request.billing_frequency,
        "discount_limit_percent": None if request.discount_limit_percent is None else money.trimmed(request.discount_limit_percent),
        "with_tax": request.with_tax or None,
        "terms": sorted(set(request.terms)) or None,
        "commercial": canonical_terms(request.commercial) or None,
    }
    return {
        "lines": lines,
        "term_months": request.term_months,
        "requested_discount_percent": money.trimmed(request.discount_percent),
        **{name: value for name, value in named.items() if value is not None},
    }


def parse_request(stored: Mapping[str, Any]) -> PriceRequest:
    """Rebuild the request of `canonical_request`."""
    limit, day = stored.get("discount_limit_percent"), stored.get("priced_on")
    return PriceRequest(
        lines=tuple(_line(line) for line in stored["lines"]),
        term_months=int(str(stored["term_months"])),
        discount_percent=Decimal(str(stored["requested_discount_percent"])),
        currency=stored.get("currency"),
        segment=stored.get("segment"),
        account=stored.get("segment_account"),
        segment_value=stored.get("segment_value"),
        region=stored.get("region"),
        priced_on=None if day is None else date.fromisoformat(day),
        billing_frequency=str(stored.get("billing_frequency", BILLING_FREQUENCIES[0])),
        discount_limit_percent=None if limit is None else Decimal(str(limit)),
        with_tax=bool(stored.get("with_tax", False)),
        terms=tuple(str(term) for term in stored.get("terms", ())),
        commercial=parse_terms(stored.get("commercial", {})),
    )


def as_stored(request: PriceRequest) -> PriceRequest:
    """Return the request of a snapshot: its texts were accepted when it was made, and stay so in its revisions and clones."""
    texts = [line.price_reason for line in request.lines if line.agreed_price is not None]
    texts += filter(None, (getattr(request.commercial, name) for name in commercial_terms.TEXTS_MAX))
    refused = frozenset(text for text in texts if not is_text(text, len(text)))
    return replace(request, accepted=refused) if refused else request


def clipped(text: str, characters: int = 40) -> str:
    """Return `text`, truncated with an ellipsis if it is longer than `characters`."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _line(stored: Mapping[str, Any]) -> LineRequest:
    limit = stored.get("discount_limit_percent")
    return LineRequest(
        sku=stored["sku"],
        quantity=int(stored["quantity"]),
        discount_percent=Decimal(str(stored.get("requested_discount_percent", 0))),
        discount_limit_percent=None if limit is None else Decimal(str(limit)),
        attributes=tuple((str(name), str(choice)) for name, choice in stored.get("attributes", ())),
        **_stored_price(stored),
        optional=bool(stored.get("optional", False)),
    )


def _canonical_price(agreed: Decimal | None, reason: str) -> dict[str, object]:
    """Return the stored form of an agreed price; empty without one."""
    return {} if agreed is None else {"agreed_price": money.trimmed(agreed), "price_reason": reason}


def _stored_price(stored: Mapping[str, Any]) -> dict[str, Any]:
    agreed = stored.get("agreed_price")
    return {} if agreed is None else {"agreed_price": Decimal(str(agreed)), "price_reason": str(stored["price_reason"])}


def reason_text(text: str) -> str:
    """Return the reason of an agreed price on one line, without the signs that separate parts of typed text."""
    return " ".join(text.translate(_REASON_SIGNS).split())


_REASON_SIGNS = str.maketrans({";": ",", '"': "'", "\u201c": "'", "\u201d": "'"})


def _is_currency(code: str) -> bool:
    try:
        money.exponent(code)
    except ValueError:
        return False
    return True


def _discount_problems(request: PriceRequest) -> Iterator[PricingProblem]:
    asked = [("", request.discount_percent), ("", request.discount_limit_percent)]
    for line in request.lines[:LINES_MAX]:
        asked += [(line.sku, line.discount_percent), (line.sku, line.discount_limit_percent)]
    whole = N_("a discount is 0 to 100% with at most 2 decimals, not {percent}%")
    on_line = N_("a discount on {sku} is 0 to 100% with at most 2 decimals, not {percent}%")
    for sku, percent in asked:
        if percent is not None and percent is not ZERO and not _is_discount(percent):  # nearly all are the default zero
            message = _(on_line if sku else whole, sku=clipped(sku), percent=clipped(str(percent)))
            yield PricingProblem("discount", message, _("e.g. discount {percent}%", percent=localized("12.5")), sku)


def _term_problems(terms: tuple[str, ...]) -> Iterator[PricingProblem]:
    if len(terms) > TERMS_MAX:
        message = _("a quote has at most {limit} special terms, not {count}", limit=TERMS_MAX, count=len(terms))
        yield PricingProblem("terms", message, _("keep the others out"))
    for term in terms[:TERMS_MAX]:
        if not TERM_NAME.fullmatch(term):
            message = _('"{text}" is no name of a term', text=clipped(term))
            yield PricingProblem("terms", message, _("e.g. terms liability_cap, exclusivity"))


def _agreed_price_problems(lines: tuple[LineRequest, ...], accepted: frozenset[str]) -> Iterator[PricingProblem]:
    for line in lines:
        if line.agreed_price is None:
            continue
        sku = clipped(line.sku)
        example = N_("e.g. {quantity} {sku} @{price} because volume deal")
        if not _is_agreed_price(line.agreed_price):
            price = clipped(str(line.agreed_price))
            message = _("the price of {sku} is 0 or more with at most 6 decimals, not {price}", sku=sku, price=price)
            yield PricingProblem("agreed_price", message, _(example, quantity=10, sku=sku, price=localized("5.40")), line.sku)
        elif line.discount_percent:
            message = _("{sku} has both a price and a discount of its own", sku=sku)
            yield PricingProblem("agreed_price", message, _("keep one of them"), line.sku)
        if not line.price_reason or len(line.price_reason) > REASON_CHARACTERS_MAX:
            none, too_long = (
                N_("the price of {sku} needs a reason"),
                N_("the reason for the price of {sku} is longer than {limit} characters"),
            )
            message = _(too_long if line.price_reason else none, sku=sku, limit=REASON_CHARACTERS_MAX)
            yield PricingProblem(
                "agreed_price", message, _(example, quantity=line.quantity, sku=sku, price=localized("5.40")), line.sku
            )
        elif line.price_reason not in accepted and not is_text(line.price_reason, REASON_CHARACTERS_MAX):
            message = _("the reason for the price of {sku} is no text on one line", sku=sku)
            yield PricingProblem("agreed_price", message, _("write it without control characters"), line.sku)


def _is_agreed_price(price: Decimal) -> bool:
    try:
        value = money.exact(price)
    except ValueError:
        return False
    return 0 <= value <= AGREED_PRICE_MAX and value == value.quantize(AGREED_PRICE_STEP, context=money.EXACT)


def _is_discount(percent: Decimal) -> bool:
    try:
        value = money.exact(percent)
    except ValueError:
        return False
    return 0 <= value <= money.HUNDRED and value == value.quantize(DISCOUNT_STEP, context=money.EXACT)


def _sku_problems(lines: tuple[LineRequest, ...], catalogue: Catalogue) -> Iterator[PricingProblem]:
    suggestions: dict[str, str] = {}  # one search per unknown sku, also if it is repeated
    for line in lines:
        product = catalogue.products.get(line.sku)
        if product is None or not product.active:
            if line.sku not in suggestions:
                near = catalogue.suggest(line.sku)
                known = ", ".join(sku for sku, row in catalogue.products.items() if row.active)
                suggestions[line.sku] = _("did you mean {name}?", name=near) if near else _("known are {names}", names=known)
            if product is None:
                message = _('"{text}" isn\'t in the catalog', text=clipped(line.sku))
                yield PricingProblem("unknown_sku", message, suggestions[line.sku], line.sku)
            else:
                message = _("{sku} is no longer sold", sku=line.sku)
                yield PricingProblem("inactive_sku", message, suggestions[line.sku], line.sku)
        if not 1 <= line.quantity <= QUANTITY_MAX:
            sku, limit, quantity = clipped(line.sku), grouped(QUANTITY_MAX), clipped(str(line.quantity))
            message = _("the quantity of {sku} is 1 to {limit}, not {quantity}", sku=sku, limit=limit, quantity=quantity)
            yield PricingProblem("quantity", message, _("e.g. {quantity} {sku}", quantity=10, sku=sku), line.sku)


def _duplicate_problems(lines: tuple[LineRequest, ...], catalogue: Catalogue) -> Iterator[PricingProblem]:
    counts: dict[str, list[int]] = {}
    for line in lines:
        counts.setdefault(line.sku, []).append(line.quantity)
    for sku, quantities in counts.items():
        if sku in catalogue.products and len(quantities) > 1:
            message = _("{sku} is listed {count} times; a product has one line", sku=sku, count=len(quantities))
            hint = _("combine them: {quantity} {sku}", quantity=clipped(str(sum(quantities))), sku=sku)
            yield PricingProblem("duplicate_sku", message, hint, sku)


CHANGES_MAX = 400  # as many as a quote has lines


@dataclass(frozen=True, slots=True)
class LineChange:
    """One edit of one product's line: `set` its quantity (adding a line if needed), `add` to it, `remove` the line, or `take` it.

    `take` makes an optional line part of the quote.

    None leaves the line's own discount, attributes, agreed price or `optional` unchanged. A line has either a discount of its own
    or an agreed price, so setting one removes the other.
    """

    deed: Literal["set", "add", "remove", "take"]
    sku: str  # of the catalogue, lower case
    quantity: int = 0  # >= 1 for set and add; 0 for remove and take
    discount_percent: Decimal | None = None
    attributes: tuple[tuple[str, str], ...] | None = None
    agreed_price: Decimal | None = None
    price_reason: str = ""
    optional: bool | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Edits of a request; None leaves a value unchanged."""

    lines: tuple[LineChange, ...] = ()
    term_months: int | None = None
    discount_percent: Decimal | None = None
    currency: str | None = None
    region: str | None = None
    with_tax: bool | None = None
    terms: tuple[str, ...] | None = None  # replaces all terms; () removes them
    segment: str | None = None  # "" removes it
    billing_frequency: str | None = None
    commercial: CommercialTerms = USUAL  # the fields to set
    cleared: tuple[str, ...] = ()  # the commercial fields to remove


def canonical_changes(changes: Changes) -> dict[str, object]:
    """Return the JSON-ready form. What builds before 0.2.0 did not know is left out where it is unchanged."""
    discount = changes.discount_percent
    later = {
        "segment": changes.segment,
        "billing_frequency": changes.billing_frequency,
        "commercial": canonical_terms(changes.commercial) or None,
        "cleared": list(changes.cleared) or None,
    }
    return {
        "lines": [_canonical_change(line) for line in changes.lines],
        "term_months": changes.term_months,
        "requested_discount_percent": None if discount is None else format(discount.normalize(), "f"),
        "currency": changes.currency,
        "region": changes.region,
        "with_tax": changes.with_tax,
        "terms": None if changes.terms is None else list(changes.terms),
        **{name: value for name, value in later.items() if value is not None},
    }


def _canonical_change(line: LineChange) -> dict[str, object]:
    stored: dict[str, object] = {"deed": line.deed, "sku": line.sku, "quantity": line.quantity}
    if line.discount_percent is not None:
        stored["discount_percent"] = money.trimmed(line.discount_percent)
    if line.attributes is not None:
        stored["attributes"] = [list(pair) for pair in line.attributes]
    optional = {} if line.optional is None else {"optional": line.optional}
    return {**stored, **_canonical_price(line.agreed_price, line.price_reason), **optional}


def _parse_change(stored: Mapping[str, Any]) -> LineChange:
    discount, attributes = stored.get("discount_percent"), stored.get("attributes")
    return LineChange(
        stored["deed"],
        stored["sku"],
        int(stored["quantity"]),
        None if discount is None else Decimal(str(discount)),
        None if attributes is None else tuple((str(name), str(choice)) for name, choice in attributes),
        **_stored_price(stored),
        optional=stored.get("optional"),
    )


def parse_changes(stored: Mapping[str, Any]) -> Changes:
    """Rebuild the edits of `canonical_changes`."""
    term, discount, terms = stored["term_months"], stored["requested_discount_percent"], stored["terms"]
    return Changes(
        lines=tuple(_parse_change(line) for line in stored["lines"]),
        term_months=None if term is None else int(str(term)),
        discount_percent=None if discount is None else Decimal(str(discount)),
        currency=stored["currency"],
        region=stored["region"],
        with_tax=stored["with_tax"],
        terms=None if terms is None else tuple(str(term) for term in terms),
        segment=stored.get("segment"),
        billing_frequency=stored.get("billing_frequency"),
        commercial=parse_terms(stored.get("commercial", {})),
        cleared=tuple(str(name) for name in stored.get("cleared", ()) if name in commercial_terms.NAMES),
    )


def _repriced(line: LineRequest, change: LineChange) -> LineRequest:
    """Return the line with the discount or the agreed price of the change."""
    if change.agreed_price is not None:
        discount = change.discount_percent or ZERO
        return replace(line, discount_percent=discount, agreed_price=change.agreed_price, price_reason=change.price_reason)
    if change.discount_percent is not None:
        return replace(line, discount_percent=change.discount_percent, agreed_price=None, price_reason="")
    return line


def changed(request: PriceRequest, changes: Changes) -> PriceRequest | tuple[PricingProblem, ...]:
    """Return the request after the edits, applied in order, or a problem for every edit that cannot be applied.

    A changed line keeps its position; a new one is appended. The engine checks whether the result has a price.
    """
    if len(changes.lines) > CHANGES_MAX:
        message = _("a revision has at most {limit} changes, not {count}", limit=CHANGES_MAX, count=len(changes.lines))
        return (PricingProblem("line_count", message, _("make them in several steps")),)
    lines = {line.sku: line for line in request.lines}
    problems: list[PricingProblem] = []
    for change in changes.lines:
        before = lines.get(change.sku)
        if change.deed in ("remove", "take"):
            if before is None:
                there = clipped(", ".join(lines) or _("none"), 200)
                absent = {"remove": N_("there is no line {sku} to remove"), "take": N_("there is no line {sku} to take")}
                message = _(absent[change.deed], sku=clipped(change.sku))
                problems.append(PricingProblem("no_such_line", message, _("its lines are {names}", names=there), change.sku))
            elif change.deed == "take":
                lines[change.sku] = replace(before, optional=False)
            else:
                del lines[change.sku]
        elif change.quantity < 1:
            sku, quantity = clipped(change.sku), clipped(str(change.quantity))
            message = _("the quantity of {sku} is 1 or more, not {quantity}", sku=sku, quantity=quantity)
            problems.append(PricingProblem("quantity", message, _("e.g. 10 {sku}, or remove {sku}", sku=sku), change.sku))
        else:
            line = LineRequest(change.sku, 0) if before is None else before
            already = line.quantity if change.deed == "add" else 0
            lines[change.sku] = replace(
                _repriced(line, change),
                quantity=already + change.quantity,
                attributes=line.attributes if change.attributes is None else change.attributes,
                optional=line.optional if change.optional is None else change.optional,
            )
    if problems:
        return tuple(problems)
    return replace(
        request,
        lines=tuple(lines.values()),
        term_months=request.term_months if changes.term_months is None else changes.term_months,
        discount_percent=request.discount_percent if changes.discount_percent is None else changes.discount_percent,
        currency=request.currency if changes.currency is None else changes.currency,
        region=request.region if changes.region is None else changes.region,
        with_tax=request.with_tax if changes.with_tax is None else changes.with_tax,
        terms=request.terms if changes.terms is None else changes.terms,
        segment=request.segment if changes.segment is None else changes.segment or None,
        billing_frequency=request.billing_frequency if changes.billing_frequency is None else changes.billing_frequency,
        commercial=commercial_terms.edited(request.commercial, changes.commercial, changes.cleared),
    )
