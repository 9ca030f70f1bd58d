"""Reader of plain documents (mappings and lists from TOML, YAML or JSON) that collects every problem with its place.

The parsers of TOML and JSON limit the depth of a document and the size of its numbers.

A reader never raises for invalid data: it records the problem and continues with a harmless value, so that one pass finds
all problems. The caller must discard the result if there is a problem.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from quotebot.domain import money

TEXT_CHARACTERS_MAX = 80
TEXTS_MAX = 100
SHOWN_CHARACTERS_MAX = 60
PRICE_MAX = Decimal("1e9")
DECIMALS_MAX = 6
Path = tuple[str | int, ...]  # keys and 0-based indices from the top of the document


@dataclass(frozen=True, slots=True)
class RulesetProblem:
    """One problem in a document: the place, the error and the suggested correction."""

    path: Path
    message: str
    suggestion: str

    @property
    def place(self) -> str:
        """Display text of the path, counting from one: "products[2].tiers[1].price"."""
        return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in self.path).removeprefix(".")

    def __str__(self) -> str:
        """Return the problem as one line."""
        return f"{self.place or 'ruleset'}: {self.message}; {self.suggestion}"


def shown(value: object) -> str:
    """Return the display text of a value for messages: short, without Python's names for Decimal and date."""
    text = repr(str(value) if isinstance(value, Decimal | date) else value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 1]}…"


def is_text(text: str, most: int, *, stored: bool = False) -> bool:
    """Return whether a text is non-empty, within the limit and on one line: no line ends, control or direction characters.

    A stored text may have the two line ends of Unicode, which older builds accepted.
    """
    if text.isascii() and text.isprintable():  # the common case
        return bool(text.strip()) and len(text) <= most
    refused = _HIDING if stored else _HIDING | _LINE_ENDS
    return bool(text.strip()) and len(text) <= most and not any(unicodedata.category(sign) in refused for sign in text)


