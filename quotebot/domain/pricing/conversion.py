"""Conversion of a total to the policy's currency at the dated rate stored in the price, and at no other rate."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.language import _, day_text, localized

if TYPE_CHECKING:
    from quotebot.domain.pricing.priced import Pricing
    from quotebot.domain.pricing.taxes import Rate

ONE = Decimal(1)


@dataclass(frozen=True, slots=True)
class Converted:
    """Net total in another currency. Rounded up, so that an amount over a limit is never shown as the limit."""

    amount: Decimal
    currency: str
    rate: Rate

    @property
    def words(self) -> str:
        """Display text: "$100,000.00 (1 USD = 0.92 EUR on 2026-01-02)"."""
        rate = self.rate
        return _(
            "{amount} (1 {base} = {rate} {currency} on {day})",
            amount=money.format_amount(self.amount, self.currency),
            base=rate.base,
            rate=localized(money.trimmed(rate.rate)),
            currency=rate.currency,
            day=day_text(rate.on),
        )


def factor(pricing: Pricing, currency: str) -> Decimal | None:
    """Return the value of one unit of `currency` in the price's currency; None if the price holds no such rate."""
    if pricing.currency == currency:
        return ONE
    rate = pricing.rate
    if rate is None or (rate.base, rate.currency) != (currency, pricing.currency):
        return None
    return rate.rate


def converted(pricing: Pricing, currency: str) -> Converted | None:
    """Return the net total in `currency`; None if that is the price's own currency or the price holds no rate."""
    rate = pricing.rate
    worth = factor(pricing, currency)
    if worth is None or rate is None or pricing.currency == currency:
        return None
    exactly = money.EXACT.divide(pricing.net_total, worth)
    return Converted(exactly.quantize(money.quantum(currency), rounding=ROUND_CEILING, context=money.EXACT), currency, rate)
