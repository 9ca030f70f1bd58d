"""Registry of command kinds: one frozen payload class each. payloads.py defines them and their stored form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from quotebot.commands.payloads import (
    AcceptQuote,
    ActOnCommand,
    ActOnEffect,
    AnnounceDeadLetter,
    AnswerMessage,
    CancelQuote,
    CloneQuote,
    CreateAnother,
    CreateByForm,
    CreateQuote,
    CrmPayload,
    DecideApproval,
    DelegateApprovals,
    DigestPayload,
    DiscardDeadLetter,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    FinalizeQuote,
    LetterPayload,
    LoseQuote,
    MarkSent,
    NeedsNewerBuild,
    NoteStaleDraft,
    PreviewLinks,
    ProposeQuote,
    ReadingPayload,
    ReadMessage,
    ReassignApproval,
    ReconcileCrm,
    RefreshCard,
    RemindApprover,
    ReplayCause,
    ResubmitDeadCommand,
    RetryDeadLetter,
    ReviseQuote,
    SendDigest,
    SetDigest,
    ShowHome,
    ShowOpsCard,
    SlotCommand,
    Stored,
    SubmitQuote,
    SyncCrm,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

PAYLOAD_BYTES_MAX: Final = 64 * 1024  # of the canonical form; the ledger's table rejects larger ones


Creation = CreateQuote | CloneQuote  # create a quote whose content the command determines
LifecyclePayload = ReviseQuote | CancelQuote | FinalizeQuote | MarkSent | AcceptQuote | LoseQuote
ScheduledPayload = ExpireQuote | NoteStaleDraft  # sent by the scheduler
ApprovalPayload = SubmitQuote | DecideApproval | SlotCommand  # about the approval of a quote
QuotePayload = ApprovalPayload | LifecyclePayload | ScheduledPayload | RefreshCard | ActOnEffect  # about an existing quote
ApartPayload = (
    DelegateApprovals
    | ProposeQuote
    | ReadingPayload
    | ShowHome
    | PreviewLinks
    | DigestPayload
    | ActOnCommand
    | LetterPayload
    | CrmPayload
)  # in no quote's lane
Payload = CreateQuote | CreateAnother | CreateByForm | CloneQuote | ApartPayload | QuotePayload

REGISTRY: Final[Mapping[str, type[Payload]]] = {
    payload.kind: payload
    for payload in (
        *(CreateQuote, CreateAnother, CreateByForm, CloneQuote, SubmitQuote, DecideApproval),
        *(ProposeQuote, ReadMessage, AnswerMessage),
        *(ReviseQuote, CancelQuote, FinalizeQuote, MarkSent, AcceptQuote, LoseQuote),
        *(DelegateApprovals, RemindApprover, EscalateApproval, ExpireApproval, ReassignApproval),
        *(ExpireQuote, NoteStaleDraft),
        *(SetDigest, SendDigest),
        *(RefreshCard, ShowHome, PreviewLinks, ActOnEffect, ActOnCommand),
        *(AnnounceDeadLetter, RetryDeadLetter, DiscardDeadLetter, ResubmitDeadCommand, ShowOpsCard, ReplayCause),
        *(SyncCrm, ReconcileCrm),
    )
}


def readable() -> str:
    """Return each kind with each payload schema that this build reads, in the form of Ledger.claim_operations."""
    schemas = (f"{kind}/{number}" for kind, payload in REGISTRY.items() for number in range(1, payload.schema + 1))
    return f" {' '.join(schemas)} "


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
