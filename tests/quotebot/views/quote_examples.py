"""An example quote in any state."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from typing import Any

from quotebot.domain.approvals.policy import Timing
from quotebot.domain.catalogue.rulesets import parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, dated, price
from quotebot.domain.quotes.quote import Approval, ApprovalState, Quote, QuoteState, Slot, SlotState

MORNING = 1_795_257_060_000  # 21 Nov 2026, 10:31 UTC
RULESET = parse_ruleset_toml(files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8"))
CATALOGUE = RULESET.catalogue
GOLDEN = (LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1))


def example_pricing(discount: str = "15", lines: tuple[LineRequest, ...] = GOLDEN) -> Pricing:
    pricing = price(dated(PriceRequest(lines, 12, Decimal(discount)), MORNING), RULESET)
    assert isinstance(pricing, Pricing)
    return pricing


def example_approval(**changes: Any) -> Approval:
    pending = Approval(
        approval_id="A-2026-0042-v1-1",
        quote_id="Q-2026-0042",
        quote_version=1,
        required_roles=("sales_manager",),
        reasons=("discount 15% (limit 10%)",),
        state=ApprovalState.PENDING,
        requested_by="U0REP",
        requested_at=MORNING - 60_000,
    )
    wanted = replace(pending, **changes)
    return wanted if "slots" in changes else replace(wanted, slots=example_slots(wanted))


def example_slots(approval: Approval) -> tuple[Slot, ...]:
    """Return one slot per required role, in the state of the request."""
    opened = approval.requested_at
    timing = Timing()
    ended = "rejected" if approval.state is ApprovalState.CHANGES_REQUESTED else approval.state.value  # as in requests.answered
    state = SlotState(ended) if ended in set(SlotState) else SlotState.CLOSED
    by_person = state in (SlotState.APPROVED, SlotState.REJECTED) and approval.decided_by is not None
    return tuple(
        Slot(
            number=number,
            roles=(role,),
            asked=(role,),
            state=state if by_person or state is SlotState.PENDING else SlotState.CLOSED,
            opened_at=opened,
            remind_at=opened + timing.remind_ms,
            escalate_at=opened + timing.escalate_ms,
            expires_at=opened + timing.expire_ms,
            decided_by=approval.decided_by,
            decided_role=approval.decided_role if by_person else None,
            decided_at=approval.decided_at,
            reason=approval.decision_reason,
        )
        for number, role in enumerate(approval.required_roles, start=1)
    )


def decided(state: ApprovalState, **changes: Any) -> Approval:
    return example_approval(
        **{"state": state, "decided_by": "U0MANAGER", "decided_role": "sales_manager", "decided_at": MORNING, **changes}
    )


def example_quote(state: QuoteState = QuoteState.PRICED, **changes: Any) -> Quote:
    quote = Quote(
        quote_id="Q-2026-0042",
        version=1,
        state=state,
        account="Acme",
        requester="U0REP",
        team_id="T0HOME",
        channel="C0SALES",
        created_at=MORNING - 120_000,
        valid_until=MORNING + 30 * 86_400_000,
        pricing=example_pricing(),
        approval=None,
    )
    return replace(quote, **changes)


def quote_in(state: QuoteState) -> Quote:
    """Return the example in `state`, with the approval that such a quote has."""
    if state is QuoteState.DRAFT:
        return example_quote(state, approval=decided(ApprovalState.CHANGES_REQUESTED, decision_reason="Leave SSO out."))
    if state in (QuoteState.VALIDATED, QuoteState.PRICED):
        return example_quote(state)
    if state is QuoteState.PENDING_APPROVAL:
        return example_quote(state, approval=example_approval())
    if state is QuoteState.REJECTED:
        return example_quote(state, approval=decided(ApprovalState.REJECTED, decision_reason="Too deep for this size.\nOffer 10%."))
    return example_quote(state, approval=decided(ApprovalState.APPROVED))
