"""Quotes and the decisions about them, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quotebot.domain.approvals.roles import PACKAGED, Roles
from quotebot.domain.language import N_, _, day_text
from quotebot.domain.schedule.schedules import zone_of

if TYPE_CHECKING:
    from decimal import Decimal

    from quotebot.domain.approvals.policy import Timing
    from quotebot.domain.pricing.engine import Pricing


class QuoteState(StrEnum):
    """State of a quote (SPEC 9). The transitions are in lifecycle.py."""

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


class ApprovalState(StrEnum):
    """State of one approval request."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    CHANGES_REQUESTED = "changes_requested"  # refused in this form: the quote is a draft again
    EXPIRED = "expired"  # not decided in time; a new request is needed
    INVALIDATED = "invalidated"  # the quote changed or ended while the request was pending


@dataclass(frozen=True, slots=True)
class PolicyStamp:
    """Policy that a request was made under: name and version, the active ruleset's hash, the deadlines of its slots, and roles."""

    label: str
    ruleset_hash: str
    timing: Timing
    roles: Roles = PACKAGED


@dataclass(frozen=True, slots=True)
class Approval:
    """One request for approval of one quote version. Times are Unix milliseconds, UTC.

    `required_roles` holds every role that must approve, `slots` the state of each of these decisions: the request is approved when
    all slots are, and ends when one is refused. `reasons` are the policy hits in words. An automatic approval has neither roles
    nor slots. `decided_by` made the last decision.
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
    earlier: str | None = None  # the earlier approval that was reused
    policy: PolicyStamp | None = None  # None for requests of earlier builds
    note: str | None = None  # to the approvers, of a version that was submitted again as it is

    @property
    def roles(self) -> Roles:
        """Roles of the policy that the request was made under."""
        return PACKAGED if self.policy is None else self.policy.roles

    @property
    def asked_at(self) -> int:
        """Time at which the people who are asked now were asked first."""
        return min(
            (slot.opened_at for slot in self.slots if slot.is_open and slot.opened_at is not None), default=self.requested_at
        )

    @property
    def due_at(self) -> int | None:
        """Time at which the request expires unless they decide; None if nobody has to decide, or if it does not expire."""
        return min((slot.expires_at for slot in self.slots if slot.is_open and slot.expires_at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Freezing:
    """Finalization of a version: by whom and when."""

    frozen_by: str
    frozen_at: int


@dataclass(frozen=True, slots=True)
class Sending:
    """Record that one version was sent: the recipient as typed, and the person who reported it. Quotebot itself sends no mail."""

    recipient: str
    sent_by: str
    sent_at: int


@dataclass(frozen=True, slots=True)
class Closing:
    """End of a quote: the recorder and the reason, which is mandatory for a lost quote and optional otherwise."""

    reason: str | None
    closed_by: str
    closed_at: int


# Reasons of losses that are counted. A recorded reason begins with one of these words, in English, and a colon if text follows.
LOSS_CATEGORIES: Final = {
    "price": N_("Price"),
    "competitor": N_("Competitor"),
    "timing": N_("Timing"),
    "no_decision": N_("No decision"),
    "other": N_("Other"),
}


def loss_category(reason: str | None) -> str | None:
    """Return the category that a reason begins with: "price" for "Price: 20 % too high"; None without one."""
    name = (reason or "").partition(":")[0].strip().casefold().replace(" ", "_")
    return name if name in LOSS_CATEGORIES else None


def reason_words(reason: str) -> str:
    """Return a reason as people read it: its category in their language."""
    head, colon, details = reason.partition(":")
    return f"{_(head)}{colon}{details}" if head in LOSS_CATEGORIES.values() else reason


@dataclass(frozen=True, slots=True)
class Quote:
    """One version of one quote, usually its head. Times are Unix milliseconds, UTC; users, teams and channels are Slack ids."""

    quote_id: str  # "Q-2026-0042"
    version: int  # 1-based
    state: QuoteState
    account: str
    requester: str
    team_id: str
    channel: str  # the channel it was created in
    created_at: int
    valid_until: int
    pricing: Pricing
    approval: Approval | None = None  # the latest request for this version
    requester_name: str = ""  # name in Slack at the time, for the customer's document
    thread_ts: str | None = None  # ts of the status card, the thread's root; None until Slack has confirmed it
    revised_by: str | None = None  # author of this revision; None for the first version
    revised_at: int | None = None
    earlier_makers: tuple[str, ...] = ()  # of earlier versions, back to the last one that people approved, and of a clone's source
    frozen: Freezing | None = None  # finalization of this version
    sent: Sending | None = None  # of this version
    closing: Closing | None = None
    superseded: bool = False  # a newer version exists; `state` is this version's last state
    opportunity: ChosenOpportunity | None = None  # in the CRM; shared by all versions
    card_channel: str | None = None  # the direct-message channel of its card, if not in `channel`

    @property
    def makers(self) -> tuple[str, ...]:
        """Requester and all authors of versions since people last approved one; they may not approve the quote."""
        return tuple(dict.fromkeys((*self.authors, *self.earlier_makers)))

    @property
    def authors(self) -> tuple[str, ...]:
        """Requester and author of this version."""
        return (self.requester,) if self.revised_by in (None, self.requester) else (self.requester, str(self.revised_by))

    @property
    def crm_account(self) -> str | None:
        """Id of the chosen opportunity's account in the CRM."""
        return None if self.opportunity is None else self.opportunity.account_id

    @property
    def approved_by_people(self) -> bool:
        """True if people approved this version; automatic and reused approvals do not count."""
        found = self.approval
        return found is not None and found.state is ApprovalState.APPROVED and bool(found.slots) and found.earlier is None

    @property
    def sent_back(self) -> bool:
        """True if an approver asked for changes: edit it, or submit the same version again with a note."""
        found = self.approval
        return self.state is QuoteState.DRAFT and found is not None and found.state is ApprovalState.CHANGES_REQUESTED

    @property
    def place(self) -> str:
        """Channel of its card and thread."""
        return self.channel if self.card_channel is None else self.card_channel

    @property
    def issued_at(self) -> int:
        """Creation time of this version (Unix ms)."""
        return self.created_at if self.revised_at is None else self.revised_at


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a list: the head version of one quote. Times are Unix milliseconds."""

    quote_id: str
    version: int
    state: QuoteState
    account: str
    requester: str
    requester_name: str
    created_at: int
    valid_until: int
    net_total: Decimal
    currency: str
    team_id: str = ""
    channel: str = ""  # the channel where it was made
    outlined: bool = False  # the reader may not see its customer and total


QUOTE_ID = re.compile(r"Q-[0-9]{4}-[0-9]{4,9}")
_LOCAL_TIME: Final = re.compile(r"<!date\^[0-9]+\^[^|<>]*\|([^<>]*)>")
STATE_WORDS: Final = {
    QuoteState.DRAFT: N_("changes requested"),
    QuoteState.VALIDATED: N_("validated"),
    QuoteState.PRICED: N_("draft"),
    QuoteState.PENDING_APPROVAL: N_("waiting for approval"),
    QuoteState.APPROVED: N_("approved"),
    QuoteState.REJECTED: N_("rejected"),
    QuoteState.FINALIZED: N_("ready to send"),
    QuoteState.SENT: N_("sent to customer"),
    QuoteState.ACCEPTED: N_("won"),
    QuoteState.LOST: N_("lost"),
    QuoteState.CANCELLED: N_("canceled"),
    QuoteState.EXPIRED: N_("expired"),
}


def quote_id_for(year: int, number: int) -> str:
    """Return "Q-2026-0042"; four digits at least, so that ids sort for the first 9,999 of a year."""
    return f"Q-{year:04d}-{number:04d}"


def approval_id_for(quote_id: str, version: int, running: int, generation: int = 1) -> str:
    """Return "A-2026-0042-v1-1" for the first request about version 1 of Q-2026-0042.

    After a restore the id includes the ledger's generation, so that buttons from the lost part never name a new request.
    """
    since = "" if generation == 1 else f"-g{generation}"
    return f"A-{quote_id.removeprefix('Q-')}-v{version}{since}-{running}"


def parse_quote_id(text: str) -> str | None:
    """Return the quote id in a typed text ("q-2026-0042" too), or None if it is not one."""
    candidate = text.strip().upper()
    return candidate if QUOTE_ID.fullmatch(candidate) else None


def title(quote: Quote | Listed) -> str:
    """Return "Q-2026-0042", from the second version on "Q-2026-0042 v3"."""
    return quote.quote_id if quote.version == 1 else f"{quote.quote_id} v{quote.version}"


def state_words(state: QuoteState) -> str:
    """Return the state as people read it: "waiting for approval". Its id stays in filters and data."""
    return _(STATE_WORDS[state])


def utc_text(unix_ms: int) -> str:
    """Return "21 Nov 2026, 10:31 UTC"."""
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=UTC)
    return f"{day_text(moment)}, {moment.hour:02d}:{moment.minute:02d} UTC"


def local_time(unix_ms: int) -> str:
    """Return a time for mrkdwn. Slack shows it in the reader's zone and language, as "today at 9:41 PM" where it can."""
    shown = _("{day} at {time}", day="{date_short_pretty}", time="{time}")
    return f"<!date^{unix_ms // 1000}^{shown}|{utc_text(unix_ms)}>"


def local_day(unix_ms: int, zone: str = "UTC") -> str:
    """Return a day for mrkdwn, as `local_time` does. Where no mrkdwn is shown, it is the day in `zone`, an IANA name."""
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=zone_of(zone))
    return f"<!date^{unix_ms // 1000}^{{date_short_pretty}}|{day_text(moment)}>"


def local_age(unix_ms: int) -> str:
    """Return the age of a time for mrkdwn, "2 hours ago", which Slack keeps right. Elsewhere it is the time in UTC."""
    return f"<!date^{unix_ms // 1000}^{{ago}}|{utc_text(unix_ms)}>"


def plain_times(text: str) -> str:
    """Return a text with each time of `local_time` in UTC and each day of `local_day`, for places that show no mrkdwn."""
    return _LOCAL_TIME.sub(r"\1", text)


RECORD_ID: Final = re.compile(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?")


@dataclass(frozen=True, slots=True)
class ChosenOpportunity:
    """Salesforce ids (15 or 18 characters) of the chosen opportunity and of its account at the time of the choice."""

    record_id: str
    account_id: str
