"""Clauses of typed requests about commercial terms: how they are written and read; and requests written as typed text.

    start 2027-01-31; payment net 45; po 4711; valid 45d; bill-to Jo Doe; email jo@acme.example; address 1 Main St, Springfield;
    vat DE123456789; language de; template detailed; note Their budget ends in June.; customer-note "Thank you; see you soon."

A text with a semicolon is put in quotation marks, inside which two of them stand for one. `none` removes a term. A date that can
be read in two ways is refused.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain import money
from quotebot.domain.language import N_, _
from quotebot.domain.pricing.commercial_terms import LANGUAGES, MONTH_NAMES, NAMES, TEXTS_MAX, CommercialTerms, payment_text
from quotebot.domain.pricing.price_requests import BILLING_FREQUENCIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal

    from quotebot.domain.pricing.price_requests import LineRequest, PriceRequest

THOUSANDS_DIGITS: Final = 3
QUOTED_CHARACTERS_MAX: Final = 1_000
# Keyword -> field. `valid` writes two fields.
FIELDS: Final = {
    "start": "start_date",
    "payment": "payment_days",
    "po": "po_number",
    "bill-to": "bill_to",
    "email": "bill_to_email",
    "address": "bill_to_address",
    "vat": "vat_id",
    "valid": "valid_days",
    "language": "language",
    "template": "template",
    "note": "approver_note",
    "customer-note": "customer_note",
}
ALIASES: Final = {"bill to": "bill-to", "e-mail": "email", "customer note": "customer-note"}
CLEARED: Final = ("none", "off")
_QUOTED: Final = re.compile(
    r" *(?:po|bill[- ]to|e-?mail|address|vat|note|customer[- ]note)\b[ :=]*"
    rf'(?:"(?:[^"]|""){{0,{QUOTED_CHARACTERS_MAX}}}"|[“„][^“”]{{0,{QUOTED_CHARACTERS_MAX}}}[“”]) *(?=;|$)',
    re.IGNORECASE,
)
_MARKS: Final = ('"', "“", "„")
_LINK: Final = re.compile(r"<(?:mailto:|(?=https?://))([^<>|\s]+)(?:\|([^<>]*))?>")  # as Slack sends addresses
_ISO: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_NAMED_DAY: Final = re.compile(r"([0-9]{1,2})\.? ([A-Za-z]{3,9})\.? ([0-9]{4})")
_FIGURES: Final = re.compile(r"([0-9]{1,2})[./ -]([0-9]{1,2})[./ -]([0-9]{4})")
_SHORT_YEAR: Final = re.compile(r"[0-9]{1,4}[./ -][0-9]{1,2}[./ -][0-9]{1,4}")
_PAYMENT: Final = re.compile(r"(?:net ?)?([0-9]{1,4})(?: ?d| days?| tage?n?)?")
_VALID: Final = re.compile(r"(?:for )?([0-9]{1,4}) ?(?:d|days?|tage?n?)?")

Found = dict[str, Any]  # field -> its new value; None removes it


def clauses(body: str) -> Iterator[str]:
    """Yield the clauses of a typed body; a semicolon inside a quoted text separates none."""
    start = 0
    while start <= len(body):
        quoted = _QUOTED.match(body, start)
        end = body.find(";", start) if quoted is None else quoted.end()
        end = len(body) if end < 0 else end
        yield body[start:end].strip()
        start = end + 1


def read_clause(keyword: str, value: str) -> Found | str:
    """Read the value of one of FIELDS; return the fields that it sets, or the problem without the value, as mrkdwn."""
    if value.casefold() in CLEARED:
        return {"valid_days": None, "valid_until": None} if keyword == "valid" else {FIELDS[keyword]: None}
    reader = _READERS.get(keyword, _text)
    found = reader(value)
    if isinstance(found, str):
        return _(found, keyword=keyword, languages=", ".join(LANGUAGES))
    return {name or FIELDS[keyword]: each for name, each in found.items()}


def written(terms: CommercialTerms) -> tuple[str, ...]:
    """Return the clauses of the terms that are set; `read_clause` reads them back."""
    keywords = {name: keyword for keyword, name in FIELDS.items()}
    said = []
    for name in NAMES:
        value = getattr(terms, name)
        if value is None:
            continue
        if name == "valid_until":
            said.append(f"valid until {value.isoformat()}")
        elif name in TEXTS_MAX:
            said.append(f"{keywords[name]} {quoted(value)}")
        else:
            shown = {"payment_days": payment_text, "valid_days": lambda days: f"{days}d", "start_date": date.isoformat}
            said.append(f"{keywords[name]} {shown.get(name, str)(value)}")
    return tuple(said)


def terms_text(request: PriceRequest) -> str:
    """Return everything but lines, term, discount and currency as typed text: "tax DE; terms net_60; payment net 45"."""
    named = (
        ("" if request.region is None else f"{'tax' if request.with_tax else 'region'} {request.region}"),
        (f"terms {', '.join(request.terms)}" if request.terms else ""),
        ("" if request.segment is None else f"segment {request.segment}"),
        ("" if request.billing_frequency == BILLING_FREQUENCIES[0] else f"billing {request.billing_frequency}"),
        *written(request.commercial),
    )
    return "; ".join(filter(None, named))


def line_text(line: LineRequest) -> str:
    """Return a line as typed text: "10 storage (gb=100, region=eu) -5%", "150 pro @5.4 because volume deal"."""
    options = ", ".join(f"{name}={choice}" for name, choice in line.attributes)
    own = f" -{money.trimmed(line.discount_percent)}%" if line.discount_percent else ""
    if line.agreed_price is not None:
        own += f" @{price_text(line.agreed_price)}"
        reason = line.price_reason
        own += f' because "{reason}"' if any(sign in reason for sign in ",()=") else f" because {reason}" if reason else ""
    optional = " (optional)" if line.optional else ""
    return f"{line.quantity} {line.sku}{f' ({options})' if options else ''}{optional}{own}"


def price_text(price: Decimal) -> str:
    """Return a price as it is typed. Three decimals would look like thousands, so they get a fourth one."""
    text = money.trimmed(price)
    return f"{text}0" if len(text.partition(".")[2]) == THOUSANDS_DIGITS else text


def typed_value(keyword: str, value: str) -> str:
    """Return the value of a keyword as it is typed: a text is quoted where it has to be; `none` still removes a term."""
    return quoted(value) if FIELDS[keyword] in TEXTS_MAX and value.casefold() not in CLEARED else value


def quoted(text: str) -> str:
    """Return a text as it is typed after its keyword: in quotation marks if it would be read otherwise."""
    plain = ";" not in text and text[:1] not in (*_MARKS, *":= ") and text.casefold() not in CLEARED
    return text if plain else '"{}"'.format(text.replace('"', '""'))


# Problems of a value, as predicates of it.
_NO_DAY: Final = N_("is no day of the calendar: write e.g. `{keyword} 2027-01-31`")
_TWO_WAYS: Final = N_("can be read in two ways: write year, month and day, e.g. `{keyword} 2027-01-31`")
_UNREADABLE_DAY: Final = N_("is not readable: write e.g. `{keyword} 2027-01-31`")
_UNREADABLE_VALIDITY: Final = N_("is not readable: write e.g. `valid 45d` or `valid until 2027-01-31`")


def _text(value: str) -> Found | str:
    if value[:1] in _MARKS:
        ends = ("”", "“") if value[0] in _MARKS[1:] else ('"',)
        inner = value[1:-1]
        whole = len(value) > 1 and value[-1] in ends
        if not whole or (value[0] == '"' and '"' in inner.replace('""', "")):
            return N_('has no closing quotation mark at its end: write `{keyword} "text"`, and two marks for one inside')
        value = inner.replace('""', '"') if value[0] == '"' else inner
    text = _LINK.sub(lambda link: link[2] or link[1], value).strip()
    return {"": text} if text else N_("is empty: write it after the word, or `{keyword} none`")


def _vat(value: str) -> Found | str:
    found = _text(value)
    return found if isinstance(found, str) else {"": found[""].upper()}


def _payment(value: str) -> Found | str:
    if value.casefold() in ("on receipt", "due on receipt"):
        return {"": 0}
    match = _PAYMENT.fullmatch(value.casefold())
    return {"": int(match[1])} if match else N_("is not readable: write e.g. `payment net 45` or `payment on receipt`")


def _valid(value: str) -> Found | str:
    match = _VALID.fullmatch(value.casefold())
    if match:
        return {"valid_days": int(match[1]), "valid_until": None}
    day = _day(value[6:].strip() if value.casefold().startswith("until ") else value)
    if isinstance(day, str):
        return day if day == _TWO_WAYS else _UNREADABLE_VALIDITY
    return {"valid_until": day[""], "valid_days": None}


def _day(value: str) -> Found | str:
    iso, named = _ISO.fullmatch(value), _NAMED_DAY.fullmatch(value)
    try:
        if iso:
            return {"": date(int(iso[1]), int(iso[2]), int(iso[3]))}
        if named:
            month = next(n for n, name in enumerate(MONTH_NAMES, 1) if name.casefold().startswith(named[2].casefold()))
            return {"": date(int(named[3]), month, int(named[1]))}
    except (ValueError, StopIteration):
        return _NO_DAY
    figures = _FIGURES.fullmatch(value)
    if figures is None:
        return _TWO_WAYS if _SHORT_YEAR.fullmatch(value) else _UNREADABLE_DAY
    one, two, year = map(int, figures.groups())
    found = set()
    for month, day in ((one, two), (two, one)):
        with suppress(ValueError):
            found.add(date(year, month, day))
    return {"": found.pop()} if len(found) == 1 else _TWO_WAYS if found else _NO_DAY


def _language(value: str) -> Found | str:
    code = {"english": "en", "german": "de", "deutsch": "de"}.get(value.casefold(), value.casefold())
    return {"": code} if code in LANGUAGES else N_("is none of a document: it is one of {languages}")


def _template(value: str) -> Found | str:
    return {"": value.casefold()} if value else N_("is empty: write e.g. `template detailed`")


_READERS: Final[Mapping[str, Callable[[str], Found | str]]] = {
    "start": _day,
    "payment": _payment,
    "valid": _valid,
    "vat": _vat,
    "language": _language,
    "template": _template,
}
