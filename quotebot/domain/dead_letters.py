"""Card of a dead letter in the operators' channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Decision = Literal["retried", "discarded"]


@dataclass(frozen=True, slots=True)
class DeadLetterCard:
    """One card. `post_key` is the effect that posts it; `decided_at` is Unix milliseconds."""

    reference: str
    channel: str
    post_key: str
    ts: str | None
    decision: Decision | None
    decided_by: str | None
    decided_at: int | None
    reason: str | None
