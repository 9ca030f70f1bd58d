from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotebot.domain.approvals.policy import evaluate
from quotebot.domain.approvals.requests import open_request
from quotebot.domain.approvals.reuse import EarlierApproval, got_worse, reused
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price
from quotebot.domain.quotes.quote import Approval, ApprovalState, SlotState
from tests.quotebot.domain.test_policy import POLICY, line, pricing
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_pricing, example_quote

if TYPE_CHECKING:
    from quotebot.domain.approvals.people import Holders
    from quotebot.domain.approvals.policy import ApprovalPolicy

BEFORE = pricing(line("saas", "120000", "30000"), line("services", "5000", "2500"), discount="18")
LEGAL = frozenset({"exclusivity"})
TODAY = RULES.approvers
VALID_UNTIL = MORNING + 30 * 86_400_000


def earlier(
    price: Pricing = BEFORE, terms: frozenset[str] = frozenset(), policy: ApprovalPolicy = POLICY, by: str = "U0DEALDESK"
) -> Approval:
    """Return an approval of `price` given by people."""
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
    policy: ApprovalPolicy = POLICY,
    before: Pricing = BEFORE,
    rules: Holders = TODAY,
    gone: frozenset[str] = frozenset(),
    at: int = MORNING + 9,
) -> Approval | None:
    quote = example_quote(version=2, pricing=after)
    decision = evaluate(after, policy, terms)
    then = EarlierApproval(approval or earlier(), before, VALID_UNTIL)
    return reused("A-2026-0042-v2-1", quote, decision, then, rules, asked_by=asked_by, at=at, gone=gone)


