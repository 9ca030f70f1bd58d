"""Taxes and exchange rates: two dated tables. What is not in them is a problem, never a guess."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.validity import ALWAYS, VALIDITY_KEYS, Validity, read_validity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from quotebot.domain.catalogue.reader import Table

TAXES_MAX = 2_000
RATES_MAX = 10_000
RATE_MAX = Decimal("1e6")
RATE_DECIMALS_MAX = 10
HUNDRED = Decimal(100)


@dataclass(frozen=True, slots=True)
class Tax:
    """What a region takes of a category in per cent of the net amount. `category` None: of every one without a row of its own."""

    region: str
    category: str | None
    percent: Decimal
    estimated: bool  # true: good for a quote, not for an invoice
    validity: Validity = ALWAYS

    def document(self) -> dict[str, object]:
        """Return it as it stands in a document."""
        category = {} if self.category is None else {"category": self.category}
        percent = money.trimmed(self.percent)
        return {"region": self.region, **category, "percent": percent, "estimated": self.estimated, **self.validity.document()}


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of `base` was worth `rate` units of `currency` on that day."""

    base: str
    currency: str
    rate: Decimal
    on: date

    def document(self) -> dict[str, object]:
        """Return it as it stands in a document, and in a snapshot."""
        return {"base": self.base, "currency": self.currency, "rate": money.trimmed(self.rate), "on": self.on.isoformat()}


def find_tax(taxes: Sequence[Tax], region: str, category: str, day: date | None) -> Tax | None:
    """Return the row that holds on `day`, one for the category itself before one for every category; or None."""
    there = [tax for tax in taxes if tax.region == region and tax.validity.covers(day)]
    own = [tax for tax in there if tax.category == category]
    return next(iter(own or [tax for tax in there if tax.category is None]), None)


def find_rate(rates: Sequence[Rate], base: str, currency: str, day: date | None) -> Rate | None:
    """Return the latest rate of `day` or before; None when there is none, or no day. No inverse is taken: it would not be exact."""
    if day is None:
        return None
    known = [rate for rate in rates if rate.base == base and rate.currency == currency and rate.on <= day]
    return max(known, key=lambda rate: rate.on, default=None)


def read_taxes(table: Table) -> tuple[Tax, ...]:
    """Read `taxes` of a ruleset's document. Two rows that both hold are a problem: neither may win by chance."""
    found: dict[tuple[str, str | None], list[Tax]] = {}
    for row in table.tables("taxes", most=TAXES_MAX):
        row.only("region", "category", "percent", "estimated", *VALIDITY_KEYS)
        tax = Tax(
            region=row.text("region"),
            category=row.optional_text("category"),
            percent=row.amount("percent", most=HUNDRED, decimals=4),
            estimated=row.flag("estimated", default=False),
            validity=read_validity(row),
        )
        rivals = found.setdefault((tax.region, tax.category), [])
        if any(other.validity.overlaps(tax.validity) for other in rivals):
            row.report("a row before it holds for the same region, category and days", "end one before the other begins")
        rivals.append(tax)
    return tuple(tax for rows in found.values() for tax in rows)


def read_rates(table: Table) -> tuple[Rate, ...]:
    """Read `rates` of a ruleset's document."""
    found: dict[tuple[str, str, date], Rate] = {}
    for row in table.tables("rates", most=RATES_MAX):
        row.only("base", "currency", "rate", "on")
        base, currency, on = row.currency("base"), row.currency("currency"), row.day("on")
        value = row.amount("rate", most=RATE_MAX, decimals=RATE_DECIMALS_MAX)
        if base == currency:
            row.report("a currency has no rate to itself", "correct one of the two", "currency")
        if "rate" in row.entries and not value:
            row.report("a rate is above 0", 'e.g. "1.0845"', "rate")
        if on is None:
            row.report("a rate needs its day", "write e.g. on = 2026-11-20", "on")
            continue
        if (base, currency, on) in found:
            row.report(f"there is a rate from {base} to {currency} on {on} already", "keep one", "on")
        found[(base, currency, on)] = Rate(base, currency, value, on)
    return tuple(found.values())
