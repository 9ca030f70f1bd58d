"""What can be asked of the bot's own surface in Slack: to show somebody their home. It changes nothing about any quote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShowHome:
    """Publish `user`'s App Home as it is `after_ms` milliseconds later: a click on it first has to come true."""

    kind: ClassVar[str] = "home.show"
    schema: ClassVar[int] = 1
    user: str
    after_ms: int = 0

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "user": self.user, "after_ms": self.after_ms}

    @classmethod
    def parse(cls, stored: Stored) -> ShowHome:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["user"]), int(stored["after_ms"]))

    @property
    def aggregate_id(self) -> str:
        """Return what it is about: one home per person."""
        return f"home:{self.user}"
