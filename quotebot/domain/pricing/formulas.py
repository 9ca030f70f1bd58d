"""Price formulas: `+ - * /`, parentheses, `min`, `max`, `round` and named numbers, over exact decimals, without eval.

    sum     := ["-"] term (("+" | "-") term)*
    term    := factor (("*" | "/") factor)*
    factor  := number | name | name "(" sum ("," sum)* ")" | "(" sum ")" | "-" factor

Parsing and evaluation take time linear in the text's length; text, nesting and the size of every number are limited.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quotebot.domain import money
from quotebot.domain.language import _

if TYPE_CHECKING:
    from collections.abc import Mapping

CHARACTERS_MAX = 500
DEPTH_MAX = 32
SIZE_MAX = money.DIGITS_MAX  # digits before the point
ROUND_DECIMALS_MAX = 6
FUNCTIONS = ("min", "max", "round")
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TOKEN = re.compile(r"\s*(?:([0-9]{1,20}(?:\.[0-9]{1,9})?)|([a-z][a-z0-9_]{0,39})|([-+*/(),]))", re.ASCII)


class FormulaError(ValueError):
    """The formula is invalid or has no value for these inputs; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class Name:
    """A named input."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms with their signs, "+" or "-"."""

    terms: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Term:
    """Factors with their operators, "*" or "/"; the first one's is "*"."""

    factors: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Call of min, max or round."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | Name | Sum | Term | Call


@dataclass(frozen=True, slots=True)
class Formula:
    """Parsed formula: its text, its tree, and the named inputs in reading order."""

    text: str
    root: Node
    names: tuple[str, ...]


def parse_formula(text: str) -> Formula:
    """Parse a formula. Raises FormulaError naming the column (from 1) of the error."""
    if len(text) > CHARACTERS_MAX:
        raise FormulaError(f"a formula has at most {CHARACTERS_MAX} characters, not {len(text)}")
    reader = _Reader(_tokens(text))
    root = reader.sum(0)
    if reader.position < len(reader.tokens) - 1:
        reader.refuse("an operator or the end")
    return Formula(text, root, tuple(dict.fromkeys(reader.names)))


def evaluate(formula: Formula, inputs: Mapping[str, Decimal]) -> Decimal:
    """Return the value for these inputs. Raises FormulaError for an unknown name, a division by 0 or a value that is too large."""
    return _value(formula.root, inputs)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return (kind, text, column) of every token; the last token marks the end."""
    tokens: list[tuple[str, str, int]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            raise FormulaError(f"column {column}: {text[column - 1]!r} does not belong in a formula")
        kind = ("number", "name", "sign")[(match.lastindex or 1) - 1]
        tokens.append((kind, match[match.lastindex or 1], match.start(match.lastindex or 1) + 1))
        position = match.end()
    return [*tokens, ("end", "", end + 1)]


class _Reader:
    """Recursive-descent parser over the tokens, one method per rule of the grammar."""

    def __init__(self, tokens: list[tuple[str, str, int]]) -> None:
        self.tokens = tokens
        self.position = 0
        self.names: list[str] = []

    def refuse(self, wanted: str) -> None:
        _kind, text, column = self.tokens[self.position]
        raise FormulaError(f"column {column}: {text or 'the end'!r} where {wanted} is expected")

    def taken(self, *signs: str) -> str | None:
        kind, text, _column = self.tokens[self.position]
        if kind != "sign" or text not in signs:
            return None
        self.position += 1
        return text

    def expect(self, sign: str) -> None:
        if self.taken(sign) is None:
            self.refuse(repr(sign))

    def sum(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise FormulaError(f"column {self.tokens[self.position][2]}: nested deeper than {DEPTH_MAX}")
        terms = [("+", self.term(depth))]
        while (sign := self.taken("+", "-")) is not None:
            terms.append((sign, self.term(depth)))
        return terms[0][1] if len(terms) == 1 else Sum(tuple(terms))

    def term(self, depth: int) -> Node:
        factors = [("*", self.factor(depth))]
        while (sign := self.taken("*", "/")) is not None:
            factors.append((sign, self.factor(depth)))
        return factors[0][1] if len(factors) == 1 else Term(tuple(factors))

    def factor(self, depth: int) -> Node:
        minus = False
        while self.taken("-") is not None:
            minus = not minus
        found = self.unsigned(depth)
        return Sum((("-", found),)) if minus else found

    def unsigned(self, depth: int) -> Node:
        if self.taken("(") is not None:
            inner = self.sum(depth + 1)
            self.expect(")")
            return inner
        kind, text, column = self.tokens[self.position]
        if kind not in ("number", "name"):
            self.refuse("a number, a name or a parenthesis")
        self.position += 1
        if kind == "number":
            return Number(Decimal(text))
        if self.taken("(") is not None:
            return self.call(text, column, depth)
        self.names.append(text)
        return Name(text)

    def call(self, function: str, column: int, depth: int) -> Node:
        if function not in FUNCTIONS:
            raise FormulaError(f"column {column}: {function!r} is no function; known are {', '.join(FUNCTIONS)}")
        arguments = [self.sum(depth + 1)]
        while self.taken(",") is not None:
            arguments.append(self.sum(depth + 1))
        self.expect(")")
        if function == "round" and not (len(arguments) == 1 or (len(arguments) == 2 and _is_decimals(arguments[1]))):  # noqa: PLR2004 -- the value and its decimals
            raise FormulaError(
                f"column {column}: round takes a value and, written out, 0 to {ROUND_DECIMALS_MAX} decimals: round(x, 2)"
            )
        return Call(function, tuple(arguments))


def _is_decimals(node: Node) -> bool:
    return isinstance(node, Number) and node.value in range(ROUND_DECIMALS_MAX + 1)


def _value(node: Node, inputs: Mapping[str, Decimal]) -> Decimal:
    match node:
        case Number(value):
            return value
        case Name(name):
            if name not in inputs:
                raise FormulaError(_("{name} has no value", name=repr(name)))
            return inputs[name]
        case Sum(terms):
            total = Decimal(0)
            for sign, term in terms:
                value = _value(term, inputs)
                total = _sized(money.EXACT.add(total, value) if sign == "+" else money.EXACT.subtract(total, value))
            return total
        case Term(factors):
            product = Decimal(1)
            for sign, factor in factors:
                product = _times(product, _value(factor, inputs), sign)
            return product
        case Call(function, arguments):
            values = [_value(argument, inputs) for argument in arguments]
            if function == "round":
                decimals = int(values[1]) if len(values) > 1 else 0
                return values[0].quantize(Decimal(1).scaleb(-decimals), context=money.EXACT)
            return min(values) if function == "min" else max(values)


def _times(product: Decimal, value: Decimal, sign: str) -> Decimal:
    if sign == "*":
        return _sized(money.EXACT.multiply(product, value))
    if value == 0:
        raise FormulaError(_("it divides by 0"))
    return _sized(money.EXACT.divide(product, value))


def _sized(value: Decimal) -> Decimal:
    if value and value.adjusted() >= SIZE_MAX:
        raise FormulaError(_("a value on the way has more than {digits} digits", digits=SIZE_MAX))
    return value
