"""Tests of an installation's own roles: a ladder, the groups beside it, and their names, as data of the approval policy."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import keys
from quotebot.app.installation import speak
from quotebot.domain.approvals.advice import Advice, Avoidance, EasierChange, canonical_advice, parse_advice
from quotebot.domain.approvals.decisions import DecisionRefusal, Mandate, may_decide, slot_words
from quotebot.domain.approvals.people import Person, asked_people, covers, higher_with_holders
from quotebot.domain.approvals.policy import Need, PolicyDecision, Timing, evaluate
from quotebot.domain.approvals.policy_document import PolicyError, lint_policy, policy_document, read_policy
from quotebot.domain.approvals.policy_sheet import read_policy_sheet, write_policy_sheet
from quotebot.domain.approvals.requests import open_request
from quotebot.domain.approvals.reuse import EarlierApproval, reused
from quotebot.domain.approvals.roles import PACKAGED, ROLE_ID, Roles
from quotebot.domain.approvals.special_terms import unknown_terms
from quotebot.domain.catalogue.rulesets import ruleset_changes, with_policy
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price
from quotebot.domain.quotes.quote import Approval, ApprovalState, PolicyStamp, QuoteState, Slot, SlotState, plain_times
from quotebot.views.messages import approver_words
from tests.quotebot.parts import POLICY, RULES
from tests.quotebot.views.quote_examples import MORNING, RULESET, example_quote

LADDER = ("team_lead", "sales_manager", "deal_desk", "vp_sales", "cfo")
ROLES: dict[str, Any] = {
    "ladder": list(LADDER),
    "beside": ["legal", "security"],
    "names": {"team_lead": "Team Lead", "cfo": "Finance Director"},
}
DOCUMENT: dict[str, Any] = {
    **policy_document(POLICY),
    "discount": {
        "blocked_over": "40",
        "over": [
            {"percent": "5", "role": "team_lead"},
            {"percent": "10", "roles": ["deal_desk", "security"], "roles_needed": "all"},
            {"percent": "20", "roles": ["security", "legal"], "roles_needed": "any"},
            {"percent": "30", "role": "cfo"},
        ],
    },
    "terms": {"legal": ["liability_cap"], "other": ["net_60"], "groups": {"source_escrow": "security"}},
    "roles": ROLES,
}
OWN = read_policy(DOCUMENT)


def priced(discount: str = "0", terms: tuple[str, ...] = (), segment: str | None = None) -> Pricing:
    found = price(PriceRequest((LineRequest("pro", 10),), 12, Decimal(discount), terms=terms), RULESET)
    assert isinstance(found, Pricing)
    if segment is not None:
        assert found.request is not None
        return replace(found, request=replace(found.request, segment=segment))
    return found


def required(**asked: Any) -> tuple[str, ...]:
    return evaluate(priced(**asked), OWN).required_roles


@pytest.mark.parametrize(
    ("asked", "roles"),
    [
        ({"discount": "5"}, ()),
        ({"discount": "6"}, ("team_lead",)),
        ({"discount": "11"}, ("deal_desk", "security")),
        ({"discount": "21"}, ("security or legal",)),
        ({"discount": "31"}, ("cfo",)),
        ({"terms": ("liability_cap",)}, ("legal",)),
        ({"terms": ("source_escrow",)}, ("security",)),
        ({"terms": ("source_escrow", "liability_cap", "net_60")}, ("legal", "security")),
        ({"segment": "partner"}, ("deal_desk",)),
    ],
)
def test_rules_ask_the_roles_of_an_own_ladder_and_of_the_groups_beside_it(asked: dict[str, Any], roles: tuple[str, ...]) -> None:
    assert required(**asked) == roles


def test_full_ladder_asks_every_rung_of_an_own_ladder() -> None:
    whole = replace(OWN, full_ladder=True, order="sequential")
    assert [need.role for need in evaluate(priced("31"), whole).needs] == list(LADDER)


def test_reasons_and_roles_are_told_by_the_names_of_the_policy() -> None:
    decision = evaluate(priced("31", ("source_escrow",)), OWN)
    assert decision.hits[-1] == "source escrow needs Security"
    assert approver_words(decision.required_roles, decision.roles) == "Finance Director and Security"
    assert OWN.roles.words("security or team_lead") == "Security or Team Lead"
    assert Roles(("regional_head", "cfo")).words("regional_head + cfo") == "Regional Head + CFO"
    assert unknown_terms(("source_escrow", "liability_cap", "net_60"), OWN.known_terms) == ()


@pytest.mark.parametrize(
    ("ladder", "beside", "desk", "for_terms"),
    [
        (LADDER, ("legal",), "deal_desk", "legal"),
        (("rep_lead", "director", "ceo"), ("compliance", "security"), "director", "compliance"),
        (("ceo",), (), "ceo", "ceo"),
    ],
)
def test_an_own_ladder_has_a_desk_and_a_role_for_special_terms(
    ladder: tuple[str, ...], beside: tuple[str, ...], desk: str, for_terms: str
) -> None:
    roles = Roles(ladder, beside)
    assert (roles.reporting, roles.for_terms, roles.top) == (desk, for_terms, ladder[-1])
    rules = replace(RULES, builtin_policy=replace(POLICY, roles=roles), approvers={role: (f"U-{role}",) for role in roles.every})
    assert rules.report_readers == {f"U-{role}" for role in ladder[ladder.index(desk) :]}


def request(*needs: Need, roles: Roles = OWN.roles, holders: dict[str, tuple[str, ...]] | None = None) -> Approval:
    decision = PolicyDecision(tuple(need.role for need in needs), (), blocked=False, needs=needs, roles=roles)
    quote = example_quote(QuoteState.PRICED)
    found = open_request("A-1", quote, decision, holders or {}, asked_by="U0REP", at=MORNING, timing=Timing())
    return replace(found, quote_version=quote.version, policy=PolicyStamp("own 1", RULESET.hash, Timing(), roles))


def decide(approval: Approval, *held: str) -> str:
    quote = replace(example_quote(QuoteState.PENDING_APPROVAL), approval=approval)
    verdict = may_decide(approval, quote, Person("U0BOSS", quote.team_id, frozenset(held)))
    return verdict.role if isinstance(verdict, Mandate) else verdict.code


@pytest.mark.parametrize(
    ("needed", "held", "under"),
    [
        (("team_lead",), ("team_lead",), "team_lead"),
        (("team_lead",), ("sales_manager",), "sales_manager"),
        (("sales_manager",), ("team_lead",), "missing_role"),
        (("deal_desk",), ("team_lead", "cfo"), "cfo"),
        (("security",), ("cfo",), "missing_role"),
        (("security",), ("security",), "security"),
        (("security", "legal"), ("legal",), "legal"),
    ],
)
def test_who_may_decide_follows_the_ladder_of_the_request(needed: tuple[str, ...], held: tuple[str, ...], under: str) -> None:
    assert decide(request(Need(needed)), *held) == under


def test_one_person_decides_a_rung_and_both_groups_at_once() -> None:
    approval = request(Need(("team_lead",)), Need(("legal",)), Need(("security",)))
    assert decide(approval, "cfo", "security", "legal") == "cfo + legal + security"


def test_people_asked_and_escalation_follow_the_ladder_of_the_request() -> None:
    holders = {"sales_manager": ("U0MANAGER",), "vp_sales": ("U0VP",), "security": ("U0SEC",)}
    (slot,) = request(Need(("team_lead",))).slots
    assert asked_people(slot, holders, (), (), OWN.roles) == ("U0MANAGER",)
    assert asked_people(slot, holders, (), (), PACKAGED) == ()
    assert higher_with_holders(("team_lead", "sales_manager"), holders, (), OWN.roles) == "vp_sales"
    assert higher_with_holders(("security",), holders, (), OWN.roles) is None
    assert covers(frozenset({"sales_manager"}), ("team_lead",), OWN.roles)
    assert not covers(frozenset({"team_lead"}), ("sales_manager",), OWN.roles)
    assert slot_words(slot, OWN.roles) == "Team Lead: pending"


def test_a_role_that_the_policy_does_not_know_is_covered_by_its_own_holders_alone() -> None:
    held = (frozenset[str](), frozenset({"cfo"}), frozenset({"team_lead"}), frozenset({"team_lead", "cfo"}))
    assert [covers(each, {"team_lead"}, PACKAGED) for each in held] == [False, False, True, True]
    assert [covers(each, {"team_lead", "vp_sales"}, PACKAGED) for each in held] == [False, False, False, True]


def test_a_request_is_told_by_the_names_it_was_made_under() -> None:
    quote = example_quote(QuoteState.PENDING_APPROVAL)
    approval = request(Need(("team_lead",)), roles=OWN.roles)
    verdict = may_decide(approval, quote, Person("U0X", quote.team_id, frozenset()))
    assert isinstance(verdict, DecisionRefusal)
    assert "Only Team Lead or above can decide" in verdict.sentence


def test_a_document_without_roles_keeps_its_bytes_and_has_the_packaged_ones() -> None:
    plain = policy_document(POLICY)
    assert ("roles" in plain, "groups" in plain["terms"], POLICY.roles) == (False, False, PACKAGED)
    named = {**plain, "roles": {"ladder": list(PACKAGED.ladder), "beside": list(PACKAGED.beside)}}
    assert keys.canonical_json(policy_document(read_policy(named))) == keys.canonical_json(plain)


def test_a_policy_with_roles_round_trips_as_document_and_as_sheet() -> None:
    assert policy_document(OWN) == DOCUMENT
    sheet = write_policy_sheet(DOCUMENT)
    assert "roles,ladder,team_lead | sales_manager" in sheet
    assert "roles.names,cfo,Finance Director" in sheet
    read = read_policy_sheet("p.csv", sheet.encode())
    assert isinstance(read, dict)
    assert read_policy(read) == OWN
    changed = {(change.kind, change.key, change.field) for change in _changes()}
    assert changed == {("added", "roles", ""), ("changed", "terms", "groups")}


def _changes() -> Any:
    before = {**DOCUMENT, "terms": {**DOCUMENT["terms"], "groups": {}}, "discount": policy_document(POLICY)["discount"]}
    del before["roles"]
    after = {**DOCUMENT, "discount": before["discount"]}
    return ruleset_changes(*(with_policy(RULESET, read_policy(document), "2") for document in (before, after)))


ids = st.from_regex(ROLE_ID, fullmatch=True).filter(lambda name: name not in ("or", "and", "nobody", "blocked"))


@settings(max_examples=30)
@given(st.lists(ids, unique=True, min_size=2, max_size=12), st.integers(1, 12), st.data())
def test_canonical_documents_of_roles_round_trip(names: list[str], rungs: int, data: st.DataObject) -> None:
    ladder, beside = names[:rungs], names[rungs:]
    said = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(["Team Lead", "Ü 1", "Finance/Ops"])))
    plain = {**policy_document(POLICY), "discount": {"blocked_over": "40", "over": []}, "total": {"over": []}, "margin": {}}
    roles = {"ladder": ladder, "beside": beside, "names": said}
    lists = {name: data.draw(st.sampled_from([[], [name], [name, f"{name}_2"]])) for name in ("legal", "other")}
    terms = {**lists, "groups": {"escrow": data.draw(st.sampled_from(names))}}
    policy = read_policy({**plain, "terms": terms, "roles": roles})
    again = read_policy(policy_document(policy))
    assert again == policy
    assert keys.canonical_json(policy_document(again)) == keys.canonical_json(policy_document(policy))
    sheet = read_policy_sheet("p.csv", write_policy_sheet(policy_document(policy)).encode())
    assert isinstance(sheet, dict), sheet
    assert read_policy(sheet) == policy


@pytest.mark.parametrize(
    ("roles", "place"),
    [
        ({"ladder": []}, "roles.ladder: must have a role"),
        ({"ladder": ["Team Lead"]}, "roles.ladder: 'Team Lead' is no name of a role"),
        ({"ladder": ["x" * 41]}, "is no name of a role"),
        ({"ladder": ["or"]}, "is no name of a role"),
        ({"ladder": ["nobody"]}, "is no name of a role"),
        ({"ladder": [["cfo"]]}, "is no name of a role"),
        ({"ladder": "cfo"}, "roles.ladder: must be a list"),
        ({"ladder": ["cfo", "cfo"]}, "roles: each role must be named once"),
        ({"ladder": ["legal"]}, "roles: each role must be named once"),
        ({"ladder": [f"r{number}" for number in range(12)]}, "roles: at most 12 roles"),
        ({"names": {"ceo": "CEO"}}, "roles.names: must be a table"),
        ({"names": {"cfo": "<!channel>"}}, "roles.names.cfo: must have"),
        ({"names": {"cfo": " "}}, "roles.names.cfo: must have"),
        ({"top": ["cfo"]}, "roles: may only have"),
        ({"ladder": ["sales_manager", "vp_sales"]}, "role: 'cfo' must be one of sales_manager, vp_sales, legal"),
    ],
)
def test_bad_roles_are_refused_with_their_place(roles: dict[str, Any], place: str) -> None:
    with pytest.raises(PolicyError) as refused:
        read_policy({**policy_document(POLICY), "roles": roles})
    assert place in str(refused.value)


@pytest.mark.parametrize(
    ("terms", "place"),
    [
        ({"groups": {"source_escrow": "finance"}}, "terms.groups.source_escrow: 'finance' must be one of"),
        ({"legal": ["escrow"], "groups": {"escrow": "legal"}}, "terms.groups: escrow is in another list"),
        ({"groups": {"Escrow!": "legal"}}, "terms.groups: must be a list of the names of terms"),
        ({"groups": ["escrow"]}, "terms.groups: must be a table"),
    ],
)
def test_bad_groups_of_terms_are_refused_with_their_place(terms: dict[str, Any], place: str) -> None:
    with pytest.raises(PolicyError) as refused:
        read_policy({**policy_document(POLICY), "terms": terms})
    assert place in str(refused.value)


def test_lint_names_roles_without_holder_or_rule_and_holders_of_unknown_roles() -> None:
    quiet = replace(OWN, roles=replace(OWN.roles, beside=("legal", "security", "tax")))
    holders = {role: (f"U-{role}",) for role in (*LADDER, "legal")} | {"finance": ("U-finance",)}
    found = lint_policy(quiet, {"saas", "services"}, (), holders)
    assert found == (
        "security has no holder, and nobody above it: nobody can approve",
        "no rule names sales_manager",
        "no rule names tax",
        "approvers has people for finance, a role that the policy does not know",
    )
    assert "no rule names sales_manager" not in lint_policy(replace(quiet, full_ladder=True), {"saas"}, (), holders)


@pytest.mark.usefixtures("german")
def test_rules_decisions_and_advice_are_told_in_german() -> None:
    decision = evaluate(priced("31", ("liability_cap", "source_escrow")), OWN)
    assert decision.hits == (
        "Rabatt 31\u00a0% (Grenze 30\u00a0%)",
        "liability cap: Freigabe durch Rechtsabteilung nötig",
        "source escrow: Freigabe durch Security nötig",
    )
    assert approver_words(("vp_sales or legal", "cfo"), PACKAGED) == "Bereichsleitung Vertrieb oder Rechtsabteilung und CFO"
    quote = example_quote(QuoteState.PENDING_APPROVAL)
    approval = request(Need(("deal_desk",)), Need(("legal",)))
    refused = may_decide(approval, quote, Person("U0X", quote.team_id, frozenset()))
    assert isinstance(refused, DecisionRefusal)
    assert refused.sentence == f"Über {quote.quote_id} kann nur entscheiden: Deal Desk oder höher und Rechtsabteilung."
    (slot, _legal) = approval.slots
    decided = replace(slot, state=SlotState.APPROVED, decided_by="U0CFO", decided_role="cfo", decided_at=MORNING)
    assert plain_times(slot_words(decided, PACKAGED)).startswith("Deal Desk: von <@U0CFO> (CFO) freigegeben, ")
    way = Avoidance("discount", Decimal(15), Decimal("7.5"), (), PriceRequest((), 12, Decimal(15)))
    assert way.words == "7,5\u00a0% Rabatt (jetzt 15\u00a0%)"
    assert parse_advice(canonical_advice(Advice(None, (EasierChange(way.words, ()),)))).changes[0].words == way.words


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_reuse_of_an_approval_does_not_depend_on_the_language(language: str) -> None:
    pricing = priced("15")
    then = example_quote(QuoteState.APPROVED, pricing=pricing)
    needed = evaluate(pricing, POLICY)
    (need,) = needed.needs
    slot = Slot(1, need.roles, state=SlotState.APPROVED, decided_by="U0MANAGER", decided_role="sales_manager", decided_at=MORNING)
    earlier = Approval("A-1", then.quote_id, 1, needed.required_roles, needed.hits, ApprovalState.APPROVED, "U0REP", MORNING)
    earlier = replace(earlier, slots=(slot,), decided_by="U0MANAGER")
    speak(language)
    try:
        now = evaluate(pricing, POLICY)
        basis = EarlierApproval(earlier, pricing, MORNING + 1)
        found = reused("A-2", then, now, basis, {"sales_manager": ("U0MANAGER",)}, asked_by="U0REP", at=MORNING)
    finally:
        speak("en")
    assert found is not None
    assert (found.earlier, found.required_roles) == ("A-1", needed.required_roles)
