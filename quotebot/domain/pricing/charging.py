"""Pricing of each item before the header discount: price book, kind of price, exchange rate, bundle and line discounts.

The items come from the request: bundles are unpacked into components, configurations completed, and constraints checked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.catalogue.catalogue import Component
from quotebot.domain.language import N_, _, grouped
from quotebot.domain.pricing.constraints import Chosen, find_violations
from quotebot.domain.pricing.formulas import FormulaError
from quotebot.domain.pricing.price_books import UNIT_PRICE, Charge, PriceBook, PriceEntry, Share, books_for, numeric_attributes
from quotebot.domain.pricing.price_requests import (
    LINES_MAX,
    QUANTITY_MAX,
    LineRequest,
    PriceRequest,
    PricingProblem,
    authorised,
    clipped,
)
from quotebot.domain.pricing.priced import RATE, SHARES, SURCHARGE, ZERO, Step
from quotebot.domain.pricing.taxes import Rate, find_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quotebot.domain.catalogue.catalogue import Catalogue, Product
    from quotebot.domain.catalogue.rulesets import Ruleset


RECURRING = "recurring"
PERCENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class SelectedItem:
    """One line to price: a product other than a bundle, its quantity and configuration, and the originating request line."""

    product: Product
    quantity: int
    attributes: Mapping[str, str]
    line: LineRequest
    bundle: Product | None = None
    choice: str = ""  # of the bundle, by which the product was chosen

    @property
    def name(self) -> str:
        """Unique name of the item within the request."""
        return self.product.sku if self.bundle is None else f"{self.bundle.sku}/{self.product.sku}"


def choose(request: PriceRequest, ruleset: Ruleset) -> tuple[SelectedItem, ...] | tuple[PricingProblem, ...]:
    """Return the items of a request whose skus are all known, or every problem with them."""
    problems: list[PricingProblem] = []
    items: list[SelectedItem] = []
    for line in request.lines:
        problems += _configuration_problems(line, ruleset.catalogue.products[line.sku])
        items += _unpacked(line, ruleset.catalogue)
    if len(items) > LINES_MAX:
        problems.append(
            PricingProblem(
                "line_count",
                _(
                    "with its bundles unpacked, the quote has {count} lines; {limit} are possible",
                    count=len(items),
                    limit=LINES_MAX,
                ),
                _("split the quote into several"),
            )
        )
    for item in items:
        if not item.product.active and item.bundle is not None:
            problems.append(
                PricingProblem(
                    "inactive_sku",
                    _("{bundle} holds {sku}, which is no longer sold", bundle=item.bundle.sku, sku=item.product.sku),
                    _("choose another {name}", name=item.choice)
                    if item.choice
                    else _("order what {bundle} holds without it", bundle=item.bundle.sku),
                    *(item.line.sku, item.choice),
                )
            )
        if item.quantity > QUANTITY_MAX:
            problems.append(
                PricingProblem(
                    "quantity",
                    _(
                        "the quantity of {sku} is 1 to {limit}, not {quantity}",
                        sku=item.product.sku,
                        limit=grouped(QUANTITY_MAX),
                        quantity=grouped(item.quantity),
                    ),
                    _("order fewer {sku}", sku=item.line.sku),
                    item.line.sku,
                )
            )
    problems += dict.fromkeys(_violations(items, ruleset))
    return tuple(problems) if problems else tuple(items)


def _violations(items: list[SelectedItem], ruleset: Ruleset) -> Iterator[PricingProblem]:
    """Yield the violations of the quote without its optional lines, and with each of them chosen alone."""
    chosen = _chosen([item for item in items if not item.line.optional])
    yield from find_violations(ruleset.constraints, chosen)
    options: defaultdict[str, list[SelectedItem]] = defaultdict(list)
    for item in items:
        if item.line.optional:
            options[item.line.sku].append(item)
    for own in options.values():
        skus = {item.product.sku for item in own}
        concerned = tuple(rule for rule in ruleset.constraints if rule.sku in skus or rule.other in skus)
        yield from find_violations(concerned, _chosen(own, chosen))


def _unpacked(line: LineRequest, catalogue: Catalogue) -> Iterator[SelectedItem]:
    product = catalogue.products[line.sku]
    if product.kind != "bundle":
        yield SelectedItem(product, line.quantity, _configuration(product, line.attributes), line)
        return
    for component, choice in _parts(product, line):
        part = catalogue.products[component.sku]
        yield SelectedItem(part, component.quantity * line.quantity, _configuration(part, ()), line, product, choice)


def _parts(bundle: Product, line: LineRequest) -> Iterator[tuple[Component, str]]:
    """Yield what a bundle consists of: its components, and the chosen ones with the name of the choice."""
    yield from ((component, "") for component in bundle.components)
    chosen = _configuration(bundle, line.attributes)
    for choice in bundle.choices:
        sku = chosen.get(choice.name)
        if sku is not None and sku in choice.of:
            yield Component(sku, choice.quantity), choice.name


def _configuration(product: Product, chosen: tuple[tuple[str, str], ...]) -> dict[str, str]:
    defaults = {attribute.name: attribute.default for attribute in product.attributes if attribute.default is not None}
    return {**defaults, **dict(chosen)}


def _configuration_problems(line: LineRequest, product: Product) -> Iterator[PricingProblem]:
    known = {attribute.name: attribute for attribute in product.attributes}
    given = dict(line.attributes)
    if len(given) != len(line.attributes):
        yield PricingProblem("attribute", _("{sku} has an attribute twice", sku=line.sku), _("choose each once"), line.sku)
    if line.agreed_price is not None and product.kind == "bundle":
        yield PricingProblem(
            "agreed_price",
            _("{sku} is a bundle, which has no price of its own", sku=line.sku),
            _("agree on the prices of its products instead"),
            line.sku,
        )
    for name, choice in given.items():
        if name not in known:
            hint = _("known are {names}", names=", ".join(known)) if known else _("leave it out")
            text = N_("{sku} has no choice {name}") if product.kind == "bundle" else N_("{sku} has no attribute {name}")
            message = _(text, sku=line.sku, name=clipped(name))
            yield PricingProblem("attribute", message, hint, line.sku, name)
        elif choice not in known[name].choices:
            yield PricingProblem(
                "attribute",
                _("{choice} is no {name} of {sku}", choice=clipped(choice), name=name, sku=line.sku),
                _("one of {choices}", choices=", ".join(known[name].choices)),
                *(line.sku, name),
            )
    for attribute in product.attributes:
        if attribute.default is None and attribute.name not in given:
            yield PricingProblem(
                "attribute",
                _("{sku} needs a choice of {name}", sku=line.sku, name=attribute.name),
                _("one of {choices}", choices=", ".join(attribute.choices)),
                *(line.sku, attribute.name),
            )


def _chosen(items: list[SelectedItem], others: Mapping[str, Chosen] | None = None) -> dict[str, Chosen]:
    chosen = dict(others or {})
    for item in items:
        before = chosen.get(item.product.sku)
        if before is None or item.bundle is None:  # a separate line sets the configuration; bundles use the default
            units = item.quantity + (before.quantity if before else 0)
            chosen[item.product.sku] = Chosen(units, item.attributes, item.line.sku)
        else:
            chosen[item.product.sku] = replace(before, quantity=before.quantity + item.quantity)
    return chosen


@dataclass(frozen=True, slots=True)
class Terms:
    """Values shared by all lines of one request: ruleset, currency, price books and rates."""

    request: PriceRequest
    ruleset: Ruleset
    currency: str
    smallest: Decimal  # of that currency
    books: tuple[PriceBook, ...]  # applicable ones, highest priority first
    cost_rate: Rate | None  # from the ruleset's currency, which is the currency of costs

    def months(self, item: SelectedItem) -> int:
        """Return the number of months charged for an item."""
        return self.request.term_months if item.product.billing == RECURRING else 1

    def rounded(self, *factors: Decimal | int) -> Decimal:
        """Return the product of the factors, rounded once."""
        return money.product(*factors).quantize(self.smallest, context=money.EXACT)

    def rate(self, base: str) -> Rate | None:
        """Return the rate from `base` to the quote's currency, or None if there is none or it is too old."""
        found = self.newest_rate(base)
        return None if found is not None and self._is_stale(found) else found

    def newest_rate(self, base: str) -> Rate | None:
        """Return the newest rate on the request's day, of any age."""
        return find_rate(self.ruleset.rates, base, self.currency, self.request.priced_on)

    def _is_stale(self, rate: Rate) -> bool:
        day, most = self.request.priced_on, self.ruleset.rate_days_max
        return day is not None and most is not None and (day - rate.on).days > most


