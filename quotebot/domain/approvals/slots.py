"""Slots of an approval request: each is one decision required of one person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SlotState(StrEnum):
    """State of one slot."""

    WAITING = "waiting"  # an earlier stage is undecided
    PENDING = "pending"
    ESCALATED = "escalated"  # still open; a wider circle is asked
    APPROVED = "approved"
    REJECTED = "rejected"  # refused; the request's state says whether for good
    EXPIRED = "expired"
    CLOSED = "closed"  # the request ended without its decision


OPEN = frozenset({SlotState.PENDING, SlotState.ESCALATED})
UNDECIDED = OPEN | {SlotState.WAITING}


@dataclass(frozen=True, slots=True)
class Slot:
    """One required decision. Times are Unix milliseconds, UTC; people are Slack user ids.

    `roles` are the roles the policy requires, any one of them; `asked` are the roles whose holders are asked now, never of lower
    authority. With an `assignee` only that person (or their substitute) may decide, until the slot is escalated.
    """

    number: int  # 1-based in its request
    roles: tuple[str, ...]
    stage: int = 1
    state: SlotState = SlotState.PENDING
    asked: tuple[str, ...] = ()
    assignee: str | None = None
    dual_control: bool = False
    opened_at: int | None = None  # None while waiting
    remind_at: int | None = None
    escalate_at: int | None = None
    expires_at: int | None = None
    reminded_at: int | None = None
    escalated_at: int | None = None
    decided_by: str | None = None
    decided_role: str | None = None  # the role they decided under
    on_behalf_of: str | None = None  # the absent person they substituted for
    decided_at: int | None = None
    reason: str | None = None

    @property
    def role(self) -> str:
        """Display text of the roles: "cfo", "deal_desk or legal"."""
        return " or ".join(self.roles)

    @property
    def is_open(self) -> bool:
        """True while the slot can be decided."""
        return self.state in OPEN
