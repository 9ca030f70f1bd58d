"""Handlers of approval requests, decisions, delegations, and the scheduler's commands about open approvals. Pure.

A scheduled command is valid only while its slot still waits, tested against the time it was received; none of them decides.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ledger.keys import digest
from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.payloads import (
    ALL_OPEN,
    REASON_CHARACTERS_MAX,
    DelegateApprovals,
    EscalateApproval,
    ReassignApproval,
    RemindApprover,
    SlotCommand,
    SubmitQuote,
)
from quotebot.domain.approvals.decisions import Mandate, may_decide
from quotebot.domain.approvals.people import ABSENCE_MS_MAX, Delegation, asked_people, covers
from quotebot.domain.approvals.policy import PolicyDecision, Timing, evaluate
from quotebot.domain.approvals.requests import (
    answered,
    escalated,
    expired,
    invalidated,
    open_request,
    reassigned,
    reminded,
    reminded_again,
    slot_of,
)
from quotebot.domain.approvals.reuse import EarlierApproval, reused
from quotebot.domain.language import _
from quotebot.domain.quotes.quote import Approval, ApprovalState, PolicyStamp, Quote, QuoteState, Slot, approval_id_for
from quotebot.handlers.decision import Asked, Decision, facts, foreign, refused, seen_another_version
from quotebot.views import approval_messages, lifecycle_messages, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.records import EffectIntent
    from quotebot.commands.payloads import DecideApproval
    from quotebot.domain.rules import Rules

_AS_PRICED = SubmitQuote()
INCIDENT = re.compile(r"\b[A-Z]{2,10}-[0-9]{1,10}\b")
WRITTEN_CHARACTERS_MIN = 10  # length of a reason beside the incident's number
_AFTER = {
    ApprovalState.PENDING: QuoteState.PENDING_APPROVAL,
    ApprovalState.APPROVED: QuoteState.APPROVED,
    ApprovalState.REJECTED: QuoteState.REJECTED,
    ApprovalState.CHANGES_REQUESTED: QuoteState.DRAFT,
}


def submit(
    asked: Asked,
    quote: Quote,
    root: str,
    requests: int,
    rules: Rules,
    *,
    command: SubmitQuote = _AS_PRICED,
    generation: int = 1,
    earlier: EarlierApproval | None = None,
    gone: frozenset[str] = frozenset(),
    delegations: tuple[Delegation, ...] = (),
    asked_today: int = 0,
    pdf_stopped: bool = False,
) -> Decision:
    """Request the approval that the policy requires, unless it requires none or an earlier decision still holds.

    A `command` with a note submits the same version again after a wish for changes: people always decide about it.
    `requests` counts the version's earlier requests; `generation` is the ledger's. `earlier` is the last decision by people on the
    quote, with the price they saw; `gone` are those of them who are no longer known to be full members of the workspace.
    `asked_today` counts this user's requests for approval since midnight, UTC: the model summarizes only a limited number of them.
    `pdf_stopped` is as of `decide`.
    """
    if refusal := foreign(asked, quote) or seen_another_version(asked, quote) or _not_now(asked, quote, command):
        return refusal
    again = command.note is not None
    if asked.received_at >= quote.valid_until:
        text = lifecycle_messages.expired(quote, "submit")
        return refused(asked, quote.quote_id, quote.channel, "expired", text, clone=quote.version)
    policy = evaluate(quote.pricing, rules.policy)
    if policy.blocked:
        return refused(asked, quote.quote_id, quote.channel, "blocked", messages.blocked(quote, policy))
    if again and policy.automatic:
        text = lifecycle_messages.nobody_to_ask(quote)
        return refused(asked, quote.quote_id, quote.channel, "nobody_to_ask", text)
    approval_id = approval_id_for(quote.quote_id, quote.version, requests + 1, generation)
    submitted = AuditEvent("quote.submitted", quote.quote_id, before=facts(quote), after={"approval_id": approval_id})
    stamp = PolicyStamp(rules.policy.label, rules.ruleset.hash, rules.timing, rules.policy.roles)
    settled = None if again else _settled(asked, approval_id, quote, policy, earlier, rules, gone)
    if settled is not None:
        after = replace(quote, state=QuoteState.APPROVED, approval=replace(settled, policy=stamp))
        kind = "approval.automatic" if settled.earlier is None else "approval.reused"
        events = (submitted, AuditEvent(kind, quote.quote_id, after=approval_facts(after)))
        return _approved(asked, after, root, events, pdf_stopped=pdf_stopped)
    approval = open_request(
        approval_id,
        quote,
        policy,
        rules.approvers,
        asked_by=asked.actor,
        at=asked.received_at,
        timing=stamp.timing,
        zones=rules.zones,
    )
    approval = replace(approval, policy=stamp, note=command.note)
    after = replace(quote, state=QuoteState.PENDING_APPROVAL, approval=approval)
    text = messages.approval_notice(after, approval, rules.who_may_decide(approval, quote.makers, delegations))
    return Decision(
        "applied",
        {"code": "submitted", "quote_id": quote.quote_id, "text": messages.submitted(after, approval)},
        after,
        (
            effects.card(quote.quote_id, root),
            effects.notice(quote.quote_id, root, text),
            *((effects.summarize(quote.quote_id, quote.version),) if asked_today < rules.summaries_per_day else ()),
        ),
        (submitted, AuditEvent("approval.requested", quote.quote_id, after=approval_facts(after))),
    )


def _not_now(asked: Asked, quote: Quote, command: SubmitQuote) -> Decision | None:
    """Refuse a submission by the quote's state, and one with a note that answers an earlier request than the last."""
    note, approval = command.note, quote.approval
    if note is not None and may_be_submitted(quote):
        return refused(asked, quote.quote_id, quote.channel, "needs_no_note", lifecycle_messages.needs_no_note(quote))
    if not (may_be_submitted(quote) if note is None else quote.sent_back):
        return _submitted_again(asked, quote)
    if note is not None and len(note) > REASON_CHARACTERS_MAX:
        text = lifecycle_messages.too_long("note", REASON_CHARACTERS_MAX)
        return refused(asked, quote.quote_id, quote.channel, "too_long", text)
    if command.approval_id is None or (approval is not None and approval.approval_id == command.approval_id):
        return None
    return refused(asked, quote.quote_id, quote.channel, "stale", lifecycle_messages.not_offered(quote, "submit"))


