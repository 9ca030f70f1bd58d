"""Validity periods, in days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.domain.catalogue.reader import Table

VALIDITY_KEYS = ("valid_from", "valid_until")


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity period that includes both days; None leaves that side open."""

    valid_from: date | None = None
    valid_until: date | None = None

    def covers(self, day: date | None) -> bool:
        """Return whether the period includes `day`. Without a day only an unlimited period matches."""
        if day is None:
            return self.valid_from is None and self.valid_until is None
        return (self.valid_from is None or self.valid_from <= day) and (self.valid_until is None or day <= self.valid_until)

    def overlaps(self, other: Validity) -> bool:
        """Return whether the two periods share a day."""
        return (self.valid_from or date.min) <= (other.valid_until or date.max) and (other.valid_from or date.min) <= (
            self.valid_until or date.max
        )

    def document(self) -> dict[str, object]:
        """Return the period in the form of a ruleset document, without open sides."""
        days = {"valid_from": self.valid_from, "valid_until": self.valid_until}
        return {name: day.isoformat() for name, day in days.items() if day is not None}


ALWAYS = Validity()


def read_validity(table: Table) -> Validity:
    """Read `valid_from` and `valid_until` of a table."""
    validity = Validity(table.day("valid_from"), table.day("valid_until"))
    if not validity.overlaps(validity):
        table.report("valid_until is before valid_from", "swap the two days", "valid_until")
    return validity
