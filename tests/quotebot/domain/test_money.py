from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain import money

CENTS = st.decimals(min_value=-(10**12), max_value=10**12, places=4, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("amount", "currency", "rounded"),
    [
        ("0.005", "USD", "0.01"),
        ("0.0049999", "USD", "0.00"),
        ("2.675", "USD", "2.68"),
        ("-0.005", "USD", "-0.01"),
        ("0.5", "JPY", "1"),
        ("2.5", "JPY", "3"),
        ("1.0005", "KWD", "1.001"),
    ],
)
def test_an_amount_is_rounded_half_up_to_the_exponent_of_its_currency(amount: str, currency: str, rounded: str) -> None:
    assert str(money.round_money(Decimal(amount), currency)) == rounded


@pytest.mark.parametrize("value", [1.5, 0.0, float("nan"), True, None, b"1"])
def test_a_float_or_anything_else_that_is_no_exact_number_raises(value: object) -> None:
    with pytest.raises(TypeError, match="never"):
        money.exact(value)  # type: ignore[arg-type] # the point of the test
    with pytest.raises(TypeError, match="never"):
        money.multiply(Decimal(1), value)  # type: ignore[arg-type] # the point of the test
    with pytest.raises(TypeError, match="never"):
        money.round_money(value, "USD")  # type: ignore[arg-type] # the point of the test


@pytest.mark.parametrize("text", ["", "abc", "nan", "inf", "-Infinity", "1e999999", "1e-999999", "9" * 31])
def test_text_that_is_no_sensible_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        money.exact(text)


@pytest.mark.parametrize("code", ["ZZZ", "usd", "", "US", "DOLLAR"])
def test_an_unknown_currency_is_refused_by_name(code: str) -> None:
    with pytest.raises(ValueError, match="ISO 4217"):
        money.exponent(code)


@pytest.mark.parametrize(
    ("currency", "decimals"),
    [("USD", 2), ("EUR", 2), ("HUF", 2), ("JPY", 0), ("ISK", 0), ("UGX", 0), ("XOF", 0), ("KWD", 3), ("IQD", 3), ("CLF", 4)],
)
def test_the_exponent_is_the_one_of_iso_4217_not_the_one_people_show(currency: str, decimals: int) -> None:
    assert money.exponent(currency) == decimals
    assert money.quantum(currency) == Decimal(1).scaleb(-decimals)


def test_shares_add_up_and_a_tie_goes_to_the_larger_weight_then_by_name() -> None:
    cent = Decimal("0.01")
    thirds = [(Decimal("1.00"), "c"), (Decimal("1.00"), "a"), (Decimal("1.00"), "b")]
    assert [str(row) for row in money.allocate(Decimal("1.00"), thirds, cent)] == ["0.33", "0.34", "0.33"]
    assert [str(row) for row in money.allocate(Decimal("0.02"), thirds, cent)] == ["0.00", "0.01", "0.01"]
    uneven = [(Decimal("1.00"), "a"), (Decimal("3.00"), "b")]
    assert [str(row) for row in money.allocate(Decimal("0.02"), uneven, cent)] == ["0.00", "0.02"]
    assert [str(row) for row in money.allocate(Decimal("5.00"), [(Decimal("0.00"), "a")], cent)] == ["0.00"]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=30), st.integers(0, 100))
def test_shares_of_a_percentage_add_up_and_are_each_less_than_one_unit_off(units: list[int], percent: int) -> None:
    weights = [(Decimal(unit).scaleb(-2), str(number)) for number, unit in enumerate(units)]
    whole = money.round_money(sum((row for row, _ in weights), Decimal(0)) * percent / 100, "USD")
    shares = money.allocate(whole, weights, Decimal("0.01"))
    assert sum(shares, Decimal(0)) == whole
    assert all(0 <= share <= weight for share, (weight, _) in zip(shares, weights, strict=True))
    everything = sum(units)
    for share, unit in zip(shares, units, strict=True):
        assert abs(int(share * 100) * everything - int(whole * 100) * unit) < max(everything, 1)  # of its part of the rounded whole


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("17340", "USD", "$17,340.00"),
        ("0", "USD", "$0.00"),
        ("1234567.891", "JPY", "¥1,234,568"),
        ("-1234.5", "KWD", "\u2212KWD\u00a01,234.500"),
        ("1E+3", "EUR", "€1,000.00"),
        ("12", "CAD", "CAD\u00a012.00"),  # its sign is that of other currencies too
    ],
)
def test_an_amount_reads_with_separators_its_currencys_decimals_and_its_code(amount: str, currency: str, text: str) -> None:
    assert money.format_amount(Decimal(amount), currency) == text


@pytest.mark.parametrize(("price", "text"), [("6", "$6.00"), ("0.405", "$0.405"), ("1000.1", "$1,000.10")])
def test_a_unit_price_shows_every_decimal_it_has(price: str, text: str) -> None:
    assert money.format_unit_price(Decimal(price), "USD") == text


@pytest.mark.parametrize(("number", "text"), [("15.00", "15%"), ("12.50", "12.5%"), ("0", "0%"), ("1E+1", "10%"), ("-0", "0%")])
def test_a_percentage_reads_without_trailing_zeros(number: str, text: str) -> None:
    assert money.format_percent(Decimal(number)) == text


def test_the_callers_decimal_context_changes_nothing() -> None:
    with localcontext() as context:
        context.prec = 2
        assert money.round_money(money.multiply(Decimal("0.15"), Decimal("123456789.99")), "USD") == Decimal("18518518.50")
        assert money.total((Decimal("100000.01"), Decimal("0.02")), "USD") == Decimal("100000.03")


@given(CENTS)
def test_rounding_twice_is_rounding_once_and_formatting_never_changes_the_amount(amount: Decimal) -> None:
    once = money.round_money(amount, "USD")
    assert money.round_money(once, "USD") == once
    assert abs(once - amount) <= Decimal("0.005")
    assert Decimal(money.format_number(once, "USD").replace(",", "")) == once
