"""Registry of command kinds: one frozen payload class each. payload.py reads and writes their stored form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from quotebot.commands.approvals import DelegateApprovals, EscalateApproval, ExpireApproval, RemindApprover, SlotCommand
from quotebot.commands.crm import CrmPayload, ReconcileCrm, SyncCrm
from quotebot.commands.extraction import AnswerMessage, ReadingPayload, ReadMessage
from quotebot.commands.lifecycle import (
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    ExpireQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    NoteStaleDraft,
    RefreshCard,
)
from quotebot.commands.operations import (
    ActOnEffect,
    AnnounceDeadLetter,
    DiscardDeadLetter,
    LetterPayload,
    RetryDeadLetter,
    ShowHome,
)
from quotebot.commands.payload import NeedsNewerBuild, Stored, StoredPayload
from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.pricing.price_requests import Changes, PriceRequest, canonical_request, parse_request
from quotebot.domain.quotes.quote import ChosenOpportunity

if TYPE_CHECKING:
    from collections.abc import Mapping

PAYLOAD_BYTES_MAX: Final = 64 * 1024  # of the canonical form; the ledger's table rejects larger ones


def _requested_discount(stored: Stored) -> Stored:
    """Upgrade to schema 2, which separates the requested discount from the authorised maximum."""
    same = {name: value for name, value in stored.items() if name != "discount_percent"}
    return {**same, "v": 2, "requested_discount_percent": stored["discount_percent"]}


@dataclass(frozen=True, slots=True)
class CreateQuote(StoredPayload):
    """Creation of a quote with its price and card in `channel`, for an opportunity in Salesforce if one was chosen."""

    kind: ClassVar[str] = "quote.create"
    schema: ClassVar[int] = 5
    upcasters: ClassVar = {
        1: _requested_discount,
        2: lambda stored: {**stored, "v": 3},  # 3 may name currency, segment, region, day, billing, tax and a line's own options
        3: lambda stored: {**stored, "v": 4},  # 4 may name special terms of the contract
        4: lambda stored: {**stored, "v": 5},  # 5 may name an opportunity in Salesforce
    }
    account: str
    request: PriceRequest
    channel: str
    opportunity: ChosenOpportunity | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        chosen = self.opportunity
        more = {} if chosen is None else {"opportunity": {"id": chosen.record_id, "account_id": chosen.account_id}}
        return {
            "v": self.schema,
            "account": self.account,
            **canonical_request(self.request),
            "channel": self.channel,
            **more,
        }

    @classmethod
    def parse(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this schema version."""
        named = stored.get("opportunity")
        chosen = None if named is None else ChosenOpportunity(str(named["id"]), str(named["account_id"]))
        return cls(str(stored["account"]), parse_request(stored), str(stored["channel"]), chosen)


@dataclass(frozen=True, slots=True)
class CreateAnother(StoredPayload):
    """Confirmed creation of a quote refused as a re-submission, or of a proposed one.

    `token` is the key of that operation; it works once.
    """

    kind: ClassVar[str] = "quote.create_another"
    token: str


@dataclass(frozen=True, slots=True)
class CreateByForm(StoredPayload):
    """Creation of a quote by a form.

    `token`, the id of the form's first view, creates at most one quote, even if the form is sent again with other content.
    """

    kind: ClassVar[str] = "quote.create_by_form"
    token: str
    quote: CreateQuote


def _with_remarks(stored: Stored) -> Stored:
    """Upgrade to schema 2, which adds remarks about free text; also upgrades the contained creation to its current schema."""
    return {**stored, "v": 2, "quote": CreateQuote.from_stored(stored["quote"]).canonical(), "remarks": []}


@dataclass(frozen=True, slots=True)
class ProposeQuote(StoredPayload):
    """Proposal of a quote requested in a message, for its author to confirm. It creates no quote by itself.

    `remarks` list what was inferred if the quote was extracted from free text.
    """

    kind: ClassVar[str] = "quote.propose"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: _with_remarks}
    quote: CreateQuote
    thread_ts: str | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitQuote(StoredPayload):
    """Submission: request the approval that the policy requires."""

    kind: ClassVar[str] = "quote.submit"


