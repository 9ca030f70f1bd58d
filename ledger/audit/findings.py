"""Findings of a verification: the fault and the row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Kind of fault of a row."""

    CHANGED = "changed"  # or moved, or written without the key
    MISSING = "missing"
    UNKNOWN_KEY = "unknown key"
    UNREADABLE = "unreadable"
    ROLLED_BACK = "rolled back"  # the ledger is not the one the anchor was written in


@dataclass(frozen=True, slots=True)
class Finding:
    """The first faulty row: `row` is the id of an event or anchor, the aggregate id of a head, or the anchor id of a line."""

    fault: Fault
    table: str
    row: str
    meaning: str
