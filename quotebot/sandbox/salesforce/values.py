"""Validation of values against fields, and their stored form.

Numbers are stored as int or Decimal, rounded half up to the field's scale, files as bytes; all other values unchanged.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError
from quotebot.sandbox.salesforce.ids import long_form

if TYPE_CHECKING:
    from quotebot.sandbox.salesforce.schema import Field

_NUMBERS = frozenset({"int", "double", "currency", "percent"})
_ROUNDING = Context(prec=60, rounding=ROUND_HALF_UP)
_BAD_REQUEST = 400


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
            _BAD_REQUEST,
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
            f"{field.name}: bad value for restricted picklist field: {value}",
            (field.name,),
        )
    if len(value) > field.length:
        raise SalesforceRefusalError(
            _BAD_REQUEST,
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
        _BAD_REQUEST,
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
        message = f"{field.name}: value not of required type: {str(value)[:40]}"
        raise SalesforceRefusalError(_BAD_REQUEST, "INVALID_BASE64_ENCODING", message, (field.name,)) from None


def _date(value: str) -> object:
    try:
        return dt.date.fromisoformat(value).isoformat()
    except ValueError:
        return _refuse_json("date", value)


def _reference(field: Field, value: str) -> str:
    found = long_form(value)
    if found is not None:
        return found
    raise SalesforceRefusalError(_BAD_REQUEST, "MALFORMED_ID", f"{field.name}: id value of incorrect type: {value}", (field.name,))


def _refuse_json(wanted: str, value: object) -> object:
    kinds = {str: "VALUE_STRING", bool: "VALUE_TRUE" if value else "VALUE_FALSE", int: "VALUE_NUMBER_INT"}
    kind = kinds.get(type(value), "VALUE_NUMBER_FLOAT" if isinstance(value, Decimal) else "START_OBJECT")
    raise SalesforceRefusalError(
        _BAD_REQUEST,
        "JSON_PARSER_ERROR",
        f"Cannot deserialize instance of {wanted} from {kind} value {value} or request may be missing a required field",
    )
