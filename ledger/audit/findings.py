"""Findings of a verification: the fault and the row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What is wrong with a row."""

    CHANGED = "changed"  # or moved, or written by somebody without the key
    MISSING = "missing"
    UNKNOWN_KEY = "unknown key"
    UNREADABLE = "unreadable"
    ROLLED_BACK = "rolled back"  # the ledger is not the one that the anchor was written in


@dataclass(frozen=True, slots=True)
class Finding:
    """The first bad row: `row` is an event's or anchor's id, a head's aggregate id, or a line's anchor id."""

    fault: Fault
    table: str
    row: str
    meaning: str
