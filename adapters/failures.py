"""Shared vocabulary of failures of external services.

Every adapter raises only `AdapterError`. Its `failure` decides what the dispatcher does; its `code` is the vendor's error code
(or ours: `timeout`, `network`, `unreadable`) and is the term to search for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from adapters.vendor_text import vendor_line

MESSAGE_CHARACTERS_MAX: Final = 2_000


class Failure(StrEnum):
    """Kind of failure, decided by status and code, never by message text."""

    TRANSIENT = "transient"  # network, time-out, 408, 425, 5xx, record lock: try again
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
    INTERNAL = "internal"  # our own bug


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
