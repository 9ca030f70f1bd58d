"""Payloads of commands about Salesforce: sync its changes, and settle a difference. Neither changes a quote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from quotebot.commands.payload import Stored, StoredPayload

CRM_AGGREGATE: Final = "crm"
REASON_CHARACTERS_MAX: Final = 500


def _with_mirrors(stored: Stored) -> Stored:
    """Upgrade to schema 2, which names the mirrored kinds."""
    return {**stored, "v": 2, "mirrors": []}


@dataclass(frozen=True, slots=True)
class SyncCrm(StoredPayload):
    """Sync of the changes in Salesforce since the last sync. The scheduler and operators send it.

    `mirrors` are the kinds that this installation keeps a local copy of; copies of other kinds are deleted.
    """

    kind: ClassVar[str] = "crm.sync"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: _with_mirrors}
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReconcileCrm(StoredPayload):
    """Decision on a difference as the operator saw it, with the value `theirs` in the field. `take` names the value to keep."""

    kind: ClassVar[str] = "crm.reconcile"
    conflict: int
    take: Literal["ours", "theirs"]
    theirs: str
    reason: str


CrmPayload = SyncCrm | ReconcileCrm
