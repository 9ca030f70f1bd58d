"""Refusals in Salesforce's format: the error, those that can be armed by their code, and the rules of an org that refuse a write.

An armed record code applies where a record is written: inside a composite or a graph that is one part of it, and the other parts
are halted. All others refuse the whole request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT = "UNABLE_TO_LOCK_ROW"
_RECORD_FIELD = "Name"  # the field that a refusal names, if it names one
_RULE = "A rule of this org does not allow it"

_OF_RECORDS: Mapping[str, tuple[int, str, bool]] = MappingProxyType(  # status, message, whether it names a field
    {
        "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY": (400, "QuoteTrigger: execution of BeforeInsert caused by: an exception", False),
        "DUPLICATE_VALUE": (400, "duplicate value found: <unknown> duplicates value on record with id: <unknown>", False),
        "DUPLICATES_DETECTED": (400, "Use one of these records?", False),
        "ENTITY_IS_DELETED": (400, "entity is deleted", False),
        "ENTITY_IS_LOCKED": (400, "This record is locked. If you need to edit it, contact your admin.", False),
        "FIELD_CUSTOM_VALIDATION_EXCEPTION": (400, _RULE, True),
        "FIELD_FILTER_VALIDATION_EXCEPTION": (400, "Value does not exist or does not match filter criteria.", True),
        "FIELD_INTEGRITY_EXCEPTION": (400, "field integrity exception: the price book entry is in another price book", True),
        "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY": (400, "insufficient access rights on cross-reference id", False),
        "INSUFFICIENT_ACCESS_OR_READONLY": (403, "insufficient access rights on object id", False),
        "INVALID_CROSS_REFERENCE_KEY": (400, "invalid cross reference id", False),
        "INVALID_FIELD": (400, "No such column 'Name' on sobject of type Quote", False),
        "INVALID_FIELD_FOR_INSERT_UPDATE": (400, "Unable to create/update fields: Name.", True),
        "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST": (400, "Name: bad value for restricted picklist field", True),
        "MALFORMED_ID": (400, "Name: id value of incorrect type", True),
        "NUMBER_OUTSIDE_VALID_RANGE": (400, "Name: value outside of valid range on numeric field", True),
        "REQUIRED_FIELD_MISSING": (400, "Required fields are missing: [Name]", True),
        "STRING_TOO_LONG": (400, "Name: data value too large (max length=255)", True),
        "UNABLE_TO_LOCK_ROW": (400, "unable to obtain exclusive access to this record", False),
    }
)
_OF_REQUESTS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "API_CURRENTLY_DISABLED": (503, "API is temporarily disabled"),
        "API_DISABLED_FOR_ORG": (403, "The REST API is not enabled for this Organization."),
        "CONCURRENT_REQUESTS": (403, "ConcurrentRequests (Concurrent API Requests) Limit exceeded."),
        "INSUFFICIENT_ACCESS": (403, "insufficient access rights"),
        "INVALID_AUTH_HEADER": (401, "INVALID_HEADER_TYPE"),
        "INVALID_QUERY_LOCATOR": (400, "invalid query locator"),
        "INVALID_SESSION_ID": (401, "Session expired or invalid"),
        "INVALID_TYPE": (400, "sObject type 'Quote' is not supported."),
        "JSON_PARSER_ERROR": (400, "Unexpected character at [line:1, column:1]"),
        "MALFORMED_QUERY": (400, "unexpected token: 'SELECT'"),
        "METHOD_NOT_ALLOWED": (405, "HTTP Method 'POST' not allowed. Allowed are HEAD,GET,PATCH,DELETE"),
        "NOT_FOUND": (404, "The requested resource does not exist"),
        "QUERY_TIMEOUT": (400, "Your query request was running for too long."),
        "REQUEST_LIMIT_EXCEEDED": (403, "TotalRequests Limit exceeded."),
        "REQUEST_RUNNING_TOO_LONG": (400, "Your request was running for too long, and has been stopped."),
        "SERVER_UNAVAILABLE": (503, "Server unavailable, try again later"),
        "UNKNOWN_EXCEPTION": (500, "An unexpected error occurred. Please include this ErrorId if you contact support: 1-2 (3)"),
        "UNSUPPORTED_API_VERSION": (410, "The requested API version has been retired or removed"),
    }
)
_SAID_AS: Mapping[str, str] = MappingProxyType({"CONCURRENT_REQUESTS": "REQUEST_LIMIT_EXCEEDED"})
# The token endpoint answers in OAuth's format instead.
OF_LOGINS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "inactive_org": (400, "organization is locked or deactivated"),
        "inactive_user": (400, "user is inactive"),
        "invalid_client": (400, "invalid client credentials"),
        "invalid_client_id": (400, "client identifier invalid"),
        "invalid_grant": (400, "authentication failure"),
        "rate_limit_exceeded": (403, "login rate exceeded"),
        "server_error": (500, "an unexpected error occurred"),
        "temporarily_unavailable": (503, "the service is temporarily unavailable"),
        "unauthorized_client": (400, "client not authorized"),
        "unknown_error": (400, "retry your request"),
        "unsupported_grant_type": (400, "grant type not supported"),
    }
)
CODES: frozenset[str] = frozenset({*_OF_RECORDS, *_OF_REQUESTS, *OF_LOGINS})


class SalesforceRefusalError(Exception):
    """One refusal: `errorCode`, message, the fields it names and HTTP `status`, as one element of Salesforce's error list."""

    def __init__(self, code: str, message: str, fields: tuple[str, ...] | None = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fields = fields

    def body(self) -> list[dict[str, object]]:
        """Return the JSON body: a list of one error; `fields` is left out where Salesforce leaves it out."""
        error: dict[str, object] = {"message": self.message, "errorCode": self.code}
        if self.fields is not None:
            error["fields"] = list(self.fields)
        return [error]


def of_a_record(code: str) -> bool:
    """Tell whether the code refuses a record rather than a whole request."""
    return code in _OF_RECORDS


def refusal(code: str) -> SalesforceRefusalError:
    """Return the refusal with that code; an unknown code refuses the whole request, with status 400."""
    if code in _OF_RECORDS:
        status, message, names_field = _OF_RECORDS[code]
        return SalesforceRefusalError(code, message, (_RECORD_FIELD,) if names_field else (), status=status)
    status, message = _OF_REQUESTS.get(code, (400, "The request was refused"))
    return SalesforceRefusalError(_SAID_AS.get(code, code), message, status=status)


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """An admin's rule: a record of `sobject` for which `broken` is true is refused with `message`, shown at `field` if any.

    As a `trigger` it is the customer's Apex code that fails.
    """

    sobject: str
    message: str
    broken: Callable[[Mapping[str, object]], bool]
    field: str | None = None
    trigger: bool = False


@dataclass(slots=True)
class Rules:
    """The present configuration. Record ids are in their long form, objects are named as in the schema."""

    validations: list[ValidationRule] = field(default_factory=list)
    duplicate_fields: dict[str, str] = field(default_factory=dict)  # a duplicate rule: object -> field that must differ
    locked: set[str] = field(default_factory=set)  # records in an approval process
    busy: set[str] = field(default_factory=set)  # rows locked by another transaction
    unshared: set[str] = field(default_factory=set)  # records that the integration user may read but not change
    refuse_next: SalesforceRefusalError | None = None  # the refusal of the next write

    def check_rows(self, sobject: str, own_id: str | None, changes: Mapping[str, object], references: frozenset[str]) -> None:
        """Refuse a write to a row, or below a row, that is locked, busy or unshared. `references` name fields of `changes`."""
        if self.refuse_next is not None:
            armed, self.refuse_next = self.refuse_next, None
            raise armed
        touched = {str(value) for name, value in changes.items() if name in references and value is not None}
        if own_id in self.locked:
            raise refusal("ENTITY_IS_LOCKED")
        if own_id in self.unshared:
            raise refusal("INSUFFICIENT_ACCESS_OR_READONLY")
        if touched & self.unshared:
            raise SalesforceRefusalError(
                "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
                f"insufficient access rights on cross-reference id: {min(touched & self.unshared)}",
                (),
            )
        held = (touched | {own_id or sobject}) & self.busy
        if held:
            raise SalesforceRefusalError(
                "UNABLE_TO_LOCK_ROW",
                f"unable to obtain exclusive access to this record or {len(held)} records: {','.join(sorted(held))}",
                (),
            )

    def check_record(self, sobject: str, record: Mapping[str, object]) -> None:
        """Refuse a record that breaks a rule or makes a trigger fail."""
        for rule in self.validations:
            if rule.sobject != sobject or not rule.broken(record):
                continue
            code = "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY" if rule.trigger else "FIELD_CUSTOM_VALIDATION_EXCEPTION"
            raise SalesforceRefusalError(code, rule.message, (rule.field,) if rule.field else ())