CHANGES: dict[str, tuple[Pricing, tuple[str, ...]]] = {
    "nothing": (BEFORE, ()),
    "a cent less": (pricing(line("saas", "119999.99", "29999.99"), line("services", "5000", "2500"), discount="18"), ()),
    "a smaller discount": (replace(BEFORE, discount_percent=BEFORE.discount_percent - 1), ()),
    "a better margin": (pricing(line("saas", "120000", "29999.99"), line("services", "5000", "2500"), discount="18"), ()),
    "a family less": (pricing(line("saas", "120000", "30000"), discount="18"), ("X removed",)),
    "just as much as must be kept": (
        pricing(line("saas", "114000", "28500"), line("services", "4750", "2375"), discount="18"),
        (),
    ),
    "a cent less of one line than must be kept": (
        pricing(line("saas", "120000", "30000"), line("services", "4749.99", "2374.99"), discount="18"),
        ("value of X",),
    ),
    "a cent less in all than must be kept": (
        pricing(line("saas", "114000", "28500"), line("services", "4749.99", "2374.99"), discount="18"),
        ("committed value", "value of X"),
    ),
    "a month less": (replace(BEFORE, term_months=BEFORE.term_months - 1), ("term",)),
    "a month more": (replace(BEFORE, term_months=BEFORE.term_months + 1), ()),
    "another tier": (
        replace(BEFORE, lines=(replace(BEFORE.lines[0], tier="100+"), *BEFORE.lines[1:])),
        ("price tier of X",),
    ),
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
        pricing(line("saas", "119000", "10000"), line("services", "5000", "2500.01"), discount="18"),
        ("margin of services",),
    ),
    "a family given away": (
        pricing(line("saas", "120000", "30000"), line("services", "0", "0"), discount="18"),
        ("value of X", "margin of services"),
    ),
    "a new family": (
        pricing(line("saas", "119000", "29750"), line("services", "5000", "2500"), line("training", "1", "0"), discount="18"),
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
    deeper = tuple(replace(each, requested_percent=Decimal("0.01")) for each in BEFORE.lines)
    assert got_worse(BEFORE, replace(BEFORE, lines=deeper)) == ("discount", "discount of X", "discount of X")
    one, other = BEFORE.lines
    before = replace(BEFORE, lines=(replace(one, requested_percent=Decimal(3)), other))
    assert got_worse(before, replace(BEFORE, lines=(one, replace(other, requested_percent=Decimal(3))))) == ("discount of X",)


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


def test_reused_approval_cannot_be_reused_again() -> None:
    first = again(BEFORE)
    assert first is not None
    assert again(BEFORE, first) is None


def test_an_approval_is_reused_until_the_approved_offer_ends() -> None:
    assert again(BEFORE, at=VALID_UNTIL - 1) is not None
    assert again(BEFORE, at=VALID_UNTIL) is None


def test_an_approval_ends_when_its_decider_loses_the_role() -> None:
    def holders(**changes: tuple[str, ...]) -> Holders:
        return {**RULES.approvers, **changes}

    assert again(BEFORE, rules=holders(deal_desk=())) is None
    assert again(BEFORE, rules=holders(deal_desk=("U0OTHER",))) is None
    assert again(BEFORE, rules=holders(deal_desk=(), cfo=("U0DEALDESK",))) is not None  # a higher role suffices
    assert again(BEFORE, rules=holders(deal_desk=(), sales_manager=("U0DEALDESK",))) is None


def test_a_stand_ins_approval_ends_when_either_person_loses_the_role() -> None:
    given = earlier()
    for_absent = replace(given, slots=tuple(replace(slot, on_behalf_of="U0AWAY") for slot in given.slots))
    both = {**RULES.approvers, "deal_desk": ("U0DEALDESK", "U0AWAY")}
    assert again(BEFORE, for_absent, rules=both) is not None
    assert again(BEFORE, for_absent, rules=TODAY) is None
    assert again(BEFORE, for_absent, rules={**both, "deal_desk": ("U0AWAY",)}) is None


def test_an_approval_ends_when_its_decider_is_no_member_any_more() -> None:
    assert again(BEFORE, gone=frozenset({"U0OTHER"})) is not None
    assert again(BEFORE, gone=frozenset({"U0DEALDESK"})) is None


def test_150_seats_to_149_asks_nobody_and_fewer_seats_or_months_do() -> None:
    def seats(quantity: int, months: int = 36) -> Pricing:
        priced = price(PriceRequest((LineRequest("pro", quantity),), months, Decimal(15)), RULESET)
        assert isinstance(priced, Pricing)
        return priced

    before = seats(150)
    assert got_worse(before, seats(149)) == ()
    assert got_worse(before, seats(143)) == ()
    assert got_worse(before, seats(142)) == ("committed value", "value of Pro")
    assert set(got_worse(seats(102), seats(99))) >= {"price tier of Pro"}
    assert set(got_worse(seats(1000), seats(10, months=1))) >= {"committed value", "value of Pro", "term", "price tier of Pro"}


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(100, 160), st.integers(1, 2), st.integers(30, 40), st.integers(1200, 1600)), max_size=12)
)
def test_no_chain_of_revisions_escapes_the_person_approved_version(steps: list[tuple[int, int, int, int]]) -> None:
    """Each revision may reuse the last approval; all reused ones stay within the tolerance of the first."""
    before = example_pricing()
    last = earlier(before, by="U0MANAGER")
    for seats, support, months, hundredths in steps:
        lines = (LineRequest("pro", seats), LineRequest("sso", seats), LineRequest("support", support))
        after = price(PriceRequest(lines, months - 24, Decimal(hundredths) / 100), RULESET)
        assert isinstance(after, Pricing)
        found = again(after, last, before=before) or again(after, earlier(before, by="U0MANAGER"), before=before)
        if found is None:
            continue
        assert found.earlier == "A-2026-0042-v1-1"
        assert before.net_total * Decimal("0.95") <= after.net_total <= before.net_total
        assert after.term_months >= before.term_months
        assert after.discount_percent <= before.discount_percent
        for old, new in zip(before.lines, after.lines, strict=True):
            assert new.net_amount >= old.net_amount * Decimal("0.95")
            assert new.tier == old.tier
        last = found


def test_a_role_that_did_not_decide_then_is_asked_now() -> None:
    assert again(BEFORE, terms=LEGAL) is None
    with_legal = earlier(terms=LEGAL)
    found = again(BEFORE, with_legal, terms=LEGAL)
    assert found is not None
    assert [slot.role for slot in found.slots] == ["deal_desk", "legal"]
    assert found.decided_role == "deal_desk + legal"


def test_stricter_policy_needs_a_new_decision_by_its_own_role() -> None:
    strict = replace(POLICY, total_over=tuple(replace(row, role="cfo") for row in POLICY.total_over))
    assert again(BEFORE, policy=strict) is None
    assert again(BEFORE, earlier(policy=strict), policy=strict) is not None


def test_approver_who_asks_again_cannot_reuse_their_own_decision() -> None:
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


def test_one_earlier_decision_does_not_satisfy_two_required_now() -> None:
    laddered = replace(POLICY, full_ladder=True)
    assert again(BEFORE, policy=laddered) is None  # deal_desk decided, and would suffice for sales_manager too
    assert again(BEFORE, earlier(policy=laddered), policy=laddered) is not None
