"""Language of what people read in Slack: gettext catalogs, and numbers as the language writes them.

English is in the code; every other language has one catalog (.po) per surface in quotebot/locale/. A process speaks the language of
its installation, set at its start. Documents for customers have a language of their own (views/document.py).
A text in a literal that is made at import is marked with `N_` and translated with `_` where it is shown.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Final

from babel import Locale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    Texts = Mapping[str, str | Sequence[str]]  # by the English text (the singular); a text with a plural has two

LANGUAGES: Final = ("en", "de")
NO_BREAK_SPACE: Final = "\N{NO-BREAK SPACE}"
_NUMBER: Final = re.compile(r"[0-9]{1,10}(?:([.,])[0-9]{1,6})?")
_TWO_WAYS: Final = re.compile(r"0*[1-9][0-9]{0,2}[.,][0-9]{3}")  # "1.500" and "1,500" are 1500 to some people, 1.5 to others
_WHOLE: Final = re.compile(r"[0-9]{1,15}|[1-9][0-9]{0,2}(?:,[0-9]{3}){1,4}")


class _Language:
    """One language: its translations by English text, and its signs for numbers."""

    def __init__(self, code: str, texts: Texts) -> None:
        self.code = code
        self.texts = {english: (found,) if isinstance(found, str) else tuple(found) for english, found in texts.items()}
        locale = Locale(code)
        symbols = locale.number_symbols["latn"]
        self.signs = str.maketrans({",": symbols["group"], ".": symbols["decimal"]})
        self.decimal = symbols["decimal"]
        self.months = locale.months["format"]["abbreviated"]
        self.sign_follows = code != "en"  # "15 %" and "99,00 €" against "15%" and "€99.00"


_current = _Language("en", {})


def use(code: str, texts: Texts) -> None:
    """Make this process speak a language of LANGUAGES from now on. English has no texts: it is in the code."""
    global _current  # noqa: PLW0603 -- the language of an installation is one for its process, as the locale of any program is
    _current = _Language(code, texts)


def current() -> str:
    """Return the code of the language this process speaks: "en"."""
    return _current.code


def N_(message: str) -> str:  # noqa: N802 -- the name that gettext's tools know
    """Mark a text for translation without translating it."""
    return message


def _(message: str, /, **fields: object) -> str:
    """Return a text in the current language, its {fields} filled in. Values are never interpreted."""
    text = _current.texts.get(message, (message,))[0]
    return text.format(**fields) if fields else text


def ngettext(singular: str, plural: str, n: int, /, **fields: object) -> str:
    """Return the singular or plural text for `n` in the current language, its {fields} and {n} (grouped) filled in."""
    texts = _current.texts.get(singular, (singular, plural))
    return texts[n != 1].format(n=grouped(n), **fields)


def grouped(number: int) -> str:
    """Return a whole number as people read it: "1,500"."""
    return localized(f"{number:,}")


def localized(number: str) -> str:
    """Return a number written in English ("17,340.00") as the current language writes it."""
    return number.translate(_current.signs)


def typed_number(text: str) -> Decimal | None:
    """Read "5.40", and in a language with a decimal comma also "5,40"; None for every number that can be read in two ways."""
    match = _NUMBER.fullmatch(text)
    if match is None or _TWO_WAYS.fullmatch(text) or match[1] not in (None, ".", _current.decimal):
        return None
    return Decimal(text.replace(",", "."))


def typed_whole(text: str) -> int | None:
    """Read "1500" or "1,500"; None if it is no whole number. Where the comma is the decimal sign, "1,500" is in doubt."""
    is_uncertain = _current.decimal == "," and _TWO_WAYS.fullmatch(text)
    return int(text.replace(",", "")) if _WHOLE.fullmatch(text) and not is_uncertain else None


def percent(number: str) -> str:
    """Return "15%" of a number written in English."""
    return f"{localized(number)}{NO_BREAK_SPACE}%" if _current.sign_follows else f"{number}%"


def amount(number: str, sign: str) -> str:
    """Return a number written in English without its minus, with the sign of its currency: "$17,340.00"."""
    return f"{localized(number)}{NO_BREAK_SPACE}{sign.rstrip(NO_BREAK_SPACE)}" if _current.sign_follows else f"{sign}{number}"


def day_text(day: date) -> str:
    """Return "21 Nov 2026"."""
    return _("{day} {month} {year}", day=day.day, month=_current.months[day.month], year=day.year)


def listed(parts: tuple[str, ...] | list[str]) -> str:
    """Return "A", "A and B" or "A, B and C"."""
    if len(parts) < 2:  # noqa: PLR2004 -- one part stands alone
        return "".join(parts)
    return _("{first} and {last}", first=", ".join(parts[:-1]), last=parts[-1])


def either(parts: Sequence[str]) -> str:
    """Return "A", "A or B" or "A or B or C"."""
    return reduce(lambda first, last: _("{first} or {last}", first=first, last=last), parts) if parts else ""


def initial_capital(text: str) -> str:
    """Return a text with a capital first letter; the other letters stay, which some languages need."""
    return f"{text[:1].upper()}{text[1:]}"