@dataclass(frozen=True, slots=True)
class Charged:
    """Item with its price. Amounts are rounded, in the quote's currency; `before_header` is the list less both discounts.

    `floor` is the unit price under which the policy decides, in the quote's currency; None without one.
    """

    item: SelectedItem
    book: str
    kind: str
    unit_price: Decimal
    tier: str | None
    list_amount: Decimal
    bundle_discount: Decimal
    line_discount: Decimal
    requested_percent: Decimal
    authorised_percent: Decimal
    before_header: Decimal
    cost_amount: Decimal
    steps: tuple[Step, ...]
    floor: Decimal | None


def terms_of(request: PriceRequest, ruleset: Ruleset) -> Terms | PricingProblem:
    """Return the shared values, or a problem if there is no rate to convert costs to the quote's currency."""
    currency = request.currency or ruleset.currency
    books = books_for(ruleset.books, currency, request.segment, request.region, request.priced_on)
    terms = Terms(request, ruleset, currency, money.quantum(currency), books, None)
    if currency == ruleset.currency:
        return terms
    rate = terms.rate(ruleset.currency)
    if rate is None:
        return _no_rate(terms, ruleset.currency)
    return Terms(request, ruleset, currency, terms.smallest, books, rate)


def charge(
    items: Sequence[SelectedItem], terms: Terms, others: Sequence[Charged] | None = None
) -> tuple[Charged, ...] | tuple[PricingProblem, ...]:
    """Price every item, percentage prices last, of `others` if they are given; or return every problem."""
    problems: list[PricingProblem] = []
    found: dict[str, Charged] = {}
    shares: list[tuple[SelectedItem, PriceBook, Share]] = []
    for item in items:
        sku = item.product.sku
        source = next(((book, book.prices[sku]) for book in terms.books if sku in book.prices), None)
        if source is None:
            problems.append(_no_price(item, terms))
            continue
        book, entry = source
        if isinstance(entry.kind, Share):
            shares.append((item, book, entry.kind))
            continue
        charged = _charged(item, book, entry, terms)
        if isinstance(charged, PricingProblem):
            problems.append(charged)
        else:
            found[item.name] = charged
    priced = tuple(found.values()) if others is None else others
    bases = {basis: _Base(basis, priced) for basis in {share.basis for _item, _book, share in shares}}
    for item, book, share in shares:
        if item.bundle is None and item.quantity != 1:
            problems.append(
                PricingProblem(
                    "quantity",
                    _(
                        "{sku} is {percent} of other lines: there is one of it",
                        sku=item.product.sku,
                        percent=money.format_percent(share.percent),
                    ),
                    _("write 1 {sku}", sku=item.product.sku),
                    item.line.sku,
                )
            )
        charged = _shared(replace(item, quantity=1), book, share, bases[share.basis], terms)
        if isinstance(charged, PricingProblem):
            problems.append(charged)
        else:
            found[item.name] = charged
    return tuple(problems) if problems else tuple(found[item.name] for item in items)