# Categories of Unicode. An unassigned sign (Cn) is not among them: this Python's tables may only be older than the sign.
_HIDING: Final = frozenset({"Cc", "Cf", "Cs"})
_LINE_ENDS: Final = frozenset({"Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Table:
    """One mapping of the document. Each method reads one key and records errors in `problems`, which all tables share.

    A `stored` document was accepted by this build or an older one.
    """

    entries: Mapping[str, Any]
    path: Path
    problems: list[RulesetProblem]
    stored: bool = False

    def report(self, message: str, suggestion: str, *below: str | int) -> None:
        """Record a problem with this table, or with the entry at the path `below` it."""
        self.problems.append(RulesetProblem((*self.path, *below), message, suggestion))

    def only(self, *known: str) -> None:
        """Record every unknown key: a mistyped key would be ignored silently."""
        for key in self.entries:
            if key not in known:
                self.report(f"unknown key {shown(key)}", f"known are {', '.join(sorted(known))}", str(key))

    def text(self, key: str, default: str | None = None, *, most: int = TEXT_CHARACTERS_MAX) -> str:
        """Return a text of 1 to `most` characters."""
        value = self.entries.get(key, default)
        if isinstance(value, str) and is_text(value, most, stored=self.stored):
            return value
        self.report(f"{shown(value)} must be a non-empty text of at most {most} visible characters", f"write {key}", key)
        return ""

    def optional_text(self, key: str) -> str | None:
        """Return a text, or None when the key is absent."""
        return None if self.entries.get(key) is None else self.text(key)

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of `choices`."""
        value = self.entries.get(key, default)
        if isinstance(value, str) and value in choices:
            return value
        self.report(f"{shown(value)} must be one of {', '.join(choices)}", f"e.g. {choices[0]}", key)
        return choices[0]

    def amount(
        self, key: str, default: Decimal | None = None, *, most: Decimal = PRICE_MAX, decimals: int = DECIMALS_MAX
    ) -> Decimal:
        """Return a number from 0 to `most`, written as text or exact number; a float is refused."""
        value = self.entries.get(key, default)
        try:
            number = money.exact(value)
        except (TypeError, ValueError):
            self.report(f"{shown(value)} must be an amount", 'write e.g. 10 or "0.40", never a binary float', key)
            return Decimal(0)
        if not 0 <= number <= most or len(money.trimmed(number).partition(".")[2]) > decimals:
            self.report(
                f"{shown(value)} must be between 0 and {most:,f} with at most {decimals} decimals", "correct the amount", key
            )
            return Decimal(0)
        return number

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number from `low` to `high`; text of digits is accepted, because CSV files contain only text."""
        value = self.entries.get(key, default)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(high)):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.report(f"{shown(value)} must be a whole number from {low:,} to {high:,}", f"e.g. {low}", key)
        return low

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.entries.get(key, default)
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return bool(value == "true")
        self.report(f"{shown(value)} must be true or false", f"e.g. {str(default).lower()}", key)
        return default

    def day(self, key: str) -> date | None:
        """Return a date, or None when the key is absent or the value is invalid."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, date) and not isinstance(value, datetime)):
            return value
        try:
            return date.fromisoformat(value)
        except (TypeError, ValueError):
            self.report(f"{shown(value)} must be a date", "write e.g. 2026-11-21", key)
            return None

    def validity(self) -> Validity:
        """Return the period from `valid_from` to `valid_until`."""
        validity = Validity(self.day("valid_from"), self.day("valid_until"))
        if not validity.overlaps(validity):
            self.report("valid_until is before valid_from", "swap the two days", "valid_until")
        return validity

    def currency(self, key: str) -> str:
        """Return an ISO 4217 code; "USD" if the value is invalid."""
        value = self.text(key)
        try:
            money.exponent(value)
        except ValueError as error:
            if value:
                self.report(str(error), "e.g. USD", key)
            return "USD"
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; empty when the key is absent."""
        value = self.entries.get(key, [])
        if isinstance(value, list | tuple) and len(value) <= TEXTS_MAX:
            good = [row for row in value if isinstance(row, str) and is_text(row, TEXT_CHARACTERS_MAX, stored=self.stored)]
            if len(good) == len(value):
                return tuple(good)
        self.report(f"{shown(value)} must be a list of at most {TEXTS_MAX} non-empty texts", 'e.g. ["a", "b"]', key)
        return ()

    def tables(self, key: str, *, most: int, needed: bool = False) -> list[Table]:
        """Return the list of tables under `key`."""
        value = self.entries.get(key, [])
        if not isinstance(value, list | tuple) or len(value) > most or (needed and not value):
            least = 1 if needed else 0
            self.report(f"{shown(value)} must be a list of {least} to {most:,} tables", f"write at least one of {key}", key)
            return []
        found: list[Table] = []
        for index, row in enumerate(value):
            if isinstance(row, Mapping):
                found.append(Table(row, (*self.path, key, index), self.problems, self.stored))
            else:
                self.report(f"{shown(row)} must be a table", "write its keys and values", key, index)
        return found


VALIDITY_KEYS = ("valid_from", "valid_until")


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity period that includes both days; None leaves that side open."""

    valid_from: date | None = None
    valid_until: date | None = None

    def covers(self, day: date | None) -> bool:
        """Return whether the period includes `day`. Without a day only an unlimited period matches."""
        if day is None:
            return self.valid_from is None and self.valid_until is None
        return (self.valid_from is None or self.valid_from <= day) and (self.valid_until is None or day <= self.valid_until)

    def overlaps(self, other: Validity) -> bool:
        """Return whether the two periods share a day."""
        return (self.valid_from or date.min) <= (other.valid_until or date.max) and (other.valid_from or date.min) <= (
            self.valid_until or date.max
        )

    def document(self) -> dict[str, object]:
        """Return the period in the form of a ruleset document, without open sides."""
        days = {"valid_from": self.valid_from, "valid_until": self.valid_until}
        return {name: day.isoformat() for name, day in days.items() if day is not None}


ALWAYS = Validity()


LEVELS_MAX: Final = 50
NUMBER_BITS_MAX: Final = 256
EXPONENT_MAX: Final = 60
# A dotted key with many parts, for which tomllib takes quadratic time. Each match attempt begins at the start of a part.
_DOTTED: Final = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{LEVELS_MAX}}}", re.ASCII)


class DocumentError(ValueError):
    """The text cannot be parsed; the message gives the reason and, if known, the place."""


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raises DocumentError, also for one that is nested too deeply."""
    if _DOTTED.search(text):
        raise too_deep()
    document: dict[str, Any] = _read(lambda: tomllib.loads(text, parse_float=Decimal))
    return document


def read_json(text: str) -> Any:
    """Parse a JSON document with exact numbers and unique keys. Raises DocumentError, also for one nested too deeply."""
    return _read(lambda: json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_once_each))


def too_deep() -> DocumentError:
    """Return the error of a document that is nested too deeply."""
    return DocumentError(f"it is nested deeper than {LEVELS_MAX} levels")


def is_deeper(value: object, levels: int) -> bool:
    """Return whether mappings and lists are nested deeper than `levels`. Linear, without recursion."""
    level = [value]
    for _ in range(levels + 1):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> list[Any]:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in held if isinstance(child, dict | list)]


def _read(parse: Callable[[], Any]) -> Any:
    """Return what `parse` returns. Raises DocumentError if it fails or the document exceeds the limits."""
    try:
        document = parse()
    except RecursionError as error:
        raise too_deep() from error
    except (ValueError, ArithmeticError) as error:
        too_large = isinstance(error, ArithmeticError) or "integer string" in str(error)
        raise DocumentError("a number is too large" if too_large else str(error)) from error
    if is_deeper(document, LEVELS_MAX):
        raise too_deep()
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int) and value.bit_length() > NUMBER_BITS_MAX:
            raise DocumentError(f"a whole number has more than {NUMBER_BITS_MAX} bits")
        elif isinstance(value, Decimal) and value.is_finite() and value and abs(value.adjusted()) > EXPONENT_MAX:
            raise DocumentError(f"the number {value} is not between 1e-{EXPONENT_MAX} and 1e{EXPONENT_MAX}")
    return document


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:60]!r} is there twice in one object")
        found[key] = value
    return found
