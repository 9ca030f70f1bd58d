"""Registry of commands: one frozen payload per kind, with its schema version and canonical form.

A payload's canonical form is JSON-ready (strings, whole numbers, lists, no floats) and carries its schema version `v`, so that the
hash of a command never depends on key order, whitespace, aliases or transport.

A stored payload is never rewritten. `parse_stored` reads the current schema and, through one pure upcaster per step, older ones: a
command reserved before a deploy is executed after it. A command that a newer build recorded waits for that build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

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
from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.pricing.price_requests import canonical_request, parse_request
from quotebot.domain.quotes.changes import Changes, LineChange
from quotebot.domain.quotes.quote import ChosenOpportunity

if TYPE_CHECKING:
    from quotebot.domain.pricing.price_requests import PriceRequest

PAYLOAD_BYTES_MAX: Final = 64 * 1024  # of the canonical form; the ledger's table rejects larger ones

Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateQuote:
    """Creation of a quote with its price and card in `channel`, for an opportunity in Salesforce if one was chosen."""

    kind: ClassVar[str] = "quote.create"
    schema: ClassVar[int] = 5
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
    def parse(cls, stored: Stored) -> CreateQuote:
        """Rebuild from the canonical form of this schema version."""
        named = stored.get("opportunity")
        chosen = None if named is None else ChosenOpportunity(str(named["id"]), str(named["account_id"]))
        return cls(str(stored["account"]), parse_request(stored), str(stored["channel"]), chosen)


@dataclass(frozen=True, slots=True)
class CreateAnother:
    """Confirmed creation of a quote refused as a re-submission, or of a proposed one.

    `token` is the key of that operation; it works once.
    """

    kind: ClassVar[str] = "quote.create_another"
    schema: ClassVar[int] = 1
    token: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "token": self.token}

    @classmethod
    def parse(cls, stored: Stored) -> CreateAnother:
        """Rebuild from the canonical form of this schema version."""
        return cls(token=str(stored["token"]))


@dataclass(frozen=True, slots=True)
class CreateByForm:
    """Creation of a quote by a form.

    `token`, the id of the form's first view, creates at most one quote, even if the form is sent again with other content.
    """

    kind: ClassVar[str] = "quote.create_by_form"
    schema: ClassVar[int] = 1
    token: str
    quote: CreateQuote

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed; the creation in it keeps its own schema version."""
        return {"v": self.schema, "token": self.token, "quote": self.quote.canonical()}

    @classmethod
    def parse(cls, stored: Stored) -> CreateByForm:
        """Rebuild from the canonical form of this schema version. Raises as `parse_stored` does for the creation in it."""
        quote = parse_stored(CreateQuote.kind, stored["quote"])
        assert isinstance(quote, CreateQuote)  # noqa: S101 -- asked for by its kind
        return cls(str(stored["token"]), quote)


@dataclass(frozen=True, slots=True)
class ProposeQuote:
    """Proposal of a quote requested in a message, for its author to confirm. It creates no quote by itself.

    `remarks` list what was inferred if the quote was extracted from free text.
    """

    kind: ClassVar[str] = "quote.propose"
    schema: ClassVar[int] = 2
    quote: CreateQuote
    thread_ts: str | None = None
    remarks: tuple[Remark, ...] = ()

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed; the creation in it keeps its own schema version."""
        remarks = [[remark.code, remark.excerpt, remark.meaning] for remark in self.remarks]
        return {"v": self.schema, "quote": self.quote.canonical(), "thread_ts": self.thread_ts, "remarks": remarks}

    @classmethod
    def parse(cls, stored: Stored) -> ProposeQuote:
        """Rebuild from the canonical form of this schema version. Raises as `parse_stored` does for the creation in it."""
        quote, thread_ts = parse_stored(CreateQuote.kind, stored["quote"]), stored["thread_ts"]
        assert isinstance(quote, CreateQuote)  # noqa: S101 -- asked for by its kind
        remarks = tuple(Remark(*map(str, remark)) for remark in stored["remarks"])
        return cls(quote, None if thread_ts is None else str(thread_ts), remarks)


@dataclass(frozen=True, slots=True)
class SubmitQuote:
    """Submission: request the approval that the policy requires."""

    kind: ClassVar[str] = "quote.submit"
    schema: ClassVar[int] = 1

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema}

    @classmethod
    def parse(cls, stored: Stored) -> SubmitQuote:
        """Rebuild from the canonical form of this schema version."""
        del stored
        return cls()


@dataclass(frozen=True, slots=True)
class DecideApproval:
    """Decision on one approval request: approve, reject or send back.

    The latter two need a reason, and so does an approval under dual control.
    """

    kind: ClassVar[str] = "approval.decide"
    schema: ClassVar[int] = 2
    approval_id: str
    decision: Literal["approve", "reject", "request_changes"]
    reason: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "approval_id": self.approval_id, "decision": self.decision, "reason": self.reason}

    @classmethod
    def parse(cls, stored: Stored) -> DecideApproval:
        """Rebuild from the canonical form of this schema version."""
        decision = stored["decision"]
        if decision not in _DECISIONS:
            raise ValueError(f"unknown decision {decision!r}")
        reason = stored.get("reason")
        return cls(
            approval_id=str(stored["approval_id"]),
            decision=_DECISIONS[decision],
            reason=None if reason is None else str(reason),
        )


_DECISIONS: Final[Mapping[str, Literal["approve", "reject", "request_changes"]]] = {
    "approve": "approve",
    "reject": "reject",
    "request_changes": "request_changes",
}


@dataclass(frozen=True, slots=True)
class ReviseQuote:
    """Revision: new content as a new version, either as changes to the current request or as a complete new request."""

    kind: ClassVar[str] = "quote.revise"
    schema: ClassVar[int] = 2
    changes: Changes | None = None
    request: PriceRequest | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {
            "v": self.schema,
            "changes": None if self.changes is None else _canonical_changes(self.changes),
            "request": None if self.request is None else canonical_request(self.request),
        }

    @classmethod
    def parse(cls, stored: Stored) -> ReviseQuote:
        """Rebuild from the canonical form of this schema version."""
        changes, request = stored["changes"], stored["request"]
        return cls(None if changes is None else _changes(changes), None if request is None else parse_request(request))


def _canonical_changes(changes: Changes) -> dict[str, object]:
    discount = changes.discount_percent
    return {
        "lines": [{"deed": line.deed, "sku": line.sku, "quantity": line.quantity} for line in changes.lines],
        "term_months": changes.term_months,
        "requested_discount_percent": None if discount is None else format(discount.normalize(), "f"),
        "currency": changes.currency,
        "region": changes.region,
        "with_tax": changes.with_tax,
        "terms": None if changes.terms is None else list(changes.terms),
    }


def _changes(stored: Stored) -> Changes:
    term, discount, terms = stored["term_months"], stored["requested_discount_percent"], stored["terms"]
    return Changes(
        lines=tuple(LineChange(line["deed"], line["sku"], int(line["quantity"])) for line in stored["lines"]),
        term_months=None if term is None else int(str(term)),
        discount_percent=None if discount is None else Decimal(str(discount)),
        currency=stored["currency"],
        region=stored["region"],
        with_tax=stored["with_tax"],
        terms=None if terms is None else tuple(str(term) for term in terms),
    )


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


def _create_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which names the discount as the requested one, apart from the one that approvers may authorise."""
    same = {name: value for name, value in stored.items() if name != "discount_percent"}
    return {**same, "v": 2, "requested_discount_percent": stored["discount_percent"]}