def _charged(item: SelectedItem, book: PriceBook, entry: PriceEntry, terms: Terms) -> Charged | PricingProblem:
    rate = None if book.currency == terms.currency else terms.rate(book.currency)
    if rate is None and book.currency != terms.currency:
        return _no_rate(terms, book.currency)
    charge = _own_charge(item, entry, terms)
    if isinstance(charge, PricingProblem):
        return charge
    factor = Decimal(1) if rate is None else rate.rate
    steps = charge.steps
    unit_price = charge.unit_price
    if rate is not None:
        detail = RATE.format(base=rate.base, rate=money.trimmed(rate.rate), currency=rate.currency, day=rate.on.isoformat())
        steps = (*steps, Step("rate", rate.rate, detail))
        unit_price = money.product(unit_price, factor).quantize(UNIT_PRICE, context=money.EXACT)
    amount = terms.rounded(charge.amount, terms.months(item), factor)
    priced = _discounted(item, book.name, entry.kind.kind, amount, Charge(amount, unit_price, charge.tier, steps), terms)
    if entry.floor is None or isinstance(priced, PricingProblem):
        return priced
    return replace(priced, floor=money.product(entry.floor, factor).quantize(UNIT_PRICE, context=money.EXACT))


def _own_charge(item: SelectedItem, entry: PriceEntry, terms: Terms) -> Charge | PricingProblem:
    assert not isinstance(entry.kind, Share)  # noqa: S101 -- shares are priced last, from the other lines
    inputs = {name: Decimal(item.attributes[name]) for name in numeric_attributes(item.product)}
    inputs |= {"quantity": Decimal(item.quantity), "term_months": Decimal(terms.request.term_months)}
    try:
        charge = entry.kind.charge(item.quantity, inputs)
    except FormulaError as error:
        return PricingProblem(
            "formula",
            _("the formula of {sku} gives no price: {error}", sku=item.product.sku, error=error),
            _("change the quantity, the term or the configuration, or tell who keeps the price book"),
            item.line.sku,
        )
    for surcharge in entry.surcharges:
        if item.attributes.get(surcharge.attribute) == surcharge.choice:
            added = money.product(surcharge.amount, item.quantity)
            detail = SURCHARGE.format(attribute=surcharge.attribute, choice=surcharge.choice)
            step = Step("surcharge", surcharge.amount, detail)
            unit_price = money.EXACT.add(charge.unit_price, surcharge.amount)
            charge = Charge(money.EXACT.add(charge.amount, added), unit_price, charge.tier, (*charge.steps, step))
    return charge


