"""Plain values read from and written to Salesforce, cheap to import for modules that only store or show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class CrmDocument:
    """A file of a quote's record. `key` is its identity in Salesforce: the same key is never attached twice."""

    key: str
    title: str
    file_name: str
    record_id: str
    content: bytes


@dataclass(frozen=True, slots=True)
class OpenOpportunity:
    """Opportunity that may be chosen. `closes` is a date (YYYY-MM-DD); `currency` is ISO 4217, empty if the org has only one."""

    record_id: str
    account_id: str
    name: str
    stage: str
    closes: str
    currency: str


@dataclass(frozen=True, slots=True)
class HeldOpportunity:
    """Current state of an opportunity in Salesforce. None marks an unknown value; `values` has the other fields read."""

    record_id: str
    account_id: str | None
    closed: bool
    currency: str | None
    amount: Decimal | None
    values: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Position:
    """Position of the last record read from an object. `modstamp` is in Salesforce's format; both are empty before the first."""

    modstamp: str = ""
    record_id: str = ""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One copied record. `account_id` is empty if it has none; `facts` hold text, numbers as text, and booleans, by our names."""

    record_id: str
    name: str
    account_id: str
    facts: Mapping[str, str | bool]


@dataclass(frozen=True, slots=True)
class MirrorPage:
    """Records changed after a position, the ids of deleted records, and the new position; `more` is true if the page was full."""

    kept: tuple[Mirrored, ...]
    deleted: tuple[str, ...]
    position: Position
    more: bool
