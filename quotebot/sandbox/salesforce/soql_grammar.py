"""The supported grammar of SOQL and the syntax tree of a query.

SELECT paths | COUNT() | FIELDS(ALL|STANDARD|CUSTOM) | (a query of children), ... FROM object
[WHERE conditions with AND, OR, NOT, parentheses, = != <> < <= > >= LIKE, IN and NOT IN a list]
[ORDER BY path [ASC|DESC] [NULLS FIRST|LAST], ...] [LIMIT n] [OFFSET n]

As in Salesforce, AND and OR may not be mixed without parentheses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "LIKE")
FIELD_GROUPS = ("ALL", "STANDARD", "CUSTOM")
_T = TypeVar("_T")
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>'(?:[^'\\]|\\.)*')
    |(?P<moment>\d{4}-\d{2}-\d{2}(?:T[\d:.]+(?:Z|[+-]\d{2}:\d{2}))?(?![\w.:]))
    |(?P<number>[+-]?\d+(?:\.\d+)?(?![\w.]))
    |(?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<sign><=|>=|!=|<>|[=<>(),:])
    )""",
    re.VERBOSE | re.ASCII,
)
_DATE_WORDS = re.compile(
    r"YESTERDAY|TODAY|TOMORROW|(LAST|THIS|NEXT)_(WEEK|MONTH|QUARTER|YEAR)|LAST_90_DAYS|NEXT_90_DAYS|(LAST|NEXT)_N_(DAYS|WEEKS|MONTHS|YEARS)"
)
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "%": "\\%", "_": "\\_"}  # LIKE interprets the last two
)
_RESERVED = frozenset(
    {
        *("AND", "ASC", "DESC", "FROM", "IN", "LIKE", "LIMIT", "NOT", "NULL"),
        *("NULLS", "OFFSET", "OR", "ORDER", "SELECT", "WHERE", "TRUE", "FALSE"),
    }
)
_DEPTH_MAX = 50


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, a datetime or a date literal such as TODAY or LAST_N_DAYS:7, as in the text."""

    text: str


Value = str | Decimal | bool | Moment | None


@dataclass(frozen=True, slots=True)
class Path:
    """A field, or a field of a parent: ("Account", "Name"). `at` is its offset in the text."""

    names: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Fields:
    """FIELDS(ALL), FIELDS(STANDARD) or FIELDS(CUSTOM)."""

    group: str


@dataclass(frozen=True, slots=True)
class Count:
    """COUNT(): the number of records, without the records."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A path, one of COMPARISONS, a value."""

    path: Path
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """A path IN (or, `negated`, NOT IN) a list of at least one value."""

    path: Path
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more conditions joined by `word`: AND or OR."""

    word: str
    conditions: tuple[Condition, ...]


Condition = Comparison | Membership | Not | Junction


@dataclass(frozen=True, slots=True)
class Order:
    """One sort key. `nulls` is FIRST, LAST or empty for the default, which is first."""

    path: Path
    descending: bool = False
    nulls: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query. `at` is the offset of the object's name in the text."""

    selected: tuple[Selected, ...]
    sobject: str
    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None
    at: int = field(default=0, compare=False)


Selected = Path | Fields | Count | Query


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Query:
    """Parse a query. Raises MALFORMED_QUERY."""
    return _Parser(text).whole()


def pointing_at(text: str, at: int, words: str) -> str:
    """Return a message in Salesforce's format: the query line, a caret under the position, row and column."""
    row = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    line = text[start:].partition("\n")[0]
    return f"\n{line}\n{' ' * (at - start)}^\nERROR at Row:{row}:Column:{at - start + 1}\n{words}"


