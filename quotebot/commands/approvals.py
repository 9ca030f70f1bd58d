"""Payloads of approval commands other than the decision: delegations, and the scheduler's steps for one slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quotebot.commands.payload import Stored, StoredPayload


def _with_begin(stored: Stored) -> Stored:
    """Upgrade to schema 2, which may name when an absence begins, and why."""
    return {**stored, "v": 2, "since": None, "reason": None}


@dataclass(frozen=True, slots=True)
class DelegateApprovals(StoredPayload):
    """Delegation of decisions from `absent` to `delegate` before `until` (Unix ms); a delegate of None ends it.

    `since` (Unix ms) is the start of the absence; None is the time when the command was received.
    """

    kind: ClassVar[str] = "approval.delegate"
    schema: ClassVar[int] = 2
    names: ClassVar = {"absent": "from", "delegate": "to"}
    upcasters: ClassVar = {1: _with_begin}
    absent: str
    delegate: str | None
    until: int
    since: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _SlotCommand(StoredPayload):
    """Command of the scheduler about one slot of one approval request."""

    kind: ClassVar[str]
    approval_id: str
    slot: int


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
