"""What can be asked about an approval beyond its decision: who stands in for whom, and the scheduler's steps about one slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DelegateApprovals:
    """Let `delegate` decide instead of `absent` before `until` (Unix ms); without a delegate the absent person is back.

    `since` (Unix ms) is when the absence begins, None: when the command came.
    """

    kind: ClassVar[str] = "approval.delegate"
    schema: ClassVar[int] = 2
    absent: str
    delegate: str | None
    until: int
    since: int | None = None
    reason: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        period = {"since": self.since, "until": self.until}
        return {"v": self.schema, "from": self.absent, "to": self.delegate, **period, "reason": self.reason}

    @classmethod
    def parse(cls, stored: Stored) -> DelegateApprovals:
        """Rebuild from the canonical form of this schema version."""
        delegate, since, reason = stored["to"], stored["since"], stored["reason"]
        return cls(
            absent=str(stored["from"]),
            delegate=None if delegate is None else str(delegate),
            until=int(stored["until"]),
            since=None if since is None else int(since),
            reason=None if reason is None else str(reason),
        )


@dataclass(frozen=True, slots=True)
class _SlotCommand:
    """A command of the scheduler about one slot of one approval request."""

    kind: ClassVar[str]
    schema: ClassVar[int] = 1
    approval_id: str
    slot: int

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "approval_id": self.approval_id, "slot": self.slot}

    @classmethod
    def parse(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this schema version."""
        return cls(approval_id=str(stored["approval_id"]), slot=int(stored["slot"]))


@dataclass(frozen=True, slots=True)
class RemindApprover(_SlotCommand):
    """Remind whom a slot asks."""

    kind: ClassVar[str] = "approval.remind"


@dataclass(frozen=True, slots=True)
class EscalateApproval(_SlotCommand):
    """Ask an equal or higher authority too."""

    kind: ClassVar[str] = "approval.escalate"


@dataclass(frozen=True, slots=True)
class ExpireApproval(_SlotCommand):
    """End a request that nobody decided in time."""

    kind: ClassVar[str] = "approval.expire"


SlotCommand = RemindApprover | EscalateApproval | ExpireApproval