def _submitted_again(asked: Asked, quote: Quote) -> Decision:
    """Refuse a submission by the quote's state; one that repeats a pending request learns who asked first, and when."""
    approval = quote.approval if quote.state is QuoteState.PENDING_APPROVAL else None
    if approval is None:
        return refused(asked, quote.quote_id, quote.channel, "wrong_state", lifecycle_messages.not_offered(quote, "submit"))
    known = {"approval_id": approval.approval_id, "since": approval.requested_at, "requested_by": approval.requested_by}
    event = AuditEvent("approval.duplicate_suppressed", quote.quote_id, after={**known, "actor": asked.actor})
    text = messages.already_submitted(quote, approval)
    return refused(asked, quote.quote_id, quote.channel, "wrong_state", text, (event,))


def may_be_submitted(quote: Quote) -> bool:
    """Return true if approval may be requested: for a priced quote, and again after a request expired undecided."""
    if quote.state is QuoteState.PRICED:
        return True
    lapsed = quote.approval is not None and quote.approval.state is ApprovalState.EXPIRED
    return quote.state is QuoteState.PENDING_APPROVAL and lapsed


def decide(
    asked: Asked,
    command: DecideApproval,
    quote: Quote,
    root: str,
    rules: Rules,
    *,
    delegations: tuple[Delegation, ...] = (),
    acted_for_others: bool = False,
    pdf_stopped: bool = False,
) -> Decision:
    """Apply one person's decision, if they are authorized, to the version they saw. The first valid decision of a slot wins.

    `acted_for_others`: the same person acted on this quote in another person's name. `pdf_stopped`: no PDF is rendered at present.
    """
    verdict = _verdict(asked, command, quote, rules, delegations)
    if isinstance(verdict, Mandate) and acted_for_others:
        verdict = _no_authority(asked, quote, "acted_for_others", approval_messages.acted_for_others(quote.quote_id))
    if isinstance(verdict, Decision):
        return verdict
    approval = quote.approval
    assert approval is not None  # noqa: S101 -- a mandate exists only for a request
    decided = answered(
        approval,
        verdict,
        asked.actor,
        command.decision,
        command.reason,
        at=asked.received_at,
        timing=_timing(approval, rules),
        holders=rules.approvers,
        zones=rules.zones,
    )
    after = replace(quote, state=_AFTER[decided.state], approval=decided)
    before, now = approval_facts(quote), approval_facts(after)
    if decided.state is ApprovalState.APPROVED:
        events = (AuditEvent("approval.approved", quote.quote_id, before, now),)
        return _approved(asked, after, root, events, pdf_stopped=pdf_stopped)
    if decided.state is ApprovalState.PENDING:
        waiting = rules.who_may_decide(decided, quote.makers, delegations)
        code, kind, text = "approved_in_part", "slot_approved", approval_messages.progress(after, decided, waiting)
    elif decided.state is ApprovalState.REJECTED:
        code, kind, text = "rejected", "rejected", messages.decided_notice(after, decided)
    else:
        code, kind, text = "changes_requested", "changes_requested", approval_messages.changes_requested(after, decided)
    return Decision(
        "applied",
        {"code": code, "quote_id": quote.quote_id, "text": text},
        after,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, text)),
        (AuditEvent(f"approval.{kind}", quote.quote_id, before, now),),
    )


