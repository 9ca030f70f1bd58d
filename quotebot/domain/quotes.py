"""A quote and the decisions about it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.domain.pricing import Pricing


class QuoteState(StrEnum):
    """Where a quote is in its life (SPEC 9). The arrows are in lifecycle.py."""

    DRAFT = "draft"
    VALIDATED = "validated"
    PRICED = "priced"
    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    REJECTED = "rejected"
    FINALIZED = "finalized"
    SENT = "sent"
    ACCEPTED = "accepted"
    LOST = "lost"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ApprovalState(StrEnum):
    """Where one approval request is."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Approval:
    """One request for approval of one quote version. Times are Unix milliseconds, UTC.

    `required_roles` holds every role that must say yes (this release: exactly one decision by someone who holds the highest
    commercial role asked for, or a higher one). `reasons` are the policy hits in words. An automatic approval has no roles.
    """

    approval_id: str  # "A-2026-0042-v1-1": quote number, version, running number
    quote_id: str
    quote_version: int
    required_roles: tuple[str, ...]
    reasons: tuple[str, ...]
    state: ApprovalState
    requested_by: str  # Slack user id
    requested_at: int
    decided_by: str | None = None
    decided_role: str | None = None  # the approver's role at the time
    decided_at: int | None = None
    decision_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """The head version of one quote. Times are Unix milliseconds, UTC; users, teams and channels are Slack ids."""

    quote_id: str  # "Q-2026-0042"
    version: int  # 1-based
    state: QuoteState
    account: str
    requester: str
    team_id: str
    channel: str  # where its card lives
    created_at: int
    valid_until: int
    pricing: Pricing
    approval: Approval | None = None  # the latest request for this version
    thread_ts: str | None = None  # ts of the status card, the thread's root; None until Slack answered