def _create_3_from_2(stored: Stored) -> Stored:
    """Upgrade to schema 3, with optional fields: currency, segment, region, day, billing, tax, discount and choices per line."""
    return {**stored, "v": 3}


def _create_4_from_3(stored: Stored) -> Stored:
    """Upgrade to schema 4, which may name special terms of the contract; a build that only reads 3 would drop them."""
    return {**stored, "v": 4}


def _create_5_from_4(stored: Stored) -> Stored:
    """Upgrade to schema 5, which may name an opportunity in Salesforce; a build that only reads 4 would drop it."""
    return {**stored, "v": 5}


def _revise_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which can also change currency, region, tax and special terms."""
    changes = stored["changes"]
    if changes is None:
        return {**stored, "v": 2}
    more = {"currency": None, "region": None, "with_tax": None, "terms": None}
    return {**stored, "v": 2, "changes": {**changes, **more}}


def _decide_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which adds a third decision; a build that only reads 1 must not execute it. The others are unchanged."""
    return {**stored, "v": 2}


def _delegate_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which adds the start of the absence and its reason."""
    return {**stored, "v": 2, "since": None, "reason": None}


def _propose_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which adds remarks about free text; also upgrades the contained creation to its current schema."""
    quote = stored["quote"]
    while quote["v"] < CreateQuote.schema:
        quote = UPCASTERS[(CreateQuote.kind, quote["v"])](quote)
    return {**stored, "v": 2, "quote": quote, "remarks": []}


def _sync_2_from_1(stored: Stored) -> Stored:
    """Upgrade to schema 2, which adds the kinds of mirrored objects."""
    return {**stored, "v": 2, "mirrors": []}


UPCASTERS: Final[Mapping[tuple[str, int], Callable[[Stored], Stored]]] = {
    ("quote.create", 1): _create_2_from_1,
    ("quote.create", 2): _create_3_from_2,
    ("quote.create", 3): _create_4_from_3,
    ("quote.create", 4): _create_5_from_4,
    ("quote.revise", 1): _revise_2_from_1,
    ("approval.decide", 1): _decide_2_from_1,
    ("approval.delegate", 1): _delegate_2_from_1,
    ("quote.propose", 1): _propose_2_from_1,
    ("crm.sync", 1): _sync_2_from_1,
}


class NeedsNewerBuild(Exception):  # noqa: N818 -- the command itself is not in error
    """Exception for a command that a newer build recorded. This build must leave it unchanged, so that it waits for that build."""

    def __init__(self, kind: str, version: object) -> None:
        super().__init__(f"{kind} with payload schema {version} was recorded by a newer build; it waits for that build.")
        self.kind = kind
        self.version = version


def parse_stored(kind: str, stored: Stored) -> Payload:
    """Rebuild a command from its stored payload. Pure.

    Raises NeedsNewerBuild for a kind or a schema unknown to this build, ValueError for a schema without an upcaster.
    """
    known = REGISTRY.get(kind)
    version = stored.get("v")
    if known is None or not isinstance(version, int) or version > known.schema:
        raise NeedsNewerBuild(kind, version)
    while version < known.schema:
        upcast = UPCASTERS.get((kind, version))
        if upcast is None:
            raise ValueError(f"{kind} with payload schema {version} is too old for this build")
        stored = upcast(stored)
        version += 1
    return known.parse(stored)


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