def withdrawn(quote: Quote, at: int) -> Quote:
    """Return the quote with its pending request invalidated at `at` (Unix ms): a new version or an end stops the request."""
    return quote if quote.approval is None else replace(quote, approval=invalidated(quote.approval, at))


def withdrawal_events(quote: Quote, at: int) -> tuple[AuditEvent, ...]:
    """Return the audit event of the invalidation; none if no request was pending."""
    after = withdrawn(quote, at)
    if after == quote:
        return ()
    return (AuditEvent("approval.invalidated", quote.quote_id, approval_facts(quote), approval_facts(after)),)


def _timing(approval: Approval, rules: Rules) -> Timing:
    """Return the deadlines of the policy that the request was made under."""
    return rules.timing if approval.policy is None else approval.policy.timing


def approval_facts(quote: Quote) -> dict[str, Any]:
    """Return the audited facts of a quote and its request: figures, ids, decisions and on whose behalf; no free text."""
    approval = quote.approval
    if approval is None:
        return facts(quote)
    kept = {} if approval.earlier is None else {"earlier": approval.earlier}
    kept |= {} if approval.policy is None else {"policy": approval.policy.label}
    kept |= {} if approval.note is None else {"note_sha256": digest([approval.approval_id, approval.note])}
    return {**facts(quote), **kept, "slots": [_slot_facts(approval, slot) for slot in approval.slots]}


