"""Tests of the approval edge cases of the scenario list, EC-01 to EC-16: people, actions, times and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from quotebot.commands.payloads import DecideApproval, EscalateApproval, ExpireApproval, RemindApprover
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.approvals.policy import ApprovalPolicy, evaluate
from quotebot.domain.approvals.policy_document import parse_policy
from quotebot.domain.approvals.requests import invalidated, open_request
from quotebot.domain.approvals.reuse import EarlierApproval
from quotebot.domain.quotes.lifecycle import allowed
from quotebot.domain.quotes.quote import QuoteState, plain_times
from quotebot.handlers.approvals import decide, follow_up, submit
from quotebot.handlers.decision import Asked, Decision
from tests.quotebot.domain.test_policy import POLICY_TEXT, line, pricing
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from quotebot.commands.payloads import SlotCommand
    from quotebot.domain.quotes.quote import Quote

HOUR: Final = 60
ROOT: Final = "r" * 64
NEVER: Final = MORNING + 400 * 86_400_000
SCHEDULED: Final[dict[str, type[SlotCommand]]] = {"remind": RemindApprover, "escalate": EscalateApproval, "expire": ExpireApproval}
INCIDENT: Final = "Outage at the customer, see INC-4711: the discount keeps them."


def ruled(old: str, new: str) -> ApprovalPolicy:
    assert old in POLICY_TEXT
    return parse_policy(POLICY_TEXT.replace(old, new))


DUAL: Final = ruled('{ percent = 20, role = "vp_sales" }', '{ percent = 20, role = "vp_sales", dual_control = true }')
EVERY_VP: Final = ruled('{ amount = 500000, role = "vp_sales" }', '{ amount = 500000, role = "vp_sales", people = "all" }')
IN_TURN: Final = ruled('order = "parallel"', 'order = "sequential"')
LADDERED: Final = ruled("full_ladder = false", "full_ladder = true")
DUAL_IN_TURN: Final = replace(DUAL, order="sequential")
TWO_VPS: Final = {**RULES.approvers, "vp_sales": ("U0VP", "U0VP2")}
NO_LEGAL: Final = {**RULES.approvers, "legal": ()}
REVOKED: Final = {**RULES.approvers, "deal_desk": ()}


@dataclass(frozen=True, slots=True)
class Step:
    """One action after some minutes; `code` is the code of the answer, `says` a part of its text."""

    minutes: int
    actor: str
    deed: str
    code: str
    says: str = ""
    reason: str | None = None
    slot: int = 1
    changes: dict[str, Any] = field(default_factory=dict)  # of the actor: team_id, actor_kind
    approvers: dict[str, tuple[str, ...]] | None = None  # the roles from now on


@dataclass(frozen=True, slots=True)
class Case:
    """One case: the request, the approvals asked for, the steps, and the quote's final state."""

    steps: tuple[Step, ...]
    ends: QuoteState
    net: str = "120000"
    cost: str = "0"
    discount: str = "0"
    terms: frozenset[str] = frozenset()
    policy: ApprovalPolicy = POLICY
    approvers: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(RULES.approvers))
    away: tuple[Delegation, ...] = ()
    requester: str = "U0REP"
    roles: tuple[str, ...] | None = None  # the roles asked for
    asked: tuple[str, ...] | None = None  # the people asked first
    audited: tuple[dict[str, Any], ...] = ()  # what the events' `after` or one of their slots holds


LEGAL: Final = frozenset({"liability_cap"})
APPROVED, REJECTED, PENDING = QuoteState.APPROVED, QuoteState.REJECTED, QuoteState.PENDING_APPROVAL
AWAY: Final = (Delegation("U0VP", "U0CFO", MORNING, NEVER),)
LATE: Final = 72 * HOUR

