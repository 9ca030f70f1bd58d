"""Payloads of commands: everything that can be asked, one frozen class per kind, and the codec of their stored form.

The canonical form is the JSON in which the ledger stores and hashes a command, derived from the fields of its class. It is
JSON-ready (strings, whole numbers, lists, no floats) and carries its schema version `v`, so that the hash of a command never
depends on key order, whitespace, aliases or transport. Every field is stored under its own name unless `names` gives another;
tests/quotebot/commands/test_registry.py pins the bytes, the hash and the key of each schema.

A stored payload is never rewritten. `from_stored` reads the current schema and, through one pure upcaster per step, older ones: a
command reserved before a deploy is executed after it. A payload of a newer build waits for that build.

A command about an existing quote concerns its head version; only `quote.clone` may name another.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, Self, Union, get_args, get_origin, get_type_hints

from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.pricing.price_requests import (
    Changes,
    PriceRequest,
    canonical_changes,
    canonical_request,
    parse_changes,
    parse_request,
)
from quotebot.domain.quotes.quote import ChosenOpportunity

Stored = Mapping[str, Any]

RECIPIENT_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 500

ANSWER_MS: Final = 45_000  # time limit of the model, after which fixed rules answer

CRM_AGGREGATE: Final = "crm"


class NeedsNewerBuild(Exception):  # noqa: N818 -- named after the fact: nothing is wrong with the command
    """Command recorded by a newer build. This build must leave it unchanged and let it wait."""

    def __init__(self, kind: str, version: object) -> None:
        super().__init__(f"{kind} with payload schema {version} was recorded by a newer build; it waits for that build.")
        self.kind = kind
        self.version = version


class StoredPayload:
    """Base of the payload classes, which are frozen dataclasses."""

    __slots__ = ()

    kind: ClassVar[str]
    schema: ClassVar[int] = 1
    awaited: ClassVar[bool] = True  # whether its author waits for an answer, such as a refusal
    names: ClassVar[Mapping[str, str]] = {}  # stored name of a field, where it differs
    upcasters: ClassVar[Mapping[int, Callable[[Stored], Stored]]] = {}  # schema version -> the form of the next version

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        payload: Any = type(self)
        content = {name: _encoded(getattr(self, field)) for field, name, _ in _layout(payload)}
        return {"v": self.schema, **content}

    @classmethod
    def parse(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this schema version. Raises KeyError or ValueError for another form."""
        payload: Any = cls
        return cls(**{field: _decoded(hint, stored[name]) for field, name, hint in _layout(payload)})

    @classmethod
    def from_stored(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this or an older schema version.

        Raises NeedsNewerBuild for a newer schema, ValueError for one without an upcaster.
        """
        version = stored.get("v")
        if not isinstance(version, int) or version > cls.schema:
            raise NeedsNewerBuild(cls.kind, version)
        while version < cls.schema:
            upcast = cls.upcasters.get(version)
            if upcast is None:
                raise ValueError(f"{cls.kind} with payload schema {version} is too old for this build")
            stored = upcast(stored)
            version += 1
        return cls.parse(stored)


@dataclass(frozen=True, slots=True)
class LinkedQuote:
    """Link in a message to a quote's record in Salesforce."""

    url: str
    quote_id: str


_CODECS: Final[Mapping[Any, tuple[Callable[[Any], object], Callable[[Any], Any]]]] = {
    PriceRequest: (canonical_request, parse_request),
    Changes: (canonical_changes, parse_changes),
    LinkedQuote: (lambda link: [link.url, link.quote_id], lambda stored: LinkedQuote(*map(str, stored))),
    Remark: (lambda remark: [remark.code, remark.excerpt, remark.meaning], lambda stored: Remark(*stored)),
}


@functools.cache
def _layout(payload: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return the field, the stored name and the type of each field."""
    hints = get_type_hints(payload)
    return tuple((field.name, payload.names.get(field.name, field.name), hints[field.name]) for field in fields(payload))


def _encoded(value: object) -> object:
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, StoredPayload):
        return value.canonical()
    codec = _CODECS.get(type(value))
    return value if codec is None else codec[0](value)


def _decoded(hint: Any, stored: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if stored is None else _decoded(arguments[0], stored)
    if origin is Literal:
        if stored not in arguments:
            raise ValueError(f"unknown value {stored!r}; known are {', '.join(arguments)}")
        return stored
    if origin is tuple:
        return tuple(_decoded(arguments[0], item) for item in stored)
    if hint in _CODECS:
        return _CODECS[hint][1](stored)
    return hint.from_stored(stored) if issubclass(hint, StoredPayload) else hint(stored)


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

    @property
    def crm_account(self) -> str | None:
        """Id of the chosen opportunity's account in Salesforce."""
        return None if self.opportunity is None else self.opportunity.account_id

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
    """Submission: request the approval that the policy requires.

    With a `note` to the approvers it submits a version again as it is, after the request `approval_id` was answered with a wish
    for changes; None: after the last request.
    """

    kind: ClassVar[str] = "quote.submit"
    note: str | None = None
    approval_id: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        again = {"note": self.note, "approval_id": self.approval_id}
        return {"v": self.schema, **{name: value for name, value in again.items() if value is not None}}

    @classmethod
    def parse(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this schema version."""
        return cls(*(None if (value := stored.get(name)) is None else str(value) for name in ("note", "approval_id")))


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


@dataclass(frozen=True, slots=True)
class CloneQuote(StoredPayload):
    """Clone: a new quote in `channel` with the content of another one.

    `version` None is the head at the time of execution; `account` None is the original's customer.
    """

    kind: ClassVar[str] = "quote.clone"
    quote_id: str
    channel: str
    version: int | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class CancelQuote(StoredPayload):
    """Cancellation of a quote that is no longer wanted."""

    kind: ClassVar[str] = "quote.cancel"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FinalizeQuote(StoredPayload):
    """Finalization: freeze an approved version, so that it may be sent."""

    kind: ClassVar[str] = "quote.finalize"


@dataclass(frozen=True, slots=True)
class MarkSent(StoredPayload):
    """Record that a finalized version was sent; `recipient` is the user's own text."""

    kind: ClassVar[str] = "quote.mark_sent"
    recipient: str


@dataclass(frozen=True, slots=True)
class AcceptQuote(StoredPayload):
    """Record that the customer accepted."""

    kind: ClassVar[str] = "quote.accept"


@dataclass(frozen=True, slots=True)
class LoseQuote(StoredPayload):
    """Record that the customer refused, with the reason."""

    kind: ClassVar[str] = "quote.lose"
    reason: str


@dataclass(frozen=True, slots=True)
class RefreshCard(StoredPayload):
    """Redraw of a quote's card. It does not change the quote."""

    kind: ClassVar[str] = "quote.refresh"


@dataclass(frozen=True, slots=True)
class ExpireQuote(StoredPayload):
    """Expiry of a quote that was valid until `valid_until` (Unix ms) and was not accepted. The scheduler sends it."""

    kind: ClassVar[str] = "quote.expire"
    valid_until: int


@dataclass(frozen=True, slots=True)
class NoteStaleDraft(StoredPayload):
    """Reminder to the requester of a quote unchanged since `untouched_since` (Unix ms). The scheduler sends it."""

    kind: ClassVar[str] = "quote.note_stale"
    untouched_since: int


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
    """Reminder to the approvers that a slot asks: of the scheduler, or of a person, who names no slot and means all open ones."""

    kind: ClassVar[str] = "approval.remind"


@dataclass(frozen=True, slots=True)
class EscalateApproval(_SlotCommand):
    """Escalation of a slot: also ask an equal or higher authority."""

    kind: ClassVar[str] = "approval.escalate"


@dataclass(frozen=True, slots=True)
class ExpireApproval(_SlotCommand):
    """Expiry of a request that no one decided in time."""

    kind: ClassVar[str] = "approval.expire"


@dataclass(frozen=True, slots=True)
class ReassignApproval(_SlotCommand):
    """Reassignment of a slot that asks people who may not approve any more: ask other holders, or the next higher role."""

    kind: ClassVar[str] = "approval.reassign"


ALL_OPEN: Final = 0  # the slot in a person's RemindApprover
SlotCommand = RemindApprover | EscalateApproval | ExpireApproval | ReassignApproval


@dataclass(frozen=True, slots=True)
class ReadMessage(StoredPayload):
    """Extraction by the model of a message that fixed rules do not understand completely, to answer its author.

    It creates no quote.
    """

    kind: ClassVar[str] = "message.read"
    text: str
    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerMessage(StoredPayload):
    """Answer to the author of a message, from the model's extraction or else from fixed rules. Only the first answer counts.

    `reading` is the operation key of the `ReadMessage`.
    """

    kind: ClassVar[str] = "message.answer"
    reading: str


ReadingPayload = ReadMessage | AnswerMessage


def _with_mirrors(stored: Stored) -> Stored:
    """Upgrade to schema 2, which names the mirrored kinds."""
    return {**stored, "v": 2, "mirrors": []}


@dataclass(frozen=True, slots=True)
class SyncCrm(StoredPayload):
    """Sync of the changes in Salesforce since the last sync. The scheduler and operators send it.

    `mirrors` are the kinds that this installation keeps a local copy of; copies of other kinds are deleted.
    """

    kind: ClassVar[str] = "crm.sync"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: _with_mirrors}
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReconcileCrm(StoredPayload):
    """Decision on a difference as the operator saw it, with the value `theirs` in the field. `take` names the value to keep."""

    kind: ClassVar[str] = "crm.reconcile"
    conflict: int
    take: Literal["ours", "theirs"]
    theirs: str
    reason: str


CrmPayload = SyncCrm | ReconcileCrm


def _with_section(stored: Stored) -> Stored:
    """Upgrade to schema 2, which may name the section and the page to show."""
    return {**stored, "v": 2, "section": None, "page": 1, "always": False}


@dataclass(frozen=True, slots=True)
class ShowHome(StoredPayload):
    """Update of `user`'s App Home after `after_ms` milliseconds, so that a click on it is executed before the tab is drawn.

    It shows the chosen `section`, one of quotebot.commands.queries, or without one what it showed before. It is sent even
    unchanged if `always`: Slack shows another view than the last one that the ledger knows.
    """

    kind: ClassVar[str] = "home.show"
    schema: ClassVar[int] = 2
    upcasters: ClassVar = {1: _with_section}
    user: str
    after_ms: int = 0
    section: str | None = None
    page: int = 1
    always: bool = False

    @property
    def aggregate_id(self) -> str:
        """Return the aggregate: one App Home per user."""
        return f"home:{self.user}"


@dataclass(frozen=True, slots=True)
class PreviewLinks(StoredPayload):
    """Preview of quotes below the message at `ts`, which links to their records in Salesforce."""

    kind: ClassVar[str] = "link.preview"
    awaited: ClassVar[bool] = False
    channel: str
    ts: str
    links: tuple[LinkedQuote, ...]

    @property
    def aggregate_id(self) -> str:
        """Return the aggregate: one per message."""
        return f"link:{self.channel}:{self.ts}"


@dataclass(frozen=True, slots=True)
class SetDigest(StoredPayload):
    """Request of a person for the daily digest, or for its end. `at_home`: made on their Home tab, which shows the answer."""

    kind: ClassVar[str] = "digest.set"
    wanted: bool
    at_home: bool = False


@dataclass(frozen=True, slots=True)
class SendDigest(StoredPayload):
    """Digest of the work queue of `user`, due at `due_at` (Unix ms). The scheduler sends it, once per person and morning."""

    kind: ClassVar[str] = "digest.send"
    user: str
    due_at: int


DigestPayload = SetDigest | SendDigest


@dataclass(frozen=True, slots=True)
class AnnounceDeadLetter(StoredPayload):
    """Card of a dead letter in the operators' channel. The bot itself sends this command, once per dead letter."""

    kind: ClassVar[str] = "letter.announce"
    reference: str
    channel: str


@dataclass(frozen=True, slots=True)
class RetryDeadLetter(StoredPayload):
    """Retry of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.retry"
    reference: str
    cycle: int


@dataclass(frozen=True, slots=True)
class DiscardDeadLetter(StoredPayload):
    """Permanent discard of a dead letter, valid only in the `cycle` that the operator saw."""

    kind: ClassVar[str] = "letter.discard"
    reference: str
    cycle: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResubmitDeadCommand(StoredPayload):
    """Edited copy of a dead command, valid only in the `cycle` that the operator saw. `edited` is its payload as canonical JSON."""

    kind: ClassVar[str] = "letter.resubmit"
    reference: str
    cycle: int
    edited: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShowOpsCard(StoredPayload):
    """New or redrawn card of a cause of dead letters, or of a refused login. The bot itself sends this command."""

    kind: ClassVar[str] = "ops.card"
    subject: str
    channel: str


@dataclass(frozen=True, slots=True)
class ReplayCause(StoredPayload):
    """Retry of the dead letters of one cause that failed up to `upto` (Unix milliseconds)."""

    kind: ClassVar[str] = "letter.replay_all"
    cause: str
    upto: int


LetterPayload = AnnounceDeadLetter | RetryDeadLetter | DiscardDeadLetter | ResubmitDeadCommand | ShowOpsCard | ReplayCause

Deed = Literal["retry", "cancel"]


@dataclass(frozen=True, slots=True)
class ActOnEffect(StoredPayload):
    """Immediate retry or cancellation of a pending effect, valid only in the `cycle` that the card showed."""

    kind: ClassVar[str] = "effect.steer"
    names: ClassVar = {"effect_id": "effect"}
    deed: Deed
    effect_id: int
    cycle: int


@dataclass(frozen=True, slots=True)
class ActOnCommand(StoredPayload):
    """Immediate retry or cancellation of an unfinished command about `quote_id`, valid only in the `cycle` that the card showed.

    It has an aggregate of its own: in the quote's lane it would wait behind the command that it is about.
    """

    kind: ClassVar[str] = "command.steer"
    names: ClassVar = {"operation_id": "operation"}
    deed: Deed
    quote_id: str
    operation_id: int
    cycle: int

    @property
    def aggregate_id(self) -> str:
        """Return the aggregate: one per command acted on."""
        return f"command:op{self.operation_id}"
