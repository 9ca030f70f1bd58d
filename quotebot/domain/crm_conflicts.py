"""A field of a record in the CRM that a person there changed and we may not overwrite: who decides, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Difference:
    """What was found: what `field` (Quote.Status) of a version's record holds, and what we would have there."""

    quote_id: str
    version: int
    record_id: str
    field: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """One row of the reconcile queue. Times are Unix milliseconds."""

    id: int
    difference: Difference
    found_at: int
    state: Literal["open", "ours", "theirs", "over"]
    decided_by: str | None
    decided_at: int | None
    reason: str | None
