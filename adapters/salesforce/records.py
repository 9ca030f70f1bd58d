"""What Salesforce tells, as plain values: light to import for whoever only keeps or shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class OpenOpportunity:
    """One that may be chosen. `closes` is a date (YYYY-MM-DD); `currency` is ISO 4217, empty where the org has only one."""

    record_id: str
    account_id: str
    name: str
    stage: str
    closes: str
    currency: str


@dataclass(frozen=True, slots=True)
class HeldOpportunity:
    """What Salesforce holds of one now. None is what it does not say."""

    record_id: str
    account_id: str | None
    closed: bool
    currency: str | None
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class Position:
    """How far an object was read: up to this record. `modstamp` is as Salesforce writes it; both are empty before the first."""

    modstamp: str = ""
    record_id: str = ""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One record. `account_id` is empty where it has none; `facts` hold text, numbers as text, and whether, by our names."""

    record_id: str
    name: str
    account_id: str
    facts: Mapping[str, str | bool]


@dataclass(frozen=True, slots=True)
class MirrorPage:
    """What changed after a position, the ids of what was deleted, and how far that goes; `more`: the page was full."""

    kept: tuple[Mirrored, ...]
    deleted: tuple[str, ...]
    position: Position
    more: bool
