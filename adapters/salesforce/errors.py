"""Error tables of Salesforce in our vocabulary: by errorCode and by HTTP status, and the sentences people read.

Sources: the platform's REST status and error codes, its OAuth error codes. The message text decides in one place only: an exceeded
request limit has one code for two causes, too many concurrent calls (over in seconds) and the daily allowance (not).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from adapters.failures import AdapterError, Failure, vendor_line

BY_CODE: Mapping[str, Failure] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "UNABLE_TO_LOCK_ROW",
                "SERVER_UNAVAILABLE",
                "UNKNOWN_EXCEPTION",
                "API_CURRENTLY_DISABLED",
                "QUERY_TIMEOUT",
                "REQUEST_RUNNING_TOO_LONG",
                "PROCESSING_HALTED",  # the other nodes of a refused graph; alone it names no cause
            ),
            Failure.TRANSIENT,
        ),
        "REQUEST_LIMIT_EXCEEDED": Failure.THROTTLED,
        **dict.fromkeys(
            (
                "INVALID_SESSION_ID",
                "INVALID_AUTH_HEADER",
                "API_DISABLED_FOR_ORG",
                "INSUFFICIENT_ACCESS",
                "INSUFFICIENT_ACCESS_OR_READONLY",
                "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
            ),
            Failure.AUTH,
        ),
        **dict.fromkeys(
            (
                "REQUIRED_FIELD_MISSING",
                "INVALID_FIELD",
                "INVALID_FIELD_FOR_INSERT_UPDATE",
                "INVALID_TYPE",
                "NOT_FOUND",  # the object or the external-id field does not exist
                "STRING_TOO_LONG",
                "NUMBER_OUTSIDE_VALID_RANGE",
                "JSON_PARSER_ERROR",
                "MALFORMED_ID",
                "INVALID_CROSS_REFERENCE_KEY",
                "FIELD_INTEGRITY_EXCEPTION",
                "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
                "FIELD_CUSTOM_VALIDATION_EXCEPTION",
                "FIELD_FILTER_VALIDATION_EXCEPTION",
                "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY",  # a customer's own trigger failed
                "DUPLICATES_DETECTED",  # a duplicate rule, not our key
                "ENTITY_IS_DELETED",
                "ENTITY_IS_LOCKED",
                "METHOD_NOT_ALLOWED",
            ),
            Failure.MAPPING,
        ),
        "DUPLICATE_VALUE": Failure.CONFLICT,  # for our own key the caller checks the record first
    }
)

BY_STATUS: Mapping[int, Failure] = MappingProxyType(
    {
        300: Failure.MAPPING,  # several records share an external id
        401: Failure.AUTH,
        408: Failure.TRANSIENT,
        410: Failure.MAPPING,  # a retired API version
        425: Failure.TRANSIENT,
        429: Failure.THROTTLED,
    }
)

# Token endpoint (RFC 6749 and Salesforce's own codes). Any other refusal there is AUTH: only a person can fix it.
LOGIN_TRANSIENT = frozenset({"server_error", "temporarily_unavailable", "rate_limit_exceeded", "unknown_error"})

# Codes whose message names our mapping or the customer's own rule and never contains customer data.
_TELLING = frozenset({"INVALID_FIELD", "INVALID_TYPE", "FIELD_CUSTOM_VALIDATION_EXCEPTION", "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY"})
_MESSAGE_CHARACTERS_MAX = 200
_NAME_CHARACTERS_MAX = 80
_FIELDS_MAX = 5
# A refusal with one of these statuses does not prove that nothing was written: a gateway gave up, or the platform broke midway.
_DOUBTFUL = frozenset({500, 502, 504})
_SERVER_ERROR = 500
_SAFE = "Nothing was written; safe to retry."
TIMED_OUT = "timeout"  # our code of a call without an answer before its deadline
_PLATFORM_DOWN = ("SERVER_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")  # the platform reports these before any work

_ADVICE: Mapping[Failure, str] = MappingProxyType(
    {
        Failure.TRANSIENT: "Another try is safe.",
        Failure.THROTTLED: "Another try is safe once Salesforce accepts calls.",
        Failure.AUTH: "Fix the credentials or the integration user's permissions, then resume the CRM.",
        Failure.MAPPING: "Fix the mapping or the org's set-up, then replay it.",
        Failure.CONFLICT: "Look at the record in Salesforce before replaying it.",
        Failure.VALIDATION: "Look the code up, fix the cause, then replay it.",
    }
)


@dataclass(frozen=True, slots=True)
class SalesforceRefusal:
    """One element of Salesforce's error list. `code` is HTTP_<status> when the body has no readable code."""

    status: int
    code: str
    message: str = ""
    fields: tuple[str, ...] = ()

    @classmethod
    def read(cls, status: int, content: object) -> SalesforceRefusal:
        """Read an error body: Salesforce sends a list of errors, of which the first counts; any other body has no code."""
        first = content[0] if isinstance(content, list) and content else content
        if not isinstance(first, dict) or not isinstance(first.get("errorCode"), str):
            return cls(status, f"HTTP_{status}")
        names = first.get("fields")
        fields = (
            tuple(vendor_line(str(name), _NAME_CHARACTERS_MAX) for name in names[:_FIELDS_MAX])
            if isinstance(names, Sequence) and not isinstance(names, str)
            else ()
        )
        return cls(status, re.sub(r"\W", "_", first["errorCode"])[:80], str(first.get("message", "")), fields)

    def failure(self) -> Failure:
        """Classify by code, then by status; an unknown 4xx is a permanent refusal."""
        if self.code == "REQUEST_LIMIT_EXCEEDED" and "ConcurrentRequests" in self.message:
            return Failure.TRANSIENT
        known = BY_CODE.get(self.code) or BY_STATUS.get(self.status)
        if known is not None:
            return known
        return Failure.TRANSIENT if self.status >= _SERVER_ERROR else Failure.VALIDATION