class _Parser:
    """One pass over the tokens, one method per rule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Query:
        query = self._query()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return query

    def _query(self) -> Query:
        self._expect("SELECT")
        selected = self._several(self._selected)
        if Count() in selected and len(selected) > 1:
            raise _malformed("COUNT() must be the only thing that is selected")
        self._expect("FROM")
        at = self._place()
        sobject = self._name()
        where = self._condition() if self._accept("WHERE") else None
        order: tuple[Order, ...] = ()
        if self._accept("ORDER"):
            self._expect("BY")
            order = self._several(self._order)
        limit = self._whole_number() if self._accept("LIMIT") else None
        offset = self._whole_number() if self._accept("OFFSET") else None
        return Query(selected, sobject, where, order, limit, offset, at)

    def _selected(self) -> Selected:
        if self._accept("("):
            child = self._nested(self._query)
            self._expect(")")
            return child
        word = self._peek().upper()
        if word in ("COUNT", "FIELDS") and self._peek(1) == "(":
            self._at += 2
            group = "" if word == "COUNT" else self._one_of(FIELD_GROUPS)
            self._expect(")")
            return Fields(group) if group else Count()
        return self._path()

    def _condition(self) -> Condition:
        first = self._unit()
        word = self._peek().upper()
        if word not in ("AND", "OR"):
            return first
        conditions = [first]
        while self._accept(word):
            conditions.append(self._unit())
        if self._peek().upper() in ("AND", "OR"):
            raise self._unexpected()
        return Junction(word, tuple(conditions))

    def _unit(self) -> Condition:
        if self._accept("NOT"):
            return Not(self._nested(self._unit))
        if self._accept("("):
            condition = self._nested(self._condition)
            self._expect(")")
            return condition
        return self._comparison()

    def _comparison(self) -> Condition:
        path = self._path()
        negated = self._accept("NOT")
        if negated or self._peek().upper() == "IN":
            self._expect("IN")
            self._expect("(")
            values = self._several(self._value)
            self._expect(")")
            return Membership(path, values, negated)
        operator = self._one_of((*COMPARISONS, "<>"))
        value = self._value()
        if operator == "LIKE" and not isinstance(value, str):
            raise self._unexpected(-1)
        return Comparison(path, "!=" if operator == "<>" else operator, value)

    def _order(self) -> Order:
        path = self._path()
        descending = self._accept("DESC")
        if not descending:
            self._accept("ASC")
        nulls = self._one_of(("FIRST", "LAST")) if self._accept("NULLS") else ""
        return Order(path, descending, nulls)

    def _path(self) -> Path:
        at = self._place()
        return Path(tuple(self._name().split(".")), at)

    def _value(self) -> Value:
        token = self._next()
        if token.kind == "string":
            return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token.text[1:-1], flags=re.DOTALL)
        if token.kind == "number":
            return Decimal(token.text)
        if token.kind == "moment":
            return Moment(token.text)
        word = token.text.upper()
        if word in ("NULL", "TRUE", "FALSE"):
            return None if word == "NULL" else word == "TRUE"
        if token.kind != "word" or not _DATE_WORDS.fullmatch(word):
            raise self._unexpected(-1)
        if "_N_" not in word:
            return Moment(word)
        self._expect(":")
        return Moment(f"{word}:{self._whole_number()}")

    def _several(self, rule: Callable[[], _T]) -> tuple[_T, ...]:
        found = [rule()]
        while self._accept(","):
            found.append(rule())
        return tuple(found)

    def _nested(self, rule: Callable[[], _T]) -> _T:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _malformed("the query is nested too deeply")
        found = rule()
        self._depth -= 1
        return found

    def _name(self) -> str:
        token = self._next()
        if token.kind != "word" or token.text.upper() in _RESERVED:
            raise self._unexpected(-1)
        return token.text

    def _whole_number(self) -> int:
        token = self._next()
        if not token.text.isdecimal():
            raise self._unexpected(-1)
        return int(token.text)

    def _one_of(self, words: tuple[str, ...]) -> str:
        word = self._next().text.upper()
        if word not in words:
            raise self._unexpected(-1)
        return word

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise _malformed("unexpected token: '<EOF>'")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, ahead: int = 0) -> str:
        """Return an upcoming token's text; empty at the end and for a string, which is never a keyword."""
        place = self._at + ahead
        if place >= len(self._tokens) or self._tokens[place].kind == "string":
            return ""
        return self._tokens[place].text

    def _place(self) -> int:
        return self._tokens[self._at].at if self._at < len(self._tokens) else len(self._text)

    def _accept(self, word: str) -> bool:
        if self._peek().upper() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected()

    def _unexpected(self, offset: int = 0) -> SalesforceRefusalError:
        """Return the refusal of the next token (or, with -1, of the one just read)."""
        place = self._at + offset
        if place >= len(self._tokens):
            return _malformed("unexpected token: '<EOF>'")
        token = self._tokens[place]
        return _malformed(pointing_at(self._text, token.at, f"unexpected token: '{token.text}'"))


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            place = at + len(text[at:]) - len(text[at:].lstrip())
            raise _malformed(pointing_at(text, place, f"line 1:{place} no viable alternative at character '{text[place]}'"))
        kind = match.lastgroup
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return tokens


def _malformed(message: str) -> SalesforceRefusalError:
    return SalesforceRefusalError("MALFORMED_QUERY", message)
