from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from itertools import product

import pytest

from quotebot.domain.approvals.decisions import DecisionRefusal, Mandate, may_decide
from quotebot.domain.approvals.people import Person
from quotebot.domain.approvals.roles import LADDER, PACKAGED
from quotebot.domain.catalogue.rulesets import parse_ruleset_toml
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price
from quotebot.domain.quotes.quote import (
    Approval,
    ApprovalState,
    Quote,
    QuoteState,
    Slot,
    approval_id_for,
    local_day,
    local_time,
    parse_quote_id,
    plain_times,
    quote_id_for,
    title,
    utc_text,
)

NOON = 1_795_170_660_000  # 20 Nov 2026, 10:31 UTC
PRICING = price(
    PriceRequest((LineRequest("pro", 10),), 12, Decimal(15)),
    parse_ruleset_toml(files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8")),
)
assert isinstance(PRICING, Pricing)
APPROVAL = Approval(
    approval_id="A-2026-0042-v1-1",
    quote_id="Q-2026-0042",
    quote_version=1,
    required_roles=("deal_desk",),
    reasons=("discount 15% (limit 10%)",),
    state=ApprovalState.PENDING,
    requested_by="U0REP",
    requested_at=NOON,
)


def needing(*required: str) -> Approval:
    slots = tuple(Slot(number, (role,), asked=(role,), opened_at=NOON) for number, role in enumerate(required, start=1))
    return replace(APPROVAL, required_roles=required, slots=slots)


APPROVAL = needing("deal_desk")
QUOTE = Quote(
    quote_id="Q-2026-0042",
    version=1,
    state=QuoteState.PENDING_APPROVAL,
    account="Acme",
    requester="U0REP",
    team_id="T0HOME",
    channel="C0SALES",
    created_at=NOON,
    valid_until=NOON + 30 * 86_400_000,
    pricing=PRICING,
    approval=APPROVAL,
)


def decide(
    *roles: str,
    approval: Approval = APPROVAL,
    quote: Quote = QUOTE,
    actor: str = "U0BOSS",
    team: str = "T0HOME",
    at: int | None = None,
) -> DecisionRefusal | Mandate:
    return may_decide(approval, quote, Person(actor, team, frozenset(roles)), received_at=at)


def role(answer: DecisionRefusal | Mandate) -> str:
    assert isinstance(answer, Mandate)
    return answer.role


def code(answer: DecisionRefusal | Mandate) -> str:
    assert isinstance(answer, DecisionRefusal)
    assert answer.sentence.endswith(".")
    return answer.code


@pytest.mark.parametrize(("required", "held"), list(product((*LADDER, "legal"), (*LADDER, "legal"))))
def test_the_required_role_or_a_higher_one_decides_and_legal_stands_alone(required: str, held: str) -> None:
    answer = decide(held, approval=needing(required))
    both_commercial = required in LADDER and held in LADDER
    if held == required or (both_commercial and LADDER.index(held) > LADDER.index(required)):
        assert role(answer) == held
    else:
        assert code(answer) == "missing_role"


def test_the_lowest_sufficient_role_of_several_is_recorded() -> None:
    assert role(decide("cfo", "sales_manager", "vp_sales")) == "vp_sales"


def test_one_decision_covers_legal_and_sales_only_of_somebody_who_holds_both() -> None:  # EC-16: legal is never dropped
    both = needing("vp_sales", "legal")
    assert role(decide("cfo", approval=both)) == "cfo"
    assert role(decide("legal", approval=both)) == "legal"
    assert role(decide("cfo", "legal", approval=both)) == "cfo + legal"


@pytest.mark.parametrize("approval", [APPROVAL, replace(APPROVAL, requested_by="U0OTHER")])
def test_the_requester_never_approves_whatever_roles_they_hold(approval: Approval) -> None:  # EC-06
    assert code(decide("cfo", "legal", actor="U0REP", approval=approval)) == "own_request"


def test_someone_without_any_role_is_refused() -> None:  # EC-07, EC-13
    answer = decide()
    assert code(answer) == "missing_role"
    assert isinstance(answer, DecisionRefusal)
    assert "Deal Desk or above" in answer.sentence


@pytest.mark.parametrize("team", ["T0OTHER", ""])
def test_a_member_of_another_workspace_is_refused(team: str) -> None:  # EC-13
    assert code(decide("cfo", team=team)) == "foreign_team"


def test_the_second_decision_is_told_who_decided_and_when() -> None:  # EC-04
    done = replace(APPROVAL, state=ApprovalState.APPROVED, decided_by="U0FIRST", decided_role="cfo", decided_at=NOON)
    answer = decide("cfo", approval=done, quote=replace(QUOTE, state=QuoteState.APPROVED, approval=done))
    assert isinstance(answer, DecisionRefusal)
    assert (answer.code, plain_times(answer.sentence)) == (
        "already_decided",
        "Q-2026-0042 was already approved by <@U0FIRST> (CFO), 20 Nov 2026, 10:31 UTC. Your click changed nothing.",
    )


def test_a_request_for_an_older_version_or_another_quote_is_stale() -> None:  # EC-05
    assert code(decide("cfo", quote=replace(QUOTE, version=2))) == "stale"
    assert code(decide("cfo", approval=replace(APPROVAL, quote_id="Q-2026-0043"))) == "stale"


@pytest.mark.parametrize("state", sorted(set(QuoteState) - {QuoteState.PENDING_APPROVAL}))
def test_a_pending_request_of_a_quote_that_awaits_none_is_refused(state: QuoteState) -> None:
    assert code(decide("cfo", quote=replace(QUOTE, state=state))) == "not_pending"


def test_a_decision_that_arrives_when_the_quote_has_expired_is_refused() -> None:
    assert role(decide("cfo", at=QUOTE.valid_until - 1)) == "cfo"
    assert code(decide("cfo", at=QUOTE.valid_until)) == "expired"


def test_a_request_that_names_no_or_an_unknown_role_is_decided_by_nobody() -> None:
    assert code(decide("cfo", "legal", approval=needing())) == "missing_role"
    assert code(decide("cfo", "ceo", approval=needing("ceo"))) == "missing_role"
    assert PACKAGED.sufficient("ceo") == ()


def test_numbers_and_times_read_the_same_everywhere() -> None:
    assert quote_id_for(2026, 42) == "Q-2026-0042"
    assert quote_id_for(2026, 12345) == "Q-2026-12345"
    assert approval_id_for("Q-2026-0042", 1, 1) == "A-2026-0042-v1-1"
    assert approval_id_for("Q-2026-0042", 1, 1, generation=2) == "A-2026-0042-v1-g2-1"
    assert title(QUOTE) == "Q-2026-0042"
    assert title(replace(QUOTE, version=3)) == "Q-2026-0042 v3"
    assert utc_text(0) == "1 Jan 1970, 00:00 UTC"


@pytest.mark.parametrize(
    ("text", "quote_id"),
    [(" q-2026-0042 ", "Q-2026-0042"), ("Q-2026-42", None), ("Q-2026-0042x", None), ("Q-२०२६-0042", None), ("", None)],
)
def test_a_quote_number_is_read_whatever_its_case_and_nothing_else_is(text: str, quote_id: str | None) -> None:
    assert parse_quote_id(text) == quote_id


def test_roles_read_as_people_say_them() -> None:
    assert [PACKAGED.words(role) for role in PACKAGED.every] == ["Sales Manager", "Deal Desk", "VP Sales", "CFO", "Legal"]
    assert PACKAGED.words("deal_desk or legal") == "Deal Desk or Legal"


def test_a_time_is_a_token_of_slack_with_a_plain_fallback() -> None:
    said = f"expires {local_time(NOON)}, asked {local_day(NOON)}"
    assert said.count("<!date^1795170660^{date_short_pretty}") == 2
    assert plain_times(said) == "expires 20 Nov 2026, 10:31 UTC, asked 20 Nov 2026"
