"""Values of fields: their validation and stored form, and the forms of record ids and times.

Numbers are stored as int or Decimal, rounded half up to the field's scale, files as bytes; all other values unchanged. A record
id has 15 case-sensitive characters, plus 3 that make it safe to compare without case.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import string
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError

if TYPE_CHECKING:
    from quotebot.sandbox.salesforce.schema import Field

_NUMBERS = frozenset({"int", "double", "currency", "percent"})
_ROUNDING = Context(prec=60, rounding=ROUND_HALF_UP)
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_CHECKSUM_ALPHABET = string.ascii_uppercase + "012345"
_POD = "SB0"  # no real instance has this name
SHORT_LENGTH = 15
LONG_LENGTH = 18


def stored_form(field: Field, value: object) -> object:  # noqa: PLR0911 -- one return per type
    """Return `value` in its stored form. Raises SalesforceRefusalError if it does not fit the field."""
    if value is None or value == "":
        return None
    if field.type == "boolean":
        return value if isinstance(value, bool) else _refuse_json("boolean", value)
    if field.type in _NUMBERS:
        return _number(field, value)
    if field.type == "base64":
        return _bytes(field, value)
    if not isinstance(value, str):
        return _refuse_json("string", value)
    if field.type == "date":
        return _date(value)
    if field.type == "reference":
        return _reference(field, value)
    if field.type == "picklist" and value not in field.picklist:
        raise SalesforceRefusalError(
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
            f"{field.name}: bad value for restricted picklist field: {value}",
            (field.name,),
        )
    if len(value) > field.length:
        raise SalesforceRefusalError(
            "STRING_TOO_LONG",
            f"{field.name}: data value too large: {value} (max length={field.length})",
            (field.name,),
        )
    return value


def _number(field: Field, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return _refuse_json("double", value)
    number = Decimal(value)
    if number.is_finite() and number.adjusted() < field.precision - field.scale:
        return number.quantize(Decimal(1).scaleb(-field.scale), context=_ROUNDING)
    raise SalesforceRefusalError(
        "NUMBER_OUTSIDE_VALID_RANGE",
        f"{field.name}: value outside of valid range on numeric field: {value}",
        (field.name,),
    )


def _bytes(field: Field, value: object) -> bytes:
    """Decode a file: base64 text in JSON, or the bytes of a part of a multipart body."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(str(value), validate=True)
    except binascii.Error:
        raise SalesforceRefusalError(
            "INVALID_BASE64_ENCODING", f"{field.name}: value not of required type: {str(value)[:40]}", (field.name,)
        ) from None


def _date(value: str) -> object:
    try:
        return dt.date.fromisoformat(value).isoformat()
    except ValueError:
        return _refuse_json("date", value)


def _reference(field: Field, value: str) -> str:
    found = long_form(value)
    if found is not None:
        return found
    raise SalesforceRefusalError("MALFORMED_ID", f"{field.name}: id value of incorrect type: {value}", (field.name,))


def _refuse_json(wanted: str, value: object) -> object:
    kinds = {str: "VALUE_STRING", bool: "VALUE_TRUE" if value else "VALUE_FALSE", int: "VALUE_NUMBER_INT"}
    kind = kinds.get(type(value), "VALUE_NUMBER_FLOAT" if isinstance(value, Decimal) else "START_OBJECT")
    raise SalesforceRefusalError(
        "JSON_PARSER_ERROR",
        f"Cannot deserialize instance of {wanted} from {kind} value {value} or request may be missing a required field",
    )


def written(moment: dt.datetime) -> str:
    """Format a datetime as the org does: in UTC, to the millisecond."""
    return f"{moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}+0000"


def record_id(prefix: str, number: int) -> str:
    """Return the 18-character id of record `number` (>= 1) of the object whose key prefix is given."""
    digits = ""
    for _ in range(SHORT_LENGTH - len(prefix) - len(_POD)):
        number, digit = divmod(number, len(_BASE62))
        digits = _BASE62[digit] + digits
    short = prefix + _POD + digits
    return short + _checksum(short)


def long_form(candidate: str) -> str | None:
    """Return the 18-character form of a 15- or 18-character id, or None if it is not an id."""
    if not candidate.isascii() or not candidate.isalnum():
        return None
    if len(candidate) == SHORT_LENGTH:
        return candidate + _checksum(candidate)
    if len(candidate) != LONG_LENGTH:
        return None
    return _restore_case(candidate)


def _checksum(short: str) -> str:
    """Encode which of the 15 characters are upper case, five to a character."""
    return "".join(
        _CHECKSUM_ALPHABET[sum(1 << place for place in range(5) if "A" <= short[start + place] <= "Z")]
        for start in range(0, SHORT_LENGTH, 5)
    )


def _restore_case(candidate: str) -> str | None:
    """Restore the case of an 18-character id that lost it; None if the suffix cannot be right."""
    suffix = candidate[SHORT_LENGTH:].upper()
    if any(letter not in _CHECKSUM_ALPHABET for letter in suffix):
        return None
    short = ""
    for place, letter in enumerate(candidate[:SHORT_LENGTH]):
        capital = _CHECKSUM_ALPHABET.index(suffix[place // 5]) >> (place % 5) & 1
        if capital and not letter.isalpha():
            return None
        short += letter.upper() if capital else letter.lower()
    return short + suffix
