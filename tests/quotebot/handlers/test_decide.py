from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import DecideApproval
from quotebot.domain.quotes.quote import ApprovalState, QuoteState, local_time
from quotebot.handlers.approvals import decide
from tests.quotebot.handlers.test_create_and_submit import ROOT, asked, check_refused, owed
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_quote

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Quote

APPROVE = DecideApproval("A-2026-0042-v1-1", "approve")
REJECT = DecideApproval("A-2026-0042-v1-1", "reject", "Too deep.\nOffer 10%.")
PENDING = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())
SECOND = example_quote(QuoteState.PENDING_APPROVAL, version=2, approval=example_approval(quote_version=2))
APPROVED = example_quote(QuoteState.APPROVED, approval=decided(ApprovalState.APPROVED))
CANCELLED = example_quote(QuoteState.CANCELLED, approval=example_approval())


def by(actor: str, **changes: Any) -> Any:
    return asked(actor=actor, **changes)


def test_approval_enqueues_card_pdf_and_crm_in_this_order() -> None:
    decision = decide(by("U0MANAGER"), APPROVE, PENDING, ROOT, RULES)
    assert decision.kind == "applied"
    assert decision.response == {
        "code": "approved",
        "quote_id": "Q-2026-0042",
        "ref": "c-abababab",
        "text": "<@U0REP> ✅ Q-2026-0042 was approved by <@U0MANAGER> (Sales Manager), "
        f"{local_time(MORNING)}. The PDF follows in this thread.",
    }
    assert owed(decision) == [(kind, "Q-2026-0042") for kind in ("slack.card", "pdf.render", "crm.create")]
    assert [effect.after for effect in decision.effects] == [ROOT, None, None]
    assert decision.effects[0].supersede_key == "card:Q-2026-0042"
    assert decision.effects[1].payload["announces"] is True
    assert [event.event_type for event in decision.events] == ["approval.approved"]


def test_an_approval_is_stored_with_who_under_which_role_and_when() -> None:
    quote = decide(by("U0CFO"), APPROVE, PENDING, ROOT, RULES).quote
    assert quote is not None
    assert quote.state is QuoteState.APPROVED
    assert quote.approval == decided(ApprovalState.APPROVED, decided_by="U0CFO", decided_role="cfo")


def test_rejection_enqueues_only_card_and_notice_with_the_reason() -> None:
    decision = decide(by("U0MANAGER"), REJECT, PENDING, ROOT, RULES)
    assert decision.quote is not None
    assert decision.quote.approval is not None
    assert (decision.response["code"], decision.quote.state) == ("rejected", QuoteState.REJECTED)
    assert decision.quote.approval.decision_reason == "Too deep.\nOffer 10%."
    assert owed(decision) == [("slack.card", "Q-2026-0042"), ("slack.post", "Q-2026-0042")]
    assert decision.effects[1].payload["text"].endswith("\n> Too deep.\n> Offer 10%.")
    assert [event.event_type for event in decision.events] == ["approval.rejected"]


REFUSALS: dict[str, tuple[str, dict[str, Any], DecideApproval, Quote]] = {
    "an older version was seen": ("stale", {"actor": "U0MANAGER"}, APPROVE, SECOND),
    "a newer version was seen": ("stale", {"actor": "U0MANAGER", "seen_version": 2}, APPROVE, PENDING),
    "another request was seen": ("stale", {"actor": "U0MANAGER"}, replace(APPROVE, approval_id="A-2026-0042-v1-9"), PENDING),
    "nothing was ever asked for": ("stale", {"actor": "U0MANAGER"}, APPROVE, example_quote()),
    "another workspace": ("foreign_team", {"actor": "U0MANAGER", "team_id": "T0OTHER"}, APPROVE, PENDING),
    "another workspace, on an older card": ("foreign_team", {"actor": "U0MANAGER", "team_id": "T0OTHER"}, APPROVE, SECOND),
    "no workspace at all": ("foreign_team", {"actor": "U0MANAGER", "team_id": ""}, APPROVE, PENDING),
    "one's own request": ("own_request", {"actor": "U0REP"}, APPROVE, PENDING),
    "one's own request, rejected": ("own_request", {"actor": "U0REP"}, REJECT, PENDING),
    "a request made for one's own quote": (
        "own_request",
        {"actor": "U0MANAGER"},
        APPROVE,
        replace(PENDING, requester="U0MANAGER"),
    ),
    "no role": ("missing_role", {"actor": "U0NOBODY"}, APPROVE, PENDING),
    "a role beside the ladder": ("missing_role", {"actor": "U0LEGAL"}, APPROVE, PENDING),
    "a lower role": (
        "missing_role",
        {"actor": "U0MANAGER"},
        APPROVE,
        replace(PENDING, approval=example_approval(required_roles=("cfo",))),
    ),
    "decided before": ("already_decided", {"actor": "U0CFO"}, APPROVE, APPROVED),
    "rejecting what is approved": ("already_decided", {"actor": "U0CFO"}, REJECT, APPROVED),
    "no longer waiting": ("not_pending", {"actor": "U0MANAGER"}, APPROVE, CANCELLED),
    "expired": ("expired", {"actor": "U0MANAGER"}, APPROVE, replace(PENDING, valid_until=MORNING)),
    "no reason": ("reason_needed", {"actor": "U0MANAGER"}, replace(REJECT, reason=None), PENDING),
    "a blank reason": ("reason_needed", {"actor": "U0MANAGER"}, replace(REJECT, reason=" \n "), PENDING),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_decision_is_refused_for(case: str) -> None:
    code, changes, command, quote = REFUSALS[case]
    check_refused(decide(asked(**changes), command, quote, ROOT, RULES), code, changes["actor"])


@pytest.mark.parametrize(
    "case",
    ["another workspace", "another workspace, on an older card", "one's own request", "no role", "decided before", "expired"],
)
def test_a_refused_authority_is_audited_with_code_and_person(case: str) -> None:
    code, changes, command, quote = REFUSALS[case]
    (event,) = decide(asked(**changes), command, quote, ROOT, RULES).events
    assert (event.event_type, event.after) == ("approval.refused", {"code": code, "actor": changes["actor"]})


def test_the_last_millisecond_of_validity_still_counts() -> None:
    decision = decide(by("U0MANAGER"), APPROVE, replace(PENDING, valid_until=MORNING + 1), ROOT, RULES)
    assert decision.response["code"] == "approved"


def test_roles_are_those_held_at_the_decision_not_at_the_request() -> None:
    rules = replace(RULES, approvers={**RULES.approvers, "sales_manager": ()})
    check_refused(decide(by("U0MANAGER"), APPROVE, PENDING, ROOT, rules), "missing_role", "U0MANAGER")


def test_the_audit_of_a_decision_holds_before_and_after_and_no_customer_name() -> None:
    (event,) = decide(by("U0MANAGER"), REJECT, PENDING, ROOT, RULES).events
    assert event.before is not None
    assert event.after is not None
    assert (event.before["state"], event.after["state"]) == ("pending_approval", "rejected")
    assert (event.after["decided_by"], event.after["decided_role"]) == ("U0MANAGER", "sales_manager")
    text = json.dumps([event.before, event.after])
    assert "Acme" not in text
    assert "Too deep" not in text


def test_the_next_higher_role_is_asked_when_the_only_holder_is_the_requester() -> None:
    assert RULES.who_may_decide(example_approval(), ("U0MANAGER",)) == ("U0DEALDESK",)
    assert RULES.who_may_decide(example_approval(), ("U0REP",)) == ("U0MANAGER",)