class _Base:
    """Base amounts of percentage prices, summed once per family and per sku, so that many shares of many lines stay linear."""

    def __init__(self, basis: str, rows: Sequence[Charged]) -> None:
        self.families: dict[str, Decimal] = {}
        self.skus: dict[str, tuple[str, Decimal]] = {}  # sku -> its family, its sum
        for row in rows:
            sku, family = row.item.product.sku, row.item.product.family
            amount = row.before_header if basis == "net" else row.list_amount
            self.families[family] = money.EXACT.add(self.families.get(family, ZERO), amount)
            self.skus[sku] = (family, money.EXACT.add(self.skus.get(sku, (family, ZERO))[1], amount))

    def total(self, of: tuple[str, ...]) -> Decimal:
        """Return the sum of all lines whose sku or family is named, each once; of all lines if `of` is empty."""
        names = set(of) or set(self.families)
        total = ZERO
        for name in names:
            total = money.EXACT.add(total, self.families.get(name, ZERO))
            family, amount = self.skus.get(name, (name, ZERO))
            if family not in names:
                total = money.EXACT.add(total, amount)
        return total


def _shared(item: SelectedItem, book: PriceBook, share: Share, base: _Base, terms: Terms) -> Charged | PricingProblem:
    whole = base.total(share.of)
    amount = terms.rounded(whole, share.percent, PERCENT)
    detail = SHARES[share.basis, bool(share.of)].format(
        percent=money.trimmed(share.percent), amount=money.trimmed(whole), lines=", ".join(share.of)
    )
    step = Step("share", amount, detail)
    unit_price = money.EXACT.divide(amount, Decimal(terms.months(item))).quantize(UNIT_PRICE, context=money.EXACT)
    return _discounted(item, book.name, share.kind, amount, Charge(amount, unit_price, None, (step,)), terms)