@dataclass(frozen=True, slots=True)
class DecideApproval(StoredPayload):
    """Decision on one approval request: approve, reject or send back.

    The latter two need a reason, and so does an approval under dual control.
    """

    kind: ClassVar[str] = "approval.decide"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: lambda stored: {**stored, "v": 2}}  # 2 has a third decision
    approval_id: str
    decision: Literal["approve", "reject", "request_changes"]
    reason: str | None = None


def _with_more_changes(stored: Stored) -> Stored:
    """Upgrade to schema 2, which may change currency, region, tax and special terms."""
    changes = stored["changes"]
    more = {"currency": None, "region": None, "with_tax": None, "terms": None}
    return {**stored, "v": 2, "changes": None if changes is None else {**changes, **more}}


@dataclass(frozen=True, slots=True)
class ReviseQuote(StoredPayload):
    """Revision: new content as a new version, either as changes to the current request or as a complete new request."""

    kind: ClassVar[str] = "quote.revise"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: _with_more_changes}
    changes: Changes | None = None
    request: PriceRequest | None = None


Creation = CreateQuote | CloneQuote  # create a quote whose content the command determines
LifecyclePayload = ReviseQuote | CancelQuote | FinalizeQuote | MarkSent | AcceptQuote | LoseQuote
ScheduledPayload = ExpireQuote | NoteStaleDraft  # sent by the scheduler
ApprovalPayload = SubmitQuote | DecideApproval | SlotCommand  # about the approval of a quote
QuotePayload = ApprovalPayload | LifecyclePayload | ScheduledPayload | RefreshCard | ActOnEffect  # about an existing quote
ApartPayload = DelegateApprovals | ProposeQuote | ReadingPayload | ShowHome | LetterPayload | CrmPayload  # about no quote
Payload = CreateQuote | CreateAnother | CreateByForm | CloneQuote | ApartPayload | QuotePayload

REGISTRY: Final[Mapping[str, type[Payload]]] = {
    payload.kind: payload
    for payload in (
        *(CreateQuote, CreateAnother, CreateByForm, CloneQuote, SubmitQuote, DecideApproval),
        *(ProposeQuote, ReadMessage, AnswerMessage),
        *(ReviseQuote, CancelQuote, FinalizeQuote, MarkSent, AcceptQuote, LoseQuote),
        *(DelegateApprovals, RemindApprover, EscalateApproval, ExpireApproval),
        *(ExpireQuote, NoteStaleDraft),
        *(RefreshCard, ShowHome, ActOnEffect),
        *(AnnounceDeadLetter, RetryDeadLetter, DiscardDeadLetter),
        *(SyncCrm, ReconcileCrm),
    )
}


def parse_stored(kind: str, stored: Stored) -> Payload:
    """Rebuild a command from its stored payload. Pure.

    Raises NeedsNewerBuild for a kind or a schema unknown to this build, ValueError for a schema without an upcaster.
    """
    known = REGISTRY.get(kind)
    if known is None:
        raise NeedsNewerBuild(kind, stored.get("v"))
    return known.from_stored(stored)


@dataclass(frozen=True, slots=True)
class Command:
    """Normalised command: author, payload, aggregate with the version seen, and the source's request id.

    `aggregate_version` is the version that the user saw (0 for a creation, None for a typed command, which names none).
    `fingerprint` covers the raw semantic input, independent of any payload schema. `received_at` is Unix milliseconds.
    """

    source: Literal["slack_slash", "slack_interactive", "slack_event", "cli", "scheduler", "effect"]
    source_request_id: str
    aggregate_id: str
    aggregate_version: int | None
    payload: Payload
    actor: str
    actor_type: Literal["user", "operator", "system"]
    fingerprint: str
    received_at: int
    actor_name: str = ""
    response_url: str | None = None
