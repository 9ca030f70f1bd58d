"""Input and output of every handler: the request, the decision, and refusals that several handlers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.keys import digest
from ledger.records import ActorType, AuditEvent, EffectIntent
from quotebot import effects
from quotebot.commands.payloads import (
    ActOnCommand,
    ActOnEffect,
    AnswerMessage,
    CreateAnother,
    CreateByForm,
    ProposeQuote,
    ReadMessage,
    RefreshCard,
    RemindApprover,
    SetDigest,
    ShowHome,
    SubmitQuote,
)
from quotebot.commands.registry import Creation, LifecyclePayload, Payload
from quotebot.domain import money
from quotebot.domain.access import Refusal, Viewer
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote


@dataclass(frozen=True, slots=True)
class Asked:
    """Request of a command: its author, time and operation.

    `seen_version` is the version on the button; times are Unix milliseconds.
    """

    operation_key: str
    correlation_id: str
    actor: str
    team_id: str
    received_at: int
    seen_version: int | None
    actor_name: str = ""
    actor_type: ActorType = "user"  # "system" is the scheduler, which gets no reply
    actor_kind: str = "member"  # one of domain.approvals.people.Kind, by Slack's last answer
    terminal_user: str | None = None  # the system user of a command from the terminal


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one command. `quote` is the quote to save, None if nothing changes."""

    kind: Literal["applied", "refused"]
    response: dict[str, Any]
    quote: Quote | None = None
    effects: tuple[EffectIntent, ...] = ()
    events: tuple[AuditEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Twin:
    """Existing quote by the same person with the same content. `recorded_at` is its time of execution, Unix ms."""

    quote_id: str
    version: int
    recorded_at: int


def seen_another_version(asked: Asked, quote: Quote) -> Decision | None:
    """Refuse a request about another version than the head; None if it was about the head."""
    if asked.seen_version is None or asked.seen_version == quote.version:
        return None
    return stale(asked, quote, messages.stale(asked.seen_version, quote))


def stale(asked: Asked, quote: Quote, text: str) -> Decision:
    """Refuse a request about another version than the head, with a button that shows the head."""
    return refused(asked, quote.quote_id, quote.channel, "stale", text, show=quote.version)


def foreign(asked: Asked, quote: Quote) -> Decision | None:
    """Refuse a user of another workspace; None if the user belongs to the quote's workspace."""
    if asked.team_id == quote.team_id:
        return None
    event = AuditEvent("access.refused", quote.quote_id, after={"code": "foreign_team", "actor": asked.actor})
    return refused(asked, quote.quote_id, quote.channel, "foreign_team", messages.foreign_team(quote), (event,))


def refused(
    asked: Asked,
    aggregate_id: str,
    channel: str | None,
    code: str,
    text: str,
    events: tuple[AuditEvent, ...] = (),
    *,
    show: int | None = None,
    clone: int | None = None,
) -> Decision:
    """Refuse without a change, and reply to the author with `text`.

    `show` is the version of the quote that a button shows, `clone` the version that a button copies.
    """
    response: dict[str, Any] = {"code": code, "quote_id": None if aggregate_id == "new" else aggregate_id, "text": text}
    if asked.actor_type == "system":
        return Decision("refused", response, events=events)
    offer: dict[str, Any] | None = None
    if show is not None:
        offer = {"quote_id": aggregate_id, "version": show}
    elif clone is not None:
        offer = {"quote_id": aggregate_id, "version": clone, "clone": True}
    response |= {} if offer is None else {"offer": offer}
    answer = effects.reply(aggregate_id, asked.actor, channel, text, asked.received_at, offer=offer)
    return Decision("refused", response, None, (answer,), events)


def facts(quote: Quote) -> dict[str, Any]:
    """Return the audited facts of a quote: figures, ids and hashes, no customer name."""
    return {
        "version": quote.version,
        "state": quote.state.value,
        "requester": quote.requester,
        "channel": quote.channel,
        "account_sha256": digest([quote.quote_id, quote.account]),
        "valid_until": quote.valid_until,
        "net_total": money.trimmed(quote.pricing.net_total),
        "currency": quote.pricing.currency,
        "discount_percent": money.trimmed(quote.pricing.discount_percent),
        "approval_id": None if quote.approval is None else quote.approval.approval_id,
        "required_roles": [] if quote.approval is None else list(quote.approval.required_roles),
        "decided_by": None if quote.approval is None else quote.approval.decided_by,
        "decided_role": None if quote.approval is None else quote.approval.decided_role,
    }


# Commands of a listed guest; each concerns a quote of their own (domain/access.py). All others are for members.
GUEST_COMMANDS: Final = (
    Creation
    | CreateAnother
    | CreateByForm
    | ProposeQuote
    | ReadMessage
    | AnswerMessage
    | ShowHome
    | SetDigest
    | SubmitQuote
    | RemindApprover
    | LifecyclePayload
    | RefreshCard
    | ActOnEffect
    | ActOnCommand
)


def turned_away(asked: Asked, admitted: Viewer | Refusal | None, command: Payload, aggregate_id: str) -> Decision | None:
    """Refuse a command because of its author; None if they may give it. `admitted` is None for the scheduler."""
    if admitted is None:
        return None
    if isinstance(admitted, Refusal):
        code = admitted.code
    elif admitted.own_only and not isinstance(command, GUEST_COMMANDS):
        code = "not_a_member"
    else:
        return None
    channel = command.channel if isinstance(command, Creation | ReadMessage) else None
    event = access_refused(asked, aggregate_id, command, code)
    if not command.awaited:
        return Decision("refused", {"code": code, "quote_id": None, "text": messages.turned_away(code)}, events=(event,))
    return refused(asked, aggregate_id, channel, code, messages.turned_away(code), (event,))


def access_refused(asked: Asked, aggregate_id: str, command: Payload, code: str) -> AuditEvent:
    """Return the audit event of a command that its author may not give, or not on this quote."""
    facts = {"code": code, "actor": asked.actor, "actor_kind": asked.actor_kind, "asked": command.kind}
    return AuditEvent("access.refused", aggregate_id, after=facts)