def _discounted(
    item: SelectedItem, book: str, kind: str, amount: Decimal, charge: Charge, terms: Terms
) -> Charged | PricingProblem:
    """Deduct the bundle's discount from the list, then the authorised part of the line's own from the rest, or agree on a price."""
    bundle = ZERO if item.bundle is None else item.bundle.bundle_discount_percent
    requested = item.line.discount_percent
    granted = authorised(requested, item.line.discount_limit_percent)
    bundle_discount = terms.rounded(amount, bundle, PERCENT)
    rest = money.EXACT.subtract(amount, bundle_discount)
    line_discount = terms.rounded(rest, granted, PERCENT)
    if item.line.agreed_price is not None:
        agreed = terms.rounded(item.line.agreed_price, item.quantity, terms.months(item))
        if agreed > rest:
            return _above_list(item, charge.unit_price, terms)
        line_discount = money.EXACT.subtract(rest, agreed)
        requested = granted = _percent_of(line_discount, rest)
    cost_factor = Decimal(1) if terms.cost_rate is None else terms.cost_rate.rate
    return Charged(
        item=item,
        book=book,
        kind=kind,
        unit_price=charge.unit_price,
        tier=charge.tier,
        list_amount=amount,
        bundle_discount=bundle_discount,
        line_discount=line_discount,
        requested_percent=requested,
        authorised_percent=granted,
        before_header=money.EXACT.subtract(rest, line_discount),
        cost_amount=terms.rounded(item.product.cost, item.quantity, terms.months(item), cost_factor),
        steps=charge.steps,
        floor=None,
    )


def _percent_of(part: Decimal, whole: Decimal) -> Decimal:
    """Return the percentage, rounded up to 2 decimals, so that no limit of a policy is passed unseen."""
    if not whole:
        return ZERO
    return money.EXACT.divide(money.product(part, money.HUNDRED), whole).quantize(
        PERCENT, rounding=ROUND_CEILING, context=money.EXACT
    )


def _above_list(item: SelectedItem, unit_price: Decimal, terms: Terms) -> PricingProblem:
    asked, listed = (money.format_unit_price(price, terms.currency) for price in (item.line.agreed_price or ZERO, unit_price))
    return PricingProblem(
        "agreed_price",
        _("the price {asked} of {sku} is above its list price {listed}", asked=asked, sku=item.product.sku, listed=listed),
        _("agree on a lower one, or on none"),
        item.line.sku,
    )


def _no_price(item: SelectedItem, terms: Terms) -> PricingProblem:
    request = terms.request
    named = (_("for {name}", name=name) for name in (request.segment, request.region) if name)
    where = " ".join((_("in {currency}", currency=terms.currency), *named))
    sku, day = item.product.sku, request.priced_on
    return PricingProblem(
        "no_price",
        _("{sku} has no price {where} on no particular day", sku=sku, where=where)
        if day is None
        else _("{sku} has no price {where} on {day}", sku=sku, where=where, day=day),
        _("choose another currency, segment or region, or add the price to a price book"),
        item.line.sku,
    )


def _no_rate(terms: Terms, base: str) -> PricingProblem:
    stale = terms.newest_rate(base)
    if stale is not None:
        return PricingProblem(
            "stale_rate",
            _(
                "the exchange rate from {base} to {currency} is of {day}, "
                "older than the {limit} days that this installation allows",
                base=base,
                currency=terms.currency,
                day=stale.on,
                limit=terms.ruleset.rate_days_max,
            ),
            _("quote in {currency}, or tell who keeps the price book to import a newer rate", currency=terms.ruleset.currency),
        )
    day = terms.request.priced_on
    return PricingProblem(
        "no_rate",
        _("there is no exchange rate from {base} to {currency} without a day", base=base, currency=terms.currency)
        if day is None
        else _(
            "there is no exchange rate from {base} to {currency} on {day} or before", base=base, currency=terms.currency, day=day
        ),
        _("quote in {currency}, or add the rate to the ruleset", currency=terms.ruleset.currency),
    )
