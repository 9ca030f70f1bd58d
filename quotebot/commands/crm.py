"""Payloads of commands about Salesforce: sync its changes, and settle a difference. Neither changes a quote."""

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
    """Sync of the changes in Salesforce since the last sync. The scheduler and operators send it.

    `mirrors` are the kinds that this installation keeps a local copy of; copies of other kinds are deleted.
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
    """Decision on a difference as the operator saw it, with the value `theirs` in the field. `take` names the value to keep."""

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
        """Rebuild from the canonical form of this schema version. Raises ValueError for an unknown `take`."""
        take = stored["take"]
        if take not in ("ours", "theirs"):
            raise ValueError(f"unknown choice {take!r}")
        return cls(int(stored["conflict"]), "ours" if take == "ours" else "theirs", str(stored["theirs"]), str(stored["reason"]))


CrmPayload = SyncCrm | ReconcileCrm
