"""Shared vocabulary of failures of external services, and their sanitised texts.

Every adapter raises only `AdapterError`. Its `failure` decides what the dispatcher does; its `code` is the vendor's error code
(or ours: `timeout`, `network`, `unreadable`) and is the term to search for.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

# C0 except tab and line feed, DEL, C1, soft hyphen, marks of direction, invisible and separating characters, tags, surrogates.
UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
REPLACED: Final = "\ufffd"


def vendor_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text on one line; unprintable characters become replacement characters."""
    cut = text[: 2 * limit]  # whitespace is collapsed below
    if not (cut.isascii() and cut.isprintable()):
        cut = UNPRINTABLE.sub(REPLACED, cut.replace("\r", "\n"))
    line = " ".join(cut.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


MESSAGE_CHARACTERS_MAX: Final = 2_000


class Failure(StrEnum):
    """Kind of failure, decided by status and code, never by message text."""

    TRANSIENT = "transient"  # network, 408, 425, 5xx, record lock: try again
    TIMEOUT = "timeout"  # no answer before the deadline: try again, as for TRANSIENT
    THROTTLED = "throttled"  # 429: try again, never before Retry-After
    AUTH = "auth"  # credentials or scopes: pause the class, consume no attempt
    MAPPING = "mapping"  # the vendor does not know our field or its value
    VALIDATION = "validation"  # the vendor refuses this request for good
    NOT_FOUND = "not_found"  # the target does not exist
    CONFLICT = "conflict"  # the target holds other content under our key
    RENDER = "render"  # the document cannot be rendered: same input, same error
    LLM_SCHEMA = "llm_schema"  # the model answered in the wrong shape
    UNCERTAIN = "uncertain"  # it is unknown whether the call took effect
    POISON = "poison"  # the process crashed on it too often
    EXPIRED = "expired"  # too old to be worth executing
    INTERNAL = "internal"  # our own bug; its code is INVALID_VALUE or BUG, or names what is missing


# The service gave no useful answer: the circuit breaker counts it.
UNAVAILABLE: Final = frozenset({Failure.TRANSIENT, Failure.TIMEOUT})


# Codes of exceptions that our own code raised, with their sentences. A Python class name is for the log, not for people.
INVALID_VALUE: Final = "invalid_value"  # same input, same error: no retry
BUG: Final = "bug"
_INVALID: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)
_REFUSED_BY_DATABASE: Final = "IntegrityError"  # PEP 249: the name of this class in every driver


def code_of_bug(error: Exception) -> str:
    """Return the code of an exception of our own code: INVALID_VALUE if it repeats with the same input, else BUG."""
    refused = any(each.__name__ == _REFUSED_BY_DATABASE for each in type(error).__mro__)
    return INVALID_VALUE if refused or isinstance(error, _INVALID) else BUG


class AdapterError(Exception):
    """One failed call.

    `possibly_applied` is true when the request may have reached the service and taken effect (the answer was lost, timed out
    or unreadable): check for the result of an append before repeating it. `retry_after_seconds` is the wait the vendor asked for.
    `str(error)` is the redacted, human-readable sentence kept in the ledger: what failed and why, without secrets or customer text.
    """

    def __init__(
        self,
        failure: Failure,
        code: str,
        message: str,
        *,
        http_status: int | None = None,
        retry_after_seconds: float | None = None,
        possibly_applied: bool = False,
    ) -> None:
        super().__init__(vendor_line(message, MESSAGE_CHARACTERS_MAX))
        self.failure = failure
        self.code = code
        self.http_status = http_status
        self.retry_after_seconds = retry_after_seconds
        self.possibly_applied = possibly_applied
