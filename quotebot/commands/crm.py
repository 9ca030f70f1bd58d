"""What can be asked about Salesforce itself: to see what changed there, and to settle a difference. Neither changes a quote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]

CRM_AGGREGATE: Final = "crm"
REASON_CHARACTERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class SyncCrm:
    """Read what changed in Salesforce since it was read last. The scheduler asks for it, and operators.

    `mirrors` are the kinds that this installation keeps a copy of; any other copy is forgotten.
    """

    kind: ClassVar[str] = "crm.sync"
    schema: ClassVar[int] = 2
    mirrors: tuple[str, ...] = ()

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "mirrors": list(self.mirrors)}

    @classmethod
    def parse(cls, stored: Stored) -> SyncCrm:
        """Rebuild from the canonical form of this schema version."""
        return cls(tuple(str(kind) for kind in stored["mirrors"]))


@dataclass(frozen=True, slots=True)
class ReconcileCrm:
    """Settle a difference as the operator saw it: with `theirs` in the field. `take` says whose value it shall have."""

    kind: ClassVar[str] = "crm.reconcile"
    schema: ClassVar[int] = 1
    conflict: int
    take: Literal["ours", "theirs"]
    theirs: str
    reason: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        said = {"conflict": self.conflict, "take": self.take, "theirs": self.theirs, "reason": self.reason}
        return {"v": self.schema, **said}

    @classmethod
    def parse(cls, stored: Stored) -> ReconcileCrm:
        """Rebuild from the canonical form of this schema version. Raises ValueError for a choice that is none."""
        take = stored["take"]
        if take not in ("ours", "theirs"):
            raise ValueError(f"unknown choice {take!r}")
        return cls(int(stored["conflict"]), "ours" if take == "ours" else "theirs", str(stored["theirs"]), str(stored["reason"]))


CrmPayload = SyncCrm | ReconcileCrm
