"""Parser of TOML and JSON documents with limits on depth and the size of numbers."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS_MAX: Final = 50
NUMBER_BITS_MAX: Final = 256
EXPONENT_MAX: Final = 60
# A dotted key with many parts, for which tomllib takes quadratic time. Each match attempt begins at the start of a part.
_DOTTED: Final = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{LEVELS_MAX}}}", re.ASCII)


class DocumentError(ValueError):
    """The text cannot be parsed; the message gives the reason and, if known, the place."""


def read_toml(text: str, *, parse_float: Callable[[str], Any] = Decimal) -> dict[str, Any]:
    """Parse a TOML document. Raises DocumentError, also for one that is nested too deeply."""
    if _DOTTED.search(text):
        raise too_deep()
    document: dict[str, Any] = _read(lambda: tomllib.loads(text, parse_float=parse_float))
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
