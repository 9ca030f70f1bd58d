"""From which day to which day something holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.domain.catalogue.reader import Table

VALIDITY_KEYS = ("valid_from", "valid_until")


@dataclass(frozen=True, slots=True)
class Validity:
    """Both days belong to it; None: without end on that side."""

    valid_from: date | None = None
    valid_until: date | None = None

    def covers(self, day: date | None) -> bool:
        """Tell whether it holds on `day`. A request without a day is answered by what holds always, never by a guess."""
        if day is None:
            return self.valid_from is None and self.valid_until is None
        return (self.valid_from is None or self.valid_from <= day) and (self.valid_until is None or day <= self.valid_until)

    def overlaps(self, other: Validity) -> bool:
        """Tell whether some day belongs to both."""
        return (self.valid_from or date.min) <= (other.valid_until or date.max) and (other.valid_from or date.min) <= (
            self.valid_until or date.max
        )

    def document(self) -> dict[str, object]:
        """Return it as it stands in a document; what is None is left out."""
        days = {"valid_from": self.valid_from, "valid_until": self.valid_until}
        return {name: day.isoformat() for name, day in days.items() if day is not None}


ALWAYS = Validity()


def read_validity(table: Table) -> Validity:
    """Read `valid_from` and `valid_until` of a table."""
    validity = Validity(table.day("valid_from"), table.day("valid_until"))
    if not validity.overlaps(validity):
        table.report("valid_until is before valid_from", "swap the two days", "valid_until")
    return validity
