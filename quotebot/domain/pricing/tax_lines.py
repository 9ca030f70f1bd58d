"""Tax of a price by rate, summed over the lines with that rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain import money

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.pricing.priced import Pricing


@dataclass(frozen=True, slots=True)
class TaxLine:
    """Tax at one rate, in per cent. An estimated rate is sufficient for a quote, not for an invoice."""

    percent: Decimal
    estimated: bool
    amount: Decimal


def tax_lines(pricing: Pricing) -> tuple[TaxLine, ...]:
    """Return the tax by rate, highest first; the sum is the price's `tax_total`. Empty for a price without tax."""
    found: dict[tuple[Decimal, bool], list[Decimal]] = {}
    for line in pricing.lines:
        if line.tax_percent is not None:
            found.setdefault((line.tax_percent, line.tax_estimated), []).append(line.tax_amount)
    return tuple(
        TaxLine(percent, estimated, money.total(tuple(amounts), pricing.currency))
        for (percent, estimated), amounts in sorted(found.items(), reverse=True)
    )
