"""Money arithmetic: exact decimals, one rounding rule, formatting. A float is a programming error and raises TypeError.

Rule: an amount is rounded once, half up, to the exponent of its currency (USD 2, JPY 0, KWD 3). Decisions never use
a formatted value: quantise first, format last.
"""

from __future__ import annotations

import functools
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from babel.numbers import UnknownCurrencyError, get_currency_symbol, validate_currency

from quotebot.domain import language

if TYPE_CHECKING:
    from collections.abc import Sequence

# Own context: results must not depend on the calling thread's changes to the shared one. 60 digits hold any product of a legal
# unit price, quantity, term and percentage exactly.
EXACT = Context(prec=60, rounding=ROUND_HALF_UP)
HUNDRED = Decimal(100)
DIGITS_MAX = 30
TEXT_CHARACTERS_MAX = 80  # of a number as text
MINUS = "\N{MINUS SIGN}"

# ISO 4217: the currencies that do not have two decimals. (Babel has display decimals, which may differ.)
_EXPONENTS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV"), 0),
    **dict.fromkeys(("XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}


def exact(value: Decimal | int | str) -> Decimal:
    """Return `value` as a finite Decimal.

    Raises TypeError for a float or bool and ValueError for text that is not a finite number of at most
    30 digits.
    """
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str):
        raise TypeError(f"money is Decimal, int or text, never {type(value).__name__}: {value!r}")
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"not a finite number of at most {DIGITS_MAX} digits")
    try:
        number = Decimal(value)
    except ArithmeticError as error:
        raise ValueError(f"not a number: {value!r}") from error
    # The bounds keep products exact and stop "1e999999" from becoming a megabyte of zeros.
    if not number.is_finite() or len(number.as_tuple().digits) > DIGITS_MAX or not -DIGITS_MAX <= number.adjusted() < DIGITS_MAX:
        raise ValueError(f"not a finite number of at most {DIGITS_MAX} digits")
    return number


@functools.cache
def exponent(currency: str) -> int:
    """Return the number of decimals of an ISO 4217 currency; ValueError when the code is unknown."""
    try:
        validate_currency(currency)
    except UnknownCurrencyError as error:
        raise ValueError(f"unknown currency {currency!r}; use an ISO 4217 code such as USD") from error
    return _EXPONENTS.get(currency, 2)


def quantum(currency: str) -> Decimal:
    """Return the smallest amount of a currency: 0.01 for USD, 1 for JPY, 0.001 for KWD."""
    return Decimal(1).scaleb(-exponent(currency))


def round_money(amount: Decimal, currency: str) -> Decimal:
    """Return `amount` rounded half up to the currency's exponent."""
    return exact(amount).quantize(quantum(currency), context=EXACT)


def multiply(*factors: Decimal | int) -> Decimal:
    """Return the exact product of `factors`."""
    return product(*map(exact, factors))


def product(*factors: Decimal | int) -> Decimal:
    """Return the exact product of already validated numbers."""
    result = Decimal(1)
    for factor in factors:
        result = EXACT.multiply(result, factor)
    return result


def allocate(amount: Decimal, weights: Sequence[tuple[Decimal, str]], smallest: Decimal) -> tuple[Decimal, ...]:
    """Allocate `amount` exactly in proportion to weights, by largest remainder. All are non-negative multiples of `smallest`.

    Each weight has a name: ties between equal remainders are decided by the larger weight, then by name, never by position.
    """
    whole = int(EXACT.divide(amount, smallest))
    units = [int(EXACT.divide(weight, smallest)) for weight, _ in weights]
    everything = sum(units)
    if everything == 0:
        return tuple(Decimal(0).quantize(smallest, context=EXACT) for _ in weights)
    shares = [whole * unit // everything for unit in units]
    order = sorted(range(len(units)), key=lambda at: (-(whole * units[at] % everything), -units[at], weights[at][1]))
    for at in order[: whole - sum(shares)]:
        shares[at] += 1
    return tuple(EXACT.multiply(Decimal(share), smallest) for share in shares)


def total(amounts: tuple[Decimal, ...], currency: str) -> Decimal:
    """Return the sum of amounts that are already rounded."""
    result = round_money(Decimal(0), currency)
    for amount in amounts:
        result = EXACT.add(result, amount if type(amount) is Decimal else exact(amount))
    return result


def format_amount(amount: Decimal, currency: str) -> str:
    """Return "$17,340.00", or "CAD 17,340.00" for a currency whose sign is not unique."""
    return with_sign(_plain(amount, currency), currency)


def with_sign(number: str, currency: str) -> str:
    """Return a number written in English with its currency's sign or code, and a minus before both."""
    digits = number.removeprefix("-")
    return f"{'' if digits is number else MINUS}{language.amount(digits, _sign(currency))}"


@functools.cache
def _sign(currency: str) -> str:
    """Return the sign of a currency if no other currency shares it, else its code and a no-break space."""
    sign = get_currency_symbol(currency, locale="en_US")
    return sign if len(sign) == 1 and not sign.isalpha() else f"{currency}\N{NO-BREAK SPACE}"


def format_number(amount: Decimal, currency: str) -> str:
    """Return "17,340.00", the amount without its currency."""
    return language.localized(_plain(amount, currency))


def _plain(amount: Decimal, currency: str) -> str:
    return f"{round_money(amount, currency):,f}"


def format_unit_price(price: Decimal, currency: str) -> str:
    """Return a unit price with all its decimals, at least the currency's, e.g. "$0.405"."""
    return with_sign(_unit_price(price, currency), currency)


def _unit_price(price: Decimal, currency: str) -> str:
    plain = trimmed(price)
    return _plain(price, currency) if len(plain.partition(".")[2]) <= exponent(currency) else f"{exact(plain):,f}"


PRICE_DECIMALS_MAX = 4


def rounded_price(price: Decimal, currency: str) -> str:
    """Return a unit price written in English without the currency: exact up to 4 decimals, else rounded to the currency's.

    A price that would round to zero keeps as many decimals as it needs.
    """
    decimals = len(trimmed(price).partition(".")[2])
    if decimals > PRICE_DECIMALS_MAX:
        decimals = next(count for count in range(exponent(currency), decimals + 1) if round(price, count) or count == decimals)
        price = price.quantize(Decimal(1).scaleb(-decimals), context=EXACT)
    return _unit_price(price, currency)


def format_percent(percent: Decimal) -> str:
    """Return "15%" or "12.5%"."""
    return language.percent(trimmed(percent))


def floor_hundredths(value: Decimal) -> Decimal:
    """Return `value` rounded down to 2 decimals, so that "under 60" is never shown as 60."""
    return value.quantize(Decimal("0.01"), rounding=ROUND_FLOOR, context=EXACT)


def ceiling_hundredths(value: Decimal) -> Decimal:
    """Return `value` rounded up to 2 decimals, so that "over 40" is never shown as 40."""
    return value.quantize(Decimal("0.01"), rounding=ROUND_CEILING, context=EXACT)


def trimmed(number: Decimal) -> str:
    """Return plain digits without exponent and without trailing zeros: "15", "12.5", "0"."""
    text = format(exact(number), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text
