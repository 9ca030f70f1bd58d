"""A quote and the decisions about it, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotebot.domain.approvals.slots import Slot
    from quotebot.domain.pricing.engine import Pricing


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
    CHANGES_REQUESTED = "changes_requested"  # not as it is: the quote is a draft again
    EXPIRED = "expired"  # nobody decided in time; it has to be asked for again
    INVALIDATED = "invalidated"  # the quote was changed, or ended, while it was asked for


@dataclass(frozen=True, slots=True)
class Approval:
    """One request for approval of one quote version. Times are Unix milliseconds, UTC.

    `required_roles` holds every role that must say yes, `slots` where each of these yeses is: the request is approved when all are
    given, and over when one is refused. `reasons` are the policy hits in words. An automatic approval has neither roles nor slots.
    `decided_by` is whoever took the last decision.
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
    slots: tuple[Slot, ...] = ()
    earlier: str | None = None  # the approval whose decisions still hold, so that nobody was asked again


@dataclass(frozen=True, slots=True)
class Freezing:
    """Who finalized a version, and when."""

    frozen_by: str
    frozen_at: int


@dataclass(frozen=True, slots=True)
class Sending:
    """That one version was sent: to whom, as a person wrote it, and who says so. Quotebot itself mails nobody."""

    recipient: str
    sent_by: str
    sent_at: int


@dataclass(frozen=True, slots=True)
class Closing:
    """How a quote ended: who recorded it, and why. A lost quote has a reason, the others may have one."""

    reason: str | None
    closed_by: str
    closed_at: int


@dataclass(frozen=True, slots=True)
class Quote:
    """One version of one quote, as a rule its head. Times are Unix milliseconds, UTC; users, teams and channels are Slack ids."""

    quote_id: str  # "Q-2026-0042"
    version: int  # 1-based
    state: QuoteState
    account: str
    requester: str
    team_id: str
    channel: str  # where it was made
    created_at: int
    valid_until: int
    pricing: Pricing
    approval: Approval | None = None  # the latest request for this version
    requester_name: str = ""  # as Slack named them at the time; for the customer's document
    thread_ts: str | None = None  # ts of the status card, the thread's root; None until Slack answered
    revised_by: str | None = None  # who made this version of the one before it; None for the first
    revised_at: int | None = None
    earlier_makers: tuple[str, ...] = ()  # of versions before this one, back to the last that people approved; of a clone's source
    frozen: Freezing | None = None  # of this version: who finalized it
    sent: Sending | None = None  # likewise
    closing: Closing | None = None
    superseded: bool = False  # there is a newer version; `state` is the one this version ended in
    opportunity: ChosenOpportunity | None = None  # in the CRM; of all versions
    card_channel: str | None = None  # the direct-message channel of its card, where that is not in `channel`

    @property
    def makers(self) -> tuple[str, ...]:
        """The requester and everybody who made a version since people last approved one: they do not approve the quote."""
        return tuple(dict.fromkeys((*self.authors, *self.earlier_makers)))

    @property
    def authors(self) -> tuple[str, ...]:
        """The requester and the maker of this version."""
        return (self.requester,) if self.revised_by in (None, self.requester) else (self.requester, str(self.revised_by))

    @property
    def approved_by_people(self) -> bool:
        """True when people approved this version; an automatic approval, and one that rests on an earlier one, are none."""
        found = self.approval
        return found is not None and found.state is ApprovalState.APPROVED and bool(found.slots) and found.earlier is None

    @property
    def place(self) -> str:
        """The channel of its card and thread."""
        return self.channel if self.card_channel is None else self.card_channel

    @property
    def issued_at(self) -> int:
        """When this version was made."""
        return self.created_at if self.revised_at is None else self.revised_at


QUOTE_ID = re.compile(r"Q-[0-9]{4}-[0-9]{4,9}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def quote_id_for(year: int, number: int) -> str:
    """Return "Q-2026-0042"; four digits at least, so that ids sort for the first 9,999 of a year."""
    return f"Q-{year:04d}-{number:04d}"


def approval_id_for(quote_id: str, version: int, running: int, generation: int = 1) -> str:
    """Return "A-2026-0042-v1-1" for the first request about version 1 of Q-2026-0042.

    A ledger that was put back to a backup says its generation in the id: a button of the part that was lost names another request.
    """
    since = "" if generation == 1 else f"-g{generation}"
    return f"A-{quote_id.removeprefix('Q-')}-v{version}{since}-{running}"


def parse_quote_id(text: str) -> str | None:
    """Return the quote id a person typed ("q-2026-0042" too), or None when it is none."""
    candidate = text.strip().upper()
    return candidate if QUOTE_ID.fullmatch(candidate) else None


def title(quote: Quote) -> str:
    """Return "Q-2026-0042", from the second version on "Q-2026-0042 v3"."""
    return quote.quote_id if quote.version == 1 else f"{quote.quote_id} v{quote.version}"


def state_words(state: QuoteState) -> str:
    """Return the state as people read it: "pending approval"."""
    return state.value.replace("_", " ")


def utc_text(unix_ms: int) -> str:
    """Return "21 Nov 2026 10:31 UTC"; own month names, because strftime's depend on the machine's locale."""
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year} {moment.hour:02d}:{moment.minute:02d} UTC"


RECORD_ID: Final = re.compile(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?")


@dataclass(frozen=True, slots=True)
class ChosenOpportunity:
    """Ids of Salesforce (15 or 18 characters): the opportunity, and the account that it belonged to when it was chosen."""

    record_id: str
    account_id: str
