"""The vendor's own wait: one reading of the Retry-After header (RFC 9110, 10.2.3) for every adapter that speaks HTTP.

The header holds seconds or a date. A date is counted against the answer's own Date, so that it does not matter whose clock is
wrong; only an answer without a Date is counted against ours.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Nine digits are 31 years. What is longer is no wait but rubbish, and would not fit the ledger's milliseconds.
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def asked_wait_seconds(headers: Mapping[str, str], *, clock: Callable[[], float] = time.time) -> float | None:
    """Seconds until the other side wants to be asked again, uncapped; None when it does not say, or not readably.

    `clock` (Unix seconds) stands in for a Date that is missing or unreadable: the adapters have no clock of their own, and without
    this last resort such a wait would be dropped and the next try come too early.
    """
    sent_at = _moment(headers.get("Date", ""))
    return read_retry_after(headers.get("Retry-After", ""), clock() if sent_at is None else sent_at)


def read_retry_after(value: str, now_seconds: float) -> float | None:
    """Seconds in a Retry-After value: a number as it stands, a date counted from `now_seconds` (Unix time), a past one as 0."""
    value = value.strip()
    if SECONDS.fullmatch(value):
        return float(value)
    moment = _moment(value)
    return None if moment is None else max(moment - now_seconds, 0.0)


def sent_at_ms(headers: Mapping[str, str]) -> int | None:
    """Unix milliseconds of the answer's Date; None without a readable one."""
    sent_at = _moment(headers.get("Date", ""))
    return None if sent_at is None else round(sent_at * 1000)


def _moment(text: str) -> float | None:
    """Unix seconds of an HTTP date in any of its three forms; one without a zone is UTC."""
    try:
        moment: datetime = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
