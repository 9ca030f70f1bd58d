"""Handlers of the scheduler's commands about open approvals, and of delegations. Pure, as everything in this package.

A scheduled command is valid only while its slot still waits, tested against the time it was received; none of them decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.approvals import DelegateApprovals, EscalateApproval, RemindApprover, SlotCommand
from quotebot.domain.approvals.people import Delegation, asked_people, covers
from quotebot.domain.approvals.requests import escalated, expired, reminded, slot_of
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState
from quotebot.handlers.approvals import approval_facts
from quotebot.handlers.decision import Asked, Decision, refused
from quotebot.handlers.quotes import DAY_MS
from quotebot.views import approval_messages

if TYPE_CHECKING:
    from quotebot.domain.rules import Rules

ABSENCE_MS_MAX = 366 * DAY_MS


def follow_up(
    asked: Asked, command: SlotCommand, quote: Quote, root: str, rules: Rules, *, delegations: tuple[Delegation, ...] = ()
) -> Decision:
    """Remind about, escalate or expire a slot that still waits."""
    if asked.actor_type != "system":
        return refused(asked, quote.quote_id, quote.channel, "scheduled_only", approval_messages.SCHEDULED_ONLY)
    after = _moved(asked, command, quote, rules)
    if after is None:
        return refused(asked, quote.quote_id, quote.channel, "slot_not_due", approval_messages.not_due(quote))
    moved = replace(quote, approval=after)
    slot = slot_of(after, command.slot)
    assert slot is not None  # noqa: S101 -- it was just moved
    who = asked_people(slot, rules.approvers, delegations, (after.requested_by, *quote.makers))
    if isinstance(command, RemindApprover):
        kind, text = "reminded", approval_messages.reminder(moved, slot, who, asked.received_at)
    elif isinstance(command, EscalateApproval):
        kind, text = "escalated", approval_messages.escalation(moved, slot, who, asked.received_at)
    else:
        kind, text = "expired", approval_messages.request_expired(moved, after)
    card = () if kind == "reminded" else (effects.card(quote.quote_id, root),)
    return Decision(
        "applied",
        {"code": kind, "quote_id": quote.quote_id, "text": text},
        moved,
        (*card, effects.notice(quote.quote_id, root, text)),
        (AuditEvent(f"approval.{kind}", quote.quote_id, approval_facts(quote), approval_facts(moved)),),
    )


def delegate(asked: Asked, command: DelegateApprovals, rules: Rules, away: tuple[Delegation, ...] = ()) -> Decision:
    """Delegate the user's decisions to a person of equal or higher authority, until the user is back.

    `away` are the absences in which the delegate takes part. Delegation is not transitive: the delegate's own delegate is not
    asked.
    """
    where = f"delegation:{command.absent}"
    code = _objection(asked, command, rules, away)
    if code is not None:
        text = approval_messages.delegation_refused(code, command.delegate)
        answer = effects.reply(where, asked.actor, None, text, asked.received_at)
        event = AuditEvent("delegation.refused", where, after={"code": code, "actor": asked.actor, "delegate": command.delegate})
        return Decision("refused", {"code": code, "quote_id": None, "text": text}, None, (answer,), (event,))
    ended = command.delegate is None
    if command.delegate is None:
        text = approval_messages.BACK_IN_OFFICE
    else:
        text = approval_messages.delegated(command.delegate, command.until, since=command.since)
    later = {} if command.since is None else {"since": command.since}
    after = {"absent": command.absent, "delegate": command.delegate, **later, "until": command.until}
    return Decision(
        "applied",
        {"code": "delegation_ended" if ended else "delegated", "quote_id": None, "text": text},
        None,
        (effects.reply(where, asked.actor, None, text, asked.received_at),),
        (AuditEvent("delegation.ended" if ended else "delegation.set", where, after=after),),
    )


def _moved(asked: Asked, command: SlotCommand, quote: Quote, rules: Rules) -> Approval | None:
    approval, at = quote.approval, asked.received_at
    if approval is None or approval.approval_id != command.approval_id or approval.state is not ApprovalState.PENDING:
        return None
    if quote.state is not QuoteState.PENDING_APPROVAL or asked.team_id != quote.team_id or at >= quote.valid_until:
        return None
    if isinstance(command, RemindApprover):
        return reminded(approval, command.slot, at)
    if isinstance(command, EscalateApproval):
        return escalated(approval, command.slot, rules.approvers, quote.makers, at=at, timing=rules.policy.timing)
    return expired(approval, command.slot, at)


def _objection(asked: Asked, command: DelegateApprovals, rules: Rules, away: tuple[Delegation, ...]) -> str | None:
    """Return the code of the first objection to a delegation, or None."""
    if asked.actor != command.absent:
        return "not_yours"
    if command.delegate is None:
        return None
    since = asked.received_at if command.since is None else command.since
    scope = rules.roles_of(command.absent)
    objections = {
        "no_authority": not scope,
        "to_oneself": command.delegate == command.absent,
        "until_past": not asked.received_at < command.until <= asked.received_at + ABSENCE_MS_MAX,
        "ends_first": since >= command.until,
        "lower_scope": not covers(rules.roles_of(command.delegate), scope),
        "delegate_away": any(each.absent == command.delegate and each.overlaps(since, command.until) for each in away),
    }
    return next((code for code, speaks_against in objections.items() if speaks_against), None)
