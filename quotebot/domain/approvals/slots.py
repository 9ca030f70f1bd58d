"""The parts of an approval request: each is one yes that has to be given, by one person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SlotState(StrEnum):
    """Where one slot is."""

    WAITING = "waiting"  # for the slots of an earlier stage
    PENDING = "pending"
    ESCALATED = "escalated"  # still open; a wider circle is asked
    APPROVED = "approved"
    REJECTED = "rejected"  # said no; whether for good, the request's state tells
    EXPIRED = "expired"
    CLOSED = "closed"  # the request ended without it


OPEN = frozenset({SlotState.PENDING, SlotState.ESCALATED})
UNDECIDED = OPEN | {SlotState.WAITING}


@dataclass(frozen=True, slots=True)
class Slot:
    """One yes. Times are Unix milliseconds, UTC; people are Slack user ids.

    `roles` is what the policy asks for, any one of them; `asked` is whose holders are asked now, never a lower authority.
    With an `assignee` that very person has to decide (or who stands in for them), until it is escalated.
    """

    number: int  # 1-based in its request
    roles: tuple[str, ...]
    stage: int = 1
    state: SlotState = SlotState.PENDING
    asked: tuple[str, ...] = ()
    assignee: str | None = None
    dual_control: bool = False
    opened_at: int | None = None  # None while it waits
    remind_at: int | None = None
    escalate_at: int | None = None
    expires_at: int | None = None
    reminded_at: int | None = None
    escalated_at: int | None = None
    decided_by: str | None = None
    decided_role: str | None = None  # the role that let them decide
    on_behalf_of: str | None = None  # the absent person they stood in for
    decided_at: int | None = None
    reason: str | None = None

    @property
    def role(self) -> str:
        """Return the roles as people read them: "cfo", "deal_desk or legal"."""
        return " or ".join(self.roles)

    @property
    def is_open(self) -> bool:
        """True while somebody may decide it now."""
        return self.state in OPEN