CASES: Final[dict[str, Case]] = {
    "EC-01 a discount and a total match: the higher commercial authority decides": Case(
        discount="18",
        roles=("deal_desk",),
        asked=("U0DEALDESK",),
        steps=(Step(1, "U0MANAGER", "approve", "missing_role"), Step(2, "U0DEALDESK", "approve", "approved")),
        ends=APPROVED,
    ),
    "EC-02 vp_sales and legal, in parallel": Case(
        net="600000",
        terms=LEGAL,
        roles=("vp_sales", "legal"),
        asked=("U0VP", "U0LEGAL"),
        steps=(
            Step(1, "U0LEGAL", "approve", "approved_in_part", says="<@U0VP>, you're next: it still needs VP Sales"),
            Step(2, "U0LEGAL", "approve", "already_decided", says="still waits for VP Sales or above"),
            Step(3, "U0VP", "approve", "approved", says="by <@U0VP> (VP Sales) and <@U0LEGAL> (Legal)"),
        ),
        ends=APPROVED,
    ),
    "EC-02 in the other order, by one who holds more": Case(
        net="600000",
        terms=LEGAL,
        steps=(Step(1, "U0CFO", "approve", "approved_in_part"), Step(2, "U0LEGAL", "approve", "approved")),
        ends=APPROVED,
    ),
    "EC-02 one no is enough": Case(
        net="600000",
        terms=LEGAL,
        steps=(
            Step(1, "U0VP", "approve", "approved_in_part"),
            Step(2, "U0LEGAL", "reject", "rejected", reason="No cap.", says="was rejected by <@U0LEGAL> (Legal)"),
            Step(3, "U0CFO", "approve", "already_decided"),
        ),
        ends=REJECTED,
    ),
    "EC-02 one after the other, when the policy says so": Case(
        net="600000",
        terms=LEGAL,
        policy=IN_TURN,
        asked=("U0VP",),
        steps=(
            Step(1, "U0LEGAL", "approve", "not_your_turn", says="VP Sales or above goes first"),
            Step(2, "U0VP", "approve", "approved_in_part", says="<@U0LEGAL>, you're next: it still needs Legal"),
            Step(3, "U0LEGAL", "approve", "approved"),
        ),
        ends=APPROVED,
    ),
    "EC-03 a thin margin and a legal term: cfo and legal": Case(
        net="1000",
        cost="700",
        terms=LEGAL,
        roles=("cfo", "legal"),
        steps=(
            Step(1, "U0VP", "approve", "missing_role"),
            Step(2, "U0CFO", "approve", "approved_in_part"),
            Step(3, "U0LEGAL", "approve", "approved"),
        ),
        ends=APPROVED,
    ),
    "EC-04 approve, then reject: the first wins, the second is told who and when": Case(
        steps=(
            Step(1, "U0DEALDESK", "approve", "approved"),
            Step(
                1,
                "U0CFO",
                "reject",
                "already_decided",
                reason="No.",
                says="was already approved by <@U0DEALDESK> (Deal Desk), 21 Nov 2026, 10:32 UTC",
            ),
        ),
        audited=({"code": "already_decided", "actor": "U0CFO"},),
        ends=APPROVED,
    ),
    "EC-04 reject, then approve": Case(
        steps=(
            Step(1, "U0CFO", "reject", "rejected", reason="No."),
            Step(1, "U0DEALDESK", "approve", "already_decided", says="rejected by <@U0CFO> (CFO), 21 Nov 2026, 10:32 UTC"),
        ),
        audited=({"code": "already_decided", "actor": "U0DEALDESK"},),
        ends=REJECTED,
    ),
    "EC-05 the quote changed after the request was posted": Case(
        steps=(
            Step(1, "", "revise", ""),
            Step(2, "U0DEALDESK", "approve", "stale", says="Q-2026-0042 changed since you opened v1: it's now v2"),
            Step(3, "U0REP", "submit", "submitted"),
            Step(4, "U0DEALDESK", "approve", "approved", changes={"seen_version": 2}),
        ),
        ends=APPROVED,
    ),
    "EC-06 the approver is the requester: the next authority is asked": Case(
        requester="U0DEALDESK",
        asked=("U0VP",),
        steps=(Step(1, "U0DEALDESK", "approve", "own_request"), Step(2, "U0VP", "approve", "approved")),
        audited=({"code": "own_request", "actor": "U0DEALDESK"},),
        ends=APPROVED,
    ),
    "EC-06 nobody stands in for the requester": Case(
        requester="U0DEALDESK",
        away=(Delegation("U0DEALDESK", "U0CFO", MORNING, NEVER),),
        steps=(Step(1, "U0CFO", "approve", "approved"),),
        audited=({"decided_by": "U0CFO", "on_behalf_of": None},),
        ends=APPROVED,
    ),
    "EC-06 a delegate who asked for it is not asked": Case(
        requester="U0CFO",
        net="600000",
        away=AWAY,
        asked=("U0VP",),
        steps=(Step(1, "U0CFO", "approve", "own_request"), Step(2, "U0VP", "approve", "approved")),
        ends=APPROVED,
    ),
    "EC-07 the role was revoked between post and click": Case(
        asked=("U0DEALDESK",),
        steps=(
            Step(1, "U0DEALDESK", "approve", "missing_role", approvers=REVOKED),
            Step(2, "U0VP", "approve", "approved"),
        ),
        audited=({"code": "missing_role", "actor": "U0DEALDESK"},),
        ends=APPROVED,
    ),
    "EC-08 out of office: the delegate decides, both are named": Case(
        net="600000",
        away=AWAY,
        asked=("U0CFO",),
        steps=(Step(1, "U0CFO", "approve", "approved", says="by <@U0CFO> (CFO, for <@U0VP>)"),),
        audited=({"decided_by": "U0CFO", "on_behalf_of": "U0VP", "decided_role": "cfo"},),
        ends=APPROVED,
    ),
    "EC-08 where each of a group has to, a delegate stands in for one of them": Case(
        net="600000",
        policy=EVERY_VP,
        approvers=TWO_VPS,
        away=AWAY,
        asked=("U0CFO", "U0VP2"),
        steps=(
            Step(1, "U0VP2", "approve", "approved_in_part"),
            Step(2, "U0CFO", "approve", "approved", says="<@U0CFO> (CFO, for <@U0VP>) and <@U0VP2> (VP Sales)"),
        ),
        ends=APPROVED,
    ),
    "EC-09 a delegate of lower scope": Case(
        net="600000",
        away=(Delegation("U0VP", "U0MANAGER", MORNING, NEVER),),
        asked=("U0VP",),
        steps=(Step(1, "U0MANAGER", "approve", "delegate_scope", says="Covering for <@U0VP> isn't enough here"),),
        audited=({"code": "delegate_scope", "actor": "U0MANAGER"},),
        ends=PENDING,
    ),
    "EC-09 a delegation that has ended": Case(
        net="600000",
        policy=EVERY_VP,
        approvers=TWO_VPS,
        away=(Delegation("U0VP", "U0CFO", MORNING, MORNING + 60_000),),
        steps=(
            Step(1, "U0CFO", "approve", "not_asked", says="is assigned to <@U0VP>, <@U0VP2>"),
            Step(2, "U0VP", "approve", "approved_in_part"),
        ),
        ends=PENDING,
    ),
    "EC-10 no answer: a reminder after 2 h, a higher authority after 4 h, never an approval": Case(
        steps=(
            Step(2 * HOUR - 1, "", "remind", "slot_not_due"),
            Step(2 * HOUR, "", "remind", "reminded", says="Acme ($120,000.00) has been waiting for you for 2 hours"),
            Step(3 * HOUR, "", "remind", "slot_not_due"),
            Step(4 * HOUR - 1, "", "escalate", "slot_not_due"),
            Step(4 * HOUR, "", "escalate", "escalated", says="<@U0DEALDESK>, <@U0VP> can decide now"),
            Step(5 * HOUR, "", "escalate", "slot_not_due"),
            Step(8 * HOUR, "", "escalate", "escalated", says="<@U0DEALDESK>, <@U0VP>, <@U0CFO> can decide now"),
            Step(12 * HOUR, "", "escalate", "slot_not_due"),
            Step(13 * HOUR, "U0MANAGER", "approve", "missing_role"),
        ),
        audited=({"slot": 1, "state": "escalated", "asked": ["deal_desk", "vp_sales"]},),
        ends=PENDING,
    ),
    "EC-10 a person is no scheduler": Case(
        steps=(Step(5 * HOUR, "U0REP", "escalate", "scheduled_only"), Step(LATE, "U0CFO", "expire", "scheduled_only")),
        ends=PENDING,
    ),
    "EC-11 who was asked first may still decide after the escalation": Case(
        steps=(
            Step(4 * HOUR, "", "escalate", "escalated"),
            Step(5 * HOUR, "U0DEALDESK", "approve", "approved"),
            Step(6 * HOUR, "U0VP", "approve", "already_decided", says="<@U0DEALDESK> (Deal Desk), 21 Nov 2026, 15:31 UTC"),
        ),
        ends=APPROVED,
    ),
    "EC-11 the higher one decided meanwhile: the first is told": Case(
        steps=(
            Step(4 * HOUR, "", "escalate", "escalated"),
            Step(5 * HOUR, "U0VP", "reject", "rejected", reason="No."),
            Step(6 * HOUR, "U0DEALDESK", "approve", "already_decided", says="rejected by <@U0VP> (VP Sales)"),
            Step(7 * HOUR, "", "escalate", "slot_not_due"),
            Step(LATE, "", "expire", "slot_not_due"),
        ),
        ends=REJECTED,
    ),
    "EC-12 the request expired, then somebody clicks: refused, and it can be asked for again": Case(
        steps=(
            Step(LATE - 1, "", "expire", "slot_not_due"),
            Step(LATE, "", "expire", "expired", says="Deal Desk didn't decide about Q-2026-0042 in time. It isn't approved."),
            Step(LATE + 1, "U0DEALDESK", "approve", "request_expired", says="<@U0REP> can submit it again"),
            Step(LATE + 2, "", "remind", "slot_not_due"),
            Step(LATE + 3, "U0REP", "submit", "submitted"),
            Step(LATE + 4, "U0DEALDESK", "approve", "approved"),
        ),
        audited=({"code": "request_expired", "actor": "U0DEALDESK"},),
        ends=APPROVED,
    ),
    "EC-12 a click after the end counts as late although no job has run yet": Case(
        steps=(
            Step(LATE, "U0DEALDESK", "approve", "request_expired"),
            Step(LATE + 1, "U0CFO", "reject", "request_expired", reason="No."),
        ),
        ends=PENDING,
    ),
    "EC-13 guests, bots and other workspaces are refused and audited": Case(
        steps=(
            Step(1, "U0DEALDESK", "approve", "not_a_member", changes={"actor_kind": "guest"}),
            Step(2, "U0DEALDESK", "approve", "not_a_member", changes={"actor_kind": "bot"}),
            Step(3, "U0DEALDESK", "approve", "not_a_member", changes={"actor_type": "system"}),
            Step(4, "U0DEALDESK", "approve", "foreign_team", changes={"team_id": "T0OTHER"}),
            Step(5, "U0STRANGER", "approve", "missing_role"),
        ),
        audited=tuple(
            {"code": code, "actor": actor}
            for code, actor in (("not_a_member", "U0DEALDESK"), ("foreign_team", "U0DEALDESK"), ("missing_role", "U0STRANGER"))
        ),
        ends=PENDING,
    ),
    "EC-14 resubmitted and nothing got worse: approved by the earlier decision": Case(
        steps=(
            Step(1, "U0DEALDESK", "approve", "approved"),
            Step(2, "", "revise", "", changes={"net": "119999.99"}),
            Step(
                3, "U0REP", "submit", "approved", says="the approval of v1 by <@U0DEALDESK> (Deal Desk) still covers this version"
            ),
        ),
        audited=({"earlier": "A-2026-0042-v1-1", "approval_id": "A-2026-0042-v2-1"},),
        ends=APPROVED,
    ),
    "EC-14 one dimension got worse: it has to be asked for": Case(
        steps=(
            Step(1, "U0DEALDESK", "approve", "approved"),
            Step(2, "", "revise", "", changes={"net": "120000.01"}),
            Step(3, "U0REP", "submit", "submitted"),
        ),
        ends=PENDING,
    ),
    "EC-14 what was rejected is asked for again": Case(
        steps=(
            Step(1, "U0DEALDESK", "reject", "rejected", reason="No."),
            Step(2, "", "revise", ""),
            Step(3, "U0REP", "submit", "submitted"),
        ),
        ends=PENDING,
    ),
    "EC-15 dual control: two people, each with a reason that names the incident": Case(
        net="1000",
        discount="25",
        policy=DUAL,
        roles=("vp_sales",),
        steps=(
            Step(1, "U0VP", "approve", "incident_needed"),
            Step(2, "U0VP", "approve", "incident_needed", reason="It has to be, trust me."),
            Step(3, "U0VP", "approve", "incident_needed", reason="INC-4711"),
            Step(4, "U0VP", "approve", "approved_in_part", reason=INCIDENT),
            Step(5, "U0VP", "approve", "second_person", reason=INCIDENT),
            Step(6, "U0CFO", "approve", "approved", reason=INCIDENT, says="by <@U0VP> (VP Sales) and <@U0CFO> (CFO)"),
        ),
        audited=(
            {"slot": 1, "decided_by": "U0VP", "incident": "INC-4711"},
            {"slot": 2, "decided_by": "U0CFO", "incident": "INC-4711"},
        ),
        ends=APPROVED,
    ),
    "EC-15 the next stage waits for both of them": Case(
        net="1000",
        discount="25",
        terms=LEGAL,
        policy=DUAL_IN_TURN,
        steps=(
            Step(1, "U0VP", "approve", "approved_in_part", reason=INCIDENT),
            Step(2, "U0LEGAL", "approve", "not_your_turn"),
            Step(3, "U0CFO", "approve", "approved_in_part", reason=INCIDENT),
            Step(4, "U0LEGAL", "approve", "approved"),
        ),
        ends=APPROVED,
    ),
    "EC-15 each rung of a full ladder takes another person": Case(
        discount="18",
        policy=LADDERED,
        roles=("sales_manager", "deal_desk"),
        steps=(
            Step(1, "U0DEALDESK", "approve", "approved_in_part", says="Deal Desk: approved"),
            Step(2, "U0DEALDESK", "approve", "second_person"),
            Step(3, "U0MANAGER", "approve", "approved"),
        ),
        ends=APPROVED,
    ),
    "EC-16 legal is needed and nobody holds it: it is never dropped": Case(
        net="600000",
        terms=LEGAL,
        approvers=NO_LEGAL,
        asked=("U0VP",),
        steps=(
            Step(1, "U0CFO", "approve", "approved_in_part", says="It still needs Legal, and no one holds that role now."),
            Step(4 * HOUR, "", "escalate", "escalated", slot=2, says="no one else can decide"),
            Step(5 * HOUR, "U0CFO", "approve", "already_decided"),
            Step(6 * HOUR, "U0LEGAL", "approve", "approved", approvers=dict(RULES.approvers)),
        ),
        audited=({"slot": 2, "state": "escalated", "asked": ["legal"]},),
        ends=APPROVED,
    ),
    "EC-16 without legal nothing goes on": Case(
        net="600000",
        terms=LEGAL,
        approvers=NO_LEGAL,
        steps=(Step(1, "U0CFO", "approve", "approved_in_part"), Step(4 * HOUR, "", "escalate", "escalated", slot=2)),
        ends=PENDING,
    ),
}


