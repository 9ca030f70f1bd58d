"""Instalments of a price by billing frequency; the last one is prorated by month if the term ends within it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money

if TYPE_CHECKING:
    from quotebot.domain.pricing.priced import Pricing

MONTHS = {"monthly": 1, "quarterly": 3, "annual": 12}  # "upfront" is the whole term


@dataclass(frozen=True, slots=True)
class Instalment:
    """Amount due at the start of `first_month` (from 1) for `months` months; before tax, in the pricing's currency."""

    number: int
    first_month: int
    months: int
    amount: Decimal


def instalments(pricing: Pricing, frequency: str) -> tuple[Instalment, ...]:
    """Return the instalments; their sum is exactly the net total. One-time charges are due with the first."""
    term = pricing.term_months
    step = MONTHS.get(frequency, term)
    starts = range(1, term + 1, step)
    lengths = [min(step, term - start + 1) for start in starts]
    weights = [(Decimal(months), f"{start:03}") for start, months in zip(starts, lengths, strict=True)]
    amounts = list(money.allocate(pricing.recurring_total, weights, money.quantum(pricing.currency)))
    amounts[0] = money.EXACT.add(amounts[0], pricing.one_time_total)
    rows = zip(starts, lengths, amounts, strict=True)
    return tuple(Instalment(number, start, months, amount) for number, (start, months, amount) in enumerate(rows, start=1))
