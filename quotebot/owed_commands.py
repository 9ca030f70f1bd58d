"""What can be asked about something that a quote still owes to the outside: to try it at once, or not to do it at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Deed = Literal["retry", "cancel"]
_DEEDS: Mapping[str, Deed] = {"retry": "retry", "cancel": "cancel"}


@dataclass(frozen=True, slots=True)
class SteerEffect:
    """Try what waits for its next try at once, or cancel it, as the card showed it: in that `cycle`."""

    kind: ClassVar[str] = "effect.steer"
    schema: ClassVar[int] = 1
    deed: Deed
    effect_id: int
    cycle: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "deed": self.deed, "effect": self.effect_id, "cycle": self.cycle}

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> SteerEffect:
        """Rebuild from the canonical form of this schema version. Raises KeyError for a deed it does not have."""
        return cls(_DEEDS[stored["deed"]], int(stored["effect"]), int(stored["cycle"]))