class Desk:
    """Player of a case: calls the handlers as the bot's executor does, and records each decision."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rules = replace(RULES, builtin_policy=case.policy, approvers=case.approvers)
        priced = pricing(line("saas", case.net, case.cost), discount=case.discount)
        self.quote: Quote = example_quote(PENDING, requester=case.requester, pricing=priced, valid_until=NEVER)
        policy = evaluate(priced, case.policy, case.terms)
        self.quote = replace(
            self.quote,
            approval=open_request(
                "A-2026-0042-v1-1",
                self.quote,
                policy,
                case.approvers,
                asked_by=case.requester,
                at=MORNING,
                timing=case.policy.timing,
            ),
        )
        self.seen = [self.quote]
        self.decisions: list[Decision] = []

    def asked(self) -> tuple[str, ...]:
        approval = self.quote.approval
        assert approval is not None
        return self.rules.who_may_decide(approval, self.quote.makers, self.away(MORNING))

    def away(self, at: int) -> tuple[Delegation, ...]:
        return tuple(each for each in self.case.away if each.since <= at < each.until)

    def play(self, step: Step) -> None:
        if step.approvers is not None:
            self.rules = replace(self.rules, approvers=step.approvers)
        if step.deed == "revise":
            self.revise(step)
            return
        decision = self.decide(step, MORNING + step.minutes * 60_000)
        assert (decision.response["code"], step.says in plain_times(decision.response["text"])) == (step.code, True), (
            decision.response
        )
        self.decisions.append(decision)
        if decision.quote is not None:
            assert decision.quote.state is self.quote.state or decision.quote.state in allowed(self.quote.state)
            self.quote = decision.quote
            self.seen.append(self.quote)

    def decide(self, step: Step, at: int) -> Decision:
        asked = Asked("ab" * 32, "c-abababab", step.actor, "T0HOME", at, 1)
        away, approval = self.away(at), self.quote.approval
        asked = replace(asked, **step.changes)
        if step.deed == "submit":
            asked = replace(asked, seen_version=None)
            requests = 0 if approval is None else 1
            decided = [seen for seen in self.seen if seen.approval and seen.approval.decided_role]
            last = decided[-1] if decided else None
            earlier = (
                None if last is None or last.approval is None else EarlierApproval(last.approval, last.pricing, last.valid_until)
            )
            return submit(asked, self.quote, ROOT, requests, self.rules, earlier=earlier, delegations=away)
        approval_id = "A-2026-0042-v1-1" if approval is None else approval.approval_id
        if step.deed in SCHEDULED:
            command = SCHEDULED[step.deed](approval_id, step.slot)
            asked = replace(asked, actor_type="user" if step.actor else "system")
            return follow_up(asked, command, self.quote, ROOT, self.rules, delegations=away)
        answer = DecideApproval(approval_id, "approve" if step.deed == "approve" else "reject", step.reason)
        return decide(asked, answer, self.quote, ROOT, self.rules, delegations=away)

    def revise(self, step: Step) -> None:
        """Change the quote, as a revision does; an open request is superseded."""
        approval = self.quote.approval
        assert approval is not None
        if approval.state.value == "pending":
            assert invalidated(approval, MORNING).state.value == "invalidated"
        case = self.case
        priced = pricing(line("saas", step.changes.get("net", case.net), case.cost), discount=case.discount)
        self.quote = replace(self.quote, version=2, state=QuoteState.PRICED, pricing=priced, approval=None)

    def audited(self) -> list[dict[str, Any]]:
        """Return the events' data about the quote and each slot."""
        said = [dict(event.after) for decision in self.decisions for event in decision.events if event.after is not None]
        return said + [slot for after in said for slot in after.get("slots", ())]


