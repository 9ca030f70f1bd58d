"""What asking for approval and deciding about it come to. Pure, as everything in this package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import effects, words
from quotebot.domain.approvals import DecidingRole, may_decide
from quotebot.domain.policy import evaluate
from quotebot.domain.quotes import Approval, ApprovalState, Quote, QuoteState, approval_id_for
from quotebot.handlers.quotes import Decision, facts, foreign, refused, seen_another_version

if TYPE_CHECKING:
    from quotebot.commands import DecideApproval
    from quotebot.handlers.quotes import Asked, Rules


def submit(asked: Asked, quote: Quote, root: str, requests: int, rules: Rules) -> Decision:
    """Ask for the approval the policy wants; a quote that needs nobody is approved at once. `requests`: earlier requests."""
    if refusal := foreign(asked, quote) or seen_another_version(asked, quote):
        return refusal
    if quote.state is not QuoteState.PRICED:
        return refused(asked, quote.quote_id, quote.channel, "wrong_state", words.wrong_state(quote, "submit"))
    if asked.received_at >= quote.valid_until:
        return refused(asked, quote.quote_id, quote.channel, "expired", words.expired(quote, "submit"))
    policy = evaluate(quote.pricing, rules.policy)
    if policy.blocked:
        return refused(asked, quote.quote_id, quote.channel, "blocked", words.blocked(quote, policy))
    approval = Approval(
        approval_id=approval_id_for(quote.quote_id, quote.version, requests + 1),
        quote_id=quote.quote_id,
        quote_version=quote.version,
        required_roles=policy.required_roles,
        reasons=policy.hits,
        state=ApprovalState.PENDING,
        requested_by=asked.actor,
        requested_at=asked.received_at,
    )
    submitted = AuditEvent("quote.submitted", quote.quote_id, before=facts(quote), after={"approval_id": approval.approval_id})
    if policy.automatic:
        approved = replace(approval, state=ApprovalState.APPROVED, decided_at=asked.received_at)
        after = replace(quote, state=QuoteState.APPROVED, approval=approved)
        return _approved(asked, after, root, (submitted, AuditEvent("approval.automatic", quote.quote_id, after=facts(after))))
    after = replace(quote, state=QuoteState.PENDING_APPROVAL, approval=approval)
    text = words.approval_notice(after, approval, rules.who_may_decide(approval, quote.requester))
    return Decision(
        "applied",
        {"code": "submitted", "quote_id": quote.quote_id, "text": words.submitted(after, approval)},
        after,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, text)),
        (submitted, AuditEvent("approval.requested", quote.quote_id, after=facts(after))),
    )


def decide(asked: Asked, command: DecideApproval, quote: Quote, root: str, rules: Rules) -> Decision:
    """Approve or reject, if this person may, now, on the version they saw. The first valid decision wins."""
    verdict = _verdict(asked, command, quote, rules)
    if isinstance(verdict, Decision):
        return verdict
    approval = quote.approval
    assert approval is not None  # noqa: S101 -- nobody may decide where nothing is asked
    rejecting = command.decision == "reject"
    decided = replace(
        approval,
        state=ApprovalState.REJECTED if rejecting else ApprovalState.APPROVED,
        decided_by=asked.actor,
        decided_role=verdict.role,
        decided_at=asked.received_at,
        decision_reason=command.reason,
    )
    after = replace(quote, state=QuoteState.REJECTED if rejecting else QuoteState.APPROVED, approval=decided)
    if not rejecting:
        return _approved(asked, after, root, (AuditEvent("approval.approved", quote.quote_id, facts(quote), facts(after)),))
    notice = words.decided_notice(after, decided)
    return Decision(
        "applied",
        {"code": "rejected", "quote_id": quote.quote_id, "text": notice},
        after,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, notice)),
        (AuditEvent("approval.rejected", quote.quote_id, facts(quote), facts(after)),),
    )


def _verdict(asked: Asked, command: DecideApproval, quote: Quote, rules: Rules) -> DecidingRole | Decision:
    """Return the role that lets the person decide, or the refusal. Strangers learn nothing of the quote, not even its version."""
    if refusal := foreign(asked, quote):
        return replace(refusal, events=(_refused_event(asked, quote, "foreign_team"),))
    if refusal := seen_another_version(asked, quote):
        return refusal
    approval = quote.approval
    if approval is None or approval.approval_id != command.approval_id:
        return _stale_request(asked, command, quote)
    roles = rules.roles_of(asked.actor)
    verdict = may_decide(approval, quote, asked.actor, roles, asked.team_id, received_at=asked.received_at)
    if not isinstance(verdict, DecidingRole):
        refusal = refused(asked, quote.quote_id, quote.channel, verdict.code, words.refusal(verdict))
        return replace(refusal, events=(_refused_event(asked, quote, verdict.code),))
    if command.decision == "reject" and not (command.reason or "").strip():
        return refused(asked, quote.quote_id, quote.channel, "reason_needed", words.reason_needed())
    return verdict


def _stale_request(asked: Asked, command: DecideApproval, quote: Quote) -> Decision:
    return refused(asked, quote.quote_id, quote.channel, "stale", words.wrong_state(quote, command.decision))


def _approved(asked: Asked, quote: Quote, root: str, events: tuple[AuditEvent, ...]) -> Decision:
    """An approved quote owes its PDF in the thread and its record in Salesforce, whoever approved it."""
    assert quote.approval is not None  # noqa: S101 -- both callers set it
    notice = words.decided_notice(quote, quote.approval)
    return Decision(
        "applied",
        {"code": "approved", "quote_id": quote.quote_id, "ref": asked.correlation_id, "text": notice},
        quote,
        (
            effects.card(quote.quote_id, root),
            effects.notice(quote.quote_id, root, notice),
            effects.render(quote.quote_id, quote.version),
            effects.create_in_crm(quote.quote_id, quote.version),
        ),
        events,
    )


def _refused_event(asked: Asked, quote: Quote, code: str) -> AuditEvent:
    return AuditEvent("approval.refused", quote.quote_id, after={"code": code, "actor": asked.actor})
