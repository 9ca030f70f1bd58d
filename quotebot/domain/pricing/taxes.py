"""Taxes and exchange rates: two dated tables. A missing entry is a problem, never a guess."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.catalogue.reader import ALWAYS, VALIDITY_KEYS, Table, Validity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date


TAXES_MAX = 2_000
RATES_MAX = 10_000
RATE_MAX = Decimal("1e6")
RATE_DECIMALS_MAX = 10


@dataclass(frozen=True, slots=True)
class Tax:
    """Tax of a region on a category, in per cent of the net amount. `category` None: all categories without their own row."""

    region: str
    category: str | None
    percent: Decimal
    estimated: bool  # true: sufficient for a quote, not for an invoice
    validity: Validity = ALWAYS

    def document(self) -> dict[str, object]:
        """Return the row in the form of a ruleset document."""
        category = {} if self.category is None else {"category": self.category}
        percent = money.trimmed(self.percent)
        return {"region": self.region, **category, "percent": percent, "estimated": self.estimated, **self.validity.document()}


@dataclass(frozen=True, slots=True)
class Rate:
    """Exchange rate: one unit of `base` was worth `rate` units of `currency` on that day."""

    base: str
    currency: str
    rate: Decimal
    on: date

    def document(self) -> dict[str, object]:
        """Return the rate in the form of a ruleset document and a snapshot."""
        return {"base": self.base, "currency": self.currency, "rate": money.trimmed(self.rate), "on": self.on.isoformat()}


def find_tax(taxes: Sequence[Tax], region: str, category: str, day: date | None) -> Tax | None:
    """Return the row valid on `day`: the category's own row before the one for all categories; or None."""
    there = [tax for tax in taxes if tax.region == region and tax.validity.covers(day)]
    own = [tax for tax in there if tax.category == category]
    return next(iter(own or [tax for tax in there if tax.category is None]), None)


def find_rate(rates: Sequence[Rate], base: str, currency: str, day: date | None) -> Rate | None:
    """Return the latest rate on or before `day`; None without one or without a day. Inverse rates are inexact and not used."""
    if day is None:
        return None
    known = [rate for rate in rates if rate.base == base and rate.currency == currency and rate.on <= day]
    return max(known, key=lambda rate: rate.on, default=None)


def read_taxes(table: Table) -> tuple[Tax, ...]:
    """Read `taxes` of a ruleset's document. Overlapping rows are a problem: neither may take precedence by chance."""
    found: dict[tuple[str, str | None], list[Tax]] = {}
    for row in table.tables("taxes", most=TAXES_MAX):
        row.only("region", "category", "percent", "estimated", *VALIDITY_KEYS)
        tax = Tax(
            region=row.text("region"),
            category=row.optional_text("category"),
            percent=row.amount("percent", most=Decimal(100), decimals=4),
            estimated=row.flag("estimated", default=False),
            validity=row.validity(),
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
