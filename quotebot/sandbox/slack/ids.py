"""Identifiers in Slack's shapes. Random, so that two worlds never give a bot's ledger the same request twice."""

from __future__ import annotations

import secrets
import time


def new_id(prefix: str) -> str:
    """Return an object id such as F3K9..., upper-case."""
    return f"{prefix}{secrets.token_hex(5).upper()}"


def short_id() -> str:
    """Return an id such as Slack gives to a block without a block_id."""
    return secrets.token_urlsafe(4)[:5]


class Timestamps:
    """Strictly increasing message timestamps, `seconds.microseconds`."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> str:
        """Return now, or one microsecond after the last one given, whichever is later."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"
