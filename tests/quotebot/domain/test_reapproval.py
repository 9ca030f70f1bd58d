from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from quotebot.domain.approval_requests import open_request
from quotebot.domain.policy import evaluate
from quotebot.domain.quotes import Approval, ApprovalState
from quotebot.domain.reapproval import got_worse, reused
from quotebot.domain.slots import SlotState
from tests.quotebot.domain.test_policy import POLICY, line, pricing
from tests.quotebot.parts import RULES
from tests.quotebot.slack.quote_examples import MORNING, example_quote

if TYPE_CHECKING:
    from quotebot.domain.policy import Policy
    from quotebot.domain.pricing import Pricing

BEFORE = pricing(line("saas", "120000", "30000"), line("services", "5000", "2500"), discount="18")
LEGAL = frozenset({"exclusivity"})


def earlier(
    price: Pricing = BEFORE, terms: frozenset[str] = frozenset(), policy: Policy = POLICY, by: str = "U0DEALDESK"
) -> Approval:
    """Return the approval of `price` that people gave."""
    quote = example_quote(pricing=price)
    asked = open_request(
        "A-2026-0042-v1-1",
        quote,
        evaluate(price, policy, terms),
        RULES.approvers,
        asked_by="U0REP",
        at=MORNING,
        timing=policy.timing,
    )
    given = {"legal": "U0LEGAL", "cfo": "U0CFO"}
    slots = tuple(
        replace(
            slot, state=SlotState.APPROVED, decided_by=given.get(slot.role, by), decided_role=slot.roles[0], decided_at=MORNING + 1
        )
        for slot in asked.slots
    )
    return replace(asked, state=ApprovalState.APPROVED, decided_by=by, decided_role="x", decided_at=MORNING + 1, slots=slots)


def again(
    after: Pricing,
    approval: Approval | None = None,
    *,
    terms: frozenset[str] = frozenset(),
    asked_by: str = "U0REP",
    policy: Policy = POLICY,
) -> Approval | None:
    quote = example_quote(version=2, pricing=after)
    decision = evaluate(after, policy, terms)
    return reused("A-2026-0042-v2-1", quote, decision, approval or earlier(), BEFORE, asked_by=asked_by, at=MORNING + 9)


CHANGES: dict[str, tuple[Pricing, tuple[str, ...]]] = {
    "nothing": (BEFORE, ()),
    "a cent less": (pricing(line("saas", "119999.99", "29999.99"), line("services", "5000", "2500"), discount="18"), ()),
    "a smaller discount": (replace(BEFORE, discount_percent=BEFORE.discount_percent - 1), ()),
    "a better margin": (pricing(line("saas", "120000", "29999.99"), line("services", "5000", "2500"), discount="18"), ()),
    "a family less": (pricing(line("saas", "120000", "30000"), discount="18"), ()),
    "a cent more": (pricing(line("saas", "120000.01", "30000"), line("services", "5000", "2500"), discount="18"), ("total",)),
    "a hundredth more discount": (
        pricing(line("saas", "120000", "30000"), line("services", "5000", "2500"), discount="18.01"),
        ("discount",),
    ),
    "a cent more cost": (
        pricing(line("saas", "120000", "30000.01"), line("services", "5000", "2500"), discount="18"),
        ("margin of saas",),
    ),
    "the other family's margin": (
        pricing(line("saas", "110000", "10000"), line("services", "5000", "2500.01"), discount="18"),
        ("margin of services",),
    ),
    "a family given away": (
        pricing(line("saas", "120000", "30000"), line("services", "0", "0"), discount="18"),
        ("margin of services",),
    ),
    "a new family": (
        pricing(line("saas", "100000", "25000"), line("services", "5000", "2500"), line("training", "1", "0"), discount="18"),
        ("new family training",),
    ),
    "another currency": (replace(BEFORE, currency="EUR"), ("currency",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_approval_holds_unless_a_dimension_of_it_got_worse(change: str) -> None:
    after, worse = CHANGES[change]
    assert got_worse(BEFORE, after) == worse
    found = again(after)
    assert (found is not None) == (worse == ())


def test_a_deeper_discount_on_one_line_is_worse() -> None:
    given = tuple(replace(each, requested_percent=Decimal("0.01")) for each in BEFORE.lines)
    assert got_worse(BEFORE, replace(BEFORE, lines=given)) == ("discount",)


def test_the_reused_approval_names_the_earlier_one_and_who_decided_it() -> None:
    found = again(BEFORE)
    assert found is not None
    assert (found.state, found.earlier, found.decided_by, found.decided_at) == (
        ApprovalState.APPROVED,
        "A-2026-0042-v1-1",
        None,
        MORNING + 9,
    )
    (slot,) = found.slots
    assert (slot.decided_by, slot.decided_role, slot.decided_at) == ("U0DEALDESK", "deal_desk", MORNING + 1)


def test_what_rests_on_an_earlier_decision_may_be_rested_on_again() -> None:
    first = again(BEFORE)
    assert first is not None
    assert again(BEFORE, first) is not None


def test_a_role_that_did_not_decide_then_is_asked_now() -> None:
    assert again(BEFORE, terms=LEGAL) is None
    with_legal = earlier(terms=LEGAL)
    found = again(BEFORE, with_legal, terms=LEGAL)
    assert found is not None
    assert [slot.role for slot in found.slots] == ["deal_desk", "legal"]
    assert found.decided_role == "deal_desk + legal"


def test_a_stricter_policy_asks_whoever_it_now_wants() -> None:
    strict = replace(POLICY, total_over=tuple(replace(row, role="cfo") for row in POLICY.total_over))
    assert again(BEFORE, policy=strict) is None
    assert again(BEFORE, earlier(policy=strict), policy=strict) is not None


def test_nobody_rests_on_their_own_earlier_decision() -> None:
    assert again(BEFORE, asked_by="U0DEALDESK") is None


@pytest.mark.parametrize("state", sorted(set(ApprovalState) - {ApprovalState.APPROVED}))
def test_only_an_approval_holds(state: ApprovalState) -> None:
    assert again(BEFORE, replace(earlier(), state=state)) is None


def test_an_automatic_approval_is_no_decision_to_rest_on() -> None:
    assert again(BEFORE, replace(earlier(), slots=())) is None


def test_a_need_for_two_people_is_only_met_by_two() -> None:
    dual = replace(POLICY, total_over=tuple(replace(row, dual_control=True) for row in POLICY.total_over))
    assert again(BEFORE, policy=dual) is None
    two = earlier(policy=dual)
    second = replace(two.slots[1], decided_by="U0VP", decided_role="vp_sales")
    found = again(BEFORE, replace(two, slots=(two.slots[0], second)), policy=dual)
    assert found is not None
    assert [slot.decided_by for slot in found.slots] == ["U0DEALDESK", "U0VP"]


def test_one_decision_of_then_does_not_stand_for_two_of_now() -> None:
    laddered = replace(POLICY, full_ladder=True)
    assert again(BEFORE, policy=laddered) is None  # deal_desk decided, and would suffice for sales_manager too
    assert again(BEFORE, earlier(policy=laddered), policy=laddered) is not None
