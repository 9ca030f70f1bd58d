"""Payloads of approval commands other than the decision: delegations, and the scheduler's steps for one slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DelegateApprovals:
    """Delegation of decisions from `absent` to `delegate` before `until` (Unix ms); a delegate of None ends it.

    `since` (Unix ms) is the start of the absence; None is the time when the command was received.
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
    """Command of the scheduler about one slot of one approval request."""

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
    """Reminder to the approvers that a slot asks."""

    kind: ClassVar[str] = "approval.remind"


@dataclass(frozen=True, slots=True)
class EscalateApproval(_SlotCommand):
    """Escalation of a slot: also ask an equal or higher authority."""

    kind: ClassVar[str] = "approval.escalate"


@dataclass(frozen=True, slots=True)
class ExpireApproval(_SlotCommand):
    """Expiry of a request that no one decided in time."""

    kind: ClassVar[str] = "approval.expire"


SlotCommand = RemindApprover | EscalateApproval | ExpireApproval