def follow_up(
    asked: Asked,
    command: SlotCommand,
    quote: Quote,
    root: str,
    rules: Rules,
    *,
    delegations: tuple[Delegation, ...] = (),
    copies: Mapping[str, str | None] = MappingProxyType({}),
) -> Decision:
    """Remind about, escalate or expire a slot that still waits; remind about all open slots if a person asks.

    `copies` are the people whom a direct message asks to decide, each with the effect that posts it if it is not posted yet.
    """
    if asked.actor_type != "system" and isinstance(command, RemindApprover) and command.slot == ALL_OPEN:
        return _remind_again(asked, command, quote, root, rules, delegations, copies)
    if asked.actor_type != "system":
        return refused(asked, quote.quote_id, quote.channel, "scheduled_only", _(approval_messages.SCHEDULED_ONLY))
    after = _moved(asked, command, quote, rules)
    if after is None:
        return refused(asked, quote.quote_id, quote.channel, "slot_not_due", approval_messages.not_due(quote))
    moved = replace(quote, approval=after)
    slot = slot_of(after, command.slot)
    assert slot is not None  # noqa: S101 -- it was just moved
    if isinstance(command, RemindApprover):
        return _reminders(asked, quote, moved, root, (slot,), rules, delegations, copies)
    who = asked_people(slot, rules.approvers, delegations, (after.requested_by, *quote.makers), after.roles)
    if isinstance(command, ReassignApproval):
        kind, text = "reassigned", approval_messages.reassignment(moved, slot, who, _gone_from(quote, command.slot, rules))
    elif isinstance(command, EscalateApproval):
        kind, text = "escalated", approval_messages.escalation(moved, slot, who, asked.received_at)
    else:
        kind, text = "expired", approval_messages.request_expired(moved, after)
    return Decision(
        "applied",
        {"code": kind, "quote_id": quote.quote_id, "text": text},
        moved,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, text)),
        (AuditEvent(f"approval.{kind}", quote.quote_id, approval_facts(quote), approval_facts(moved)),),
    )


def _remind_again(
    asked: Asked,
    command: RemindApprover,
    quote: Quote,
    root: str,
    rules: Rules,
    delegations: tuple[Delegation, ...],
    copies: Mapping[str, str | None],
) -> Decision:
    """Remind about every open slot, because a person asks, unless the last reminder of one of them is too recent."""
    if refusal := foreign(asked, quote) or seen_another_version(asked, quote):
        return refusal
    approval = _open_request(asked, command, quote)
    if approval is None:
        text = approval_messages.nobody_to_remind(quote)
        return refused(asked, quote.quote_id, quote.channel, "not_pending", text)
    after = reminded_again(approval, asked.received_at)
    if not isinstance(after, Approval):
        text = approval_messages.reminded_already(after, approval.roles)
        return refused(asked, quote.quote_id, quote.channel, "reminded_already", text)
    slots = tuple(slot for slot in after.slots if slot.is_open)
    return _reminders(asked, quote, replace(quote, approval=after), root, slots, rules, delegations, copies)


def _reminders(
    asked: Asked,
    before: Quote,
    quote: Quote,
    root: str,
    slots: tuple[Slot, ...],
    rules: Rules,
    delegations: tuple[Delegation, ...],
    copies: Mapping[str, str | None],
) -> Decision:
    """Remind in the thread about each slot, and each person whom one asks below their direct message."""
    approval, at, expires_at = quote.approval, asked.received_at, asked.received_at + effects.REMINDER_MS
    assert approval is not None  # noqa: S101 -- it was just moved
    askers = (approval.requested_by, *quote.makers)
    notices: dict[str, EffectIntent] = {}
    directly: dict[str, EffectIntent] = {}
    for slot in slots:
        who = asked_people(slot, rules.approvers, delegations, askers, approval.roles)
        text = approval_messages.reminder(quote, slot, who, at)
        notices[text] = effects.notice(quote.quote_id, root, text, expires_at=expires_at, decide=bool(who))
        again = approval_messages.reminder_of_one(quote, slot, at)
        for user in (user for user in who if user in copies and user not in directly):
            directly[user] = effects.remind_directly(quote.quote_id, approval.approval_id, user, copies[user], again, expires_at)
    return Decision(
        "applied",
        {"code": "reminded", "quote_id": quote.quote_id, "text": "\n".join(notices)},
        quote,
        (*notices.values(), *directly.values()),
        (AuditEvent("approval.reminded", quote.quote_id, approval_facts(before), approval_facts(quote)),),
    )


