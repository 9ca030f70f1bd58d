from __future__ import annotations

import contextlib
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.pricing.formulas import CHARACTERS_MAX, DEPTH_MAX, FormulaError, evaluate, parse_formula

INPUTS = {"quantity": Decimal(150), "rate": Decimal("0.2")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 2 - 3", "5"),
        ("24 / 4 / 2", "3"),
        ("-quantity + 200", "50"),
        ("2 * -3", "-6"),
        ("--2", "2"),
        ("0.1 + 0.2", "0.3"),
        ("min(quantity, 100, 120)", "100"),
        ("max(1, quantity * rate)", "30"),
        ("round(2.345, 2)", "2.35"),
        ("round(2.5)", "3"),
        ("round(1 / 3, 4)", "0.3333"),
        (" 7 ", "7"),
    ],
)
def test_a_formula_has_the_value_of_arithmetic(text: str, value: str) -> None:
    assert evaluate(parse_formula(text), INPUTS) == Decimal(value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "column 1: 'the end' where a number"),
        ("1 +", "column 4: 'the end' where a number"),
        ("1 2", "column 3: '2' where an operator"),
        ("(1", "column 3: 'the end' where '\\)'"),
        ("1)", "column 2: '\\)' where an operator"),
        ("min()", "column 5: '\\)' where a number"),
        ("eval(1)", "column 1: 'eval' is no function; known are min, max, round"),
        ("__import__", "column 1: '_' does not belong"),
        ("a.b", "column 2: '.' does not belong"),
        ("1e5", "column 2: 'e5' where an operator"),
        ("x ** 2", r"column 4: '\*' where a number"),
        ("round(1, quantity)", "column 1: round takes a value"),
        ("round(1, 7)", "column 1: round takes a value"),
        ("round(1, 2, 3)", "column 1: round takes a value"),
        ("9" * 21, "does not|expected"),
        ("1" + "+1" * CHARACTERS_MAX, "at most 500 characters"),
        ("(" * (DEPTH_MAX + 1) + "1" + ")" * (DEPTH_MAX + 1), "nested deeper than 32"),
    ],
)
def test_text_that_is_no_formula_is_refused_with_its_column(text: str, why: str) -> None:
    with pytest.raises(FormulaError, match=why):
        parse_formula(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / (quantity - 150)", "divides by 0"),
        ("nobody + 1", "'nobody' has no value"),
        ("*".join(["99999999999999999999"] * 2), "more than 30 digits"),
    ],
)
def test_a_formula_without_a_value_says_why(text: str, why: str) -> None:
    with pytest.raises(FormulaError, match=why):
        evaluate(parse_formula(text), INPUTS)


def test_the_names_are_those_that_have_to_be_given() -> None:
    assert parse_formula("max(b, a) * b").names == ("b", "a")


def test_the_longest_and_the_deepest_formula_have_a_value() -> None:
    longest = "1" + "-1" * ((CHARACTERS_MAX - 1) // 2)
    assert evaluate(parse_formula(longest), {}) == 2 - len(longest) // 2 - 1
    assert evaluate(parse_formula("min(" * DEPTH_MAX + "5" + ")" * DEPTH_MAX), {}) == 5


@given(st.text(alphabet="0123456789.+-*/(), abmxinroud", max_size=CHARACTERS_MAX))
def test_any_text_is_read_or_refused_and_never_anything_else(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(FormulaError):
        evaluate(parse_formula(text), {"a": Decimal(1), "b": Decimal(2)})
    assert time.process_time() - started < 1
