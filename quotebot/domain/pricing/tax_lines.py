"""Tax of a price by rate, summed over the lines with that rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.language import N_, _

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


def tax_rows(pricing: Pricing) -> tuple[tuple[str, str], ...]:
    """Return one row per tax rate and one for the total with tax; none if the price was requested without tax."""
    price_rows = [
        (
            _(
                N_("Tax {percent} (estimated)") if line.estimated else N_("Tax {percent}"),
                percent=money.format_percent(line.percent),
            ),
            money.format_amount(line.amount, pricing.currency),
        )
        for line in tax_lines(pricing)
    ]
    return (*price_rows, (_("Total with tax"), money.format_amount(pricing.gross_total, pricing.currency))) if price_rows else ()