def delegate(asked: Asked, command: DelegateApprovals, rules: Rules, away: tuple[Delegation, ...] = ()) -> Decision:
    """Delegate the user's decisions to a person of equal or higher authority, until the user is back.

    `away` are the user's absences, and those in which the delegate takes part. A new absence replaces the user's others that it
    overlaps; their delegates are told. Delegation is not transitive: the delegate's own delegate is not asked.
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
        text, said = _(approval_messages.BACK_IN_OFFICE), approval_messages.covering_ended(command.absent)
        told = {each.delegate: said for each in away}
    else:
        text = approval_messages.delegated(command.delegate, command.until, rules.zone_of(command.absent), since=command.since)
        since = asked.received_at if command.since is None else command.since
        covered = Delegation(command.absent, command.delegate, since, command.until, command.reason)
        said = approval_messages.covering(covered, asked.received_at, rules.zone_of(command.delegate))
        replaced = [each.delegate for each in away if each.absent == command.absent and each.overlaps(since, command.until)]
        told = dict.fromkeys(replaced, approval_messages.covering_replaced(command.absent, command.delegate)) | {
            command.delegate: said
        }
    later = {} if command.since is None else {"since": command.since}
    after = {"absent": command.absent, "delegate": command.delegate, **later, "until": command.until}
    return Decision(
        "applied",
        {"code": "delegation_ended" if ended else "delegated", "quote_id": None, "text": text},
        None,
        (
            effects.reply(where, asked.actor, None, text, asked.received_at),
            *(effects.tell(where, user, said, asked.received_at) for user, said in told.items()),
        ),
        (AuditEvent("delegation.ended" if ended else "delegation.set", where, after=after),),
    )


def _gone_from(quote: Quote, number: int, rules: Rules) -> tuple[str, ...]:
    """Return the people whom a slot asked personally and who are gone; none if it asked a role."""
    slot = None if quote.approval is None else slot_of(quote.approval, number)
    return () if slot is None or slot.assignee not in rules.gone else (str(slot.assignee),)


def _open_request(asked: Asked, command: SlotCommand, quote: Quote) -> Approval | None:
    """Return the request that a command is about while it waits for decisions, else None."""
    approval = quote.approval
    if approval is None or approval.approval_id != command.approval_id or approval.state is not ApprovalState.PENDING:
        return None
    if quote.state is not QuoteState.PENDING_APPROVAL or asked.team_id != quote.team_id or asked.received_at >= quote.valid_until:
        return None
    return approval


def _moved(asked: Asked, command: SlotCommand, quote: Quote, rules: Rules) -> Approval | None:
    approval, at = _open_request(asked, command, quote), asked.received_at
    if approval is None:
        return None
    if isinstance(command, RemindApprover):
        return reminded(approval, command.slot, at)
    if isinstance(command, ReassignApproval):
        return reassigned(approval, command.slot, rules.approvers, quote.makers, rules.gone)
    if isinstance(command, EscalateApproval):
        timing, zones = _timing(approval, rules), rules.zones
        return escalated(approval, command.slot, rules.approvers, quote.makers, at=at, timing=timing, zones=zones)
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
        "lower_scope": not covers(rules.roles_of(command.delegate), scope, rules.policy.roles),
        "delegate_away": any(each.absent == command.delegate and each.overlaps(since, command.until) for each in away),
    }
    return next((code for code, speaks_against in objections.items() if speaks_against), None)


def _slot_facts(approval: Approval, slot: Slot) -> dict[str, Any]:
    incident = INCIDENT.search(slot.reason or "") if slot.dual_control else None
    return {
        "slot": slot.number,
        "role": slot.role,
        "state": slot.state.value,
        "asked": list(slot.asked),
        "decided_by": slot.decided_by,
        "decided_role": slot.decided_role,
        "on_behalf_of": slot.on_behalf_of,
        **({} if slot.reason is None else {"reason_sha256": digest([approval.approval_id, slot.reason])}),
        **({} if incident is None else {"incident": incident.group()}),
    }


def _settled(
    asked: Asked,
    approval_id: str,
    quote: Quote,
    policy: PolicyDecision,
    earlier: EarlierApproval | None,
    rules: Rules,
    gone: frozenset[str],
) -> Approval | None:
    """Return an approval without a request: automatic, or by an earlier decision that still holds; None if people must decide."""
    if policy.automatic:
        return Approval(
            approval_id=approval_id,
            quote_id=quote.quote_id,
            quote_version=quote.version,
            required_roles=(),
            reasons=policy.hits,
            state=ApprovalState.APPROVED,
            requested_by=asked.actor,
            requested_at=asked.received_at,
            decided_at=asked.received_at,
        )
    if earlier is None:
        return None
    return reused(
        approval_id,
        quote,
        policy,
        earlier,
        rules.approvers,
        asked_by=asked.actor,
        at=asked.received_at,
        gone=gone,
        tolerance_percent=rules.reuse_tolerance_percent,
    )


def _verdict(
    asked: Asked, command: DecideApproval, quote: Quote, rules: Rules, delegations: tuple[Delegation, ...]
) -> Mandate | Decision:
    """Return the slots that the decision covers, or the refusal. Users of other workspaces learn nothing about the quote."""
    if refusal := foreign(asked, quote):
        return replace(refusal, events=(_refused_event(asked, quote, "foreign_team"),))
    if refusal := seen_another_version(asked, quote):
        return refusal
    approval = quote.approval
    if approval is None or approval.approval_id != command.approval_id:
        text = lifecycle_messages.not_offered(quote, command.decision)
        return refused(asked, quote.quote_id, quote.channel, "stale", text)
    kind = "bot" if asked.actor_type == "system" else asked.actor_kind
    person = rules.person(asked.actor, asked.team_id, delegations, kind)
    verdict = may_decide(approval, quote, person, received_at=asked.received_at)
    if not isinstance(verdict, Mandate):
        return _no_authority(asked, quote, verdict.code, verdict.sentence)
    return _unreasoned(asked, command, quote, approval, verdict) or verdict


def _unreasoned(asked: Asked, command: DecideApproval, quote: Quote, approval: Approval, mandate: Mandate) -> Decision | None:
    """Refuse a rejection without a reason, and an approval under dual control whose reason names no incident."""
    reason = (command.reason or "").strip()
    if command.decision != "approve":
        return None if reason else refused(asked, quote.quote_id, quote.channel, "reason_needed", _(messages.REASON_NEEDED))
    taken = {one.number for one in mandate.taken}
    named = INCIDENT.search(reason) is not None and len(INCIDENT.sub("", reason).strip()) >= WRITTEN_CHARACTERS_MIN
    if named or not any(slot.dual_control for slot in approval.slots if slot.number in taken):
        return None
    return refused(asked, quote.quote_id, quote.channel, "incident_needed", _(approval_messages.INCIDENT_NEEDED))


def _no_authority(asked: Asked, quote: Quote, code: str, text: str) -> Decision:
    return refused(asked, quote.quote_id, quote.channel, code, text, (_refused_event(asked, quote, code),))


def _approved(asked: Asked, quote: Quote, root: str, events: tuple[AuditEvent, ...], *, pdf_stopped: bool) -> Decision:
    """Approve the quote: enqueue its PDF, whose comment tells it in the thread, and its record in Salesforce.

    With `pdf_stopped` a notice tells it at once.
    """
    approval = quote.approval
    assert approval is not None  # noqa: S101 -- both callers set it
    notice = messages.decided_notice(quote, approval) if approval.earlier is None else approval_messages.reused(quote, approval)
    return Decision(
        "applied",
        {"code": "approved", "quote_id": quote.quote_id, "ref": asked.correlation_id, "text": notice},
        quote,
        (
            effects.card(quote.quote_id, root),
            *((effects.notice(quote.quote_id, root, messages.approved(quote)),) if pdf_stopped else ()),
            effects.render(quote.quote_id, quote.version, announces=not pdf_stopped),
            effects.create_in_crm(quote.quote_id, quote.version),
        ),
        events,
    )


def _refused_event(asked: Asked, quote: Quote, code: str) -> AuditEvent:
    return AuditEvent("approval.refused", quote.quote_id, after={"code": code, "actor": asked.actor})