@dataclass(frozen=True, slots=True)
class Target:
    """Subject of a request, for error texts: the object, our key, and the values that may be shown to people."""

    deed: str  # "write the quote", "read the quote", "log in"
    sobject: str = ""
    key: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    writes: bool = False


def refused(
    refusal: SalesforceRefusal, target: Target, *, retry_after_seconds: float | None = None, rolled_back: bool = False
) -> AdapterError:
    """Return the error for a refusal: object, field and value where they are known; never a token, a URL or customer text.

    `rolled_back` means that the platform itself reported the write as undone.
    """
    failure = refusal.failure()
    doubtful = target.writes and not rolled_back and _is_doubtful(refusal)
    state = "It may have been written; repeating it under the same key is safe." if doubtful else "Nothing was written."
    if failure is Failure.TRANSIENT:
        message = _unavailable(refusal.code, state if doubtful else _SAFE)
    else:
        about = f" {target.key}" if target.key else ""
        message = f"Salesforce refused to {target.deed}{about}{_where(refusal, target)} ({refusal.code})."
        if refusal.code in _TELLING and refusal.message:
            message += f" It says: {vendor_line(refusal.message, _MESSAGE_CHARACTERS_MAX).rstrip('.')}."
        if target.writes:
            message += f" {state}"
        message += f" {_ADVICE[failure]}"
    return AdapterError(
        failure,
        refusal.code,
        message,
        http_status=refusal.status,
        retry_after_seconds=retry_after_seconds,
        possibly_applied=doubtful,
    )


def lost(code: str, what: str, target: Target, *, sent: bool) -> AdapterError:
    """Return the error for a missing or unreadable answer; `sent` is true if the request may have been sent."""
    possibly_applied = sent and target.writes
    about = f" {target.key}" if target.key else ""
    state = "It may have been done; repeating it under the same key is safe." if possibly_applied else "Nothing was written."
    message = f"Could not {target.deed}{about} in Salesforce: {what}. {state} {_ADVICE[Failure.TRANSIENT]}"
    failure = Failure.TIMEOUT if code == TIMED_OUT else Failure.TRANSIENT
    return AdapterError(failure, code, message, possibly_applied=possibly_applied)


def login_refused(status: int, content: object, *, retry_after_seconds: float | None = None) -> AdapterError:
    """Return the error for a refused login. The answer's text is not repeated: it may contain the request, secrets included."""
    error = content.get("error") if isinstance(content, dict) else None
    code = re.sub(r"\W", "_", error)[:80] if isinstance(error, str) else f"HTTP_{status}"
    failure = BY_STATUS.get(status, Failure.AUTH)
    if status >= _SERVER_ERROR or code in LOGIN_TRANSIENT:
        failure = Failure.TRANSIENT
    message = f"Salesforce refused to log in ({code}). Nothing was written. {_ADVICE[failure]}"
    if failure is Failure.TRANSIENT:
        message = _unavailable(code, _SAFE)
    return AdapterError(failure, code, message, http_status=status, retry_after_seconds=retry_after_seconds)


def _unavailable(code: str, state: str) -> str:
    return f"Salesforce was unavailable ({code}). {state}"


def _is_doubtful(refusal: SalesforceRefusal) -> bool:
    if refusal.code in _PLATFORM_DOWN:
        return False
    return refusal.status in _DOUBTFUL or (refusal.status >= _SERVER_ERROR and refusal.code.startswith("HTTP_"))


def _where(refusal: SalesforceRefusal, target: Target) -> str:
    """Return ': Quote.ExpirationDate = "soon"', or as much of it as is known."""
    if not refusal.fields:
        return f": {target.sobject}" if target.sobject and refusal.failure() is Failure.MAPPING else ""
    named = [
        f"{target.sobject}.{name}" + (f" = {target.values[name]}" if name in target.values else "") for name in refusal.fields[:5]
    ]
    return f": {', '.join(named)}"
