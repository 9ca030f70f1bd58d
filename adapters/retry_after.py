"""Parser of the Retry-After header (RFC 9110, 10.2.3), shared by every HTTP adapter.

The header holds seconds or a date. A date is measured against the answer's own Date header, so that clock differences do not
matter; our clock is used only if the answer has no Date.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Nine digits are 31 years. A longer number is not a plausible wait and would not fit the ledger's milliseconds.
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def asked_wait_seconds(headers: Mapping[str, str], *, clock: Callable[[], float] = time.time) -> float | None:
    """Return the wait (seconds, uncapped) that the server asks for; None when it asks for none or the header is unreadable.

    `clock` (Unix seconds) replaces a missing or unreadable Date header: without this fallback such a wait would be dropped and the
    next attempt would come too early.
    """
    sent_at = _moment(headers.get("Date", ""))
    return read_retry_after(headers.get("Retry-After", ""), clock() if sent_at is None else sent_at)


def read_retry_after(value: str, now_seconds: float) -> float | None:
    """Return the seconds in a Retry-After value: a number as is, a date relative to `now_seconds` (Unix time), a past date as 0."""
    value = value.strip()
    if SECONDS.fullmatch(value):
        return float(value)
    moment = _moment(value)
    return None if moment is None else max(moment - now_seconds, 0.0)


def sent_at_ms(headers: Mapping[str, str]) -> int | None:
    """Return the answer's Date as Unix milliseconds; None if it is missing or unreadable."""
    sent_at = _moment(headers.get("Date", ""))
    return None if sent_at is None else round(sent_at * 1000)


def _moment(text: str) -> float | None:
    """Return the Unix seconds of an HTTP date in any of its three forms; a date without a zone is UTC."""
    try:
        moment: datetime = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