@pytest.mark.parametrize("name", CASES)
def test_each_edge_case_ends_as_it_should(name: str) -> None:
    case = CASES[name]
    desk = Desk(case)
    approval = desk.quote.approval
    assert approval is not None
    assert case.roles in (None, approval.required_roles)
    assert case.asked in (None, desk.asked())
    for step in case.steps:
        desk.play(step)
    assert desk.quote.state is case.ends
    for wanted in case.audited:
        assert any(wanted.items() <= said.items() for said in desk.audited()), (wanted, desk.audited())


@pytest.mark.parametrize("name", CASES)
def test_what_only_approval_allows_is_never_possible_without_every_slot(name: str) -> None:
    desk = Desk(CASES[name])
    for step in CASES[name].steps:
        desk.play(step)
        approval = desk.quote.approval
        complete = approval is not None and all(slot.state.value == "approved" for slot in approval.slots)
        assert (QuoteState.FINALIZED in allowed(desk.quote.state)) <= complete


@pytest.mark.parametrize("name", CASES)
def test_no_step_of_the_scheduler_and_no_refusal_moves_a_quote_towards_approval(name: str) -> None:
    desk = Desk(CASES[name])
    for step in CASES[name].steps:
        before = desk.quote.state
        desk.play(step)
        if step.deed in SCHEDULED or (desk.decisions and step.deed != "revise" and desk.decisions[-1].kind == "refused"):
            assert desk.quote.state is before


def test_every_edge_case_of_the_list_has_a_row() -> None:
    assert {name.split()[0] for name in CASES} == {f"EC-{number:02d}" for number in range(1, 17)}
