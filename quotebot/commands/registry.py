"""What can be asked: one frozen payload per command kind, what identifies it, and its canonical form.

A payload's canonical form is JSON-ready (strings, whole numbers, lists, no floats) and carries its schema version `v`, so that the
hash of a command never depends on key order, whitespace, aliases or transport.

A stored payload is never rewritten. `parse_stored` reads the current schema and, through one pure upcaster per step, older ones: a
command reserved before a deploy is executed after it. What a newer build wrote waits for that build.
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

PAYLOAD_BYTES_MAX: Final = 64 * 1024  # of the canonical form; the ledger's table refuses more

Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateQuote:
    """Create, price and show a quote in `channel`, for an opportunity in Salesforce when one was chosen."""

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
    """Create, after all, the quote whose command was refused as a re-submission. `token`, that operation's key, works once."""

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
    """Create the quote that a form asks for. `token`, the id of the form's first view, makes one quote, whatever is sent of it."""

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
    """Show what a quote that was asked for in a message would be, for its author to confirm. It creates nothing by itself.

    `remarks` say what was inferred where it was read from free text.
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
    """Ask for whatever approval the policy wants."""

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
    """Approve, reject or send back one approval request; the latter two need a reason, as an approval under dual control does."""

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
    """Give a quote other content, as a new version: either changes of what it asks for now, or a whole new request."""

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


Creation = CreateQuote | CloneQuote  # what makes a quote of its own content
LifecyclePayload = ReviseQuote | CancelQuote | FinalizeQuote | MarkSent | AcceptQuote | LoseQuote
ScheduledPayload = ExpireQuote | NoteStaleDraft  # what the scheduler asks for
ApprovalPayload = SubmitQuote | DecideApproval | SlotCommand  # about the approval of a quote
QuotePayload = ApprovalPayload | LifecyclePayload | ScheduledPayload | RefreshCard | ActOnEffect  # about a quote that exists
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
    """2 says whose discount it is: the one asked for, beside the one that approvers may authorise."""
    same = {name: value for name, value in stored.items() if name != "discount_percent"}
    return {**same, "v": 2, "requested_discount_percent": stored["discount_percent"]}


def _create_3_from_2(stored: Stored) -> Stored:
    """3 may say more of what is asked for: currency, segment, region, day, billing, tax, each line's own discount and choices."""
    return {**stored, "v": 3}


def _create_4_from_3(stored: Stored) -> Stored:
    """4 may name special terms of the contract, which a build that only reads 3 would leave out."""
    return {**stored, "v": 4}


def _create_5_from_4(stored: Stored) -> Stored:
    """5 may name an opportunity in Salesforce, which a build that only reads 4 would leave out."""
    return {**stored, "v": 5}


def _revise_2_from_1(stored: Stored) -> Stored:
    """2 may change more: currency, region, tax and special terms."""
    changes = stored["changes"]
    if changes is None:
        return {**stored, "v": 2}
    more = {"currency": None, "region": None, "with_tax": None, "terms": None}
    return {**stored, "v": 2, "changes": {**changes, **more}}


def _decide_2_from_1(stored: Stored) -> Stored:
    """2 knows a third decision, which a build that only reads 1 must leave alone; the others are as they were."""
    return {**stored, "v": 2}


def _delegate_2_from_1(stored: Stored) -> Stored:
    """2 may say when an absence begins, and why."""
    return {**stored, "v": 2, "since": None, "reason": None}


def _propose_2_from_1(stored: Stored) -> Stored:
    """2 says what was inferred from free text, of which 1 knew nothing; the creation in it becomes one of today's."""
    quote = stored["quote"]
    while quote["v"] < CreateQuote.schema:
        quote = UPCASTERS[(CreateQuote.kind, quote["v"])](quote)
    return {**stored, "v": 2, "quote": quote, "remarks": []}


def _sync_2_from_1(stored: Stored) -> Stored:
    """2 names the objects that are mirrored, of which 1 knew nothing."""
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


class NeedsNewerBuild(Exception):  # noqa: N818 -- the fact: nothing is wrong with the command
    """A newer build recorded this command. This one must leave it as it is and let it wait."""

    def __init__(self, kind: str, version: object) -> None:
        super().__init__(f"{kind} with payload schema {version} was recorded by a newer build; it waits for that build.")
        self.kind = kind
        self.version = version


def parse_stored(kind: str, stored: Stored) -> Payload:
    """Rebuild a command from what the ledger kept of it. Pure.

    Raises NeedsNewerBuild for a kind or a schema this build does not know, ValueError for a schema that no upcaster starts from.
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
    """A normalised command: who asks what of which aggregate, seen at which version, in which request.

    `aggregate_version` is the version the person saw (0 for a creation, None for a typed command, which names none).
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
